"""The real client, server and election under random faults: never two leaders, and progress."""

from __future__ import annotations

import os

import pytest
from tests.simulation.corpus import ELECTION, ELECTION_ON_BAD_DISKS
from tests.simulation.election import Election
from tests.simulation.test_repeats import pythons, trace

from incumbent.testing.faults import ALL_KINDS

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "200"))


def twice(seed: int) -> None:
    first, second = Election(seed).run(), Election(seed).run()

    assert first.digest() == second.digest()


@pytest.mark.parametrize("seed", list(ELECTION))
def test_a_seed_that_once_failed(seed: int) -> None:
    twice(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_never_two_leaders_and_somebody_leads_after_healing(seed: int) -> None:
    twice(seed)


@pytest.mark.parametrize("seed", list(ELECTION_ON_BAD_DISKS))
def test_a_seed_of_all_kinds_that_once_failed(seed: int) -> None:
    Election(seed, kinds=tuple(ALL_KINDS)).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, SEEDS // 2)))
def test_the_same_with_disks_clocks_and_replies_that_fail(seed: int) -> None:
    Election(seed, kinds=tuple(ALL_KINDS)).run()


@pytest.mark.parametrize("python", pythons())
def test_the_whole_stack_gives_byte_equal_traces_in_fresh_processes(python: str) -> None:
    here = Election(7).run().trace().encode()

    assert trace(python, "election.py", 7, "1") == trace(python, "election.py", 7, "99") == here


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_more_seeds() -> None:
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 4000):
        Election(seed).run()
