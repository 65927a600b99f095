"""A host's disk, as far as a store can tell: it is slow, full, or fails a write.

    store = MemoryStore(delay=host.disk.delay, failing=host.disk.failing)

Rule of this file: a disk keeps nothing; whoever writes keeps what was written, or not.
"""

from __future__ import annotations

import asyncio
import random

__all__ = ["DiskFailed", "SimDisk"]


class DiskFailed(Exception):
    """A write was not carried out; nothing of it is there."""


class SimDisk:
    """One disk. Set its fields at any time.

    usual    a write takes up to so many seconds
    slow_by  and up to so many more, at least half of them
    is_full  every write fails
    """

    def __init__(self, rng: random.Random, *, usual: float = 0.01) -> None:
        self.usual = usual
        self.slow_by = 0.0
        self.is_full = False
        self.writes = 0
        self._failing_at: dict[int, None] = {}
        self._rng = rng

    def fail(self, nth: int = 1) -> None:
        """The n-th write from now on fails, once."""
        assert nth >= 1, "the next write is number 1"
        self._failing_at[self.writes + nth] = None

    def heal(self) -> None:
        self.slow_by, self.is_full = 0.0, False
        self._failing_at.clear()

    def delay(self) -> float:
        """Seconds that the next write takes."""
        took = self.usual * self._rng.random()
        return took + self.slow_by * self._rng.uniform(0.5, 1.0) if self.slow_by else took

    def failing(self, _number: int = 0) -> bool:
        """Does the next write fail? To be asked once for each."""
        self.writes += 1
        return self._failing_at.pop(self.writes, False) is None or self.is_full

    async def write(self) -> None:
        """Durable when it returns. Raises `DiskFailed`."""
        fails = self.failing()
        await asyncio.sleep(self.delay())
        if fails:
            raise DiskFailed("no space is left" if self.is_full else "this write failed")
