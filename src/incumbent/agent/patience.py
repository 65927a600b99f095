"""How long a wrapped command's agent waits: until it is told to stop, or until it is too late.

Rule of this file: what is given up is cancelled, except what may be half written: that gets some
time to come to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from incumbent.clock import Clock

__all__ = ["IN_TIME", "Late", "Patience", "Stopped"]

T = TypeVar("T")

IN_TIME: Final = 3.0
"""Seconds for what is written at an end, once we are told to stop: the guardian waits 5."""


class Stopped(Exception):
    """We were told to stop while we waited for something else."""


class Late(Exception):
    """It was not had in time."""


class Patience:
    """`draining` is done when we are told to stop; `give_up_at`: CLOCK_BOOTTIME, None for never."""

    def __init__(
        self, draining: asyncio.Future[str], clock: Clock, give_up_at: float | None
    ) -> None:
        self._draining = draining
        self._clock = clock
        self._give_up_at = give_up_at

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T:
        """As `unless_stopped`, for what there is a time limit for; then raises `Late`."""
        if self._give_up_at is None:
            return await self.unless_stopped(work)
        delay = max(0.0, self._give_up_at - self._clock.boottime())
        try:
            async with asyncio.timeout(delay):
                return await self.unless_stopped(work)
        except TimeoutError:
            raise Late from None  # nothing that is waited for raises it itself

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; cancels it and raises `Stopped` if we are told to stop."""
        return await self._race(work, 0.0)

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for what had better not be cancelled: it is still waited for a moment, and
        its result counts."""
        return await self._race(work, IN_TIME)

    async def _race(self, work: Coroutine[Any, Any, T], grace: float) -> T:
        task = asyncio.ensure_future(work)
        ends: list[asyncio.Future[Any]] = [task, self._draining]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if grace and not task.done():
                await asyncio.wait([task], timeout=grace)
        finally:
            if not task.done():
                task.cancel()
        if task.done() and grace:
            return task.result()
        if self._draining.done():
            if task.done() and not task.cancelled():
                task.exception()
            raise Stopped
        return task.result()
