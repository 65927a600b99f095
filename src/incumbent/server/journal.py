"""Transactions and znodes as bytes, for the disk.

Rule of this file: what was ever written must stay readable. A kind of change keeps its number;
another layout is another number, and a znode's later fields come last. `FORMAT` is written into
each database and checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from incumbent.errors import RemoteWireError
from incumbent.server.tree import (
    Change,
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    SetAcl,
    SetNode,
    Transaction,
    Znode,
)
from incumbent.wire import OPEN_ACL
from incumbent.wire.jute import BUFFER, INT, LONG, STRING, Codec, Reader, vector
from incumbent.wire.record import ACLS

__all__ = ["FORMAT", "pack_transactions", "pack_znode", "unpack_transactions", "unpack_znode"]

FORMAT = 3
"""Of what is written. Format 1 knew no ACLs; it reads as if all were open. Before format 3 the
state had every ephemeral, also those that the log deletes."""

_KINDS: dict[int, tuple[Any, tuple[Codec, ...]]] = {
    1: (CreateNode, (STRING, BUFFER, LONG)),
    2: (DeleteNode, (STRING,)),
    3: (SetNode, (STRING, BUFFER, INT)),
    4: (OpenSession, (LONG, INT)),
    5: (EndSession, (LONG, vector(STRING))),
    6: (CreateNode, (STRING, BUFFER, LONG, ACLS)),
    7: (SetAcl, (STRING, ACLS, INT)),
}
_NUMBER_OF = {CreateNode: 1, DeleteNode: 2, SetNode: 3, OpenSession: 4, EndSession: 5, SetAcl: 7}
_CREATE_OPEN, _CREATE_WITH_ACL = 1, 6
_TRANSACTION = struct.Struct(">qqi")
_ONE_CHANGE = struct.Struct(">qqiii")  # the same, its one change's number, and its path's length
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_AT_ONCE = {_NUMBER_OF[SetNode]: _INT, _CREATE_OPEN: _LONG}  # by what comes last
_ZNODE = struct.Struct(">qqqqqiiq")
_WITH_LENGTH = struct.Struct(">qqqqqiiqi")  # and the length of its data


def pack_transactions(transactions: Iterable[Transaction]) -> bytes:
    """One group of transactions, as one row holds it."""
    out = bytearray()
    for zxid, time_ms, changes in transactions:
        if len(changes) == 1 and _write_at_once(out, zxid, time_ms, changes[0]):
            continue
        out += _TRANSACTION.pack(zxid, time_ms, len(changes))
        for change in changes:
            _write_change(out, change)
    return bytes(out)


def unpack_transactions(body: bytes) -> list[Transaction]:
    """The same group again. Raises `RemoteWireError` for bytes that are none."""
    reader = Reader(body)
    transactions: list[Transaction] = []
    while reader.left:
        if _read_at_once(reader, transactions):
            continue
        zxid, time_ms, count = reader.unpack(_TRANSACTION)
        changes = tuple(_read_change(reader) for _ in range(count))
        transactions.append(Transaction(zxid, time_ms, changes))
    return transactions


def pack_znode(node: Znode) -> bytes:
    """A znode without its path and children."""
    out = bytearray(
        _ZNODE.pack(
            node.czxid,
            node.mzxid,
            node.pzxid,
            node.ctime,
            node.mtime,
            node.version,
            node.creations,
            node.owner,
        )
    )
    BUFFER.write(out, node.data)
    if node.aversion or node.acl != OPEN_ACL:
        INT.write(out, node.aversion)
        ACLS.write(out, node.acl)
    return bytes(out)


def unpack_znode(body: bytes) -> Znode:
    if len(body) >= _WITH_LENGTH.size:  # most have no ACL of their own: a start reads them all
        czxid, mzxid, pzxid, ctime, mtime, version, creations, owner, length = (
            _WITH_LENGTH.unpack_from(body)
        )
        if length == len(body) - _WITH_LENGTH.size:
            return Znode(
                body[_WITH_LENGTH.size :],
                czxid=czxid,
                mzxid=mzxid,
                pzxid=pzxid,
                ctime=ctime,
                mtime=mtime,
                version=version,
                creations=creations,
                owner=owner,
            )
    reader = Reader(body)
    czxid, mzxid, pzxid, ctime, mtime, version, creations, owner = reader.unpack(_ZNODE)
    data = BUFFER.read(reader)
    aversion = INT.read(reader) if reader.left else 0
    acl = tuple(ACLS.read(reader)) if reader.left else OPEN_ACL
    return Znode(
        data,
        czxid=czxid,
        mzxid=mzxid,
        pzxid=pzxid,
        ctime=ctime,
        mtime=mtime,
        version=version,
        creations=creations,
        owner=owner,
        acl=acl,
        aversion=aversion,
    )


def _write_at_once(out: bytearray, zxid: int, time_ms: int, change: Change) -> bool:
    """A transaction of one change as nearly all are, in the same bytes; False if it is another."""
    if type(change) is SetNode:
        path, data, version = change
        if data is None:
            return False
        end = _INT.pack(version)
    elif type(change) is CreateNode:
        path, data, owner, acl = change
        if data is None or acl is not OPEN_ACL:
            return False
        end = _LONG.pack(owner)
    else:
        return False
    raw = path.encode()
    out += _ONE_CHANGE.pack(zxid, time_ms, 1, _NUMBER_OF[type(change)], len(raw))
    out += raw
    out += _INT.pack(len(data))
    out += data
    out += end
    return True


def _read_at_once(reader: Reader, transactions: list[Transaction]) -> bool:
    """What `_write_at_once` wrote; False if the next is another, or is not all there."""
    body, at = reader.body, reader.pos
    try:
        zxid, time_ms, count, number, length = _ONE_CHANGE.unpack_from(body, at)
        if count != 1 or number not in _AT_ONCE or length < 0:
            return False
        at += _ONE_CHANGE.size + length
        (size,) = _INT.unpack_from(body, at)
        end = _AT_ONCE[number]
        (last,) = end.unpack_from(body, at + 4 + size)
        path = body[at - length : at].decode()
    except (struct.error, UnicodeDecodeError):
        return False
    if size < 0:
        return False
    data = body[at + 4 : at + 4 + size]
    change = SetNode(path, data, last) if end is _INT else CreateNode(path, data, last)
    transactions.append(Transaction(zxid, time_ms, (change,)))
    reader.pos = at + 4 + size + end.size
    return True


def _write_change(out: bytearray, change: Change) -> None:
    number = _NUMBER_OF[type(change)]
    fields: Sequence[Any] = change
    if number == _CREATE_OPEN:
        if fields[3] is OPEN_ACL:
            fields = fields[:3]
        else:
            number = _CREATE_WITH_ACL
    INT.write(out, number)
    for codec, field in zip(_KINDS[number][1], fields, strict=True):
        codec.write(out, field)


def _read_change(reader: Reader) -> Change:
    number = reader.take_int()
    if number not in _KINDS:
        raise RemoteWireError(f"a change of kind {number}")
    kind, layout = _KINDS[number]
    fields = [codec.read(reader) for codec in layout]
    if kind in (EndSession, SetAcl):
        fields[1] = tuple(fields[1])
    elif len(fields) == 4:  # CreateNode with an ACL
        fields[3] = tuple(fields[3])
    change: Change = kind(*fields)
    return change
