"""Three nodes, one to three seats, random faults: never two at once, and progress after healing.

`make simulate SEEDS=N FIRST=S` runs others. A seed that fails prints its schedule of faults; put
it into CORPUS once it is understood, so that it is run first for ever.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.cluster import OWN_KINDS, Cluster
from tests.simulation.corpus import CLUSTER

from incumbent.testing.faults import ALL_KINDS

FIRST = int(os.environ.get("FIRST", "1"))
SEEDS = int(os.environ.get("SEEDS", "200"))


def twice(seed: int) -> None:
    first, again = Cluster(seed).run(), Cluster(seed).run()

    assert again.digest() == first.digest(), "a seed must be one exact run"


@pytest.mark.parametrize("seed", list(CLUSTER))
def test_a_seed_that_once_failed(seed: int) -> None:
    twice(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_no_two_instances_at_once_and_progress_after_healing(seed: int) -> None:
    twice(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, SEEDS // 4)))
def test_the_same_with_disks_clocks_and_replies_that_fail(seed: int) -> None:
    Cluster(seed, kinds=(*ALL_KINDS, *OWN_KINDS)).run()
