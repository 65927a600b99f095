"""A number in memory that two processes share: one writes it, the other reads.

Rule of this file: one aligned 64-bit store and load, so that no reader sees half a number;
it is for one child, later forks don't get it.
"""

from __future__ import annotations

import ctypes
import mmap

__all__ = ["SharedNumber"]


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
