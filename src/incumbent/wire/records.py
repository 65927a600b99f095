"""Requests, replies and events, each described once for both ends.

Rule of this file: a record's bytes are described by a tuple of codecs, `layout`, and its
reply's by `answer`; client and server both work from these two.

A client: `request.encode(xid)` → body; `request.decode_answer(reader)` after a `ReplyHeader`
with err 0. A server: `decode_request(body)` → (xid, request); `request.encode_answer(value)`.
The value of an answer with no fields is None, with one field that field's value, with several
the named tuple that `answer_type` names.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from incumbent.errors import LocalWireError, RemoteWireError
from incumbent.wire.jute import BOOL, BUFFER, INT, LONG, STRING, Codec, Reader, vector
from incumbent.wire.protocol import ANY_VERSION, AclPerm, EventType, KeeperState, Op, Xid

__all__ = [
    "OPEN_ACL",
    "Acl",
    "AuthPacket",
    "Check",
    "ChildrenAndStat",
    "CloseSession",
    "ConnectRequest",
    "ConnectResponse",
    "Create",
    "Create2",
    "CreateContainer",
    "Created",
    "DataAndStat",
    "Delete",
    "Exists",
    "GetChildren",
    "GetChildren2",
    "GetData",
    "Multi",
    "MultiOp",
    "MultiResult",
    "OpError",
    "Ping",
    "ReplyHeader",
    "Request",
    "SetData",
    "SetWatches",
    "Stat",
    "Sync",
    "WatchEvent",
    "decode_request",
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


OPEN_ACL = (Acl(AclPerm.ALL, "world", "anyone"),)


class Created(NamedTuple):
    """Answer to create2 and createContainer: the path as made, and its Stat."""

    path: str
    stat: Stat


class DataAndStat(NamedTuple):
    """Answer to getData; `data` is None where the znode's data is null."""

    data: bytes | None
    stat: Stat


class ChildrenAndStat(NamedTuple):
    """Answer to getChildren2; names without the directory, in no order."""

    children: list[str]
    stat: Stat


_STAT_LAYOUT = struct.Struct(">qqqqiiiqiiq")
_STAT = Codec(
    lambda out, value: out.extend(_STAT_LAYOUT.pack(*value)),
    lambda reader: Stat(*reader.unpack(_STAT_LAYOUT)),
)


def _write_acl(out: bytearray, value: Acl) -> None:
    for codec, field in zip((INT, STRING, STRING), value, strict=True):
        codec.write(out, field)


_ACLS = vector(Codec(_write_acl, lambda r: Acl(INT.read(r), STRING.read(r), STRING.read(r))))
_STRINGS = vector(STRING)


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
        names: Sequence[str] = self.__slots__
        for codec, name in zip(self.layout, names, strict=True):
            codec.write(out, getattr(self, name))

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


@dataclass(frozen=True, slots=True)
class Create(Request):
    """Make a znode; answers its path."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 0

    op: ClassVar[Op] = Op.CREATE
    layout: ClassVar = (STRING, BUFFER, _ACLS, INT)
    answer: ClassVar = (STRING,)


@dataclass(frozen=True, slots=True)
class Create2(Request):
    """Make a znode; answers `Created`. In a multi it is answered as a Create (path only)."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 0

    op: ClassVar[Op] = Op.CREATE2
    layout: ClassVar = (STRING, BUFFER, _ACLS, INT)
    answer: ClassVar = (STRING, _STAT)
    answer_type: ClassVar = Created


