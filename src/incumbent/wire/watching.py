"""Watches: set again, set to last, looked up, removed; and what they tell.

Rule of this file: what a watch tells is one `WatchEvent`, whichever way it was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from incumbent.errors import RemoteWireError
from incumbent.wire.jute import INT, LONG, STRING, Reader
from incumbent.wire.protocol import EventType, KeeperState, Op, WatchMode, WatchType, Xid
from incumbent.wire.record import STRINGS, ReplyHeader, Request

__all__ = ["AddWatch", "CheckWatches", "RemoveWatches", "SetWatches", "SetWatches2", "WatchEvent"]


@dataclass(frozen=True, slots=True)
class SetWatches(Request):
    """Set one-shot watches again after a reconnect; what changed since then fires at once."""

    relative_zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]

    op: ClassVar[Op] = Op.SET_WATCHES
    layout: ClassVar = (LONG, STRINGS, STRINGS, STRINGS)


@dataclass(frozen=True, slots=True)
class SetWatches2(Request):
    """As `SetWatches`, and lasting watches too."""

    relative_zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]
    persistent: Sequence[str]
    recursive: Sequence[str]

    op: ClassVar[Op] = Op.SET_WATCHES2
    layout: ClassVar = (LONG, STRINGS, STRINGS, STRINGS, STRINGS, STRINGS)


@dataclass(frozen=True, slots=True)
class AddWatch(Request):
    """A watch that lasts: on one path, or on all below it too. Answers 0."""

    path: str
    mode: int = WatchMode.PERSISTENT

    op: ClassVar[Op] = Op.ADD_WATCH
    layout: ClassVar = (STRING, INT)
    answer: ClassVar = (INT,)


@dataclass(frozen=True, slots=True)
class CheckWatches(Request):
    """Refused with -121 if there is no such watch."""

    path: str
    type: int = WatchType.ANY

    op: ClassVar[Op] = Op.CHECK_WATCHES
    layout: ClassVar = (STRING, INT)


@dataclass(frozen=True, slots=True)
class RemoveWatches(Request):
    """Refused with -121 if there is no such watch."""

    path: str
    type: int = WatchType.ANY

    op: ClassVar[Op] = Op.REMOVE_WATCHES
    layout: ClassVar = (STRING, INT)


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
