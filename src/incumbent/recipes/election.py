"""An election seen from outside, and standing in it again and again.

    async for term in zk.election("/app/leader").terms("web-1"):
        async with term as leadership:
            ...                        # cancelled when deposed; then the next term

Whoever observes has the candidates in memory (`cache`), kept by one watch: so the views are of
moments of the election, each later than the one before, and none shows an older leader again.

Rule of this file: an observer writes nothing, and its view is always one that the server had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from incumbent.errors import Abdicated, Deposed, NoNode
from incumbent.recipes.cache import Cache
from incumbent.recipes.dialects import detect
from incumbent.recipes.hold import Hold
from incumbent.recipes.lead import lead
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place, join
from incumbent.recipes.queue import Queue
from incumbent.wire import Stat

__all__ = ["Candidate", "Election", "Standings", "Terms", "View"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One who stands: its znode's name, what it put there, its session, its czxid."""

    name: str
    member: bytes
    session_id: int
    czxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An election at one moment. `leader` is the first in the queue (None: nobody stands);
    whether it leads already, only it knows: it may still be starting, or proving its lease.
    """

    path: str
    leader: Candidate | None
    waiting: tuple[str, ...]


class Election:
    """The election at a queue's path."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._terms: dict[Hold, None] = {}  # had through this object

    @property
    def path(self) -> str:
        return self._queue.path

    async def view(self) -> View:
        """Who leads and who waits, now. Raises `MixedDialects`."""
        client, path = self._queue.client, self.path
        while True:
            try:
                names = self._rank(await client.children(path))
            except NoNode:
                return View(path=path, leader=None, waiting=())
            if not names:
                return View(path=path, leader=None, waiting=())
            try:
                member, stat = await client.get(join(path, names[0]))
            except NoNode:
                continue
            return _view(path, names, member, stat)

    @asynccontextmanager
    async def observe(self) -> AsyncIterator[Standings]:
        """Follow it: `async with election.observe() as views:` then `async for view in views`.
        A leader that changes its data (`hold.update`) makes another view."""
        client, path = self._queue.client, self.path
        async with Cache(client, path, log=self._queue.ledger.log, keeps_order=True) as cache:
            standings = Standings(self, cache)
            forget = cache.listen(standings._moved)
            try:
                yield standings
            finally:
                forget()

    def lead(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Stand once: see `incumbent.recipes.lead.lead`. `abdicate` ends the block early, and
        that raises nothing outside of it."""
        return self._forgiving(Abdicated, self._lead(member, timeout, grace, on_change))

    def abdicate(self) -> None:
        """Give up every leadership had through this object: its block is cancelled, as if it
        were lost, and the next candidate leads when it has ended; `terms` and `run` stand again,
        behind the others. Does nothing where we don't lead."""
        for leadership in tuple(self._terms):
            leadership.lost.set(Abdicated(self.path, "it was given up by choice"))

    def terms(
        self,
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
    ) -> Terms:
        """Stand again and again: `async for term in election.terms("web-1")`, each an `async
        with term as leadership`. A block that is over because we were deposed, or abdicated, or
        that ended by itself is followed by the next term; `break` ends it."""
        return Terms(lambda: self._forgiving(Deposed, self._lead(member, None, grace, on_change)))

    async def run(
        self,
        work: Callable[[Hold], Awaitable[T]],
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
    ) -> T:
        """Stand, and stand again when deposed, until `work(leadership)` has ended by itself.

        Returns what it returns, raises what it raises.
        """
        while True:
            try:
                async with self._lead(member, None, grace, on_change) as leadership:
                    return await work(leadership)
            except Deposed as deposed:
                if deposed.path != self.path:
                    raise
            await Pause().take()

    @asynccontextmanager
    async def _lead(
        self,
        member: str | bytes,
        timeout: float | None,
        grace: float | None,
        on_change: Callable[[Place], None] | None,
    ) -> AsyncIterator[Hold]:
        """A leadership that `abdicate` finds."""
        standing = lead(self._queue, member, timeout=timeout, grace=grace, on_change=on_change)
        async with standing as leadership:
            self._terms[leadership] = None
            try:
                yield leadership
            finally:
                del self._terms[leadership]

    @asynccontextmanager
    async def _forgiving(
        self, what: type[Deposed], standing: AbstractAsyncContextManager[Hold]
    ) -> AsyncIterator[Hold]:
        """Its block ends quietly when the leadership was lost in this way."""
        try:
            async with standing as leadership:
                yield leadership
        except what as lost:
            if lost.path != self.path:
                raise

    def _rank(self, children: list[str]) -> list[str]:
        dialect = self._queue.dialect or detect(self.path, children)
        return [contender.name for contender in dialect.rank(self.path, children)]


class Terms:
    """One term after the other, without end."""

    def __init__(self, term: Callable[[], AbstractAsyncContextManager[Hold]]) -> None:
        self._term = term
        self._is_first = True

    def __aiter__(self) -> Terms:
        return self

    async def __anext__(self) -> AbstractAsyncContextManager[Hold]:
        if not self._is_first:
            await Pause().take()
        self._is_first = False
        return self._term()


class Standings:
    """The views of an election, one per change; changes in quick succession give the last one."""

    def __init__(self, election: Election, cache: Cache) -> None:
        self._election = election
        self._cache = cache
        self._last: View | None = None
        self._changed = asyncio.Event()

    def __aiter__(self) -> Standings:
        return self

    async def __anext__(self) -> View:
        """The next view that differs from the last one. Waits through disconnections and into
        later sessions; raises `SessionClosed`, `MixedDialects`.
        """
        while True:
            view = self._look()
            if view != self._last:
                self._last = view
                return view
            self._changed.clear()
            await self._changed.wait()

    def _look(self) -> View:
        path = self._election.path
        names = self._election._rank(self._cache.children())
        leader = self._cache.get(join(path, names[0])) if names else None
        if leader is None:
            return View(path=path, leader=None, waiting=())
        return _view(path, names, leader.data, leader.stat)

    def _moved(self, changes: object) -> None:
        self._changed.set()


def _view(path: str, names: list[str], member: bytes, stat: Stat) -> View:
    leader = Candidate(
        name=names[0], member=member, session_id=stat.ephemeralOwner, czxid=stat.czxid
    )
    return View(path=path, leader=leader, waiting=tuple(names[1:]))
