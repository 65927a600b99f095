"""asyncio's stream transport over a simulated socket.

Rule of this file: a protocol cannot tell this from asyncio's own selector transports. The suite
in tests/unit/testing/test_transport_contract.py runs the same tests on both.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from incumbent.testing.kernel import Socket
from incumbent.testing.network import Network

__all__ = ["SimTransport"]

_READ = 256 * 1024
_SPLIT = 0.02
"""How often a read returns less than there is: nobody may count on the borders of writes."""


class SimTransport(asyncio.Transport):
    """A stream transport on a simulated socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        sock: Socket,
        protocol: asyncio.BaseProtocol,
        *,
        waiter: asyncio.Future[None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__({"peername": sock.remote, "sockname": sock.local})
        self._loop = loop
        self._rng = network.rng
        self._sock = sock
        self._protocol = protocol
        self._on_end = on_end
        self._domain = sock.owner
        self._context = copy_context()
        self._buffer = bytearray()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._reading_paused = False
        self._reading = False  # connection_made has been called, and no EOF yet
        self._read_due = False
        self._flush_due = False
        self._closing = False
        self._lost = False  # connection_lost is due or done
        self._eof = False
        self._soon(protocol.connection_made, self)
        self._soon(self._begin)
        if waiter is not None:
            self._soon(lambda: None if waiter.done() else waiter.set_result(None))

    def __repr__(self) -> str:
        state = "closed" if self._lost else "closing" if self._closing else "open"
        return f"<SimTransport {self._sock.out.name} {state}>"

    def _soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)

    @property
    def _inert(self) -> bool:
        return self._domain is not None and self._domain.dead

    # -- woken by the kernel -------------------------------------------------------------------

    def readable(self) -> None:
        if not self._read_due:
            self._read_due = True
            self._soon(self._read)

    def writable(self) -> None:
        if self._buffer and not self._flush_due:
            self._flush_due = True
            self._soon(self._flush)

    def _begin(self) -> None:
        self._reading = not self._closing
        self._sock.awakes = self
        if self._sock.size or self._sock.eof or self._sock.reset:
            self.readable()

    def _read(self) -> None:
        self._read_due = False
        sock = self._sock
        if self._lost:
            return
        if sock.reset and self._buffer:  # a real send() would say so
            self._fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        elif not self._reading or self._reading_paused:
            return
        elif sock.size:
            limit, rng = _READ, self._rng
            if sock.size > 1 and rng.random() < _SPLIT:
                limit = 1 + int(rng.random() * (sock.size - 1))
            data = sock.take(limit)
            if sock.size or sock.eof or sock.reset:
                self.readable()
            self._deliver(data)
        elif sock.reset:
            self._fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        elif sock.eof:
            self._on_eof()

    def _deliver(self, data: bytes) -> None:
        assert isinstance(self._protocol, asyncio.Protocol)
        try:
            self._protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fail(error, "protocol.data_received() failed")

    def _on_eof(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol)
        self._reading = False
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fail(error, "protocol.eof_received() failed")
            return
        if not keep_open:
            self.close()

    def _flush(self) -> None:
        self._flush_due = False
        if self._lost or not self._buffer:
            return
        if self._sock.reset:
            self._fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
            return
        room = self._sock.room
        if room:
            self._sock.send(bytes(self._buffer[:room]))
            del self._buffer[:room]
        self._maybe_resume()
        if not self._buffer:
            if self._closing:
                self._lost = True
                self._soon(self._end, None)
            elif self._eof:
                self._sock.shutdown()

    # -- writing -------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be a bytes-like object, not {type(data).__name__}")
        if self._eof:
            raise RuntimeError("cannot write after write_eof()")
        if not data or self._lost or self._closing or self._inert:
            return
        if self._sock.reset:
            self._fail(BrokenPipeError(errno.EPIPE, "broken pipe"))
            return
        data = bytes(data)
        if not self._buffer:
            room = self._sock.room
            if room:
                self._sock.send(data[:room])
            data = data[room:]
        if data:
            self._buffer += data
            self._maybe_pause()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._closing or self._eof or self._inert:
            return
        self._eof = True
        if not self._buffer:
            self._sock.shutdown()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._maybe_pause()

    def _maybe_pause(self) -> None:
        if len(self._buffer) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._tell(self._protocol.pause_writing)

    def _maybe_resume(self) -> None:
        if self._writing_paused and len(self._buffer) <= self._low:
            self._writing_paused = False
            self._tell(self._protocol.resume_writing)

    def _tell(self, method: Callable[[], object]) -> None:
        try:
            method()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{method.__name__}() failed")

    # -- reading -------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._closing or not self._reading_paused:
            return
        self._reading_paused = False
        if self._sock.size or self._sock.eof or self._sock.reset:
            self.readable()

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # -- the end -------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing or self._inert:
            return
        self._closing = True
        self._reading = False
        if not self._buffer:
            self._lost = True
            self._soon(self._end, None)

    def abort(self) -> None:
        if not self._inert:
            self._force(None)

    def _fail(self, error: BaseException, message: str = "") -> None:
        if not isinstance(error, OSError):
            self._report(error, message)
        self._force(error)

    def _report(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )

    def _force(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._buffer.clear()
        self._closing = self._lost = True
        self._reading = False
        self._soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
            if self._on_end is not None:
                self._on_end()
