"""A running server and clients of it inside one event loop.

Rule of this file: every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from incumbent.server import MemoryStore, Server
from incumbent.wire import ConnectRequest, ConnectResponse, ReplyHeader, Request, frame
from incumbent.wire.jute import Reader

__all__ = ["Client", "connect", "running"]


class Client:
    """Frames over a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.session = ConnectResponse(0, 0, b"")

    def send(self, *requests: Request) -> None:
        self.writer.write(b"".join(frame(r.encode(i + 1)) for i, r in enumerate(requests)))

    async def receive(self) -> bytes:
        (length,) = (int.from_bytes(await self.reader.readexactly(4), "big"),)
        return await self.reader.readexactly(length)

    async def reply(self) -> ReplyHeader:
        return ReplyHeader.read(Reader(await asyncio.wait_for(self.receive(), 10)))

    async def call(self, request: Request) -> ReplyHeader:
        self.send(request)
        return await self.reply()

    async def ended(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        return True


async def connect(server: Server, timeout_ms: int = 10_000, **asked: object) -> Client:
    client = Client(*await asyncio.open_connection(server.host, server.port))
    fields = {"last_zxid": 0, "session_id": 0, "password": bytes(16)} | asked
    client.writer.write(frame(ConnectRequest(timeout_ms=timeout_ms, **fields).encode()))  # type: ignore[arg-type]
    client.session = ConnectResponse.decode(await asyncio.wait_for(client.receive(), 10))
    return client


@contextlib.asynccontextmanager
async def running(store: MemoryStore, **options: object) -> AsyncIterator[Server]:
    server = Server(store, **options)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
