"""A semaphore: the first `size` in the queue are inside, the rest wait for one of those to leave.

    /app/pool          persistent; its data is the size, as decimal digits
    /app/pool/queue    a container of contenders, in the order of arrival

Who waits watches little. Only the first one that waits watches the directory, and the size: any
of those inside may leave, so that watching one of them would miss the others. Each deeper one
watches its predecessor, who marks its own znode as held when it gets in; then the next one is
first. Nobody marks who is alone: whoever comes later sees it among the first in the listing.

Unless the size has become smaller meanwhile. A predecessor that is beyond the size and older
than the size's last change may be inside by the size before, unmarked; whoever comes behind such
a one watches the directory too.

The size is read before each listing, never after it: who is inside by a listing in which nobody
is behind it goes by a size that all who come later know, or see to be newer than it.

A smaller size takes nothing from anybody: who is inside stays until it leaves.

Rule of this file: being inside is concluded from a size and a listing read after our own create,
in this order; and nobody waits for something that nobody will tell it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from incumbent.client import Client
from incumbent.errors import (
    BadContent,
    FateUnknown,
    LockLost,
    LockTimeout,
    NoNode,
    NotSent,
    Refused,
    SessionError,
)
from incumbent.recipes.content import as_bytes
from incumbent.recipes.dialects import OURS
from incumbent.recipes.flight import flight
from incumbent.recipes.hold import Held, Hold, tried
from incumbent.recipes.ledger import SYSTEM_ERROR, Ledger, Pause
from incumbent.recipes.place import Place, join
from incumbent.recipes.queue import Queue
from incumbent.recipes.standing import given_up_on_error, wait
from incumbent.wire import EventType, GetChildren, GetData, Stat, WatchEvent

__all__ = ["HELD", "QUEUE", "Semaphore", "Wait"]

QUEUE = "queue"
"""The name of the container below the semaphore's znode."""

HELD = b" (held)"
"""What a contender that got in after others came adds to its data."""


