"""`once` under random faults: each period at most once, and it goes on.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.on_ensemble import on_ensemble
from tests.simulation.once import OnceTrial

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "25"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_period_is_run_at_most_once_and_never_beside_another(seed: int) -> None:
    OnceTrial(seed).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 5))
def test_the_same_where_answers_are_lost_and_nothing_else(seed: int) -> None:
    OnceTrial(seed, kinds=("lose replies",)).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 5))
def test_the_same_on_an_ensemble(seed: int) -> None:
    on_ensemble(OnceTrial)(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_more_seeds() -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 4_000):
        OnceTrial(seed).run()
