"""One TCP connection: bytes to frames, and the peer's list of replies to bytes.

Rule of this file: a connection decides nothing. What comes in goes to the server's queue in
order; what goes out was released by the server. A client that does not read, or asks without
end, is not read from until it has caught up.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from incumbent.errors import RemoteWireError
from incumbent.server.service import Peer
from incumbent.wire import MAX_FRAME, FrameDecoder

__all__ = ["WORDS", "Connection", "Inbox"]

WORDS = (b"ruok", b"srvr")
"""Four-letter words: as a frame's length they would be over a gigabyte."""

_QUEUE_HIGH, _QUEUE_LOW = 1000, 250  # requests of one connection that wait to be served


class Inbox(Protocol):
    """What a connection needs of its server."""

    def opened(self, connection: Connection) -> None: ...

    def received(self, connection: Connection, body: bytes) -> None: ...

    def asked(self, connection: Connection, word: bytes) -> None: ...

    def ended(self, connection: Connection) -> None:
        """It will send nothing more; what it sent is still to be answered."""

    def lost(self, connection: Connection) -> None: ...


class Connection(Peer, asyncio.Protocol):
    """A client's connection; `opened_at` is boottime seconds."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self.opened_at = 0.0
        self._inbox = inbox
        self._frames = FrameDecoder(MAX_FRAME)
        self._head: bytes | None = b""  # the first bytes, until they are four
        self._transport: asyncio.Transport | None = None
        self._waiting = 0
        self._is_full = False
        self._is_slow = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        self._inbox.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            data = self._head + data
            if len(data) < 4:
                self._head = data
                return
            self._head = None
            if data[:4] in WORDS:
                self._inbox.asked(self, data[:4])
                return
        if self.is_leaving:
            return
        try:
            bodies = self._frames.feed(data)
        except RemoteWireError:
            self._inbox.ended(self)
            return
        for body in bodies:
            self._waiting += 1
            self._inbox.received(self, body)
        if self._waiting > _QUEUE_HIGH and not self._is_full:
            self._is_full = True
            self._read_or_not()

    def eof_received(self) -> bool:
        self._inbox.ended(self)
        return True  # what was asked before is still answered

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._inbox.lost(self)

    def pause_writing(self) -> None:
        self._is_slow = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._is_slow = False
        self._read_or_not()

    def served(self) -> None:
        """One of its requests left the queue."""
        self._waiting -= 1
        if self._is_full and self._waiting < _QUEUE_LOW:
            self._is_full = False
            self._read_or_not()

    def flush(self) -> None:
        """Send what was released; close if it is leaving."""
        if self._transport is None:
            return
        if self.out:
            self._transport.write(b"".join(self.out))
            self.out.clear()
        if self.is_cut:
            self._transport.abort()
        elif self.is_leaving:
            self._transport.close()

    def abort(self) -> None:
        """Close now; what was not released is never sent."""
        self.out.clear()
        self.is_leaving = self.is_cut = True
        if self._transport is not None:
            self._transport.abort()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_full or self._is_slow:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
