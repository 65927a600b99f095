"""Locks of every kind under random faults: who may be inside, progress, and nothing left.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import pytest
from tests.simulation.locks import LockTrial, MultiLockTrial, RwLockTrial, SemaphoreTrial
from tests.simulation.on_ensemble import on_ensemble
from tests.simulation.recipes import FIRST, SOAK, Trial, cases

TRIALS = [LockTrial, RwLockTrial, SemaphoreTrial, MultiLockTrial]


@pytest.mark.parametrize(("trial", "seed"), cases(TRIALS))
def test_only_who_may_is_inside_all_go_on_and_nothing_is_left(
    trial: type[Trial], seed: int
) -> None:
    trial(seed).run()


@pytest.mark.parametrize(("trial", "seed"), cases(TRIALS, share=4))
def test_the_same_on_an_ensemble(trial: type[Trial], seed: int) -> None:
    on_ensemble(trial)(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_many_more_seeds(trial: type[Trial]) -> None:
    for seed in range(FIRST + trial.seeds, FIRST + trial.seeds + SOAK):
        trial(seed).run()
        if seed % 4 == 0:
            on_ensemble(trial)(seed).run()
