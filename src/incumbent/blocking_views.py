"""Elections, groups and caches for blocking code: twins of those in `incumbent.recipes`.

A cache answers any thread from memory. What follows a group or a cache is for one thread at a
time; an election's work and `on_change` are called in the thread that waits.

Rule of this file: the same names as the twins, and no thought of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TypeVar

from incumbent.blocking import Hold, twin_of
from incumbent.blocking_blocks import Entered, Guarded, Wait, Within
from incumbent.errors import Abdicated, Deposed
from incumbent.portal import Portal
from incumbent.recipes import cache as caches
from incumbent.recipes import election as elections
from incumbent.recipes import group as groups
from incumbent.recipes import lock as locks
from incumbent.recipes import membership as memberships
from incumbent.recipes.election import View
from incumbent.recipes.group import Member, Roster
from incumbent.recipes.ledger import Pause
from incumbent.recipes.picture import Change, Znode
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = [
    "Cache",
    "Changes",
    "Election",
    "Group",
    "Membership",
    "Rosters",
    "Standings",
    "Term",
    "Terms",
]

T = TypeVar("T")


class Term(Guarded[Hold]):
    """`with` around a leadership; what ends it as `forgives` says ends the block quietly."""

    def __init__(
        self,
        portal: Portal,
        wait: Wait,
        on_lost: Callable[[Hold], None] | None,
        election: Election,
        forgives: type[Deposed],
    ) -> None:
        super().__init__(portal, wait, on_lost)
        self._path = election.path
        self._terms = election._terms
        self._forgives = forgives

    def _begin(self) -> None:
        self._terms[self._wait] = None

    def __exit__(  # type: ignore[override]
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._terms.pop(self._wait, None)
        try:
            super().__exit__(kind, error, traceback)
        except self._forgives as lost:
            if lost.path == self._path:
                return True
            raise
        return isinstance(error, self._forgives) and error.path == self._path

    @property
    def was_lost(self) -> bool:
        return self._wait.got is not None and self._wait.got.lost.is_set()


@twin_of(elections.Election)
class Election:
    """The twin of `incumbent.recipes.election.Election`. Nothing interrupts a block: one that
    was abdicated sees `hold.lost`, as if it were deposed."""

    def __init__(self, portal: Portal, queue_: Queue) -> None:
        self._portal = portal
        self._queue = queue_
        self._election = elections.Election(queue_)
        self._terms: dict[Wait, None] = {}  # of blocks that have begun

    @property
    def path(self) -> str:
        return self._queue.path

    def view(self) -> View:
        return self._portal.run(self._election.view)

    @contextlib.contextmanager
    def observe(self) -> Iterator[Standings]:
        with Within(self._portal, self._election.observe()) as standings:
            yield Standings(self._portal, standings)

    def lead(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Term:
        wait = self._wait(member, timeout, grace, on_change)
        return Term(self._portal, wait, on_lost, self, Abdicated)

    def abdicate(self) -> None:
        for term in tuple(self._terms):
            self._portal.post(partial(self._end, term))

    def _end(self, term: Wait) -> None:
        """On the loop."""
        if term in self._terms and term.got is not None and not term.got.is_over:
            term.got.lost.set(Abdicated(self.path, "it was given up by choice"))

    def terms(
        self,
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Terms:
        def term() -> Term:
            wait = self._wait(member, None, grace, on_change)
            return Term(self._portal, wait, on_lost, self, Deposed)

        return Terms(self._portal, term)

    def run(
        self,
        work: Callable[[Hold], T],
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_change: Callable[[Place], None] | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> T:
        for term in self.terms(member, grace=grace, on_change=on_change, on_lost=on_lost):
            with term as leadership:
                result = work(leadership)
            if not term.was_lost:
                return result
        raise AssertionError("there is always one more term")

    def _wait(
        self,
        member: str | bytes,
        timeout: float | None,
        grace: float | None,
        on_change: Callable[[Place], None] | None,
    ) -> Wait:
        begin = partial(
            locks.acquire, self._queue, member, error=Deposed, timeout=timeout, grace=grace
        )
        return Wait(begin, self._queue, on_change=on_change)


@twin_of(elections.Terms)
class Terms:
    """The twin of `incumbent.recipes.election.Terms`."""

    def __init__(self, portal: Portal, term: Callable[[], Term]) -> None:
        self._portal = portal
        self._term = term
        self._is_first = True

    def __iter__(self) -> Terms:
        return self

    def __next__(self) -> Term:
        if not self._is_first:
            self._portal.run(Pause().take)
        self._is_first = False
        return self._term()


@twin_of(elections.Standings)
class Standings:
    """The twin of `incumbent.recipes.election.Standings`."""

    def __init__(self, portal: Portal, standings: elections.Standings) -> None:
        self._portal = portal
        self._standings = standings

    def __iter__(self) -> Standings:
        return self

    def __next__(self) -> View:
        return self._portal.run(self._standings.__anext__)


@twin_of(groups.Group)
class Group:
    """The twin of `incumbent.recipes.group.Group`."""

    def __init__(self, portal: Portal, group: groups.Group) -> None:
        self._portal = portal
        self._group = group
        self.path = group.path

    @contextlib.contextmanager
    def join(
        self, data: str | bytes = b"", *, name: str | None = None, timeout: float | None = None
    ) -> Iterator[Membership]:
        with Within(self._portal, self._group.join(data, name=name, timeout=timeout)) as membership:
            yield Membership(self._portal, membership)

    def members(self) -> dict[str, Member]:
        return self._portal.run(self._group.members)

    @contextlib.contextmanager
    def observe(self) -> Iterator[Rosters]:
        with Within(self._portal, self._group.observe()) as rosters:
            yield Rosters(self._portal, rosters)


@twin_of(memberships.Membership)
class Membership:
    """The twin of `incumbent.recipes.membership.Membership`."""

    def __init__(self, portal: Portal, membership: memberships.Membership) -> None:
        self._portal = portal
        self._membership = membership
        self.path = membership.path
        self.name = membership.name

    @property
    def data(self) -> bytes:
        return self._membership.data

    @property
    def is_in(self) -> bool:
        return self._membership.is_in

    def update(self, data: str | bytes) -> None:
        async def update() -> None:
            self._membership.update(data)

        self._portal.run(update)

    def settled(self, timeout: float | None = None) -> None:
        self._portal.run(lambda: self._membership.settled(timeout))


@twin_of(groups.Rosters)
class Rosters:
    """The twin of `incumbent.recipes.group.Rosters`."""

    def __init__(self, portal: Portal, rosters: groups.Rosters) -> None:
        self._portal = portal
        self._rosters = rosters

    @property
    def members(self) -> dict[str, Member]:
        async def members() -> dict[str, Member]:
            return self._rosters.members

        return self._portal.run(members)

    def next(self, timeout: float | None = None) -> Roster:
        return self._portal.run(lambda: self._rosters.next(timeout))

    def __iter__(self) -> Rosters:
        return self

    def __next__(self) -> Roster:
        return self.next()


@twin_of(caches.Cache)
class Cache(Entered[caches.Cache]):
    """The twin of `incumbent.recipes.cache.Cache`."""

    def __init__(self, portal: Portal, cache: caches.Cache) -> None:
        super().__init__(portal, cache)
        self._cache = cache
        self.path = cache.path

    @property
    def is_current(self) -> bool:
        return self._cache.is_current

    def get(self, path: str | None = None) -> Znode | None:
        return self._cache.get(path)

    def children(self, path: str | None = None) -> list[str]:
        async def children() -> list[str]:
            return self._cache.children(path)

        return self._portal.run(children)

    def snapshot(self) -> dict[str, Znode]:
        async def snapshot() -> dict[str, Znode]:
            return self._cache.snapshot()

        return self._portal.run(snapshot)

    def settled(self) -> None:
        self._portal.run(self._cache.settled)

    @contextlib.contextmanager
    def changes(self) -> Iterator[Changes]:
        with Within(self._portal, self._cache.changes()) as changes:
            yield Changes(self._portal, changes)


@twin_of(caches.Changes)
class Changes:
    """The twin of `incumbent.recipes.cache.Changes`."""

    def __init__(self, portal: Portal, changes: caches.Changes) -> None:
        self._portal = portal
        self._changes = changes

    def next(self, timeout: float | None = None) -> Change:
        return self._portal.run(lambda: self._changes.next(timeout))

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        return self.next()
