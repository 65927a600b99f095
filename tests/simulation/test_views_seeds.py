"""Caches, groups and observers of an election under random faults.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import pytest
from tests.simulation.recipes import FIRST, SOAK, Trial, cases
from tests.simulation.views import CacheTrial, GroupTrial, ObserverTrial


@pytest.mark.parametrize(("trial", "seed"), cases([CacheTrial]))
def test_a_cache_shows_only_moments_of_the_tree_in_their_order_and_in_the_end_the_last(
    trial: type[Trial], seed: int
) -> None:
    trial(seed).run()


@pytest.mark.parametrize(("trial", "seed"), cases([GroupTrial]))
def test_members_are_there_with_their_newest_data_and_leave_nothing(
    trial: type[Trial], seed: int
) -> None:
    trial(seed).run()


@pytest.mark.parametrize(("trial", "seed"), cases([ObserverTrial]))
def test_an_observed_leader_is_never_older_than_one_before(trial: type[Trial], seed: int) -> None:
    trial(seed).run()


class AMinute(CacheTrial):
    """Of churn, with faults all the time."""

    faults_for = 60.0
    true_within = 2.0


class TenMinutes(AMinute):
    faults_for = 600.0


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_minute_of_churn_a_cache_is_true_within_two_seconds_of_quiet(seed: int) -> None:
    AMinute(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 21))
def test_after_ten_minutes_of_churn_too(seed: int) -> None:
    TenMinutes(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trial", [CacheTrial, GroupTrial, ObserverTrial])
def test_many_more_seeds(trial: type[Trial]) -> None:
    for seed in range(FIRST + trial.seeds, FIRST + trial.seeds + SOAK):
        trial(seed).run()
