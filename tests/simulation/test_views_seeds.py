"""Caches, groups and observers of an election under random faults.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.recipes import Trial
from tests.simulation.views import CacheTrial, GroupTrial, ObserverTrial

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "15"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_cache_shows_only_moments_of_the_tree_in_their_order_and_in_the_end_the_last(
    seed: int,
) -> None:
    CacheTrial(seed).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_members_are_there_with_their_newest_data_and_leave_nothing(seed: int) -> None:
    GroupTrial(seed).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_an_observed_leader_is_never_older_than_one_before(seed: int) -> None:
    ObserverTrial(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trial", [CacheTrial, GroupTrial, ObserverTrial])
def test_many_more_seeds(trial: type[Trial]) -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 10_000):
        trial(seed).run()
