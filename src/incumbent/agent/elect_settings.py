"""What `elect` is told, what it may promise with it, and what its exit code means.

Rule of this file: pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incumbent.guardian.messages import Exited
from incumbent.lease import Numbers

__all__ = ["EVERY", "ElectSettings", "exit_code", "fitting"]

EVERY = 5.0
"""Seconds between two lines about an unchanged role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectSettings:
    """What WELCOME carries. `stop_grace` None: as much as the session's times allow, at most the
    default; `tick`: see `lease.Lease`; times in seconds."""

    path: str
    hosts: str
    name: str
    session_timeout: float
    tick: float | None = None
    stop_grace: float | None = None
    isolation: str = "sealed"
    command: Sequence[str] = ()
    every: float = EVERY

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ElectSettings:
        """Out of WELCOME's settings, which have other keys too."""
        return cls(**{key: given[key] for key in cls.__dataclass_fields__ if key in given})


def fitting(session: float, tick: float | None, stop_grace: float | None) -> Numbers:
    """A session's times, with as much stop grace as was asked for; without a wish, as much as
    fits, at most the default. Raises `NumbersDontFit`."""
    numbers = Numbers.of(session, tick=tick, stop_grace=stop_grace)
    numbers.fit()
    return numbers


def exit_code(exited: Exited) -> int:
    """As a shell gives it: the program's own, or 128 and the signal's number."""
    if exited.signal is not None:
        return 128 + exited.signal
    return exited.code or 0
