"""The two clocks that anything here may read.

Rule of this file: deadlines are counted on CLOCK_BOOTTIME, which goes on in suspend;
wall time is for display only. Whoever needs a clock is handed one.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "SystemClock"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What a session, a server or an agent may know of time."""

    def boottime(self) -> float:
        """Seconds since boot, suspend included. Never goes back."""

    def wall(self) -> float:
        """Seconds since 1970, for people. May step either way."""


class SystemClock:
    """The kernel's clocks."""

    __slots__ = ()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def wall(self) -> float:
        return time.time()


SYSTEM = SystemClock()
