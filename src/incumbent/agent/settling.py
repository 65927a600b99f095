"""When changed configuration takes effect: once, after a pause behind the last change.

    change … change … change ──── debounce ────► take effect
    └────────────── debounce_max ──────────────► at the latest

Rule of this file: pure. No change is forgotten: what is there differs from what is in effect until
it takes effect, and whatever changes then is a change after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["Settling", "due_at", "look"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Of one instance. `in_effect`: what it was started with, or told of since; `seen`: what is
    there by now. Times in seconds of boottime; inf: nothing has changed."""

    in_effect: Mapping[str, str]
    seen: Mapping[str, str]
    first_at: float = math.inf
    last_at: float = math.inf


def look(settling: Settling, there: Mapping[str, str], now: float) -> Settling:
    """What is there now, as far as it is known."""
    if there == settling.seen:
        return settling
    if there == settling.in_effect:  # changed back before it took effect
        return Settling(in_effect=settling.in_effect, seen=there)
    first_at = min(settling.first_at, now)
    return replace(settling, seen=there, first_at=first_at, last_at=now)


def due_at(settling: Settling, debounce: float, debounce_max: float) -> float:
    """When `seen` takes effect; inf: it is in effect."""
    if settling.seen == settling.in_effect:
        return math.inf
    return min(settling.last_at + debounce, settling.first_at + debounce_max)
