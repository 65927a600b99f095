"""A barrier: while its znode is there, whoever comes waits.

Rule of this file: somebody passes only by the server's word that the znode is not there.
"""

from __future__ import annotations

import asyncio

from incumbent.client import Client
from incumbent.errors import FateUnknown, NodeExists, NoNode, NotSent, SessionExpired
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import flight
from incumbent.recipes.readback import read_back
from incumbent.wire import Create, Create2, Created, EventType, Exists, Stat, WatchEvent
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
        create = Create2(self.path, data.encode() if isinstance(data, str) else data)
        above: list[Create] = []
        for _ in range(_TRIES):
            session_id = self.client.session_id
            *_, made = await flight(self.client, *above, create)
            if isinstance(made, FateUnknown):
                (stat,) = await read_back(self.client, Exists(self.path))
                if isinstance(stat, Stat):
                    return True  # by us or by somebody else, just now
                if self.client.session_id != session_id:
                    raise made
            elif isinstance(made, Created):
                self._czxid = made.stat.czxid
                return True
            elif isinstance(made, NodeExists):
                return False
            elif isinstance(made, NoNode):
                above = [Create(path) for path in ancestors(self.path)]
            elif isinstance(made, BaseException):
                raise made
        raise NotSent(f"create {self.path}", "its parents or the connection kept going away")

    async def remove(self) -> bool:
        """Take it down, whoever put it up; False if it was not up. One round trip.

        Raises `FateUnknown` if an answer was lost and a barrier is up: the old one, or another
        that somebody put up since.
        """
        try:
            await self.client.delete(self.path)
        except NoNode:
            return False
        except FateUnknown as lost:
            session_id = self.client.session_id
            (stat,) = await read_back(self.client, Exists(self.path))
            if isinstance(stat, NoNode):
                return True
            is_ours = isinstance(stat, Stat) and stat.czxid == self._czxid
            if not is_ours or self.client.session_id != session_id:
                raise lost
            return await self.remove()
        return True

    async def wait(self, timeout: float | None = None) -> bool:
        """Return when it is not there: True; False if it still is after `timeout` seconds.

        One round trip if it is not up, and none after it was taken down. Waits through
        disconnections and into later sessions.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout={timeout}: seconds, 0 to look once, None to wait for ever")
        if timeout == 0:
            return await self.client.exists(self.path) is None
        try:
            async with asyncio.timeout(timeout):
                await self._wait()
        except TimeoutError:
            return False
        return True

    async def _wait(self) -> None:
        pause = Pause()
        happened: asyncio.Queue[WatchEvent] = asyncio.Queue()
        watcher = happened.put_nowait
        try:
            while True:
                try:
                    # A watch on data goes with the znode, one on its existence would stay.
                    await self.client.get(self.path, watcher=watcher)
                except NoNode:
                    return
                except (FateUnknown, NotSent, SessionExpired):
                    await pause.take()
                    continue
                if (await happened.get()).type is EventType.DELETED:
                    return
        finally:
            self.client.unwatch(self.path, watcher)
