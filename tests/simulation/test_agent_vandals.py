"""Znodes of ours scribbled over and deleted by hand, among other faults, and put right later.

What is wrong in the tree concerns nobody but whom it concerns: no agent dies of it, nothing runs
twice, and everything runs again once it is put right.
"""

from __future__ import annotations

import os
import re

import pytest
from tests.simulation.cluster import VANDALS, Cluster

FIRST = int(os.environ.get("FIRST", "1"))
SEEDS = int(os.environ.get("SEEDS", "100"))
KINDS = (*VANDALS, *VANDALS, "cut", "kill agent", "kill guardian", "freeze agent", "crash")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_is_wrong_in_the_tree_stops_only_what_it_concerns(seed: int) -> None:
    cluster = Cluster(seed, kinds=KINDS)

    cluster.run()

    died = re.search(r"agent\d+ ended: .*", cluster.world.trace())
    assert died is None, f"of what it read: {died}"
