"""Lines for people, written to a terminal or pipe that may be stopped, full or gone.

An agent that blocks in a write is an agent that sends no beat and is killed for it: Ctrl-S in
its terminal, or a pager at the end of its pipe, must not cost a leadership.

Rule of this file: a write never waits and never fails. What does not fit now is kept, as far as
it is news, and written before the next line that does.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections import deque

__all__ = ["Lines", "Role"]

_KEPT = 100
_CHUNK = 4096  # bytes that a writable pipe takes without blocking (PIPE_BUF)


class Lines:
    """Lines to a file descriptor. `prefix` is put before each one, after a time of day."""

    def __init__(self, fd: int, prefix: str = "") -> None:
        self._fd = fd
        self._prefix = prefix
        self._kept: deque[str] = deque(maxlen=_KEPT)

    def news(self, text: str) -> None:
        """A line that must not be missed: kept until it can be written."""
        stamp = time.strftime("%H:%M:%S ", time.localtime()) if self._prefix else ""
        self._kept.append(f"{stamp}{self._prefix}{text}\n")
        self._write()

    def reminder(self, text: str) -> None:
        """A line that says nothing new: left out while news wait."""
        self._write()
        if not self._kept:
            self._kept.append(f"{text}\n")
            self._write()
            self._kept.clear()

    def _write(self) -> None:
        while self._kept:
            chunk = self._kept[0].encode(errors="replace")[:_CHUNK]
            try:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                if not any(events & select.POLLOUT for _, events in poll.poll(0)):
                    return
                os.write(self._fd, chunk)
            except OSError:  # nobody will ever read it: a closed terminal
                pass
            self._kept.popleft()


class Role:
    """What is so for now: said at once, and again every `every` seconds while it stays so."""

    def __init__(self, lines: Lines, every: float) -> None:
        self._lines = lines
        self._every = every
        self._line = ""
        self._timer: asyncio.TimerHandle | None = None

    def play(self, line: str, *, lasts: bool = True) -> None:
        """From now on it is this; "" for none. One that does not last is said once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._line = line if lasts else ""
        if line:
            self._lines.news(line)
        if self._line:
            self._again_later()

    @property
    def lasts(self) -> bool:
        """Whether it will be said again."""
        return bool(self._line)

    def _again_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._again)

    def _again(self) -> None:
        self._lines.reminder(self._line)
        self._again_later()
