"""Several locks as one: all of them, or none.

Our znodes in all the queues are made by one transaction. So of any two multilocks the earlier one
stands before the later one in every queue that they share: they cannot wait for each other in a
circle, whatever the order of the paths, and all our tokens are the zxid of that transaction: one
token, which rises from holder to holder in each queue.

What is first in one queue while it waits in another is not given back: who comes later waits.
Since somebody may have deleted one of our znodes meanwhile, whoever had to wait proves all of them
once more, in one flight.

Rule of this file: no znode of ours stands in one queue without standing in all of them, but for
the moment in which they are taken away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from incumbent.errors import (
    FateUnknown,
    LockLost,
    LockTimeout,
    NoNode,
    NotSent,
    SessionExpired,
    TooLarge,
)
from incumbent.recipes.content import as_bytes
from incumbent.recipes.entry import TRIES, Entry, enter, look
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.hold import Held, Hold, tried
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.recipes.standing import PlaceLost, wait
from incumbent.wire import Created, Exists, GetChildren, Multi, Request, Stat

__all__ = ["MultiLock"]


class MultiLock:
    """The locks at these queues' paths, as one.

    Each queue's dialect has ids in its names: ours, or one of Curator's.
    """

    def __init__(self, queues: Sequence[Queue]) -> None:
        if not queues or len({queue.path for queue in queues}) < len(queues):
            raise ValueError("the paths of a multilock: at least one, and none twice")
        for queue in queues:
            if queue.dialect is None or not queue.dialect.has_nonce:
                raise ValueError(f"{queue.path}: a multilock needs ours, or a dialect of Curator's")
        self.queues = tuple(queues)

    @property
    def path(self) -> str:
        """All of them, with commas."""
        return ", ".join(queue.path for queue in self.queues)

    @asynccontextmanager
    async def acquire(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
    ) -> AsyncIterator[Hold]:
        """Wait until all of them are ours; cancel the block if one is lost (`LockLost`).

        The arguments are those of `zk.lock`; `hold.fencing_token` is good for each of them.
        """
        self.refuse_nested(asyncio.current_task())
        async with Held(await self.take(member, timeout=timeout, grace=grace)) as hold:
            yield hold

    def try_acquire(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> AbstractAsyncContextManager[Hold | None]:
        """All of them if nobody has any, else None, at once."""
        return tried(lambda: self.try_take(member, grace=grace))

    async def take(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
    ) -> Hold:
        """A hold, begun, that the caller must `release`; `acquire` is made of it."""
        if timeout == 0:
            hold = await self.try_take(member, grace=grace)
            if hold is None:
                raise LockTimeout(self.path, 0, await self._standing())
            return hold

        async def stand(ahead: list[str]) -> Hold:
            places = await self._enter(member)
            try:
                await _all_first(places)
                hold = Hold(*places, grace=grace, error=LockLost)
                await hold.begin()
                return hold
            except BaseException as error:
                ahead[:] = [name for place in places for name in place.ahead()]
                for place in places:
                    place.release()
                if isinstance(error, NoNode) and any(place.gone.is_set() for place in places):
                    raise PlaceLost from error
                raise

        return await wait(self.path, stand, timeout)

    async def try_take(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> Hold | None:
        """A hold, begun, if nobody stands in any of them; else None, and nothing of ours is left."""
        if await self._standing():
            return None
        places = await self._enter(member)
        try:
            if not any(place.ahead() for place in places):
                hold = Hold(*places, grace=grace, error=LockLost)
                await hold.begin()
                return hold
        except BaseException:
            for place in places:
                place.release()
            raise
        for place in places:
            place.release()
        return None

    def refuse_nested(self, owner: object) -> None:
        """Raises `RuntimeError` if `owner` is inside a block that holds one of them."""
        for queue in self.queues:
            queue.ledger.refuse_nested(queue.path, owner)

    async def _enter(self, member: str | bytes) -> list[Place]:
        data, dialects = as_bytes(member), [queue.dialect for queue in self.queues]
        entries = [
            queue.entry(data, dialect)
            for queue, dialect in zip(self.queues, dialects, strict=True)
            if dialect is not None
        ]
        ledger = self.queues[0].ledger
        return await enter(ledger, _Entries(ledger, entries))

    async def _standing(self) -> list[str]:
        each = await asyncio.gather(*(queue.contenders() for queue in self.queues))
        return [contender.name for contenders in each for contender in contenders]


async def _all_first(places: Sequence[Place]) -> None:
    """Wait in one queue after the other; in the end all our znodes stand."""
    waited = False
    for place in places:
        waited = waited or bool(place.ahead())
        await place.first()
    pause = Pause()
    while waited:
        for place in places:
            place.raise_if_gone()
        client = places[0].ledger.client
        (proven,) = await flight(client, Multi([place.check_own() for place in places]))
        if isinstance(proven, NoNode):
            gone = places[proven.index or 0]
            gone.gone.set(NoNode(gone.path))
        elif isinstance(proven, FateUnknown | NotSent):
            await pause.take()
        elif isinstance(proven, BaseException):
            raise proven
        else:
            return


class _Entries:
    """One try to stand in all the queues at once."""

    def __init__(self, ledger: Ledger, entries: Sequence[Entry]) -> None:
        self.is_wanted = True
        self._client = ledger.client
        self._ledger = ledger
        self._entries = entries

    async def begin(self) -> bool:
        return False

    async def run(self) -> list[Place]:
        places, listings = await self._stand()
        try:
            for place, listing in zip(places, listings, strict=True):
                await look(place, [listing])
        except BaseException:
            for place in places:
                place.release()
            raise
        return places

    def give_up(self, duty: asyncio.Task[Any]) -> None:
        if not duty.cancelled() and duty.exception() is None:
            for place in duty.result():
                place.release()

    async def _stand(self) -> tuple[list[Place], list[object]]:
        """Our places, and the listings that were read after the create, as far as they were."""
        pause = Pause()
        vanished = 0
        while self.is_wanted:
            session_id = self._client.session_id
            requests: list[Request] = [Multi([entry.create() for entry in self._entries])]
            requests += [GetChildren(entry.directory) for entry in self._entries]
            parents = [entry.parents() if vanished else () for entry in self._entries]
            above = [each for those in parents for each in those]
            results = await flight(self._client, *above, *requests)
            made, *listings = results[len(above) :]
            if isinstance(made, FateUnknown):
                if places := self._places(await self._read_back(session_id), session_id):
                    return places, [None] * len(places)
            elif isinstance(made, list):
                if places := self._places(await self._stats(made), session_id):
                    return places, listings
            elif isinstance(made, NoNode) and vanished < TRIES:
                refused = made.index or 0
                first = sum(map(len, parents[:refused]))
                its = results[first : first + len(parents[refused])]
                if why := why_not_made(self._client, self._entries[refused].create().path, its):
                    raise why
                vanished += 1
            elif isinstance(made, NotSent) and not isinstance(made, TooLarge):
                await pause.take()
            elif isinstance(made, BaseException):
                raise made
        raise asyncio.CancelledError

    async def _read_back(self, session_id: int) -> list[Created | None]:
        """What became of a transaction whose reply was lost: all of it, or nothing."""
        found: list[Created | None] = []
        try:
            for entry in self._entries:
                found.append(await entry.read_back(session_id))
        except BaseException:
            for made in filter(None, found):
                self._ledger.delete(made.path, made.stat.czxid, made.stat.ephemeralOwner)
            raise
        return found

    async def _stats(self, paths: Sequence[str]) -> list[Created | None]:
        """What a transaction made, with what it did not tell; None: it is gone again."""
        pause = Pause()
        while True:
            stats = await flight(self._client, *(Exists(path) for path in paths))
            errors = [each for each in stats if isinstance(each, BaseException)]
            lost = [each for each in errors if isinstance(each, FateUnknown | NotSent)]
            if others := [e for e in errors if not isinstance(e, FateUnknown | NotSent | NoNode)]:
                raise others[0]
            if not lost:
                return [
                    Created(path, Stat(*stat)) if isinstance(stat, tuple) else None
                    for path, stat in zip(paths, stats, strict=True)
                ]
            await pause.take()

    def _places(self, found: Sequence[Created | None], session_id: int) -> list[Place] | None:
        """A place for each; None, and nothing is left, if not all are there."""
        places: list[Place] = []
        expired: SessionExpired | None = None
        for entry, made in zip(self._entries, found, strict=True):
            if made is not None:
                try:
                    places.append(entry.placed(made, session_id))
                except SessionExpired as error:
                    expired = error
        if len(places) == len(self._entries):
            return places
        for place in places:
            place.release()
        if expired is not None:
            raise expired
        return None
