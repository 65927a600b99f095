"""A program's log on this node: its last lines, then what is added, across rotation.

The log-writer renames the file when it is full and begins a new one under the old name; the
file stays the same over restarts of the program and of the agent. Rule of this file: only whole
lines are shown, each once, and none is left out between two files or before following begins.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["Tail", "show_logs"]

LOOK_EVERY = 0.1
"""Seconds between two looks at a followed file."""
_CHUNK = 1 << 20
_MOST_FILES = 9


class Tail:
    """Reads a log file as it grows, and goes over to the next file of that name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""
        self._seen: set[tuple[int, int]] = set()

    def last(self, count: int) -> list[str]:
        """The last `count` lines up to now, over older files too. Raises OSError."""
        lines = deque(self.read(), maxlen=count)
        older = [self._path.with_name(f"{self._path.name}.{n}") for n in range(1, _MOST_FILES)]
        for path in older:
            if len(lines) == count or not path.exists():
                break
            with open(path, "rb") as file:
                if _identity(file.fileno()) in self._seen:
                    continue  # rotated just now
                more = deque((_text(line.rstrip(b"\n")) for line in file), maxlen=count)
            while more and len(lines) < count:
                lines.appendleft(more.pop())
        return list(lines)

    def read(self) -> Iterator[str]:
        """The whole lines that came since. Raises OSError."""
        while True:
            yield from self._drain()
            if not self._is_renamed():
                return
            yield from self._drain()  # what came between the read and the renaming
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> Iterator[str]:
        if self._fd < 0:
            with suppress(FileNotFoundError):
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                self._seen.add(_identity(self._fd))
        while self._fd >= 0 and (chunk := os.read(self._fd, _CHUNK)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from map(_text, lines)

    def _is_renamed(self) -> bool:
        if self._fd < 0:
            return False
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # the next one is not there yet
        return (now.st_dev, now.st_ino) != _identity(self._fd)


def show_logs(
    logs: Mapping[str, Path],
    show: Callable[[str, str], None],
    *,
    count: int,
    follow: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Call `show(seat, line)` for the last `count` lines of each; with `follow`, for ever on."""
    tails = {seat: Tail(path) for seat, path in logs.items()}
    for seat, tail in tails.items():
        for line in tail.last(count):
            show(seat, line)
    while follow:
        pause(LOOK_EVERY)
        for seat, tail in tails.items():
            for line in tail.read():
                show(seat, line)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
