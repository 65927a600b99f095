"""Session ids, passwords and timeouts.

Rule of this file: a password is an HMAC of the session id under the store's secret, so that it
needs no keeping, and cannot be worked out from the id that every Stat shows (Apache's can).
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Container

__all__ = ["NO_PASSWORD", "grant_timeout", "is_password", "new_session_id", "password"]

NO_PASSWORD = bytes(16)
"""What goes with session id 0."""

_PREFIX = 1 << 56  # as Apache's first server: never negative, never an id that means something else


def password(secret: bytes, session_id: int) -> bytes:
    """The 16 bytes that prove a session one's own."""
    message = session_id.to_bytes(8, "big", signed=True)
    return hmac.digest(secret, message, hashlib.sha256)[:16]


def is_password(secret: bytes, session_id: int, given: bytes) -> bool:
    return hmac.compare_digest(password(secret, session_id), given)


def new_session_id(rng: random.Random, taken: Container[int]) -> int:
    """Random, so that a client of a wiped server never finds its old id in a stranger's hands."""
    while True:
        session_id = _PREFIX | rng.getrandbits(56)
        if session_id not in taken:
            return session_id


def grant_timeout(asked_ms: int, tick: float) -> int:
    """Milliseconds granted: what was asked for, but at least 2 ticks and at most 20 (seconds)."""
    return round(max(2 * tick * 1000, min(asked_ms, 20 * tick * 1000)))
