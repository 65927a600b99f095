"""Locks of every kind under random faults: exclusion, rising tokens, progress, nothing left.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.locks import LockTrial

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "40"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_one_holder_at_a_time_and_nothing_is_left(seed: int) -> None:
    LockTrial(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_more_seeds() -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 10_000):
        LockTrial(seed).run()
