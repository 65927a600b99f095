"""A bell: something may have changed, look again.

The agent's procedures are level-triggered: each looks at what is so, does one thing, and
otherwise waits for the bell.

Rule of this file: rings between the look and the wait are not lost, since a procedure that
finds nothing to do does not await anything before it waits.
"""

from __future__ import annotations

import asyncio

from incumbent.clock import Clock

__all__ = ["Bell"]


class Bell:
    """Rings for everybody who listens now; nobody's ring is kept for later."""

    __slots__ = ("_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self, *_: object) -> None:
        """Takes any arguments, so that it can serve as a callback."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def heard(self, until: float | None = None) -> None:
        """Until the next ring, or until `until` on CLOCK_BOOTTIME (which a timer only hints at)."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        timer = None
        if until is not None:
            delay = max(0.0, until - self._clock.boottime())
            timer = loop.call_later(delay, _finish, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if future in self._waiting:
                self._waiting.remove(future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
