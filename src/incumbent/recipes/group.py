"""Who is there: members that come back by themselves, and whoever wants to know of them.

    async with zk.group("/services/web").join(b"10.0.0.5:8080") as membership: ...
    async with zk.group("/services/web").observe() as rosters:
        async for roster in rosters: ...

A member is an ephemeral znode, named as the member is, with what it wants to be known of it as
data. kazoo's Party and Curator's GroupMember make the same, so that all three see each other.

Rule of this file: a roster is the group at one moment, and each is of a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from incumbent.errors import NoNode, Refused
from incumbent.recipes.cache import Cache
from incumbent.recipes.content import fitting
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.membership import Membership
from incumbent.recipes.picture import Change
from incumbent.recipes.place import join
from incumbent.wire import GetData, MultiRead, Stat
from incumbent.wire.paths import problem

__all__ = ["Group", "Member", "Roster", "Rosters"]

_PARTY = "__party__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of a group: its name, what it put there, its session, and its znode's czxid."""

    name: str
    data: bytes
    session_id: int
    czxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """A group at one moment, and the net difference to the roster before: names that joined,
    left, or have other data. Who was away and is back with the same data is no difference.
    `resumed`: some of it happened while we were away ourselves.
    """

    members: Mapping[str, Member]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    updated: tuple[str, ...]
    resumed: bool


class Group:
    """The group at `path`. `nonce` makes names for those who have none."""

    def __init__(self, ledger: Ledger, path: str, *, nonce: Callable[[], str]) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.path = path
        self._ledger = ledger
        self._client = ledger.client
        self._nonce = nonce

    @asynccontextmanager
    async def join(
        self, data: str | bytes = b"", *, name: str | None = None, timeout: float | None = None
    ) -> AsyncIterator[Membership]:
        """Be a member while the block lasts, through lost sessions and deletions by hand.

        name     the member's, one znode's; default a new random one, such as kazoo's Party looks
                 for: it sees members whose names have `__party__` in them. Another session's of the
                 same name (a former life's, until it has expired) is waited for
        timeout  seconds to wait at most, then `NameTaken`, or `NotSent` if there was no connection

        Leaving waits for nothing: the deletion is a duty of the session. Raises what the server
        refused; `RuntimeError` if this client is that member already.
        """
        path = join(self.path, f"{self._nonce()}{_PARTY}" if name is None else name)
        if wrong := problem(path):
            raise ValueError(f"name={name!r}: {wrong}")
        former = self._ledger.standing.get(path)
        if former is not None and not (isinstance(former, Membership) and former.leaving):
            raise RuntimeError(f"{path}: this client is a member by that name already")
        leaving = former.leaving if isinstance(former, Membership) else None
        membership = Membership(
            self._ledger, self.path, path, fitting(self._client, path, data), leaving
        )
        try:
            await membership.joined(timeout)
            yield membership
        finally:
            membership.leave()

    async def members(self) -> dict[str, Member]:
        """Who is there now, by name. Two round trips: the names, then all their data at once."""
        try:
            names = await self._client.children(self.path)
        except NoNode:
            return {}
        found: dict[str, Member] = {}
        for start in range(0, len(names), 100):
            some = names[start : start + 100]
            reads = [GetData(join(self.path, name)) for name in some]
            results = await self._client.submit(MultiRead(reads))
            for name, result in zip(some, results, strict=True):
                if isinstance(result, NoNode):
                    continue
                if isinstance(result, Refused):
                    raise result
                found[name] = _member(name, result[0] or b"", Stat(*result[1]))
        return found

    @asynccontextmanager
    async def observe(self) -> AsyncIterator[Rosters]:
        """Follow it: `async with group.observe() as rosters`, then `async for roster in rosters`;
        `rosters.members` is who is there now, in memory."""
        async with Cache(self._client, self.path, log=self._ledger.log) as cache:
            rosters = Rosters(cache)
            forget = cache.listen(rosters._put)
            try:
                yield rosters
            finally:
                forget()


class Rosters:
    """The rosters of a group, one per change; changes in quick succession give the last one."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._told: dict[str, Member] | None = None
        self._resumed = False
        self._news = asyncio.Event()

    @property
    def members(self) -> dict[str, Member]:
        """Who is there by what is known: kept up to date while somebody observes."""
        return {
            name: _member(name, znode.data, znode.stat)
            for name in self._cache.children()
            if (znode := self._cache.get(join(self._cache.path, name))) is not None
        }

    async def next(self, timeout: float | None = None) -> Roster:
        """The next roster that differs; the first one at once, with everybody as joined. Raises
        TimeoutError after `timeout` seconds without one, and `SessionClosed`."""
        async with asyncio.timeout(timeout):
            while True:
                before, now = self._told or {}, self.members
                joined = tuple(name for name in now if name not in before)
                left = tuple(name for name in before if name not in now)
                updated = tuple(n for n in now if n in before and now[n].data != before[n].data)
                if self._told is None or joined or left or updated:
                    resumed, self._resumed, self._told = self._resumed, False, now
                    return Roster(
                        members=now, joined=joined, left=left, updated=updated, resumed=resumed
                    )
                self._told, self._resumed = now, False
                self._news.clear()
                await self._news.wait()

    def __aiter__(self) -> Rosters:
        return self

    async def __anext__(self) -> Roster:
        return await self.next()

    def _put(self, changes: Sequence[Change]) -> None:
        self._resumed |= any(change.resumed for change in changes)
        self._news.set()


def _member(name: str, data: bytes, stat: Stat) -> Member:
    return Member(name=name, data=data, session_id=stat.ephemeralOwner, czxid=stat.czxid)
