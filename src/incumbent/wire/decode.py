"""A request's bytes to the request.

Rule of this file: whatever the bytes are, the outcome is a request, an operation that we don't
know, or a `RemoteWireError` that says how much of it could be read.
"""

from __future__ import annotations

import struct

from incumbent.errors import RemoteWireError
from incumbent.wire.credentials import AuthPacket, Sasl, WhoAmI
from incumbent.wire.jute import Reader
from incumbent.wire.multi import Multi, MultiRead
from incumbent.wire.record import Request
from incumbent.wire.requests import (
    Check,
    CloseSession,
    Create,
    Create2,
    CreateContainer,
    CreateTtl,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Ping,
    Reconfig,
    SetAcl,
    SetData,
    Sync,
)
from incumbent.wire.watching import (
    AddWatch,
    CheckWatches,
    RemoveWatches,
    SetWatches,
    SetWatches2,
)

__all__ = ["MalformedRequest", "decode_request"]

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
        SetWatches2,
        AddWatch,
        CheckWatches,
        RemoveWatches,
        GetAcl,
        SetAcl,
        GetAllChildrenNumber,
        GetEphemerals,
        CreateTtl,
        Check,
        MultiRead,
        Reconfig,
        Sasl,
        WhoAmI,
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
