"""A program's log on this node: its last lines, then what is added, across rotation.

The log-writer renames the file when it is full and begins a new one under the old name; the
file stays the same over restarts of the program and of the agent. Rule of this file: no line is
left out between the two files, and only whole lines are printed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["Tail", "follow", "last_lines", "older_first"]

LOOK_EVERY = 0.1
"""Seconds between two looks at a followed file."""
_CHUNK = 1 << 20


def older_first(path: Path) -> list[Path]:
    """The files of a log, `.4` … `.1`, then the present one; those that there are."""
    numbered = [path.with_name(f"{path.name}.{n}") for n in range(9, 0, -1)]
    return [each for each in (*numbered, path) if each.exists()]


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` whole lines of a log, over its older files too. Raises OSError."""
    lines: deque[str] = deque(maxlen=count)
    for file in older_first(path):
        with open(file, "rb") as stream:
            lines.extend(line.decode(errors="replace").rstrip("\n") for line in stream)
    return list(lines)


class Tail:
    """Reads what is added to a file, and goes over to the next file of that name."""

    def __init__(self, path: Path, *, at_end: bool) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""
        self._open()
        if at_end and self._fd >= 0:
            os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> Iterator[str]:
        """The whole lines that came since. Raises OSError."""
        while True:
            yield from self._drain()
            if not self._is_renamed():
                return
            yield from self._drain()  # what came between the read and the renaming
            os.close(self._fd)
            self._fd = -1
            self._open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        with suppress(FileNotFoundError):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def _drain(self) -> Iterator[str]:
        if self._fd < 0:
            self._open()
        while self._fd >= 0 and (chunk := os.read(self._fd, _CHUNK)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")

    def _is_renamed(self) -> bool:
        if self._fd < 0:
            return False
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # the new one is not there yet
        ours = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino)


def follow(
    logs: Mapping[str, Path],
    show: Callable[[str, str], None],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Call `show(seat, line)` for each line that is added, for ever."""
    tails = {seat: Tail(path, at_end=True) for seat, path in logs.items()}
    while True:
        for seat, tail in tails.items():
            for line in tail.read():
                show(seat, line)
        pause(LOOK_EVERY)
