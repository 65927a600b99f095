"""Several operations in one request: all or nothing to write, each for itself to read.

Rule of this file: operations and results are lists of (header, record) with an end mark; a count
is never sent, so nothing is kept for a list that did not come.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from incumbent.errors import RemoteWireError
from incumbent.wire.jute import INT, Codec, Reader
from incumbent.wire.protocol import Op
from incumbent.wire.record import Request, Stat
from incumbent.wire.requests import (
    Check,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateTtl,
    DataAndStat,
    Delete,
    GetChildren,
    GetData,
    SetData,
)

__all__ = [
    "Multi",
    "MultiOp",
    "MultiRead",
    "MultiReadOp",
    "MultiReadResult",
    "MultiResult",
    "OpError",
]


MultiOp: TypeAlias = Create | Create2 | CreateContainer | CreateTtl | Delete | SetData | Check


@dataclass(frozen=True, slots=True)
class OpError:
    """The result of one operation in a refused multi. Code 0 stands before the refused one."""

    code: int


MultiResult: TypeAlias = str | Created | Stat | OpError | None
"""Per operation: the path (create), `Created` (createContainer, createTTL), the Stat (setData),
None (delete, check), or an `OpError` when the multi was refused."""

MultiReadOp: TypeAlias = GetData | GetChildren

MultiReadResult: TypeAlias = DataAndStat | list[str] | OpError


def _write_ops(out: bytearray, ops: Sequence[Request]) -> None:
    for op in ops:
        out += _MULTI_HEADER.pack(op.op, False, -1)
        op.write(out)
    out += _MULTI_END


def _read_ops(reader: Reader, kinds: dict[int, Any]) -> list[Any]:
    ops: list[Any] = []
    while True:
        op, done, _err = reader.unpack(_MULTI_HEADER)
        if done:
            return ops
        kind = kinds.get(op)
        if kind is None:
            raise RemoteWireError(f"operation {op} inside a multi")
        ops.append(kind.read(reader))


def _write_multi_answer(out: bytearray, results: Sequence[tuple[Op, Any]]) -> None:
    for op, result in results:
        if isinstance(result, OpError):
            out += _MULTI_HEADER.pack(Op.ERROR, False, result.code)
            INT.write(out, result.code)
            continue
        out += _MULTI_HEADER.pack(op, False, 0)
        out += _RESULTS[op].encode_answer(result)
    out += _MULTI_END


def _read_multi_answer(reader: Reader) -> list[Any]:
    results: list[Any] = []
    while True:
        op, done, _err = reader.unpack(_MULTI_HEADER)
        if done:
            return results
        if op == Op.ERROR:
            results.append(OpError(reader.take_int()))
        elif op in _RESULTS:
            results.append(_RESULTS[op].decode_answer(reader))
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
        _write_ops(out, self.ops)

    @classmethod
    def read(cls, reader: Reader) -> Multi:
        return cls(_read_ops(reader, _MULTI_OPS))


@dataclass(frozen=True, slots=True)
class MultiRead(Request):
    """Several reads at one zxid; each is answered, or refused by an `OpError`, for itself."""

    ops: Sequence[MultiReadOp]

    op: ClassVar[Op] = Op.MULTI_READ
    answer: ClassVar = (Codec(_write_multi_answer, _read_multi_answer),)

    def write(self, out: bytearray) -> None:
        _write_ops(out, self.ops)

    @classmethod
    def read(cls, reader: Reader) -> MultiRead:
        return cls(_read_ops(reader, _READ_OPS))


_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_MULTI_OPS: dict[int, Any] = {
    kind.op: kind for kind in (Create, Create2, CreateContainer, CreateTtl, Delete, SetData, Check)
}
_READ_OPS: dict[int, Any] = {kind.op: kind for kind in (GetData, GetChildren)}
_RESULTS: dict[int, Any] = _MULTI_OPS | _READ_OPS
