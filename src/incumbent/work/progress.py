"""How a run goes on, for people: one line that is redrawn on a terminal, plain lines elsewhere.

Rule of this file: it only tells; what it tells are the counters, and nothing waits for it.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from typing import TextIO

from incumbent.work.run import Counters

__all__ = ["Line", "bar"]

_EVERY = 10.0  # seconds, where nothing can be redrawn


class Line:
    """For `progress=` of a run: on `stream`, which is stderr if None."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._told_at = 0.0
        self._last: Counters | None = None

    def __call__(self, counters: Counters) -> None:
        self._last = counters
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r{f'{bar(counters)} {counters}'[:width]}\x1b[K")
        elif counters.seconds - self._told_at >= _EVERY:
            self._told_at = counters.seconds
            self._write(f"{counters}\n")

    def end(self) -> None:
        """What was told last stays, on a line of its own."""
        if self._is_terminal:
            self._write("\n" if self._last else "")
        elif self._last:
            self._write(f"{self._last}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a stream that is gone stops no work
            self._stream.write(text)
            self._stream.flush()


def bar(counters: Counters, width: int = 20) -> str:
    """How much of what was listed is done."""
    ended = counters.done + counters.parked
    whole = ended + counters.running + counters.left
    full = width * ended // whole if whole else 0
    return f"[{'#' * full}{'.' * (width - full)}]"
