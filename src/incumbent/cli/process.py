"""Starting our own modules as processes.

Rule of this file: small, since every lasting command imports it. A child lives in a session of
its own, so that the terminal's signals reach only its parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Child", "module"]

_TAIL = 4096


def module(name: str, *arguments: str) -> list[str]:
    """The command line of one of our own modules: the folder we are in is not searched for it."""
    return [sys.executable, "-P", "-m", name, *arguments]


class Child:
    """One life of a child. Its stderr goes to the end of the file `log`."""

    def __init__(self, argv: Sequence[str], log: Path, *, pass_fds: Sequence[int] = ()) -> None:
        """Start it; must be called on the main thread (its end is what the child is told of)."""
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._log, self._begin = log, os.fstat(fd).st_size
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        finally:
            os.close(fd)
        self.pid = self._process.pid

    def reap(self) -> int:
        """Wait for its end; its exit code, negative for a signal."""
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Without effect once it is reaped."""
        self._process.send_signal(number)

    def last_words(self) -> str:
        """The last line that it wrote in this life, "" if none."""
        with open(self._log, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, end - _TAIL))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
