"""Periods of wall time: which one an instant is in, the same on every machine.

Periods are counted from a Monday at midnight, UTC, so that minutes, hours, days and weeks begin
where one expects it. A period of whole days can begin at midnight of another zone: it is then a
day of that zone's calendar, 23 or 25 hours long where the clocks are changed.

Rule of this file: no clock is read here; an instant is seconds since 1970, UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

__all__ = ["DAY", "Every", "duration"]

DAY = 86400
_ORIGIN = date(1970, 1, 5)  # a Monday
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY, "w": 7 * DAY}


@dataclass(frozen=True, slots=True)
class Every:
    """One period after the other. `zone` counts for whole days only."""

    seconds: int
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.seconds} s" if self.seconds % DAY else f"{self.seconds} s, {self.zone}"

    def start(self, instant: float) -> str:
        """When the period with `instant` in it began: 2026-11-27T23:00:00Z. Sorts by time."""
        if self.seconds % DAY or self.zone == "UTC":
            origin = datetime.combine(_ORIGIN, time(), UTC)
            passed = (datetime.fromtimestamp(instant, UTC) - origin) // self._length
            return _text(origin + passed * self._length)
        zone = ZoneInfo(self.zone)
        days = (datetime.fromtimestamp(instant, zone).date() - _ORIGIN).days
        first = _ORIGIN + timedelta(days // self._length.days * self._length.days)
        return _text(datetime.combine(first, time(), zone).astimezone(UTC))

    @property
    def _length(self) -> timedelta:
        return timedelta(seconds=self.seconds)


def duration(text: str) -> int:
    """`90s`, `15m`, `1h`, `1d`, `2w` in seconds. Raises ValueError, with what was expected."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None or not int(match[1]):
        raise ValueError(f"expected a number and one of s, m, h, d, w, such as 1h; got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")
