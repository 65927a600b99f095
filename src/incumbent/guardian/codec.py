"""The lines between guardian and agent: messages to bytes and back.

`encode` makes a message's line, `decode` reads one, `Splitter` cuts a byte stream into messages.

Rule of this file: a line that is not exactly a message of the protocol is refused with
`RemoteWireError` (which says what was expected), never guessed at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, cast

from incumbent.errors import LocalWireError, RemoteWireError
from incumbent.guardian import messages as m
from incumbent.guardian.messages import Exited, Message, SeatReport, Start

__all__ = ["MAX_LINE", "Splitter", "decode", "encode"]

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one line at most; a START carries a whole environment."""

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(message: Message) -> bytes:
    """The line of a message, newline included.

    Raises LocalWireError for a value that JSON cannot carry (a number that is not finite).
    """
    try:
        body = _JSON.encode({"t": message.tag, **_plain(message)})
    except (TypeError, ValueError) as error:
        raise LocalWireError(f"{message.tag} cannot be sent: {error}") from error
    return body.encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line (with or without its newline); RemoteWireError if there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RemoteWireError(f"not a message: {line[:60]!r} is not JSON") from error
    if not isinstance(found, dict):
        raise RemoteWireError("not a message: expected a JSON object")
    tag = found.pop("t", None)
    kind = _KINDS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise RemoteWireError(f"unknown message {tag!r}")
    message: Message = _build(kind, tag, found)
    if isinstance(message, Start) and not message.soft >= message.hard >= 0.0:
        raise RemoteWireError("START: expected soft >= hard >= 0")
    if isinstance(message, Start) and not message.argv:
        raise RemoteWireError("START: argv: expected a program")
    if isinstance(message, Start) and (message.beside is None) != ("!" not in message.seat):
        raise RemoteWireError("START: beside: expected for SEAT!NAME, and for nothing else")
    if isinstance(message, Start) and message.beside is not None and message.limit is None:
        raise RemoteWireError("START: limit: expected for SEAT!NAME")
    return message


class Splitter:
    """Cuts a stream of bytes into messages; an unfinished line waits for its rest."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages completed by `data`, in order; RemoteWireError as `decode` does."""
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            yield decode(line)
        if len(self._buffer) > MAX_LINE:
            raise RemoteWireError(f"a message has more than {MAX_LINE} bytes")


def _plain(record: Any) -> dict[str, Any]:
    return {name: _plain_value(getattr(record, name)) for name in _names(record.__class__)}


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cast(Any, kind)))


def _plain_value(value: Any) -> Any:
    if isinstance(value, SeatReport | Exited | m.Told):
        return _plain(value)
    if isinstance(value, tuple):
        return [_plain_value(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value


def _build(kind: Any, where: str, found: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for f in fields(kind):
        if f.name in found:
            values[f.name] = _READERS[str(f.type)](f"{where}: {f.name}", found.pop(f.name))
        elif f.default is MISSING and f.default_factory is MISSING:
            raise RemoteWireError(f"{where}: {f.name} is missing")
    if found:
        raise RemoteWireError(f"{where}: unknown field {min(found)!r}")
    return kind(**values)


def _exactly(expected: str, *types: type) -> Callable[[str, Any], Any]:
    def read(where: str, value: Any) -> Any:
        if type(value) not in types:
            raise RemoteWireError(f"{where}: expected {expected}")
        return value

    return read


def _number(where: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise RemoteWireError(f"{where}: expected a finite number")
    return float(value)


def _optional(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda where, value: None if value is None else read(where, value)


def _strings(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise RemoteWireError(f"{where}: expected a list of strings")
    return tuple(value)


def _integers(where: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise RemoteWireError(f"{where}: expected a list of integers")
    return tuple(value)


def _integer_map(where: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(type(each) is int for each in value.values()):
        raise RemoteWireError(f"{where}: expected an object of integers")
    return value


def _string_map(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise RemoteWireError(f"{where}: expected an object of strings")
    return value


def _seats(where: str, value: Any) -> tuple[SeatReport, ...]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise RemoteWireError(f"{where}: expected a list of objects")
    return tuple(_build(SeatReport, where, each) for each in value)


def _record(kind: Any) -> Callable[[str, Any], Any]:
    def read(where: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise RemoteWireError(f"{where}: expected an object")
        return _build(kind, where, value)

    return read


_text = _exactly("text", str)
_integer = _exactly("an integer", int)
_boolean = _exactly("true or false", bool)
_object = _exactly("an object", dict)

_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "int": _integer,
    "str": _text,
    "bool": _boolean,
    "bool | None": _optional(_boolean),
    "float": _number,
    "int | None": _optional(_integer),
    "str | None": _optional(_text),
    "float | None": _optional(_number),
    "tuple[str, ...]": _strings,
    "tuple[int, ...]": _integers,
    "Mapping[str, int]": _integer_map,
    "Mapping[str, str]": _string_map,
    "Mapping[str, Any]": _object,
    "Mapping[str, Any] | None": _optional(_object),
    "tuple[SeatReport, ...]": _seats,
    "Exited | None": _optional(_record(Exited)),
    "Told | None": _optional(_record(m.Told)),
}

_KINDS: Mapping[str, type[Message]] = {
    kind.tag: kind
    for kind in (
        m.Hello,
        m.Session,
        m.Alive,
        m.Lease,
        m.Start,
        m.Stop,
        m.Signal,
        m.Seen,
        m.Paused,
        m.Bye,
        m.Welcome,
        m.Started,
        m.Refused,
        m.Stopping,
        m.Exited,
        m.Empty,
        m.Stuck,
        m.Told,
        m.LeaseAck,
        m.Shutdown,
    )
}
