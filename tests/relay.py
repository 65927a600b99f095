"""A small TCP relay between clients and a server, for faults of the network.

Rule of this file: it passes bytes on, late or not at all; it never changes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

__all__ = ["Relay", "relay_to"]


class Relay:
    """Listens on `hosts` and passes on to one server.

    delay        seconds for each way
    swallow_up   what clients send goes nowhere, and nobody is told (a black hole)
    swallow_down the same for what the server sends
    connections  how many were ever accepted
    """

    def __init__(self, host: str, port: int) -> None:
        self.delay = 0.0
        self.swallow_up = False
        self.swallow_down = False
        self.connections = 0
        self._target = (host, port)
        self._pairs: dict[_End, None] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen; after `refuse` again on the same port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self, None), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """New connections are refused; those that are open stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def black_hole(self) -> None:
        """Both ways at once."""
        self.swallow_up = self.swallow_down = True

    def heal(self) -> None:
        """What comes from now on passes; what was swallowed stays lost, so cut what is open."""
        self.swallow_up = self.swallow_down = False
        self.cut()

    def cut(self) -> None:
        """End every open connection, at both ends."""
        for end in tuple(self._pairs):
            end.close()

    def stop(self) -> None:
        self.refuse()
        self.cut()


class _End(asyncio.Protocol):
    """One end of a relayed connection. The client's end makes the server's."""

    def __init__(self, relay: Relay, peer: _End | None) -> None:
        self.relay = relay
        self.peer = peer
        self.is_upward = peer is None
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        self.relay._pairs[self] = None
        if self.is_upward:
            self.relay.connections += 1
            self.task = asyncio.get_running_loop().create_task(self._reach())
        for data in self.waiting:
            self.transport.write(data)

    async def _reach(self) -> None:
        self.peer = _End(self.relay, self)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self.peer or _End(self.relay, self), *self.relay._target
            )
        except OSError:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self.relay.swallow_up if self.is_upward else self.relay.swallow_down:
            return
        if self.peer is None:  # not even asked for: the task runs after this
            asyncio.get_running_loop().call_soon(self.data_received, data)
        elif self.relay.delay:
            asyncio.get_running_loop().call_later(self.relay.delay, self.peer.pass_on, data)
        else:
            self.peer.pass_on(data)

    def pass_on(self, data: bytes) -> None:
        if self.transport is None:
            self.waiting.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay._pairs.pop(self, None)
        if self.peer is not None:
            self.peer.close()

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.transport is not None:
            self.transport.abort()


@asynccontextmanager
async def relay_to(hosts: str) -> AsyncIterator[Relay]:
    """A relay to `host:port`, stopped at the end."""
    host, _, port = hosts.rpartition(":")
    relay = Relay(host, int(port))
    await relay.start()
    try:
        yield relay
    finally:
        relay.stop()
