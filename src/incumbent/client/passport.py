"""What another process needs to go on with a session.

Rule of this file: whoever holds this is the session. It has the password and the credentials:
it is handed over a pipe or a socket pair, never written to disk, argv or environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Passport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passport:
    """A session's identity and everything that its rules need (ARCHITECTURE.md, "Session and lease").

    `timeout_ms` is what was asked for first and is asked for ever after; `s_min_ms` the smallest
    timeout that was ever granted; `last_zxid` the newest that was seen.
    """

    session_id: int
    password: bytes = field(repr=False)
    timeout_ms: int
    s_min_ms: int
    last_zxid: int
    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    generation: int = 1

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON message; secrets as hex."""
        return {
            "session_id": self.session_id,
            "password": self.password.hex(),
            "timeout_ms": self.timeout_ms,
            "s_min_ms": self.s_min_ms,
            "last_zxid": self.last_zxid,
            "auth": [[scheme, credential.hex()] for scheme, credential in self.auth],
            "generation": self.generation,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Passport:
        """The inverse of `to_json`. Raises KeyError, ValueError or TypeError for anything else."""
        return cls(
            session_id=int(values["session_id"]),
            password=bytes.fromhex(values["password"]),
            timeout_ms=int(values["timeout_ms"]),
            s_min_ms=int(values["s_min_ms"]),
            last_zxid=int(values["last_zxid"]),
            auth=tuple((str(scheme), bytes.fromhex(hexed)) for scheme, hexed in values["auth"]),
            generation=int(values["generation"]),
        )
