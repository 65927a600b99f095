"""Our being in a group: a znode that comes back by itself, with the newest data in it.

A member's znode is made in one flight: a watch on it, which lasts, and behind it the create; the
other way round it could be deleted between the two, unheard. When it is deleted, or its session
ends, it is made again. What was known while nothing was watched is doubted. A create is simply
repeated when its answer was lost: the name tells, and the owner, whose it is. An earlier session's
znode is never taken for ours: it is going to vanish, so we wait for that, and then make our own.
What somebody else writes into our znode stays there until we have something new to say: two who
correct each other would write for ever.

Rule of this file: the znode has the newest data, or a write of them is still to come.
"""

from __future__ import annotations

import asyncio

from incumbent.client import Client
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NameTaken,
    NodeExists,
    NoNode,
    NotSent,
    Refused,
    SessionClosed,
    SessionExpired,
    TooLarge,
)
from incumbent.recipes.content import fitting
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.wire import (
    AddWatch,
    Check,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateFlag,
    EventType,
    Exists,
    KeeperState,
    Multi,
    Stat,
    WatchEvent,
    WatchMode,
)
from incumbent.wire.paths import ancestors

__all__ = ["Membership"]


class Membership:
    """Our being in a group. Made by `Group.join`.

    path, name  our znode, whole path and last part
    data        what others are to read in it
    leaving     the duty to delete it, once we have left
    """

    def __init__(
        self,
        ledger: Ledger,
        directory: str,
        path: str,
        data: bytes,
        former: asyncio.Future[None] | None,
    ) -> None:
        self.path = path
        self.name = path[path.rindex("/") + 1 :]
        self.data = data
        self.leaving: asyncio.Future[None] | None = None
        self._directory = directory
        self._ledger = ledger
        self._client = ledger.client
        self._former = former
        self._stat: Stat | None = None  # of our znode, when we saw it last
        self._written: bytes | None = None  # what it surely has in it
        self._doubts = 0  # +1 whenever it may be gone
        self._sure_at = -1  # of those, how many there were when we saw it last
        self._sent: _Sent | None = None
        self._other = 0  # session whose znode has our name
        self._is_over = False
        self._is_refused = False
        self._pause = Pause()
        self._error: IncumbentError | None = None
        self._moved = asyncio.Event()
        self._listeners: list[asyncio.Event] = []
        loop = self._client.here()
        ledger.standing[path] = self
        self._task = loop.create_task(self._keep())

    @property
    def is_in(self) -> bool:
        """Does our znode stand there, with the newest data, as far as we know?"""
        return self._is_sure and self._written == self.data

    def update(self, data: str | bytes) -> None:
        """What others are to read from now on. Written as soon as there is a connection;
        `settled` tells when that is done. Raises `TooLarge`: then what was there stays."""
        self.data = fitting(self._client, self.path, data)
        self._moved.set()

    async def settled(self, timeout: float | None = None) -> None:
        """Return when our znode stands there with the newest data. Raises TimeoutError after
        `timeout` seconds (it goes on being tried), or what ended it: `SessionClosed`, a refusal."""
        changed = asyncio.Event()
        self._listeners.append(changed)
        try:
            async with asyncio.timeout(timeout):
                while not self.is_in:
                    if self._error is not None:
                        raise self._error
                    changed.clear()
                    await changed.wait()
        finally:
            self._listeners.remove(changed)

    @property
    def _is_made(self) -> bool:
        """Was it there in this session?"""
        return self._stat is not None and self._stat.ephemeralOwner == self._client.session_id

    @property
    def _is_sure(self) -> bool:
        return self._is_made and self._sure_at == self._doubts

    async def joined(self, timeout: float | None) -> None:
        """Return when we are in; raises as `Group.join` does."""
        try:
            await self.settled(timeout)
        except TimeoutError:
            assert timeout is not None
            if not self._other:
                raise NotSent(f"join {self.path}", f"no answer within {timeout:g} s") from None
            raise NameTaken(self.path, timeout, self._other) from None

    def leave(self) -> None:
        """Be in no more, waiting for nothing: `leaving` is a duty of the session."""
        self._task.cancel()
        self._error = self._error or SessionClosed(self._client.session_id, "it left the group")
        if self._is_sure and self._stat is not None:
            czxid, owner = self._stat.czxid, self._stat.ephemeralOwner
            self.leaving = self._ledger.delete(self.path, czxid, owner)
        else:
            self.leaving = self._ledger.owe(self._remove())

    # Keeping it.

    async def _keep(self) -> None:
        pause = Pause()
        if self._former is not None:
            await asyncio.wait([self._former])
            self._ledger.standing[self.path] = self
        while True:
            try:
                await self._stand()
                pause = Pause()
            except IncumbentError as error:
                if not _passes(error):
                    self._error = error
                    self._tell()
                    return
            await pause.take()

    async def _stand(self) -> None:
        """In one session: make it, and keep it as it should be, until that is over."""
        self._is_over = False
        self._doubts += 1  # from here on it is watched, and was not before
        watch = AddWatch(self.path, WatchMode.PERSISTENT)
        watched = self._client.submit(watch, watcher=self._fired)
        self._sent = _Sent(self._client, self.path, self.data, self._doubts)  # in the same flight
        try:
            await watched
            while not self._is_over:
                self._moved.clear()
                if not self._is_sure:
                    await self._make()
                elif self._written != self.data:
                    await self._write()
                else:
                    await self._moved.wait()
        finally:
            self._client.unwatch(self.path, self._fired)

    async def _make(self) -> None:
        """Make it, or see that it is there; or wait until somebody else's is gone."""
        if self._sent is None and self._is_made and await self._look():
            return
        sent = self._sent or _Sent(self._client, self.path, self.data, self._doubts)
        self._sent = None
        try:
            made: object = await sent.answer
        except NodeExists:
            await self._look()
            return
        except NoNode:
            above = [Create(path) for path in ancestors(self._directory)]
            *results, made = await flight(
                self._client, *above, CreateContainer(self._directory), sent.create
            )
            why = why_not_made(self._client, self.path, results)
            if isinstance(made, NoNode) and why is not None:
                if self._stat is None:
                    raise why from None
                await self._wait_for_better(why)
            if isinstance(made, BaseException) and not isinstance(made, NodeExists | NoNode):
                raise made from None
        if isinstance(made, Created):
            self._know(made.stat, sent.doubts, sent.data)

    async def _wait_for_better(self, why: Refused) -> None:
        """It was there once, and what is above it may be made again by somebody who may."""
        if not self._is_refused:
            self._is_refused = True
            self._ledger.log(f"{self.path} cannot be made again at present: {why}")
        await self._pause.take()

    async def _look(self) -> bool:
        """Is it there? If it is another session's, return when something happened to it."""
        doubts = self._doubts
        stat = await self._client.exists(self.path)
        if stat is None:
            return False
        if stat.ephemeralOwner == self._client.session_id:
            is_same = self._stat is not None and self._stat.czxid == stat.czxid
            self._know(stat, doubts, self._written if is_same else None)
            return True
        self._other = stat.ephemeralOwner
        while self._doubts == doubts and not self._is_over:
            self._moved.clear()
            await self._moved.wait()
        return True

    async def _write(self) -> None:
        data, self._written = self.data, None
        try:
            await self._client.set(self.path, data)
        except NoNode:
            self._doubts += 1
            return
        self._written = data
        self._tell()

    def _know(self, stat: Stat, doubts: int, data: bytes | None) -> None:
        self._stat, self._sure_at, self._written = stat, doubts, data
        self._is_refused, self._pause = False, Pause()
        self._other = 0
        self._tell()

    def _tell(self) -> None:
        for event in self._listeners:
            event.set()

    def _fired(self, event: WatchEvent) -> None:
        if event.state is KeeperState.EXPIRED:
            self._is_over = True
        if event.type in (EventType.DELETED, EventType.NONE):
            self._doubts += 1
        self._moved.set()

    # Leaving.

    async def _remove(self) -> None:
        """Delete it if it stands there, and a create of ours that is still on its way too: that
        is behind us when a write sent after it has been answered."""
        pause = Pause()
        try:
            if self._former is not None:
                await asyncio.wait([self._former])
            while True:
                checked, stat = await flight(
                    self._client, Multi([Check(self._directory)]), Exists(self.path)
                )
                if isinstance(checked, NoNode) or isinstance(stat, NoNode):
                    return
                if _passes(checked) or _passes(stat):
                    await pause.take()
                    continue
                if isinstance(stat, Stat) and stat.ephemeralOwner == self._client.session_id:
                    await self._ledger.delete(self.path, stat.czxid, stat.ephemeralOwner)
                return
        finally:
            if self._ledger.standing.get(self.path) is self:
                del self._ledger.standing[self.path]


class _Sent:
    """A create on its way: with what data, and how many doubts there were before it."""

    def __init__(self, client: Client, path: str, data: bytes, doubts: int) -> None:
        self.create = Create2(path, data, flags=CreateFlag.EPHEMERAL)
        self.data = data
        self.doubts = doubts
        self.answer = client.submit(self.create)
        self.answer.add_done_callback(lambda done: done.cancelled() or done.exception())


def _passes(error: object) -> bool:
    """Will it work later? A server that cannot write now, for a full disk, will."""
    if isinstance(error, Refused):
        return error.code == -1
    is_lost = isinstance(error, FateUnknown | NotSent | SessionExpired)
    return is_lost and not isinstance(error, TooLarge)
