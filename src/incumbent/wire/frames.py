"""Frames: a 4-byte length, then that many bytes.

Rule of this file: a length is checked before a byte of its body is kept.
"""

from __future__ import annotations

import struct

from incumbent.errors import RemoteWireError

__all__ = ["FrameDecoder", "frame"]

_LENGTH = struct.Struct(">i")


def frame(body: bytes) -> bytes:
    """`body` with its length before it."""
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Cuts a byte stream into frames. Keeps at most one unfinished frame in memory."""

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order.

        Raises `RemoteWireError` for a length that is negative or over the limit.
        """
        buffer = self._rest + data if self._rest else data
        bodies: list[bytes] = []
        start, end = 0, len(buffer)
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if not 0 <= length <= self._limit:
                raise RemoteWireError(f"a frame of {length} bytes; the limit is {self._limit}")
            if end - start - 4 < length:
                break
            bodies.append(buffer[start + 4 : start + 4 + length])
            start += 4 + length
        self._rest = buffer[start:]
        return bodies
