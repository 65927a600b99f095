"""One TCP connection: bytes to frames, and the peer's list of replies to bytes.

Rule of this file: a connection decides nothing. What comes in waits in its queue for the server;
what goes out was released by the server. A client that does not read is not served, and one
that asks without end is not read from, until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

from incumbent.errors import RemoteWireError
from incumbent.server.policy import Policy
from incumbent.server.sessions import Peer
from incumbent.server.traffic import Account, Traffic
from incumbent.server.words import WORDS
from incumbent.wire import FrameDecoder, Id

__all__ = ["Connection", "Inbox"]

_FRAME_COST = 4096  # what a waiting request counts for at least, in bytes

_ENOUGH = 256 * 1024  # bytes of replies to one connection in one turn


class Inbox(Protocol):
    """What a connection needs of its server."""

    traffic: Traffic
    policy: Policy

    def opened(self, connection: Connection) -> None: ...

    def asked(self, connection: Connection, word: bytes) -> None: ...

    def ready(self, connection: Connection, frames: int) -> None:
        """So many more frames are queued, or its client takes replies again."""

    def lost(self, connection: Connection) -> None: ...

    def unread(self, connection: Connection, size: int) -> None:
        """So many bytes wait for its client to read."""


class Connection(Peer, asyncio.Protocol):
    """A client's connection, from `address` and `port`; `is_secure` if by TLS.

    `idle_since` is when it was first seen to have no session.
    """

    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self.idle_since: float | None = None
        self.address = ""
        self.port = 0
        self.is_secure = False
        self.account = Account()
        self._inbox = inbox
        self._frames = FrameDecoder(inbox.policy.frame_bytes)
        self._head: bytes | None = b""  # the first bytes, until they are four
        self._transport: asyncio.Transport | None = None
        self.queue: deque[bytes | None] = deque()  # None: it will send nothing more
        self._queue_bytes = 0
        self._queue_most = inbox.policy.requests_waiting * _FRAME_COST
        self._is_full = False
        self._is_slow = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        name = transport.get_extra_info("peername")
        self.address, self.port = (str(name[0]), name[1]) if name else ("", 0)
        self.ids = (Id("ip", self.address),)
        encryption = transport.get_extra_info("ssl_object")
        if encryption is not None:
            from incumbent.certificates import certified_ids

            self.is_secure = True
            self.ids += certified_ids(encryption)
        self._inbox.opened(self)

    def data_received(self, data: bytes) -> None:
        self._inbox.traffic.bytes_received += len(data)
        if self._head is not None:
            data = self._head + data
            if len(data) < 4:
                self._head = data
                return
            self._head = None
            if data[:4] in WORDS:
                self.account.received += 1
                self._inbox.asked(self, data[:4])
                return
        if self.is_leaving or self._transport is None:
            return
        try:
            bodies = self._frames.feed(data)
        except RemoteWireError:
            bodies = []
            self._end_queue()
        self.queue.extend(bodies)
        for body in bodies:
            size = len(body)
            self._queue_bytes += size if size > _FRAME_COST else _FRAME_COST
        self.account.received += len(bodies)
        if self._queue_bytes > self._queue_most and not self._is_full:
            self._is_full = True
            self._transport.pause_reading()
        self._inbox.ready(self, len(bodies))

    def eof_received(self) -> bool:
        self._end_queue()
        self._inbox.ready(self, 0)
        return not self.is_secure  # what was asked before is still answered; not so in TLS

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._inbox.lost(self)

    def pause_writing(self) -> None:
        self._is_slow = True

    def resume_writing(self) -> None:
        self._is_slow = False
        self._inbox.unread(self, 0)
        self._inbox.ready(self, 0)

    @property
    def waiting(self) -> int:
        """Requests that are not yet served."""
        return len(self.queue)

    @property
    def is_servable(self) -> bool:
        """Something is queued, and its client takes replies."""
        return bool(self.queue) and not self._is_slow and self.out_bytes < _ENOUGH

    def take(self) -> bytes | None:
        """The next frame of the queue; None at the end of all."""
        body = self.queue.popleft()
        size = len(body) if body else 0
        self._queue_bytes -= size if size > _FRAME_COST else _FRAME_COST
        if self._is_full and self._queue_bytes < self._queue_most / 2:
            self._is_full = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return body

    def flush(self) -> None:
        """Send what was released; close if it is leaving."""
        if self._transport is None:
            return
        if self.out:
            self.account.sent += len(self.out)
            data = b"".join(self.out)
            self._inbox.traffic.bytes_sent += len(data)
            self._transport.write(data)
            self.out.clear()
            self.out_bytes = self.events = 0
            if self._is_slow:
                self._inbox.unread(self, self._transport.get_write_buffer_size())
        if self.is_cut:
            self._transport.abort()
        elif self.is_leaving:
            self._transport.close()

    def send(self, data: bytes) -> None:
        """Send what needs no release."""
        if self._transport is not None:
            self._inbox.traffic.bytes_sent += len(data)
            self._transport.write(data)

    def abort(self) -> None:
        """Close now; what was not released is never sent."""
        self.out.clear()
        self.queue.clear()
        self.is_leaving = self.is_cut = True
        if self._transport is not None:
            self._transport.abort()

    def _end_queue(self) -> None:
        self.queue.append(None)
        self._queue_bytes += _FRAME_COST
