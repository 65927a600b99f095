"""The line between a client and the embedded server, where mishaps happen.

A `Line` takes the place of a server's connection at its transport, and the transport's place at
the connection. It reads frames in both directions, so that it knows which reply answers which
request, and passes on the same bytes: the server behind it is the real one, undisturbed.

Rule of this file: nothing overtakes anything that went the same way before it.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from incumbent.errors import RemoteWireError
from incumbent.testing.mishaps import Fate, Mishap, Mishaps
from incumbent.wire import Exists, ReplyHeader, Xid, decode_request, frame
from incumbent.wire.jute import Reader

__all__ = ["Lane", "Line"]

_LARGEST = 64 * 1024 * 1024
"""A longer frame is none: four letters, or noise."""

_HEADER = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_SESSION = struct.Struct(">iiq")  # of a ConnectResponse: protocol version, timeout, session id


class Lane:
    """One direction: steps are taken in order, none before its time, none while it is shut."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps: deque[tuple[float, Callable[[], object]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.is_shut = False

    def then(self, step: Callable[[], object], delay: float = 0.0) -> None:
        self._steps.append((self._loop.time() + delay, step))
        self.go_on()

    def go_on(self) -> None:
        while self._steps and not self.is_shut:
            due, step = self._steps[0]
            if due > self._loop.time():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(due, self.go_on)
                return
            self._steps.popleft()
            step()

    def forget(self) -> None:
        self._steps.clear()


class _Cutter:
    """A stream of bytes cut into whole frames, their lengths included."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_raw = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while not self.is_raw and len(self._rest) >= 4:
            (length,) = _LENGTH.unpack_from(self._rest)
            if not 0 <= length <= _LARGEST:
                self.is_raw = True
            elif len(self._rest) < 4 + length:
                return
            else:
                whole, self._rest = self._rest[: 4 + length], self._rest[4 + length :]
                yield whole
        if self.is_raw and self._rest:
            yield self.rest()

    def rest(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


class Line(asyncio.Protocol):
    """The protocol of a client's transport; `connection` is the server's.

    inward      from the client to the server
    outward     from the server to the client
    session_id  0 until the server granted one
    gone        set once the client's connection is closed
    """

    def __init__(
        self, connection: asyncio.Protocol, mishaps: Mishaps, lines: dict[Line, None]
    ) -> None:
        self.session_id = 0
        self.gone = asyncio.Event()
        self.inward = Lane()
        self.outward = Lane()
        self._connection = connection
        self._mishaps = mishaps
        self._lines = lines
        self._asked = _Cutter()
        self._told = _Cutter()
        self._was_asked = False  # its first frame, the handshake, came
        self._was_answered = False
        self._awaited: deque[Mishap | None] = deque()  # per reply to come, what is to befall it
        self._transport: asyncio.Transport | None = None
        self._is_lost = False
        self._loop = asyncio.get_running_loop()

    # -- from the client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lines[self] = None
        self._connection.connection_made(_ServersEnd(self, self._transport))

    def data_received(self, data: bytes) -> None:
        for piece in self._asked.feed(data):
            if self._asked.is_raw or not self._was_asked:
                self._was_asked = True
                self._pass_in(piece)
            elif not self._meet(piece):
                return

    def eof_received(self) -> bool:
        rest = self._asked.rest()
        if rest:
            self._pass_in(rest)
        self.inward.then(self._connection.eof_received)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lines.pop(self, None)
        self.gone.set()
        self.inward.then(lambda: self.lose(exc))

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def _meet(self, piece: bytes) -> bool:
        """A request: on to the server, unless a mishap befalls it. False if that ended all."""
        xid, op, request = _decoded(piece[4:])
        mishap = self._mishaps.meet(self.session_id, op, request)
        delay = 0.0
        match mishap.fate if mishap else None:
            case Fate.REQUEST_LOST:
                assert mishap is not None
                self.cut()
                mishap.befell()
                return False
            case Fate.LATE:
                assert mishap is not None
                delay = mishap.seconds
                mishap.befell()
                mishap = None
            case Fate.REFUSED:  # the server answers something harmless, in its place in the order
                piece = frame(Exists("/", False).encode(xid))
        self._awaited.append(mishap)
        self._pass_in(piece, delay)
        return True

    def _pass_in(self, piece: bytes, delay: float = 0.0) -> None:
        def hand_over() -> None:
            if not self._is_lost:
                self._connection.data_received(piece)

        self.inward.then(hand_over, delay)

    # -- from the server

    def tell(self, data: bytes) -> None:
        """What the server wrote: whole frames, or the answer to four letters."""
        if self._asked.is_raw or self._told.is_raw:
            self._pass_out(data)
            return
        for piece in self._told.feed(data):
            if not self._was_answered:
                self._was_answered = True
                _, _, self.session_id = _SESSION.unpack_from(piece, 4)
            elif not self._told.is_raw and _decoded_xid(piece) != Xid.EVENT:
                mishap = self._awaited.popleft() if self._awaited else None
                if mishap is not None and mishap.fate is Fate.REPLY_LOST:
                    self.cut()
                    mishap.befell()
                    return
                if mishap is not None:
                    header = ReplyHeader.read(Reader(piece[4:]))
                    piece = frame(ReplyHeader(header.xid, header.zxid, mishap.code).encode())
                    mishap.befell()
            self._pass_out(piece)

    def _pass_out(self, piece: bytes) -> None:
        def write() -> None:
            if self._transport is not None:
                self._transport.write(piece)

        self.outward.then(write)

    def close(self) -> None:
        """The server closes: the client learns of it after what it was told before."""
        if self.outward.is_shut:
            self._loop.call_soon(self.lose, None)
        transport = self._transport
        if transport is not None:
            self.outward.then(transport.close)

    def abort(self) -> None:
        """The server closes at once; behind a shut lane the client does not learn of it."""
        self.outward.forget()
        if self.outward.is_shut:
            self._loop.call_soon(self.lose, None)
        transport = self._transport
        if transport is not None:
            self.outward.then(transport.abort)

    # -- both

    def cut(self) -> None:
        """Both ends learn at once that the connection is broken; what was under way is gone."""
        self.inward.forget()
        self.outward.forget()
        self._loop.call_soon(self.lose, ConnectionResetError("cut by order"))
        if self._transport is not None:
            self._transport.abort()

    def lose(self, exc: Exception | None) -> None:
        """The server learns that the connection is gone, once."""
        if not self._is_lost:
            self._is_lost = True
            self._connection.connection_lost(exc)


class _ServersEnd(asyncio.Transport):
    """What the server's connection takes for its transport."""

    def __init__(self, line: Line, transport: asyncio.Transport) -> None:
        super().__init__()
        self._line = line
        self._transport = transport
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._line.tell(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._line.close()

    def abort(self) -> None:
        self._is_closing = True
        self._line.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)


def _decoded(body: bytes) -> tuple[int, int, Any]:
    """(xid, op, request); the request is None for one that cannot be read."""
    try:
        return decode_request(body)
    except RemoteWireError:
        xid, op = _HEADER.unpack_from(body) if len(body) >= _HEADER.size else (0, 0)
        return xid, op, None


def _decoded_xid(piece: bytes) -> int:
    return int(_LENGTH.unpack_from(piece, 4)[0]) if len(piece) >= 8 else 0
