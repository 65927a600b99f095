"""Child processes that `up` keeps running: the server and the guardian.

Rule of this file: a child lives in a session of its own, so that the terminal's signals reach
only its parent. Its death is seen through a pidfd, never by polling.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Child", "Kept", "pause_before"]

STEADY_AFTER = 10.0
"""Seconds of life after which earlier deaths are forgotten."""
_TAIL = 4096


def pause_before(deaths: int) -> float:
    """Seconds before the next start, after so many early deaths in a row: 0, 1, 2, 4, 5, 5, …"""
    return 0.0 if deaths <= 1 else min(5.0, 2.0 ** (deaths - 2))


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

    async def ended(self) -> int:
        """Its exit code, negative for a signal."""
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(self.pid)  # our child is not reaped yet: it is this one
        dead = loop.create_future()
        loop.add_reader(pidfd, lambda: None if dead.done() else dead.set_result(None))
        try:
            await dead
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
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


class Kept:
    """A child that is started again whenever it dies, until told to stop."""

    def __init__(
        self, name: str, first: Child, again: Callable[[], Child], tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self.child = first
        self.is_stopping = False
        self._again = again
        self._tell = tell

    async def keep(self) -> int:
        """Returns the exit code with which it ended after `stop`."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began_at = loop.time()
            code = await self.child.ended()
            if self.is_stopping:
                return code
            deaths = 1 if loop.time() - began_at >= STEADY_AFTER else deaths + 1
            pause = pause_before(deaths)
            words = f": {self.child.last_words()}" if code > 0 else ""
            when = f"in {pause:g} s" if pause else "now"
            self._tell(f"the {self.name} {_ended(code)}{words}; it is started again {when}")
            await asyncio.sleep(pause)
            if self.is_stopping:
                return code
            self.child = self._again()

    def stop(self) -> None:
        """SIGTERM, each time that it is called."""
        self.is_stopping = True
        self.child.signal(signal.SIGTERM)


def _ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
