"""Election and cluster on a simulated ensemble: never two, no lease outlives its session, progress.

The ensemble's tick is known to its clients in half of the seeds. `make simulate SEEDS=N FIRST=S` runs
others.
"""

from __future__ import annotations

import os

import pytest
from tests.simulation.cluster import Cluster
from tests.simulation.election import Election
from tests.simulation.test_repeats import pythons, trace

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "60"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_never_two_leaders_no_lease_too_long_and_somebody_leads_after_healing(seed: int) -> None:
    Election(seed, ensemble=True).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, SEEDS // 2)))
def test_no_two_instances_at_once_and_progress_after_healing(seed: int) -> None:
    Cluster(seed, ensemble=True).run()


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_of_the_ensemble_is_one_exact_run(seed: int) -> None:
    here = Election(seed, ensemble=True).run().trace().encode()

    for python in pythons():
        assert trace(python, "election.py", seed, "7", "ensemble") == here


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_more_seeds() -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 2000):
        Election(seed, ensemble=True).run()
        Cluster(seed, ensemble=True).run()
