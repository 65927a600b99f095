"""Queues, counters, values and barriers under random faults: sums that come out, nobody left
waiting, nothing left over.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import pytest
from tests.simulation.barriers import BarrierTrial, DoubleBarrierTrial
from tests.simulation.items import CounterTrial, QueueTrial, ValueTrial
from tests.simulation.on_ensemble import on_ensemble
from tests.simulation.recipes import FIRST, SOAK, Trial, cases

TRIALS = [QueueTrial, CounterTrial, ValueTrial, BarrierTrial, DoubleBarrierTrial]


@pytest.mark.parametrize(("trial", "seed"), cases(TRIALS))
def test_the_account_comes_out_and_everybody_goes_on(trial: type[Trial], seed: int) -> None:
    trial(seed).run()


@pytest.mark.parametrize(("trial", "seed"), cases(TRIALS, share=5))
def test_the_same_where_answers_are_lost_and_nothing_else(trial: type[Trial], seed: int) -> None:
    trial(seed, kinds=("lose replies",)).run()


@pytest.mark.parametrize(("trial", "seed"), cases(TRIALS, share=5))
def test_the_same_on_an_ensemble(trial: type[Trial], seed: int) -> None:
    on_ensemble(trial)(seed).run()


def test_a_create_that_a_server_without_a_disk_could_not_confirm_is_found_again() -> None:
    DoubleBarrierTrial(2303).run()


def test_a_fault_that_strikes_after_its_end_cuts_nobody_off_for_good() -> None:
    on_ensemble(DoubleBarrierTrial)(4013).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("trial", TRIALS)
def test_many_more_seeds(trial: type[Trial]) -> None:
    for seed in range(FIRST + trial.seeds, FIRST + trial.seeds + SOAK):
        trial(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("trial", TRIALS)
def test_many_more_seeds_on_an_ensemble(trial: type[Trial]) -> None:
    for seed in range(FIRST + trial.seeds, FIRST + trial.seeds + SOAK // 5):
        on_ensemble(trial)(seed).run()