@dataclass(frozen=True, slots=True)
class CreateContainer(Request):
    """Make a container: a znode that the server deletes some time after its last child went."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 4

    op: ClassVar[Op] = Op.CREATE_CONTAINER
    layout: ClassVar = (STRING, BUFFER, _ACLS, INT)
    answer: ClassVar = (STRING, _STAT)
    answer_type: ClassVar = Created


@dataclass(frozen=True, slots=True)
class Delete(Request):
    path: str
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.DELETE
    layout: ClassVar = (STRING, INT)


@dataclass(frozen=True, slots=True)
class Exists(Request):
    """Answers the Stat; NoNode is refused with -101, and sets the watch all the same."""

    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.EXISTS
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (_STAT,)


@dataclass(frozen=True, slots=True)
class GetData(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_DATA
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (BUFFER, _STAT)
    answer_type: ClassVar = DataAndStat


@dataclass(frozen=True, slots=True)
class SetData(Request):
    path: str
    data: bytes | None
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.SET_DATA
    layout: ClassVar = (STRING, BUFFER, INT)
    answer: ClassVar = (_STAT,)


@dataclass(frozen=True, slots=True)
class GetChildren(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_CHILDREN
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (_STRINGS,)


@dataclass(frozen=True, slots=True)
class GetChildren2(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_CHILDREN2
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (_STRINGS, _STAT)
    answer_type: ClassVar = ChildrenAndStat


@dataclass(frozen=True, slots=True)
class Check(Request):
    """Only inside a multi: refuse it unless the znode exists with this version."""

    path: str
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.CHECK
    layout: ClassVar = (STRING, INT)


@dataclass(frozen=True, slots=True)
class Sync(Request):
    path: str

    op: ClassVar[Op] = Op.SYNC
    layout: ClassVar = (STRING,)
    answer: ClassVar = (STRING,)


@dataclass(frozen=True, slots=True)
class Ping(Request):
    op: ClassVar[Op] = Op.PING


@dataclass(frozen=True, slots=True)
class CloseSession(Request):
    op: ClassVar[Op] = Op.CLOSE_SESSION


@dataclass(frozen=True, slots=True)
class AuthPacket(Request):
    type: int
    scheme: str
    auth: bytes | None

    op: ClassVar[Op] = Op.AUTH
    layout: ClassVar = (INT, STRING, BUFFER)


@dataclass(frozen=True, slots=True)
class SetWatches(Request):
    """Set one-shot watches again after a reconnect; what changed since then fires at once."""

    relative_zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]

    op: ClassVar[Op] = Op.SET_WATCHES
    layout: ClassVar = (LONG, _STRINGS, _STRINGS, _STRINGS)


MultiOp: TypeAlias = Create | Create2 | CreateContainer | Delete | SetData | Check


@dataclass(frozen=True, slots=True)
class OpError:
    """The result of one operation in a refused multi. Code 0 stands before the refused one."""

    code: int


MultiResult: TypeAlias = str | Created | Stat | OpError | None
"""Per operation: the path (create), `Created` (createContainer), the Stat (setData), None
(delete, check), or an `OpError` when the multi was refused."""


def _write_multi_answer(out: bytearray, results: Sequence[tuple[Op, MultiResult]]) -> None:
    for op, result in results:
        if isinstance(result, OpError):
            out += _MULTI_HEADER.pack(Op.ERROR, False, result.code)
            INT.write(out, result.code)
            continue
        out += _MULTI_HEADER.pack(op, False, 0)
        out += _MULTI_OPS[op].encode_answer(result)
    out += _MULTI_END


def _read_multi_answer(reader: Reader) -> list[MultiResult]:
    results: list[MultiResult] = []
    while True:
        op, done, _err = reader.unpack(_MULTI_HEADER)
        if done:
            return results
        if op == Op.ERROR:
            results.append(OpError(reader.take_int()))
        elif op in _MULTI_OPS:
            results.append(_MULTI_OPS[op].decode_answer(reader))
        else:
            raise RemoteWireError(f"a multi was answered with operation {op}")


@dataclass(frozen=True, slots=True)
class Multi(Request):
    """All of `ops`, or none. Answers a list of `MultiResult`, also when refused (err stays 0).

    A server gives `encode_answer` pairs (Op, result); 3.8 answers a create2 as Op.CREATE.
    """

    ops: Sequence[MultiOp]

    op: ClassVar[Op] = Op.MULTI
    answer: ClassVar = (Codec(_write_multi_answer, _read_multi_answer),)

    def write(self, out: bytearray) -> None:
        for op in self.ops:
            out += _MULTI_HEADER.pack(op.op, False, -1)
            op.write(out)
        out += _MULTI_END

    @classmethod
    def read(cls, reader: Reader) -> Multi:
        ops: list[MultiOp] = []
        while True:
            op, done, _err = reader.unpack(_MULTI_HEADER)
            if done:
                return cls(ops)
            kind = _MULTI_OPS.get(op)
            if kind is None:
                raise RemoteWireError(f"operation {op} inside a multi")
            ops.append(kind.read(reader))


_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_MULTI_OPS: dict[int, Any] = {
    kind.op: kind for kind in (Create, Create2, CreateContainer, Delete, SetData, Check)
}

_REQUEST_HEADER = struct.Struct(">ii")
_REQUESTS: dict[int, type[Request]] = {
    kind.op: kind
    for kind in (
        Create,
        Create2,
        CreateContainer,
        Delete,
        Exists,
        GetData,
        SetData,
        GetChildren,
        GetChildren2,
        Multi,
        Sync,
        Ping,
        CloseSession,
        AuthPacket,
        SetWatches,
    )
}


def decode_request(body: bytes) -> tuple[int, int, Request | None]:
    """(xid, op, request); the request is None for an operation that we don't know.

    Raises `RemoteWireError` if not even the header is whole, or the body is malformed; the
    error then has attributes `xid` and `op` where the header could be read.
    """
    reader = Reader(body)
    xid, op = reader.unpack(_REQUEST_HEADER)
    kind = _REQUESTS.get(op)
    if kind is None:
        return xid, op, None
    try:
        return xid, op, kind.read(reader)
    except RemoteWireError as error:
        raise MalformedRequest(str(error), xid, op) from None


class MalformedRequest(RemoteWireError):
    """A request whose header is whole and whose body is not: answered with -5."""

    def __init__(self, why: str, xid: int, op: int) -> None:
        self.xid = xid
        self.op = op
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class ReplyHeader:
    """Before every reply: the request's xid, the last zxid the server processed, the error."""

    xid: int
    zxid: int
    err: int

    _LAYOUT: ClassVar = struct.Struct(">iqi")

    def encode(self) -> bytes:
        return self._LAYOUT.pack(self.xid, self.zxid, self.err)

    @classmethod
    def read(cls, reader: Reader) -> ReplyHeader:
        return cls(*reader.unpack(cls._LAYOUT))


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A watch fired (xid -1). `zxid` is -1 as Apache 3.8 sends it."""

    type: EventType
    state: KeeperState
    path: str

    def encode(self) -> bytes:
        """Header and body, without the frame's length."""
        out = bytearray(ReplyHeader(Xid.EVENT, -1, 0).encode())
        INT.write(out, self.type)
        INT.write(out, self.state)
        STRING.write(out, self.path)
        return bytes(out)

    @classmethod
    def read(cls, reader: Reader) -> WatchEvent:
        """After the header."""
        try:
            kind, state = EventType(reader.take_int()), KeeperState(reader.take_int())
        except ValueError as error:
            raise RemoteWireError(f"an event with {error}") from None
        return cls(kind, state, STRING.read(reader) or "")


