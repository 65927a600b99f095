"""A number in memory that two processes share: one writes it, the other reads.

Rule of this file: one aligned 64-bit store and load, so that no reader sees half a number;
a page is for one child, later forks don't get it.
"""

from __future__ import annotations

import ctypes
import math
import mmap

__all__ = ["DeadlinePage", "SharedNumber"]

_NEVER = 2**63 - 1


class SharedNumber:
    """Starts with 0. Make it, fork the child that shares it, call `keep_from_later_forks`."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._number = ctypes.c_int64.from_buffer(self._memory)

    def read(self) -> int:
        return self._number.value

    def write(self, value: int) -> None:
        self._number.value = value

    def keep_from_later_forks(self) -> None:
        self._memory.madvise(mmap.MADV_DONTFORK)


class DeadlinePage:
    """A seat's hard deadline (boottime seconds, inf: never); only the guardian writes it."""

    def __init__(self) -> None:
        self._number = SharedNumber()
        self.write(math.inf)

    def read(self) -> float:
        ns = self._number.read()
        return math.inf if ns == _NEVER else ns / 1e9

    def write(self, at: float) -> None:
        self._number.write(_NEVER if at == math.inf else max(int(at * 1e9), 0))

    def keep_from_later_forks(self) -> None:
        self._number.keep_from_later_forks()
