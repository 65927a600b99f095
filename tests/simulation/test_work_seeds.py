"""Work under random faults: no order is charged twice, none is lost, no claim leaks.

The published way (look, make a znode, process, close, delete it) is the control: it must be caught.

`make simulate SEEDS=N FIRST=S` runs others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.hunt import CAUGHT, main
from tests.simulation.on_ensemble import on_ensemble
from tests.simulation.work import WorkQueueTrial, WorkTrial

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "100"))
"""Three times as many of the first kind, some 50 ms of a core each."""

PER_TEST = 20


@pytest.mark.parametrize("first", range(FIRST, FIRST + 3 * SEEDS, PER_TEST))
def test_each_order_is_charged_once(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        WorkTrial(seed).run()


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
def test_the_same_where_answers_are_lost_and_nothing_else(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        WorkTrial(seed, kinds=("lose replies",)).run()


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
def test_each_item_of_a_work_queue_is_done(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        WorkQueueTrial(seed).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 20))
def test_the_same_on_an_ensemble(seed: int) -> None:
    on_ensemble(WorkTrial)(seed).run()


def test_the_published_way_is_caught_charging_twice() -> None:
    assert main("work-naive", 0, 20, ()) == CAUGHT


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_more_seeds() -> None:
    for seed in range(FIRST + 3 * SEEDS, FIRST + 3 * SEEDS + 4_000):
        WorkTrial(seed).run()
        WorkQueueTrial(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_more_seeds_on_an_ensemble() -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 1_000):
        on_ensemble(WorkTrial)(seed).run()
