"""What a reader of logs and a node say to each other, one JSON object a line.

    node    {"v": 1, "node": "n1", "nonce": …}
    reader  {"seat": "web/0", "lines": 100, "follow": true, "proofs": [["digest:operators", …]]}
    node    {"lines": […], "place": […]}, again and again; {} from time to time: it lives
    reader  {"end": true}: nothing more is to come there, send what there is
    node    {"end": true}, or {"error": …}

A password never goes to a node, nor does what could stand for it: who has the digest's secret
proves that by a keyed hash of the nonce, good for one node, asked at one address. The key is the
HASH of the id, which operators and agents know: agents can read logs.

Rule of this file: pure. What is asked for is a seat and a hook by name, never a path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    proofs: Sequence[tuple[str, str]] = ()
    """(digest:NAME, proof) each; two may have the same name."""

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
            known, offset = said.get("after", (0, 0))
            return cls(
                seat=str(said["seat"]),
                hook=str(said.get("hook", "")),
                lines=max(0, min(int(said.get("lines", 0)), _MOST_LINES)),
                epoch=int(said.get("epoch", 0)),
                after=(int(known), int(offset)),
                follow=said.get("follow") is True,
                proofs=[(str(who), str(proved)) for who, proved in said.get("proofs", ())],
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not what a reader of logs says: {error!r}") from None


def proof(digest_id: str, nonce: str, node: str, url: str) -> str:
    """That somebody knows the HASH of `NAME:HASH`, to this node, this once.

    `url`: where it was asked. Who says that another node is to be asked at an address of his own
    has no use for what he is told there.
    """
    key = digest_id.rpartition(":")[2].encode()
    return hmac.new(key, f"{nonce} {node} {url}".encode(), hashlib.sha256).hexdigest()


def proven(
    ids: Iterable[str], proofs: Sequence[tuple[str, str]], nonce: str, node: str, url: str
) -> list[str]:
    """Those of these `digest:NAME:HASH` that were proven."""
    found = []
    for each in ids:
        scheme, _, digest_id = each.partition(":")
        who = each.rpartition(":")[0]
        shown = [proved.encode() for name, proved in proofs if name == who]
        wanted = proof(digest_id, nonce, node, url).encode()
        if scheme == "digest" and any(hmac.compare_digest(one, wanted) for one in shown):
            found.append(each)
    return found


def line(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def object_of(raw: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        said = json.loads(raw)
    except RecursionError:
        raise ValueError("expected an object, got too many within each other") from None
    if not isinstance(said, dict):
        raise ValueError("expected an object")
    return said
