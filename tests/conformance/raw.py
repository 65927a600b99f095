"""A ZooKeeper client made of frames: no retries, no state machine, every byte shown.

Rule of this file: it sends exactly what it is told and keeps everything that came, in order.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from incumbent.wire import (
    ConnectRequest,
    ConnectResponse,
    ReplyHeader,
    Request,
    WatchEvent,
    Xid,
    frame,
)
from incumbent.wire.jute import Reader

__all__ = ["Closed", "RawClient", "Reply"]


class Closed(Exception):
    """The server closed the connection."""


class Reply(NamedTuple):
    """A reply as it came; `value` is None where there was no body, or for an error."""

    xid: int
    zxid: int
    err: int
    value: Any
    body: bytes


class RawClient:
    """One connection. `timeout` (seconds) bounds every wait."""

    def __init__(self, host: str, port: int, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self.session: ConnectResponse | None = None
        self.events: list[WatchEvent] = []  # those that came before the last reply, unread
        self._xid = 0

    @classmethod
    def connected(
        cls, host: str, port: int, *, timeout_ms: int = 10_000, last_zxid: int = 0
    ) -> RawClient:
        """A connection with a new session."""
        client = cls(host, port)
        client.connect(timeout_ms=timeout_ms, last_zxid=last_zxid)
        return client

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the session goes on."""
        self.socket.close()

    @property
    def session_id(self) -> int:
        assert self.session is not None
        return self.session.session_id

    def connect(
        self,
        *,
        timeout_ms: int = 10_000,
        session_id: int = 0,
        password: bytes = bytes(16),
        last_zxid: int = 0,
        read_only: bool | None = False,
    ) -> ConnectResponse:
        asked = ConnectRequest(last_zxid, timeout_ms, session_id, password, read_only)
        self.send(asked.encode())
        self.session = ConnectResponse.decode(self.receive())
        return self.session

    def send(self, body: bytes) -> None:
        self.socket.sendall(frame(body))

    def receive(self) -> bytes:
        """The next frame's body. Raises `Closed` at its end, `TimeoutError`."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def is_closed(self) -> bool:
        """Wait for the server to close; False if it sent something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def submit(self, request: Request, xid: int | None = None) -> int:
        """Send a request, wait for nothing; its xid."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send(request.encode(xid))
        return xid

    def reply(self, request: Request | None = None) -> Reply:
        """The next reply, decoded as one to `request`; events before it go to `events`."""
        while True:
            body = self.receive()
            reader = Reader(body)
            header = ReplyHeader.read(reader)
            if header.xid == Xid.EVENT:
                self.events.append(WatchEvent.read(reader))
                continue
            value = None
            if request is not None and header.err == 0 and reader.left:
                value = request.decode_answer(reader)
            return Reply(header.xid, header.zxid, header.err, value, body[16:])

    def event(self) -> WatchEvent:
        """The next event; a reply in its place is a failure."""
        if self.events:
            return self.events.pop(0)
        reader = Reader(self.receive())
        header = ReplyHeader.read(reader)
        assert header.xid == Xid.EVENT, f"expected an event, came {header}"
        return WatchEvent.read(reader)

    def call(self, request: Request, xid: int | None = None) -> Reply:
        """Send a request and wait for its reply."""
        sent = self.submit(request, xid)
        reply = self.reply(request)
        assert reply.xid == sent, f"sent {sent}, answered {reply}"
        return reply

    def flight(self, requests: Sequence[Request]) -> list[Reply]:
        """Send all, then take all replies."""
        self._xid += 1
        first = self._xid
        self._xid += len(requests) - 1
        self.socket.sendall(b"".join(frame(r.encode(first + i)) for i, r in enumerate(requests)))
        return [self.reply(request) for request in requests]

    def _exactly(self, count: int) -> bytes:
        chunks = []
        while count:
            try:
                chunk = self.socket.recv(count)
            except ConnectionError:
                raise Closed from None
            if not chunk:
                raise Closed
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)
