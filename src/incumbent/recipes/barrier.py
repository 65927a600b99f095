"""A barrier: while its znode is there, whoever comes waits.

A server of an ensemble may not know yet that it was put up. So the look goes with a
`multi[check]`, in one flight: what is read behind it is no older than its beginning.

Rule of this file: somebody passes only by the word of a quorum that the znode is not there.
"""

from __future__ import annotations

import asyncio

from incumbent.client import Client
from incumbent.errors import FateUnknown, IncumbentError, NodeExists, NoNode, NotSent
from incumbent.recipes.content import as_bytes
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Pause
from incumbent.recipes.readback import is_passing, read_back, tells_nothing
from incumbent.wire import (
    Check,
    Create,
    Create2,
    Created,
    EventType,
    Exists,
    GetData,
    Multi,
    Stat,
    WatchEvent,
)
from incumbent.wire.paths import ancestors, problem

__all__ = ["Barrier"]

_TRIES = 5


class Barrier:
    """The barrier at `path`, a persistent znode: it stays up when whoever made it dies."""

    def __init__(self, client: Client, path: str) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.client = client
        self.path = path
        self._czxid: int | None = None

    async def create(self, data: str | bytes = b"") -> bool:
        """Put it up; False if it was up already. One round trip.

        Raises `FateUnknown` if an answer was lost and the session that asked ended with it.
        """
        create = Create2(self.path, as_bytes(data))
        above: list[Create] = []
        for _ in range(_TRIES):
            session_id = self.client.session_id
            *results, made = await flight(self.client, *above, create)
            if isinstance(made, FateUnknown):
                stat = await self._stat_after(made)
                if stat is not None:
                    return True  # by us or by somebody else, just now
                if self.client.session_id != session_id:
                    raise made
            elif isinstance(made, Created):
                self._czxid = made.stat.czxid
                return True
            elif isinstance(made, NodeExists):
                return False
            elif isinstance(made, NoNode):
                if why := why_not_made(self.client, self.path, results):
                    raise why
                above = [Create(path) for path in ancestors(self.path)]
            elif isinstance(made, BaseException):
                raise made
        raise NotSent(f"create {self.path}", "its parents or the connection kept going away")

    async def remove(self) -> bool:
        """Take it down, whoever put it up; False if it was not up. One round trip.

        Raises `FateUnknown` if an answer was lost and a barrier is up: the old one, or another
        that somebody put up since.
        """
        session_id = self.client.session_id
        try:
            await self.client.delete(self.path)
        except NoNode:
            return False
        except FateUnknown as lost:
            stat = await self._stat_after(lost)
            if stat is None:
                return True
            if stat.czxid != self._czxid or self.client.session_id != session_id:
                raise lost
            return await self.remove()
        return True

    async def wait(self, timeout: float | None = None) -> bool:
        """Return when it is not there: True; False if no server said so within `timeout` seconds.

        One round trip if it is not up, and none after it was taken down. Waits through
        disconnections and into later sessions.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout={timeout}: seconds, 0 to look once, None to wait for ever")
        if timeout == 0:
            (stat,) = await read_back(self.client, Exists(self.path))
            return isinstance(stat, NoNode)
        try:
            async with asyncio.timeout(timeout):
                await self._wait()
        except TimeoutError:
            return False
        return True

    async def _stat_after(self, lost: FateUnknown) -> Stat | None:
        """The barrier, as it is after a write whose answer was lost; raises that if not known."""
        try:
            (stat,) = await read_back(self.client, Exists(self.path))
        except IncumbentError as error:
            raise FateUnknown(lost.what, f"{lost.why}; {error}") from None
        if isinstance(stat, Stat):
            return stat
        if isinstance(stat, NoNode):
            return None
        raise lost

    async def _wait(self) -> None:
        pause = Pause()
        happened: asyncio.Queue[WatchEvent] = asyncio.Queue()
        watcher = happened.put_nowait
        try:
            while True:
                ordered = self.client.submit(Multi([Check("/")]))
                # A watch on data goes with the znode, one on its existence would stay.
                look = self.client.submit(GetData(self.path, True), watcher=watcher)
                results = await asyncio.gather(ordered, look, return_exceptions=True)
                failed = [each for each in results if tells_nothing(each)]
                if failed and not is_passing(failed[0]):
                    raise failed[0]
                if failed:
                    await pause.take()
                    continue
                if isinstance(results[1], NoNode):
                    return
                if isinstance(results[1], BaseException):
                    raise results[1]
                if (await happened.get()).type is EventType.DELETED:
                    return
        finally:
            self.client.unwatch(self.path, watcher)