_CONNECT_REQUEST = struct.Struct(">iqiq")
_CONNECT_RESPONSE = struct.Struct(">iiq")


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """The first frame of a connection. `read_only` is None where an old client omits it."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None = False
    version: int = 0

    def encode(self) -> bytes:
        out = bytearray(
            _CONNECT_REQUEST.pack(self.version, self.last_zxid, self.timeout_ms, self.session_id)
        )
        BUFFER.write(out, self.password)
        if self.read_only is not None:
            BOOL.write(out, self.read_only)
        return bytes(out)

    @classmethod
    def decode(cls, body: bytes) -> ConnectRequest:
        reader = Reader(body)
        version, last_zxid, timeout_ms, session_id = reader.unpack(_CONNECT_REQUEST)
        password = BUFFER.read(reader) or b""
        read_only = BOOL.read(reader) if reader.left else None
        return cls(last_zxid, timeout_ms, session_id, password, read_only, version)


@dataclass(frozen=True, slots=True)
class ConnectResponse:
    """The answer: timeout 0 and session id 0 mean that the session is refused (expired)."""

    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None = False
    version: int = 0

    def encode(self) -> bytes:
        if len(self.password) > 1024:
            raise LocalWireError("a session password of over 1024 bytes")
        out = bytearray(_CONNECT_RESPONSE.pack(self.version, self.timeout_ms, self.session_id))
        BUFFER.write(out, self.password)
        if self.read_only is not None:
            BOOL.write(out, self.read_only)
        return bytes(out)

    @classmethod
    def decode(cls, body: bytes) -> ConnectResponse:
        reader = Reader(body)
        version, timeout_ms, session_id = reader.unpack(_CONNECT_RESPONSE)
        password = BUFFER.read(reader) or b""
        read_only = BOOL.read(reader) if reader.left else None
        return cls(timeout_ms, session_id, password, read_only, version)
