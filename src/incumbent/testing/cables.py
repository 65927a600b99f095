"""What the servers of a simulated ensemble keep and tell each other: their log, and notes.

Rule of this file: a transaction's zxid names it: two logs that have the same zxid are the same
up to there, because one leader made all transactions of an epoch (the zxid's high half).
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple, cast

from incumbent.server.tree import Transaction

__all__ = ["Cable", "Kind", "Log", "Note", "epoch_of", "first_of"]

_HEAD = struct.Struct(">iBqq")


class Kind(IntEnum):
    """What a note says. `a` and `b` are its numbers."""

    FOLLOW = 1  # to the leader: a = epoch; data = its log's last zxid of each epoch
    SYNC = 2  # from it: a = keep your log up to here; data = what comes after
    PROPOSE = 3  # data = transactions
    ACK = 4  # a = on disk up to here
    COMMIT = 5  # a = a quorum has all up to here
    PING = 6
    PONG = 7  # data = sessions heard of since the last one, with their timeouts
    ASK = 8  # a = connection; data = its request
    AUTH = 9  # the same for a credential; it has no answer
    ANSWER = 10  # a = not before this zxid, b = connection, data = a flag and the answer
    GONE = 11  # a = connection


class Note(NamedTuple):
    kind: Kind
    a: int = 0
    b: int = 0
    data: bytes = b""


class Log:
    """A server's transactions and the newest epoch it promised to follow: what its disk keeps."""

    def __init__(self) -> None:
        self.epoch = 0
        self.transactions: list[Transaction] = []
        self._zxids: list[int] = []

    @property
    def last(self) -> int:
        return self._zxids[-1] if self._zxids else 0

    def append(self, batch: Iterable[Transaction]) -> None:
        for transaction in batch:
            assert transaction.zxid > self.last, "a log only grows"
            self.transactions.append(transaction)
            self._zxids.append(transaction.zxid)

    def after(self, zxid: int) -> list[Transaction]:
        return self.transactions[bisect_right(self._zxids, zxid) :]

    def cut(self, zxid: int) -> None:
        """Keep what is not newer."""
        keep = bisect_right(self._zxids, zxid)
        del self.transactions[keep:], self._zxids[keep:]

    def ends(self) -> dict[int, int]:
        """The last zxid of each epoch."""
        return {epoch_of(zxid): zxid for zxid in self._zxids}

    def common(self, ends: dict[int, int]) -> int:
        """The newest zxid that a log with these ends has as well."""
        mine = self.ends()
        return max((min(mine[e], zxid) for e, zxid in ends.items() if e in mine), default=0)


class Cable(asyncio.Protocol):
    """One end of a connection between two servers. `who` is the other, once known."""

    def __init__(
        self, on_note: Callable[[Cable, Note], None], on_lost: Callable[[Cable], None]
    ) -> None:
        self.who = ""
        self._on_note = on_note
        self._on_lost = on_lost
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            size, kind, a, b = _HEAD.unpack_from(self._rest)
            end = _HEAD.size + size
            if len(self._rest) < end or self._transport is None:
                return
            note = Note(Kind(kind), a, b, self._rest[_HEAD.size : end])
            self._rest = self._rest[end:]
            self._on_note(self, note)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._on_lost(self)

    def send(self, kind: Kind, a: int = 0, b: int = 0, data: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(_HEAD.pack(len(data), kind, a, b) + data)

    def close(self) -> None:
        """At once; nothing more is heard from it."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()


def epoch_of(zxid: int) -> int:
    return zxid >> 32


def first_of(epoch: int) -> int:
    """The zxid with which a leader begins its epoch, by a transaction that changes nothing."""
    return epoch << 32
