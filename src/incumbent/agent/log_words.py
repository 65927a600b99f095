"""What a reader of logs and a node say to each other, one JSON object a line.

    node    {"v": 1, "node": "n1", "nonce": …}
    reader  {"seat": "web/0", "lines": 100, "follow": true, "proofs": {"digest:operators:HASH": …}}
    node    {"lines": […], "place": […]}, again and again; {} from time to time: it lives
    reader  {"end": true}: nothing more is to come there, send what there is
    node    {"end": true}, or {"error": …}

A password never goes to a node: who has the digest's secret proves that by a keyed hash of the
nonce. The key is the HASH of the id, which operators and agents know: agents can read logs.

Rule of this file: pure. What is asked for is a seat and a hook by name, never a path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from incumbent.settings import name_problem
from incumbent.spec.health import HOOKS

__all__ = ["LARGEST", "Ask", "line", "object_of", "proof", "proven"]

LARGEST = 64 * 1024
"""Bytes of a reader's line."""
_MOST_LINES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be shown of a seat's log: the last `lines`; or, if `epoch` is given, all since
    that one began here; or, if `after` is given, all behind a place told before.
    """

    seat: str
    hook: str = ""
    lines: int = 0
    epoch: int = 0
    after: tuple[int, int] = (0, 0)
    follow: bool = False
    proofs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        component, _, number = self.seat.rpartition("/")
        if name_problem(component) or not (number.isascii() and number.isdecimal()):
            raise ValueError(f"expected a seat, like web/0; got {self.seat!r}")
        if self.hook and self.hook not in HOOKS:
            raise ValueError(f"expected one of {', '.join(HOOKS)}; got {self.hook!r}")

    @property
    def log(self) -> str:
        """The seat, or what runs beside it, that the log is of."""
        return f"{self.seat}!{self.hook}" if self.hook else self.seat

    def to_line(self) -> bytes:
        return line(asdict(self))

    @classmethod
    def of(cls, raw: bytes) -> Ask:
        """Raises ValueError for anything else, with a sentence."""
        try:
            said = object_of(raw)
            inode, offset = said.get("after", (0, 0))
            return cls(
                seat=str(said["seat"]),
                hook=str(said.get("hook", "")),
                lines=max(0, min(int(said.get("lines", 0)), _MOST_LINES)),
                epoch=int(said.get("epoch", 0)),
                after=(int(inode), int(offset)),
                follow=said.get("follow") is True,
                proofs={str(who): str(proved) for who, proved in said.get("proofs", {}).items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not what a reader of logs says: {error!r}") from None


def proof(digest_id: str, nonce: str, node: str) -> str:
    """That somebody knows the HASH of `NAME:HASH`, to this node, this once."""
    key = digest_id.rpartition(":")[2].encode()
    return hmac.new(key, f"{nonce} {node}".encode(), hashlib.sha256).hexdigest()


def proven(ids: Iterable[str], proofs: Mapping[str, str], nonce: str, node: str) -> list[str]:
    """Those of these `digest:NAME:HASH` that were proven."""
    return [
        each
        for each in ids
        if each.startswith("digest:")
        and hmac.compare_digest(
            proofs.get(each, "").encode(), proof(each.removeprefix("digest:"), nonce, node).encode()
        )
    ]


def line(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def object_of(raw: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    said = json.loads(raw)
    if not isinstance(said, dict):
        raise ValueError("expected an object")
    return said
