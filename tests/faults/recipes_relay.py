"""Between clients and a server: it sees every request and answer, and loses what a test says.

Rule of this file: it loses, delays and cuts; it never invents or changes a frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from incumbent.wire import FrameDecoder, ReplyHeader, Request, Xid, decode_request, frame
from incumbent.wire.jute import Reader

__all__ = ["Relay", "relay_to"]


class Relay:
    """A TCP relay to one server.

    requests    every request that came from clients, in order
    events      how many watch events went to clients
    lose_answer a request for which this is true reaches the server; when its answer comes, the
                connection is cut instead
    lose_request a request for which this is true is not passed on, and the connection is cut
    on_answer   called with each request when its answer has been passed on
    is_closed   new connections are cut at once
    is_silent   nothing is passed on any more, in either direction, and nothing is cut
    """

    def __init__(self, host: str, port: int) -> None:
        self.requests: list[Request] = []
        self.events = 0
        self.lose_answer: Callable[[Request], bool] = lambda request: False
        self.lose_request: Callable[[Request], bool] = lambda request: False
        self.on_answer: Callable[[Request], None] = lambda request: None
        self.is_closed = False
        self.is_silent = False
        self._target = (host, port)
        self._pairs: dict[_Pair, None] = {}
        self._server: asyncio.Server | None = None
        self.hosts = ""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pair(self).near, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.hosts = f"{host}:{port}"

    def cut(self) -> None:
        """Every connection, now."""
        for pair in list(self._pairs):
            pair.cut()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()


class _Pair:
    """One client's connection and ours to the server for it."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.near = _End(self.from_client, self.opened, self.cut)
        self.far = _End(self.from_server, lambda: None, self.cut)
        self.early: list[bytes] = []
        self.sent: dict[int, list[Request]] = {}
        self.is_first_request = self.is_first_answer = True

    def opened(self) -> None:
        self.relay._pairs[self] = None
        if self.relay.is_closed:
            self.cut()
            return
        self.task = asyncio.get_running_loop().create_task(self.dial())

    async def dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self.far, *self.relay._target
            )
        except OSError:
            self.cut()
            return
        for body in self.early:
            self.far.send(body)

    def cut(self) -> None:
        self.relay._pairs.pop(self, None)
        self.near.abort()
        self.far.abort()

    def from_client(self, body: bytes) -> None:
        if self.relay.is_silent:
            return
        if self.is_first_request:
            self.is_first_request = False
        else:
            xid, _, request = decode_request(body)
            if request is not None:
                self.relay.requests.append(request)
                if self.relay.lose_request(request):
                    self.cut()
                    return
                self.sent.setdefault(xid, []).append(request)
        if self.far.transport is None:
            self.early.append(body)
        else:
            self.far.send(body)

    def from_server(self, body: bytes) -> None:
        if self.relay.is_silent:
            return
        request: Request | None = None
        if self.is_first_answer:
            self.is_first_answer = False
        else:
            xid = ReplyHeader.read(Reader(body)).xid
            self.relay.events += xid == Xid.EVENT
            if sent := self.sent.get(xid):
                request = sent.pop(0)
                if self.relay.lose_answer(request):
                    self.cut()
                    return
        self.near.send(body)
        if request is not None:
            self.relay.on_answer(request)


class _End(asyncio.Protocol):
    def __init__(
        self, took: Callable[[bytes], None], made: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(64 * 1024 * 1024)
        self._took, self._made, self._lost = took, made, lost
        self._is_over = False

    def send(self, body: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame(body))

    def abort(self) -> None:
        self._is_over = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        if self._is_over:
            self.transport.abort()
        self._made()

    def data_received(self, data: bytes) -> None:
        for body in self._decoder.feed(data):
            if self._is_over:
                return
            self._took(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


@asynccontextmanager
async def relay_to(host: str, port: int) -> AsyncIterator[Relay]:
    relay = Relay(host, port)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
