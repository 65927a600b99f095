"""What is written down of one item, where, and what follows from it.

An item is any string that its owner calls it by. Below the work's path each one has a znode, its
record, and while somebody works on it an ephemeral child of that:

    PATH/<shard>/<name>        the record: persistent, made with the first claim
    PATH/<shard>/<name>/c      the claim: ephemeral, its data a nonce

The shard, two hexadecimal digits of the item's hash, keeps directories short; it is a container,
so that empty ones go by themselves. The name is the item with every byte but A-Z a-z 0-9 - _ and
inner dots as %XX; what would be longer than 100 characters is ~ and the item's SHA-256, and then
the record has the item itself. So no two items share a name.

    (no record) ──claim──► open, with a claim ──done──► done ──kept `keep_done`──► (no record)
                             ▲    │  └─failed too often─► parked ──retry──► open
                             └────┘ claim again: given back, failed, or its session ended

Rule of this file: pure. An item is free only if its record says so and it has no claim.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from incumbent.errors import MalformedValue

__all__ = [
    "CLAIM",
    "MAX_ITEM",
    "SHARDS",
    "Record",
    "Standing",
    "encode",
    "key_of",
    "read_record",
    "record_path",
    "stand",
]

CLAIM = "c"
"""The name of a claim, below its record."""

SHARDS = tuple(f"{number:02x}" for number in range(64))

MAX_ITEM = 4096
"""Bytes of an item's name in UTF-8."""

_MAX_NAME = 100
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


class Standing(Enum):
    """How it stands with an item."""

    FREE = "free"
    CLAIMED = "claimed"
    """Somebody works on it."""
    DONE = "done"
    PARKED = "parked"
    """It failed too often: `retry` or `done` by hand."""
    WAITING = "waiting"
    """It failed, or is delayed, and its time has not come."""
    SUSPECT = "suspect"
    """Its workers have died with it: it is begun by itself only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of an item.

    state       "open", "done" or "parked"
    tries       how often it was begun
    failures    how often its handler failed
    why         of the last failure
    not_before  seconds of wall time: not to be begun earlier; 0: at any time
    wait        seconds that it had to wait when that was written
    payload     what belongs to it; only a queue's items have one
    """

    item: str
    state: str = "open"
    tries: int = 0
    failures: int = 0
    why: str = ""
    not_before: float = 0.0
    wait: float = 0.0
    payload: bytes = b""

    @property
    def deaths(self) -> int:
        """How often it was begun and nobody came back to say what came of it."""
        return max(0, self.tries - self.failures)

    def write(self, name: str) -> bytes:
        """What its znode, called `name`, has in it."""
        found: dict[str, Any] = {"v": 1, "state": self.state}
        if name.startswith("~"):
            found["item"] = self.item
        for key in ("tries", "failures", "why", "not_before", "wait"):
            if value := getattr(self, key):
                found[key] = value
        return json.dumps(found, separators=(",", ":")).encode() + b"\n" + self.payload

    def begun(self) -> Record:
        return replace(self, tries=self.tries + 1)

    def not_begun(self) -> Record:
        return replace(self, tries=max(0, self.tries - 1))

    def failed(self, why: str) -> Record:
        return replace(self, failures=self.failures + 1, why=why)

    def waiting(self, wait: float, now: float) -> Record:
        """Not to be begun for `wait` seconds; `now` is wall time."""
        return replace(self, not_before=now + wait if wait else 0.0, wait=wait)


def stand(record: Record | None, *, is_claimed: bool, now: float) -> Standing:
    """How it stands with an item; `now` is wall time.

    Who has to wait for longer than was asked for reads another clock than was written by: what
    that one meant cannot be told, and a wait is a courtesy.
    """
    if record is None:
        return Standing.FREE
    if is_claimed:
        return Standing.CLAIMED
    if record.state != "open":
        return Standing(record.state)
    is_waiting = 0 < record.not_before - now <= record.wait + 1
    return Standing.WAITING if is_waiting else Standing.FREE


def encode(item: str) -> str:
    """The name of an item's znode; another one for every item. Raises ValueError, or TypeError
    for what is no text."""
    if not isinstance(item, str):
        raise TypeError(f"{item!r}: an item's name is text: say str({item!r}), or what you call it")
    try:
        raw = item.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{item!r}: an item's name is text that UTF-8 can carry") from None
    if not 0 < len(raw) <= MAX_ITEM:
        raise ValueError(f"an item's name has 1 to {MAX_ITEM} bytes in UTF-8, this one {len(raw)}")
    if _PLAIN.issuperset(raw) and raw[:1] != b"." and len(raw) <= _MAX_NAME:
        return item
    name = "".join(
        chr(byte) if byte in _PLAIN and (index or byte != 0x2E) else f"%{byte:02X}"
        for index, byte in enumerate(raw)
    )
    return name if len(name) <= _MAX_NAME else "~" + hashlib.sha256(raw).hexdigest()


def _decode(name: str) -> str:
    raw = bytearray()
    parts = name.split("%")
    raw += parts[0].encode()
    for part in parts[1:]:
        raw += bytes.fromhex(part[:2]) + part[2:].encode()
    return raw.decode()


def record_path(path: str, item: str) -> str:
    """Where an item's record is."""
    name = encode(item)
    shard = SHARDS[hashlib.sha256(item.encode()).digest()[0] % len(SHARDS)]
    return f"{path.rstrip('/')}/{shard}/{name}"


def key_of(path: str, item: str) -> str:
    """An idempotency key: 32 hexadecimal digits, of the path (with the client's root) and the
    item alone."""
    return hashlib.sha256(f"{path}\0{item}".encode()).hexdigest()[:32]


def read_record(path: str, data: bytes | None) -> Record:
    """Raises `MalformedValue`."""
    head, _, payload = (data or b"").partition(b"\n")
    try:
        found: Any = json.loads(head)
        if not isinstance(found, dict) or found.pop("v", None) != 1:
            raise ValueError("not of version 1")
        item = found.pop("item", None)
        name = path[path.rindex("/") + 1 :]
        known = {key: found[key] for key in found.keys() & Record.__slots__}
        record = Record(item=_decode(name) if item is None else item, payload=payload, **known)
        if record.state not in ("open", "done", "parked"):
            raise ValueError(record.state)
        int(record.tries), int(record.failures), float(record.not_before), float(record.wait)
    except (ValueError, TypeError, RecursionError):
        raise MalformedValue(path, data or b"", "a record of work, version 1") from None
    return record