class Semaphore:
    """The semaphore at `path`.

    `size` is for the first one who uses it; None: it is there already. Later the znode counts:
    `resize` changes it for everybody.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        size: int | None = None,
        *,
        epoch_path: str | None = None,
        rng: random.Random,
        ledger: Ledger | None = None,
    ) -> None:
        if size is not None:
            _check(size)
        self.path = path
        self.queue = Queue(
            client,
            join(path, QUEUE),
            rng=rng,
            ledger=ledger,
            above={} if size is None else {path: b"%d" % size},
            beside=(GetData(path),),
            epoch_path=epoch_path,
        )
        self._asked_for = size

    async def size(self) -> int:
        """How many may be inside. Raises `NoNode` if nobody made it yet, by `resize` or by using
        it with a size; `BadContent` if something else stands there."""
        return _size(self.path, await self.queue.client.get(self.path))

    async def resize(self, size: int) -> None:
        """So many may be inside from now on; who waits gets in at once if there is room. 0 lets
        nobody in. A smaller one takes nothing from who is inside. Made if it is not there.

        Raises `FateUnknown` if the answer was lost: look, or do it again.
        """
        _check(size)
        client, data = self.queue.client, b"%d" % size
        try:
            await client.set(self.path, data)
        except NoNode:
            await client.create(self.path, data, parents=True)

    @asynccontextmanager
    async def acquire(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
    ) -> AsyncIterator[Hold]:
        """Wait until we are inside; cancel the block if that is lost (`LockLost`).

        The arguments are those of `zk.lock`. Several are inside: without an `epoch_path` there is no
        fencing token.
        """
        async with Held(await self.take(member, timeout=timeout, grace=grace)) as hold:
            yield hold

    def try_acquire(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> AbstractAsyncContextManager[Hold | None]:
        """Inside, if there is room and nobody waits, else None, at once: with no write."""
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
                names = [contender.name for contender in await self.queue.contenders()]
                raise LockTimeout(self.path, 0, names)
            return hold

        async def stand(ahead: list[str]) -> Hold:
            place = await self._enter(member)
            with given_up_on_error(place, ahead):
                await Wait(self.path, place).inside()
                return await self._begin(place, grace)

        return await wait(self.path, stand, timeout)

    async def try_take(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> Hold | None:
        """A hold, begun, if there is room; else None, and nothing of ours is left there."""
        found, children = await flight(
            self.queue.client, GetData(self.path), GetChildren(self.queue.path)
        )
        if isinstance(found, tuple) and isinstance(children, list):
            standing = OURS.rank(self.queue.path, children)
            if len(standing) >= _size(self.path, found):
                return None
        elif errors := [e for e in (found, children) if not isinstance(e, NoNode | list | tuple)]:
            raise errors[0]  # type: ignore[misc]
        place = await self._enter(member)
        with given_up_on_error(place):
            if Wait(self.path, place).is_inside:
                return await self._begin(place, grace)
        place.release()
        return None

    async def _enter(self, member: str | bytes) -> Place:
        if self._asked_for is None:
            await self.size()
        place = await self.queue.enter(as_bytes(member))
        with given_up_on_error(place):
            found = _size(self.path, place.beside[0])
        if self._asked_for not in (None, found):
            self.queue.ledger.log(
                f"{self.path}: its size is {found}, not the {self._asked_for} asked for; "
                "resize() changes it for everybody"
            )
            self._asked_for = found
        return place

    async def _begin(self, place: Place, grace: float | None) -> Hold:
        hold = Wait(self.path, place).hold(grace)
        await hold.begin()
        return hold


class Wait:
    """One place's way inside, the place being made by the semaphore's queue."""

    def __init__(self, path: str, place: Place) -> None:
        self._path = path
        self._place = place
        self._client = place.ledger.client

    @property
    def is_inside(self) -> bool:
        """By what was last read."""
        return len(self._place.ahead()) < self._size

    @property
    def _size(self) -> int:
        return _size(self._path, self._place.beside[0])

    async def inside(self) -> None:
        """Return when we are. Raises as `Place.first`."""
        place = self._place
        while not self.is_inside and not await self._is_next():
            await place.refresh()
        if not self.is_inside:
            with self._client.beat(place.path):
                await self._look_on()
        place.raise_if_gone()

    def hold(self, grace: float | None) -> Hold:
        """To be begun once inside; who waits behind us is told."""
        if self._place.listing[-1].name != self._place.name:
            self._place.ledger.owe(_mark(self._client, self._place))
        return Hold(self._place, grace=grace, error=LockLost, is_shared=True)

    async def _is_next(self) -> bool:
        """Is nobody who waits before us, as far as we can know? Else return when that may have
        changed."""
        ahead = self._place.ahead()
        if len(ahead) == self._size:
            return True
        path = join(self._place.directory, ahead[-1])
        happened: asyncio.Future[WatchEvent | None] = asyncio.get_running_loop().create_future()

        def wake(event: WatchEvent | None = None) -> None:
            if not happened.done():
                happened.set_result(event)

        forget = self._place.gone.listen(wake)
        try:
            data, stat = await self._client.get(path, watcher=wake)
            if self._may_be_inside(data, stat):
                return True
            event = await happened
            return event is not None and event.type is EventType.CHANGED  # it is marked
        except (NoNode, FateUnknown, NotSent):
            pass
        finally:
            forget()
            self._client.unwatch(path, wake)
        return False

    def _may_be_inside(self, data: bytes, stat: Stat) -> bool:
        _, size_stat = self._place.beside[0]
        return data.endswith(HELD) or stat.czxid < size_stat.mzxid

    async def _look_on(self) -> None:
        """Read it all again at each change of the directory or the size, until we are inside."""
        place = self._place
        changed = asyncio.Event()
        forget = place.gone.listen(changed.set)

        def wake(event: WatchEvent) -> None:
            changed.set()

        try:
            while True:
                changed.clear()
                await place.refresh(wake)
                if self.is_inside:
                    return
                await changed.wait()
        finally:
            forget()
            for path in (place.directory, self._path):
                self._client.unwatch(path, wake)


async def _mark(client: Client, place: Place) -> None:
    """Tell who waits behind us that we wait no more; surely, for nobody else will."""
    pause = Pause()
    while client.session_id == place.session_id and not place.is_released:
        try:
            await client.set(place.path, place.data + HELD)
            return
        except (FateUnknown, NotSent):
            await pause.take()
        except (NoNode, SessionError):
            return
        except Refused as error:
            if error.code != SYSTEM_ERROR:
                place.ledger.log(f"{place.path} could not be marked as held: {error}")
                return
            await pause.take()


def _check(size: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size={size!r}: how many may be inside, a whole number")
    if size < 0:
        raise ValueError(f"size={size}: how many may be inside, 0 or more")


def _size(path: str, found: Any) -> int:
    data, _ = found
    with contextlib.suppress(ValueError):
        if (size := int(data or b"")) >= 0:
            return size
    raise BadContent(path, "the size of a semaphore, as decimal digits", data)
