"""Child processes that `up` keeps running: the server and the guardian.

Rule of this file: a death is seen through a pidfd, never by polling.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from incumbent.cli.exits import USAGE
from incumbent.cli.process import Child

__all__ = ["Kept", "pause_before"]

STEADY_AFTER = 10.0
"""Seconds of life after which earlier deaths are forgotten."""


def pause_before(deaths: int) -> float:
    """Seconds before the next start, after so many early deaths in a row: 0, 1, 2, 4, 5, 5, …"""
    return 0.0 if deaths <= 1 else min(5.0, 2.0 ** (deaths - 2))


class Kept:
    """A child that is started again whenever it dies, until told to stop."""

    def __init__(
        self, name: str, first: Child, again: Callable[[], Child], tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self.child = first
        self.is_proven = False
        """It has worked once: then what keeps it from starting is waited out."""
        self._again = again
        self._tell = tell
        self._stop = asyncio.Event()

    async def keep(self) -> int:
        """Its exit code, once it ended after `stop`, or because it cannot start at all."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began_at = loop.time()
            code = await _ended(self.child)
            if self._stop.is_set() or (code == USAGE and not self.is_proven):
                return code
            deaths = 1 if loop.time() - began_at >= STEADY_AFTER else deaths + 1
            pause = pause_before(deaths)
            words = self.child.last_words() if code > 0 else ""
            when = f"in {pause:g} s" if pause else "now"
            because = f": {words}" if words else ""
            self._tell(f"the {self.name} {_how(code)}{because}; it is started again {when}")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
                    return code
            self.child = self._again()

    def stop(self) -> None:
        """SIGTERM, each time that it is called."""
        self._stop.set()
        self.child.signal(signal.SIGTERM)


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with {code}"


async def _ended(child: Child) -> int:
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(child.pid)  # our child is not reaped yet: it is this one
    dead: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, lambda: None if dead.done() else dead.set_result(None))
    try:
        await dead
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return child.reap()
