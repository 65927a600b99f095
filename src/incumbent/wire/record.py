"""What every record is made of: Stat, ACLs, ids, a request's and a reply's header.

Rule of this file: a record's bytes are described by a tuple of codecs, `layout`, and its
reply's by `answer`; client and server both work from these two.

A client: `request.encode(xid)` → body; `request.decode_answer(reader)` after a `ReplyHeader`
with err 0. A server: `decode_request(body)` → (xid, op, request); `request.encode_answer(value)`.
The value of an answer with no fields is None, with one field that field's value, with several
the named tuple that `answer_type` names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from incumbent.wire.jute import INT, STRING, Codec, Reader, read_strings, vector
from incumbent.wire.protocol import AclPerm, Op

__all__ = [
    "ACLS",
    "IDS",
    "OPEN_ACL",
    "STAT",
    "STAT_LAYOUT",
    "STRINGS",
    "Acl",
    "Id",
    "ReplyHeader",
    "Request",
    "Stat",
]


class Stat(NamedTuple):
    """What ZooKeeper keeps about a znode. Times are milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: int
    dataLength: int
    numChildren: int
    pzxid: int


class Acl(NamedTuple):
    """One ACL entry."""

    perms: int
    scheme: str
    id: str


class Id(NamedTuple):
    """Who someone is: the scheme by which it was shown, and the name within it."""

    scheme: str
    id: str


OPEN_ACL = (Acl(AclPerm.ALL, "world", "anyone"),)


STAT_LAYOUT = struct.Struct(">qqqqiiiqiiq")
STAT = Codec(
    lambda out, value: out.extend(STAT_LAYOUT.pack(*value)),
    lambda reader: Stat._make(reader.unpack(STAT_LAYOUT)),
)


def _write_acl(out: bytearray, value: Acl) -> None:
    for codec, field in zip((INT, STRING, STRING), value, strict=True):
        codec.write(out, field)


def _write_id(out: bytearray, value: Id) -> None:
    for field in value:
        STRING.write(out, field)


def _written(codec: Codec, value: Any) -> bytes:
    out = bytearray()
    codec.write(out, value)
    return bytes(out)


_ANY_ACLS = vector(Codec(_write_acl, lambda r: Acl(INT.read(r), STRING.read(r), STRING.read(r))))
_OPEN_BYTES = _written(_ANY_ACLS, OPEN_ACL)


def _write_acls(out: bytearray, value: Sequence[Acl] | None) -> None:
    if value == OPEN_ACL:  # as nearly all are
        out += _OPEN_BYTES
    else:
        _ANY_ACLS.write(out, value)


def _read_acls(reader: Reader) -> list[Acl]:
    if reader.body.startswith(_OPEN_BYTES, reader.pos):
        reader.pos += len(_OPEN_BYTES)
        return list(OPEN_ACL)
    acls: list[Acl] = _ANY_ACLS.read(reader)
    return acls


ACLS = Codec(_write_acls, _read_acls)
STRINGS = Codec(vector(STRING).write, read_strings)
IDS = vector(
    Codec(
        _write_id,
        lambda r: Id(STRING.read(r), STRING.read(r)),
    )
)

_REQUEST_HEADER = struct.Struct(">ii")


class Request:
    """A request; `op` is its type on the wire."""

    __slots__ = ()

    op: ClassVar[Op]
    layout: ClassVar[tuple[Codec, ...]] = ()
    answer: ClassVar[tuple[Codec, ...]] = ()
    answer_type: ClassVar[Any] = tuple

    @property
    def where(self) -> str:
        """The path it is about, "" if none: for error messages."""
        return getattr(self, "path", "")

    def encode(self, xid: int) -> bytes:
        """Header and body, without the frame's length."""
        out = bytearray(_REQUEST_HEADER.pack(xid, self.op))
        self.write(out)
        return bytes(out)

    def write(self, out: bytearray) -> None:
        kind: Any = type(self)
        for write, name in _writers(kind):
            write(out, getattr(self, name))

    @classmethod
    def read(cls, reader: Reader) -> Request:
        return cls(*[codec.read(reader) for codec in cls.layout])

    @classmethod
    def encode_answer(cls, value: Any) -> bytes:
        """The reply's body after its header."""
        out = bytearray()
        if len(cls.answer) == 1:
            cls.answer[0].write(out, value)
        elif cls.answer:
            for codec, field in zip(cls.answer, value, strict=True):
                codec.write(out, field)
        return bytes(out)

    @classmethod
    def decode_answer(cls, reader: Reader) -> Any:
        if not cls.answer:
            return None
        if len(cls.answer) == 1:
            return cls.answer[0].read(reader)
        return cls.answer_type(*[codec.read(reader) for codec in cls.answer])


@cache
def _writers(kind: Any) -> tuple[tuple[Callable[[bytearray, Any], None], str], ...]:
    """What writes each field, in order."""
    names: Sequence[str] = kind.__slots__
    return tuple((codec.write, name) for codec, name in zip(kind.layout, names, strict=True))


_REPLY_HEADER = struct.Struct(">iqi")


class ReplyHeader(NamedTuple):
    """Before every reply: the request's xid, the last zxid the server processed, the error."""

    xid: int
    zxid: int
    err: int

    def encode(self) -> bytes:
        return _REPLY_HEADER.pack(*self)

    @classmethod
    def read(cls, reader: Reader) -> ReplyHeader:
        return cls._make(reader.unpack(_REPLY_HEADER))
