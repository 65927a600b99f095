"""ZooKeeper's operations as methods.

Rule of this file: a method is one flight: all that it needs is sent at once. Only what must be
seen before it can be deleted takes more: a flight per level of the tree, and one for the end.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from incumbent.client.chroot import Chroot
from incumbent.client.transaction import Transaction, creation
from incumbent.client.watches import Watcher
from incumbent.errors import (
    FateUnknown,
    NodeExists,
    NoNode,
    NotEmpty,
    NoWatch,
)
from incumbent.wire import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    CheckWatches,
    Create2,
    Created,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Id,
    Multi,
    MultiOp,
    MultiRead,
    MultiReadOp,
    Reconfig,
    RemoveWatches,
    Request,
    SetAcl,
    SetData,
    Stat,
    Sync,
    WatchType,
    WhoAmI,
)
from incumbent.wire.paths import ancestors

__all__ = ["Verbs"]

_TRIES = 5
"""How often making parents or deleting a tree begins anew when others change it meanwhile."""

_FLIGHT = 1000  # requests sent at once when a tree is read and deleted


class Verbs(ABC):
    """What can be asked of ZooKeeper, made of one thing: `submit`."""

    root: Chroot
    """What is / to the caller."""

    @abstractmethod
    def submit(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        watcher: Watcher | None = None,
        absolute: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request, in order; its answer's value, or the error, in a future."""

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[Acl] = OPEN_ACL,
        parents: bool = False,
    ) -> Created:
        """Make a znode; its path as made (with the number, if sequential) and its Stat.

        ttl      seconds after its last change at which the server deletes it, if it is childless
        parents  make what is missing above it too, persistent and empty, in the same flight

        Raises `NodeExists`, `NoNode`, …
        """
        request = creation(
            path,
            data,
            ephemeral=ephemeral,
            sequential=sequential,
            container=container,
            ttl=ttl,
            acl=acl,
        )
        if not parents:
            created: Created = await self.submit(request)
            return created
        for tries_left in reversed(range(_TRIES)):
            above = self._make(ancestors(self.root.down(path)))
            flight = [*above, self.submit(request)]
            *results, made = await asyncio.gather(*flight, return_exceptions=True)
            if isinstance(made, Created):
                return made
            errors = _errors(results)
            if isinstance(made, NoNode) and errors:
                made = self.root.answer(request, errors[0])
            if not isinstance(made, NoNode) or not tries_left:
                raise made
        raise AssertionError("the last try returns or raises")

    async def delete(
        self, path: str, version: int = ANY_VERSION, *, recursive: bool = False
    ) -> None:
        """Raises `NoNode`, `BadVersion`, `NotEmpty`. `recursive`: with all that is below it."""
        for tries_left in reversed(range(_TRIES)):
            try:
                await self.submit(Delete(path, version))
                return
            except NotEmpty:
                if not recursive or not tries_left:
                    raise
            below = await self._below(path)
            results = await self._flights([Delete(each) for each in reversed(below)])
            for result in results:
                if isinstance(result, Exception) and not isinstance(
                    result, NoNode | NotEmpty | FateUnknown
                ):
                    raise result

    async def exists(self, path: str, *, watcher: Watcher | None = None) -> Stat | None:
        """The Stat, or None. The watcher hears of creation, change or deletion."""
        try:
            stat: Stat = await self.submit(Exists(path, watcher is not None), watcher=watcher)
        except NoNode:
            return None
        return stat

    async def get(self, path: str, *, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data (null reads as empty) and Stat. The watcher hears of change or deletion."""
        data, stat = await self.submit(GetData(path, watcher is not None), watcher=watcher)
        return data or b"", stat

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data, if `version` is its version or -1. Raises `NoNode`, `BadVersion`."""
        stat: Stat = await self.submit(SetData(path, data, version))
        return stat

    async def children(self, path: str, *, watcher: Watcher | None = None) -> list[str]:
        """The children's names, sorted. The watcher hears when one comes or goes."""
        names = await self.submit(GetChildren(path, watcher is not None), watcher=watcher)
        return sorted(names)

    async def children_and_stat(
        self, path: str, *, watcher: Watcher | None = None
    ) -> tuple[list[str], Stat]:
        """The children's names, sorted, and the Stat of their parent."""
        names, stat = await self.submit(GetChildren2(path, watcher is not None), watcher=watcher)
        return sorted(names), stat

    async def descendants(self, path: str) -> int:
        """How many znodes there are below it, at any depth."""
        number: int = await self.submit(GetAllChildrenNumber(path))
        return number

    async def ephemerals(self, prefix: str = "/") -> list[str]:
        """The paths of this session's ephemerals that begin so, sorted."""
        return sorted(await self.submit(GetEphemerals(prefix)))

    async def get_acl(self, path: str) -> tuple[list[Acl], Stat]:
        """Who may do what with it."""
        acl, stat = await self.submit(GetAcl(path))
        return acl, stat

    async def set_acl(self, path: str, acl: Sequence[Acl], version: int = ANY_VERSION) -> Stat:
        """`version`: the Stat's aversion, or -1. Raises `BadVersion`, `NoAuth`, `InvalidACL`."""
        stat: Stat = await self.submit(SetAcl(path, tuple(acl), version))
        return stat

    async def who_am_i(self) -> list[Id]:
        """By which ids the server knows us: addresses, users, certificates."""
        return [Id(*each) for each in await self.submit(WhoAmI())]

    async def multi(self, operations: Sequence[MultiOp]) -> list[Any]:
        """All of them or none; their results in order.

        Raises the `Refused` of the operation that was refused, with its number in `index`.
        """
        if not operations:
            return []
        results: list[Any] = await self.submit(Multi(tuple(operations)))
        return results

    def transaction(self) -> Transaction:
        """A multi put together line by line: `async with … as t`, then `t.results`."""
        return Transaction(self)

    async def read_all(self, operations: Sequence[MultiReadOp]) -> list[Any]:
        """Several reads of one moment: for each what it would answer alone, or its `Refused`."""
        if not operations:
            return []
        results: list[Any] = await self.submit(MultiRead(tuple(operations)))
        return results

    async def sync(self, path: str) -> None:
        """Let this server catch up with the leader: what is read next is no older than now."""
        await self.submit(Sync(path))

    async def ensure(self, path: str) -> None:
        """Make `path` and its parents, persistent and empty, where they don't exist. One flight."""
        whole = self.root.down(path)
        for tries_left in reversed(range(_TRIES)):
            flight = self._make([*ancestors(whole), whole])
            errors = _errors(await asyncio.gather(*flight, return_exceptions=True))
            if not errors:
                return
            if not isinstance(errors[0], NoNode | FateUnknown) or not tries_left:
                raise self.root.answer(Create2(whole), errors[0])

    async def has_watch(self, path: str, kind: WatchType = WatchType.ANY) -> bool:
        """Does the server keep such a watch? Apache 3.8 counts other sessions' too."""
        return await self._is_done(CheckWatches(path, kind))

    async def remove_watches(self, path: str, kind: WatchType = WatchType.ANY) -> bool:
        """Take the server's watches off, whoever waits for them; were there any?

        Needed only for what was set by `submit` without a watcher: what nobody waits for any
        more is taken off by itself.
        """
        return await self._is_done(RemoveWatches(path, kind))

    async def reconfig(
        self,
        *,
        joining: str | None = None,
        leaving: str | None = None,
        members: str | None = None,
        config_id: int = ANY_VERSION,
    ) -> bytes:
        """Change the ensemble's members; the new configuration. Raises `ReconfigRefused`, …"""
        data, _ = await self.submit(Reconfig(joining, leaving, members, config_id))
        return data or b""

    async def config(self) -> bytes:
        """The ensemble's configuration, as it is kept in /zookeeper/config."""
        data, _ = await self.submit(GetData("/zookeeper/config"), absolute=True)
        return data or b""

    async def _is_done(self, request: Request) -> bool:
        try:
            await self.submit(request)
        except NoWatch:
            return False
        return True

    def _make(self, paths: Sequence[str]) -> list[asyncio.Future[Any]]:
        return [self.submit(Create2(each), absolute=True) for each in paths]

    async def _below(self, path: str) -> list[str]:
        """Every path below, and no parent after its child."""
        found: list[str] = []
        level = [path]
        while level:
            listings = await self._flights([GetChildren(each) for each in level])
            found_now: list[str] = []
            for above, names in zip(level, listings, strict=True):
                if isinstance(names, NoNode):
                    continue
                if isinstance(names, BaseException):
                    raise names
                found_now += [f"{above.rstrip('/')}/{name}" for name in sorted(names)]
            found += found_now
            level = found_now
        return found

    async def _flights(self, requests: Sequence[Request]) -> list[Any]:
        """Each one's result, or the error that came instead."""
        results: list[Any] = []
        for start in range(0, len(requests), _FLIGHT):
            sent = [self.submit(request) for request in requests[start : start + _FLIGHT]]
            results += await asyncio.gather(*sent, return_exceptions=True)
        return results


def _errors(results: Sequence[Any]) -> list[BaseException]:
    """What went wrong since the last one that is there: then what is above that is there too."""
    errors: list[BaseException] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NodeExists):
            errors.append(result)
        else:
            errors.clear()
    return errors
