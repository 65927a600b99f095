"""From a schedule that fails to a small one that still does.

Rule of this file: what is returned was seen to fail. A smaller schedule is another run of the
same seed, which may fail for another reason; so `fails` should ask for the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from incumbent.testing.faults import Fault

__all__ = ["shrink"]

_STEPS = (0.0, 0.25, 0.5, 0.8)


def shrink(
    faults: Sequence[Fault], fails: Callable[[list[Fault]], bool], *, most: int = 400
) -> list[Fault]:
    """A part of `faults`, some of them shorter, that fails as well. At most `most` runs.

    Raises ValueError if these don't fail themselves.

    First whole stretches go, the longest first, then single faults; then those that are left get
    shorter.
    """
    runs = 0

    def still(some: list[Fault]) -> bool:
        nonlocal runs
        runs += 1
        return runs <= most and fails(some)

    small = list(faults)
    if not still(small):
        raise ValueError(f"these {len(small)} faults don't fail: nothing can be made smaller")
    size = max(1, len(small) // 2)
    while True:
        at, before = 0, len(small)
        while at < len(small):
            without = small[:at] + small[at + size :]
            if still(without):
                small = without
            else:
                at += size
        if size == 1 and len(small) == before:
            break
        size = max(1, size // 2)
    for index, fault in enumerate(small):
        for part in _STEPS:
            shorter = replace(fault, lasts=round(fault.lasts * part, 3))
            attempt = [*small[:index], shorter, *small[index + 1 :]]
            if fault.lasts > 0 and still(attempt):
                small = attempt
                break
    return small
