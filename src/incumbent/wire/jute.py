"""Jute's primitive types: how an int, a string or a vector looks in bytes.

Rule of this file: null is not empty. A buffer or string of length -1 is null; every reader
takes it and every writer can write it.

A `Codec` is a pair: `write(out, value)` appends to a bytearray, `read(reader)` takes from one.
Records are tuples of codecs (see `records`), so that both ends share one description.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from incumbent.errors import LocalWireError, RemoteWireError

__all__ = ["BOOL", "BUFFER", "INT", "LONG", "STRING", "Codec", "Reader", "read_strings", "vector"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class Reader:
    """A position in a body. Every read past its end raises `RemoteWireError`."""

    __slots__ = ("body", "pos")

    def __init__(self, body: bytes, pos: int = 0) -> None:
        self.body = body
        self.pos = pos

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.body) - self.pos

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fixed-size fields."""
        try:
            values = layout.unpack_from(self.body, self.pos)
        except struct.error:
            raise RemoteWireError("the body ends early") from None
        self.pos += layout.size
        return values

    def take_int(self) -> int:
        try:
            value: int = _INT.unpack_from(self.body, self.pos)[0]
        except struct.error:
            raise RemoteWireError("the body ends early") from None
        self.pos += 4
        return value

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.pos + count
        if count < 0 or end > len(self.body):
            raise RemoteWireError("the body ends early")
        value = self.body[self.pos : end]
        self.pos = end
        return value


@dataclass(frozen=True, slots=True)
class Codec:
    """One type's two directions."""

    write: Callable[[bytearray, Any], None]
    read: Callable[[Reader], Any]


def _write_int(out: bytearray, value: int) -> None:
    try:
        out += _INT.pack(value)
    except struct.error:
        raise LocalWireError(f"{value!r} does not fit a 32-bit integer") from None


def _write_long(out: bytearray, value: int) -> None:
    try:
        out += _LONG.pack(value)
    except struct.error:
        raise LocalWireError(f"{value!r} does not fit a 64-bit integer") from None


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def _write_buffer(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _INT.pack(len(value))
        out += value


def _read_buffer(reader: Reader) -> bytes | None:
    length = reader.take_int()
    return None if length == -1 else reader.take(length)


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise LocalWireError(f"{value!r} cannot be written as UTF-8") from None
    out += _INT.pack(len(raw))
    out += raw


def _read_string(reader: Reader) -> str | None:
    raw = _read_buffer(reader)
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        raise RemoteWireError("a string is not UTF-8") from None


def _take_count(reader: Reader) -> int:
    count = reader.take_int()
    if count > reader.left:  # every item has at least one byte
        raise RemoteWireError(f"a vector of {count} items in {reader.left} bytes")
    return max(count, 0)


def vector(item: Codec) -> Codec:
    """A vector of `item`; null reads as an empty list, as ZooKeeper's servers take it."""

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            out += b"\xff\xff\xff\xff"
            return
        out += _INT.pack(len(values))
        for value in values:
            item.write(out, value)

    def read(reader: Reader) -> list[Any]:
        return [item.read(reader) for _ in range(_take_count(reader))]

    return Codec(write, read)


def read_strings(reader: Reader) -> list[str | None]:
    """As `vector(STRING).read`, which is most of what a long list of children costs."""
    count = _take_count(reader)
    body, pos = reader.body, reader.pos
    strings: list[str | None] = []
    try:
        for _ in range(count):
            (length,) = _INT.unpack_from(body, pos)
            pos += 4
            if length < 0 or pos + length > len(body):
                if length != -1:
                    raise RemoteWireError("the body ends early")
                strings.append(None)
                continue
            strings.append(body[pos : pos + length].decode())
            pos += length
    except struct.error:
        raise RemoteWireError("the body ends early") from None
    except UnicodeDecodeError:
        raise RemoteWireError("a string is not UTF-8") from None
    reader.pos = pos
    return strings


INT = Codec(_write_int, Reader.take_int)
LONG = Codec(_write_long, lambda reader: reader.unpack(_LONG)[0])
BOOL = Codec(_write_bool, lambda reader: reader.take(1) != b"\0")
BUFFER = Codec(_write_buffer, _read_buffer)
STRING = Codec(_write_string, _read_string)
