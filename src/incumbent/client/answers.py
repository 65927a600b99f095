"""Frames from a server: whole ones up to a size; larger ones pass by.

Rule of this file: no server can make us keep more than the limit. A frame beyond it is announced
when it begins, so that whoever asked can be told; its bytes are dropped as they come, and the
connection goes on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from incumbent.errors import RemoteWireError

__all__ = ["Answers", "Oversize"]

_LENGTH = struct.Struct(">i")


class Oversize(NamedTuple):
    """A frame over the limit begins."""

    size: int


class Answers:
    """Cuts a server's bytes into frames.

    limit   bytes of a frame that are kept
    passes  larger ones pass by; if not, they break the protocol
    """

    __slots__ = ("_limit", "_passes", "_rest", "_to_skip")

    def __init__(self, limit: int, *, passes: bool) -> None:
        self._rest = bytearray()
        self._to_skip = 0
        self.limit(limit, passes=passes)

    def limit(self, limit: int, *, passes: bool) -> None:
        """From the next frame on."""
        self._limit = limit
        self._passes = passes

    def feed(self, data: bytes) -> Iterator[bytes | Oversize]:
        """The frames that `data` completes, in order, and large ones as soon as they begin.

        Raises `RemoteWireError` for a length that cannot be one. To be used up before the next.
        """
        rest: bytes | bytearray = data
        if self._rest:  # a frame that comes in pieces is put together in place
            self._rest += data
            rest = self._rest
        start, size = 0, len(rest)
        try:
            while True:
                if self._to_skip:
                    skipped = min(self._to_skip, size - start)
                    self._to_skip -= skipped
                    start += skipped
                if size - start < 4:
                    return
                (length,) = _LENGTH.unpack_from(rest, start)
                if 0 <= length <= self._limit:
                    end = start + 4 + length
                    if size < end:
                        return
                    body = bytes(rest[start + 4 : end])
                    start = end
                    yield body
                elif length < 0 or not self._passes:
                    raise RemoteWireError(f"a frame of {length} bytes; the limit is {self._limit}")
                else:
                    start += 4
                    self._to_skip = length
                    yield Oversize(length)
        finally:
            if rest is self._rest:
                del self._rest[:start]
            else:
                self._rest += rest[start:]
