"""Locks of every kind under random faults: who may be inside, progress, and nothing left.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.locks import LockTrial, MultiLockTrial, RwLockTrial, SemaphoreTrial
from tests.simulation.on_ensemble import on_ensemble
from tests.simulation.recipes import Trial

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "24"))
TRIALS = [LockTrial, RwLockTrial, SemaphoreTrial, MultiLockTrial]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_only_who_may_is_inside_all_go_on_and_nothing_is_left(
    trial: type[Trial], seed: int
) -> None:
    trial(seed).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 4))
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_the_same_on_an_ensemble(trial: type[Trial], seed: int) -> None:
    on_ensemble(trial)(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_many_more_seeds(trial: type[Trial]) -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 5000):
        trial(seed).run()
        if seed % 4 == 0:
            on_ensemble(trial)(seed).run()
