"""A server that does what a test says: answers late, wrongly, twice, or not at all.

Rule of this file: by default it answers everything as an empty ZooKeeper would that agrees to
all; each deviation is a line of the test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from incumbent.client import Client, State
from incumbent.wire import (
    AddWatch,
    Check,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Create2,
    CreateContainer,
    Created,
    Exists,
    FrameDecoder,
    GetChildren,
    GetData,
    Multi,
    Op,
    ReplyHeader,
    Request,
    SetData,
    Stat,
    Sync,
    WatchEvent,
    decode_request,
    frame,
)

__all__ = ["STAT", "Peer", "ScriptedServer", "ShiftedClock", "client_of", "reached", "scripted"]

STAT = Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


class ShiftedClock:
    """The kernel's clock, put forward by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def boottime(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def wall(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: on which connection, under which xid."""

    connection: int
    xid: int
    request: Request | None


class ScriptedServer:
    """One listening port; sessions are numbers from 1, their timeout is what was asked for.

    on_hello    ConnectRequest → the answer; None keeps silent, ConnectionError closes
    on_request  (peer, xid, request) → True if the test has dealt with it
    on_end      called when a connection has ended
    """

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.hellos: list[ConnectRequest] = []
        self.seen: list[Seen] = []
        self.peers: list[Peer] = []
        self.on_hello: Callable[[ConnectRequest], ConnectResponse | None] = self.grant
        self.on_request: Callable[[Peer, int, Request], bool] = lambda peer, xid, request: False
        self.zxid = 100
        self.sessions = 0
        self.address = address
        self.port = port
        self._server: asyncio.Server | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, kind: type[Request]) -> list[Any]:
        """All requests of this kind so far, in order."""
        return [seen.request for seen in self.seen if isinstance(seen.request, kind)]

    def grant(self, hello: ConnectRequest) -> ConnectResponse | None:
        if hello.session_id:
            return ConnectResponse(hello.timeout_ms, hello.session_id, hello.password)
        self.sessions += 1
        return ConnectResponse(hello.timeout_ms, self.sessions, bytes([self.sessions]) * 16)

    def refuse(self, hello: ConnectRequest) -> ConnectResponse | None:
        """The server's word that a session has expired; new ones are granted."""
        return ConnectResponse(0, 0, bytes(16)) if hello.session_id else self.grant(hello)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), self.address, self.port)
        self.port = self.port or self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """No more connections, and those that are open end."""
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            peer.close()

    @property
    def peer(self) -> Peer:
        """The newest connection."""
        return self.peers[-1]


class Peer(asyncio.Protocol):
    """One connection, at the server's end."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.number = len(server.peers) + 1
        self.is_greeted = False
        self.is_open = True
        self.decoder = FrameDecoder(1 << 24)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        self.server.peers.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False

    def data_received(self, data: bytes) -> None:
        for body in self.decoder.feed(data):
            if self.transport.is_closing():
                return
            if not self.is_greeted:
                self._greet(ConnectRequest.decode(body))
            else:
                self._serve(body)

    def _greet(self, hello: ConnectRequest) -> None:
        self.is_greeted = True
        self.server.hellos.append(hello)
        try:
            answer = self.server.on_hello(hello)
        except ConnectionError:
            self.close()
            return
        if answer is not None:
            self.transport.write(frame(answer.encode()))
            if answer.timeout_ms == 0:
                self.transport.close()

    def _serve(self, body: bytes) -> None:
        xid, _, request = decode_request(body)
        self.server.seen.append(Seen(self.number, xid, request))
        assert request is not None
        if not self.server.on_request(self, xid, request):
            self.answer(xid, request)
            if isinstance(request, CloseSession):
                self.transport.close()

    def answer(self, xid: int, request: Request, value: Any = None) -> None:
        """Say yes; `value` in place of the usual answer."""
        self.server.zxid += 1
        header = ReplyHeader(xid, self.server.zxid, 0).encode()
        self.raw(header + request.encode_answer(_usual(request) if value is None else value))

    def refuse(self, xid: int, code: int) -> None:
        self.raw(ReplyHeader(xid, self.server.zxid, code).encode())

    def event(self, event: WatchEvent) -> None:
        self.raw(event.encode())

    def raw(self, body: bytes) -> None:
        self.transport.write(frame(body))

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        self.transport.abort()


def _usual(request: Request) -> Any:
    match request:
        case Create2() | CreateContainer():
            return Created(request.path, STAT)
        case Exists() | SetData():
            return STAT
        case GetData():
            return (b"", STAT)
        case GetChildren():
            return []
        case AddWatch():
            return 0
        case Sync():
            return request.path
        case Multi():
            return [(op.op, _in_multi(op)) for op in request.ops]
        case _:
            return None


def _in_multi(op: Any) -> Any:
    if isinstance(op, Check) or op.op is Op.DELETE:
        return None
    return STAT if op.op is Op.SET_DATA else op.path


async def reached(client: Client, *states: State) -> None:
    """Return when the client is in one of these states."""
    there = asyncio.Event()
    forget = client.watch_state(lambda state: there.set() if state in states else None)
    try:
        if client.state not in states:
            await there.wait()
    finally:
        forget()


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def client_of(server: ScriptedServer | str, **settings: Any) -> AsyncIterator[Client]:
    """A connected client with quick numbers, closed at the end."""
    settings = {"session_timeout": 2.0, "tick": 0.0, "rng": random.Random(1)} | settings
    client = Client(server if isinstance(server, str) else server.hosts, **settings)
    try:
        await client.connect(5.0)
        yield client
    finally:
        await client.close()
