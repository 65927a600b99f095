"""Transactions and znodes as bytes, for the disk.

Rule of this file: what was ever written must stay readable. A kind of change keeps its number;
another layout is another number. `FORMAT` is written into each database and checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from incumbent.server.tree import (
    Change,
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    SetNode,
    Transaction,
    Znode,
)
from incumbent.wire.jute import BUFFER, INT, LONG, STRING, Codec, Reader, vector

__all__ = ["FORMAT", "pack_transactions", "pack_znode", "unpack_transactions", "unpack_znode"]

FORMAT = 1

_KINDS: dict[int, tuple[Any, tuple[Codec, ...]]] = {
    1: (CreateNode, (STRING, BUFFER, LONG)),
    2: (DeleteNode, (STRING,)),
    3: (SetNode, (STRING, BUFFER, INT)),
    4: (OpenSession, (LONG, INT)),
    5: (EndSession, (LONG, vector(STRING))),
}
_NUMBER_OF = {kind: number for number, (kind, _) in _KINDS.items()}
_TRANSACTION = struct.Struct(">qqi")
_ZNODE = struct.Struct(">qqqqqiiq")


def pack_transactions(transactions: Iterable[Transaction]) -> bytes:
    """One group of transactions, as one row holds it."""
    out = bytearray()
    for zxid, time_ms, changes in transactions:
        out += _TRANSACTION.pack(zxid, time_ms, len(changes))
        for change in changes:
            _write_change(out, change)
    return bytes(out)


def unpack_transactions(body: bytes) -> list[Transaction]:
    """The same group again. Raises `RemoteWireError` for bytes that are none."""
    reader = Reader(body)
    transactions = []
    while reader.left:
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
    return bytes(out)


def unpack_znode(body: bytes) -> Znode:
    reader = Reader(body)
    czxid, mzxid, pzxid, ctime, mtime, version, creations, owner = reader.unpack(_ZNODE)
    return Znode(
        BUFFER.read(reader),
        czxid=czxid,
        mzxid=mzxid,
        pzxid=pzxid,
        ctime=ctime,
        mtime=mtime,
        version=version,
        creations=creations,
        owner=owner,
    )


def _write_change(out: bytearray, change: Change) -> None:
    number = _NUMBER_OF[type(change)]
    INT.write(out, number)
    fields: Sequence[Any] = change
    for codec, field in zip(_KINDS[number][1], fields, strict=True):
        codec.write(out, field)


def _read_change(reader: Reader) -> Change:
    kind, layout = _KINDS[reader.take_int()]
    fields = [codec.read(reader) for codec in layout]
    if kind is EndSession:
        fields[1] = tuple(fields[1])
    change: Change = kind(*fields)
    return change
