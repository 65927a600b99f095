"""An election seen from outside, and standing in it again and again.

Rule of this file: an observer writes nothing, and its view is always one that the server had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from incumbent.errors import Deposed, FateUnknown, NoNode, NotSent, SessionExpired
from incumbent.recipes.dialects import detect
from incumbent.recipes.hold import Hold
from incumbent.recipes.lead import lead
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place, join
from incumbent.recipes.queue import Queue
from incumbent.wire import WatchEvent

__all__ = ["Candidate", "Election", "Standings", "View"]

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

    @property
    def path(self) -> str:
        return self._queue.path

    async def view(self) -> View:
        """Who leads and who waits, now. Raises `MixedDialects`."""
        return await self._read(None)

    @asynccontextmanager
    async def observe(self) -> AsyncIterator[Standings]:
        """Follow it: `async with election.observe() as views:` then `async for view in views`."""
        standings = Standings(self)
        try:
            yield standings
        finally:
            self._queue.client.unwatch(self._queue.path, standings._fired)

    def lead(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Stand once: see `incumbent.recipes.lead.lead`."""
        return lead(self._queue, member, timeout=timeout, grace=grace, on_change=on_change)

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
        pause = Pause()
        while True:
            try:
                async with self.lead(member, grace=grace, on_change=on_change) as leadership:
                    return await work(leadership)
            except Deposed as deposed:
                if deposed.path != self.path:
                    raise
            await pause.take()

    async def _read(self, watcher: Callable[[WatchEvent], None] | None) -> View:
        client, path = self._queue.client, self._queue.path
        while True:
            try:
                children = await client.children(path, watcher=watcher)
            except NoNode:
                if watcher is not None and await client.exists(path, watcher=watcher) is not None:
                    continue
                return View(path=path, leader=None, waiting=())
            dialect = self._queue.dialect or detect(path, children)
            names = [contender.name for contender in dialect.rank(path, children)]
            if not names:
                return View(path=path, leader=None, waiting=())
            try:
                member, stat = await client.get(join(path, names[0]))
            except NoNode:
                continue
            leader = Candidate(
                name=names[0], member=member, session_id=stat.ephemeralOwner, czxid=stat.czxid
            )
            return View(path=path, leader=leader, waiting=tuple(names[1:]))


class Standings:
    """The views of an election, one per change; changes in quick succession give the last one."""

    def __init__(self, election: Election) -> None:
        self._election = election
        self._last: View | None = None
        self._changed = asyncio.Event()
        self._changed.set()

    def __aiter__(self) -> Standings:
        return self

    async def __anext__(self) -> View:
        """The next view that differs from the last one. Waits through disconnections and into
        later sessions; raises `SessionClosed`, `MixedDialects`.
        """
        pause = Pause()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                view = await self._election._read(self._fired)
            except (FateUnknown, NotSent, SessionExpired):
                self._changed.set()
                await pause.take()
                continue
            except BaseException:
                self._changed.set()  # a cancelled look is made again by the next one
                raise
            if view != self._last:
                self._last = view
                return view

    def _fired(self, event: WatchEvent) -> None:
        self._changed.set()
