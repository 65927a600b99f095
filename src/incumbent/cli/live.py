"""What `up` says while it runs: one line at each change that matters.

Rule of this file: quiet. A line only where something is different for the one who watches;
steps on the way (starting, stopping) are not shown.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from incumbent.agent.tree import Observed

__all__ = ["Live", "Screen"]

_COLOURS = {
    "running": "32",
    "ready": "32",
    "stopped": "2",
    "waiting": "33",
    "restarts": "33",
    "stuck": "1;31",
}


class Live:
    """What was last shown of each seat; `see` gives the next line, or None."""

    def __init__(self, seats: Sequence[str]) -> None:
        self._shown: dict[str, tuple[str, int, str]] = {}
        self._width = max((len(_short(seat, seats)) for seat in seats), default=0)
        self._seats = tuple(seats)

    def add(self, seat: str) -> None:
        """One more."""
        self._seats = (*self._seats, seat)
        self._width = max(self._width, len(_short(seat, self._seats)))

    @property
    def unseen(self) -> list[str]:
        """The seats of which nothing was shown yet."""
        return [seat for seat in self._seats if seat not in self._shown]

    def see(self, seat: str, observed: Observed) -> tuple[str, str, str] | None:
        """(name, state, text) to show, if this is news."""
        match observed.state:
            case "running":
                return self._news(seat, "running", observed.epoch, f"pid {observed.pid}")
            case "ready":
                return self._news(seat, "ready", observed.epoch, "")
            case "backoff":
                return self._news(seat, "restarts", observed.epoch, observed.reason)
            case "released" | "stopped":
                why = "" if observed.reason.startswith("SIG") else observed.reason
                return self._news(seat, "stopped", observed.epoch, why)
            case "stuck":
                return self._news(seat, "stuck", observed.epoch, "alive after SIGKILL")
            case "waiting" if observed.reason:
                return self._news(seat, "waiting", observed.epoch, observed.reason)
            case _:
                return None

    def aside(self, seat: str, why: str) -> tuple[str, str, str] | None:
        """The agent itself says that it cannot run it."""
        return self._news(seat, "waiting", 0, why)

    def _news(self, seat: str, state: str, epoch: int, text: str) -> tuple[str, str, str] | None:
        news = (state, epoch, text)
        before = self._shown.get(seat, ("", -1, ""))
        self._shown[seat] = news
        if before[1:] == news[1:]:
            return None
        return _short(seat, self._seats).ljust(self._width), state, text


def _short(seat: str, seats: Sequence[str]) -> str:
    """Without its number, where its component has only one."""
    component, _, number = seat.rpartition("/")
    return component if number == "0" and f"{component}/1" not in seats else seat


class Screen:
    """Lines on stdout, in colour if that is a terminal. Nobody reading stops nothing."""

    def __init__(self) -> None:
        is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._is_coloured = sys.stdout.isatty() and not is_plain

    def line(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime())
        with suppress(OSError):
            os.write(1, f"{self._in('2', stamp)} {text}\n".encode())

    def seat(self, news: tuple[str, str, str] | None) -> None:
        if news is not None:
            name, state, text = news
            self.line(f"{name}  {self._in(_COLOURS[state], state.ljust(8))}  {text}".rstrip())

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._is_coloured else text
