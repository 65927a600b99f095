"""A file that says until when a program may live if ZooKeeper is not heard from any more.

One number: seconds of CLOCK_BOOTTIME, the clock of /proc/uptime. It rises with each beat, by
renaming a new file over the old one, so that whoever reads it reads a whole number.

Rule of this file: it informs and nothing depends on it; a file system that cannot be written to
costs the file, not the program.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["DeadlineFile"]


_OLD = 3600.0
"""Seconds by which a deadline has passed before its file is taken for one left by a killed agent."""


class DeadlineFile:
    """`path` is "" where nothing can be written, and without a name until the first `write`."""

    def __init__(self, environ: Mapping[str, str], *, name: str = "") -> None:
        """In memory, where the system has a place for that: no disk is waited for.

        `name`: a node's file, which the next agent of this node goes on with. Else it is new.
        """
        places = (environ.get("XDG_RUNTIME_DIR"), "/dev/shm", tempfile.gettempdir())
        self._places = [place for place in places if place and os.access(place, os.W_OK)]
        self._has_swept = False
        self.path = f"{self._places[0]}/incumbent-{name}.deadline" if name and self._places else ""

    def write(self, deadline: float) -> None:
        try:
            if not self.path:
                self.path = self._make()
            if not self._has_swept:
                self._has_swept = True
                _sweep(Path(self.path).parent, deadline - _OLD)
            new = f"{self.path}.new"
            # a killed agent's, or somebody's who would like to own ours
            Path(new).unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                os.write(descriptor, f"{deadline:.6f}\n".encode())
            finally:
                os.close(descriptor)
            Path(new).rename(self.path)
        except OSError:
            return

    def remove(self) -> None:
        if self.path:
            with suppress(OSError):
                Path(self.path).unlink(missing_ok=True)

    def _make(self) -> str:
        for place in self._places:
            with suppress(OSError):
                descriptor, path = tempfile.mkstemp(".deadline", "incumbent-", place)
                os.close(descriptor)
                return path
        raise OSError("no place for a file")


def _sweep(place: Path, before: float) -> None:
    """Remove what agents of this user that were killed have left. Others can make files there, too:
    links, pipes, and what has no end."""
    for path in place.glob("incumbent-*.deadline"):
        with suppress(OSError, ValueError):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found, text = os.fstat(file), os.read(file, 64)
            finally:
                os.close(file)
            if found.st_uid == os.geteuid() and float(text) < before:
                path.unlink()
