"""Schedules are data drawn from a seed; at the end everything is whole again."""

from __future__ import annotations

import asyncio
import random

import pytest

from incumbent.testing.faults import KINDS, Fault, describe, draw, inflict
from incumbent.testing.world import World


def schedule(seed: int) -> list[Fault]:
    return draw(
        random.Random(seed),
        hosts=["n1", "n2", "n3"],
        servers=["zk"],
        duration=60,
        longest=8,
        sparing=["suspend"],
    )


def test_a_seed_draws_the_same_schedule_and_a_few_kinds_only() -> None:
    assert schedule(1) == schedule(1)
    kinds = [{f.kind for f in schedule(seed)} for seed in range(200)]
    assert set().union(*kinds) == set(KINDS)
    assert max(map(len, kinds)) <= 4


@pytest.mark.parametrize("seed", range(50))
def test_faults_lie_within_their_bounds(seed: int) -> None:
    for fault in schedule(seed):
        assert 0 <= fault.at < 60
        assert 0 <= fault.lasts <= 8
        assert not (fault.kind == "suspend" and fault.a == "zk")
        if fault.b:
            assert {fault.a, fault.b} & {"zk"}


@pytest.mark.parametrize("seed", range(30))
def test_after_the_last_fault_everything_is_whole_again(seed: int) -> None:
    with World(seed) as world:
        for name in ("zk", "n1", "n2", "n3"):
            world.host(name)
        started: list[str] = []

        async def live() -> None:
            await asyncio.get_running_loop().create_future()

        def boot(name: str) -> None:
            started.append(name)
            world.host(name).run(live())

        async def story() -> None:
            for host in world.hosts.values():
                host.run(live())
            await inflict(world, schedule(seed), on_up=boot)

        world.run(story())

        assert not any(link.blocked or link.loss for link in world.network.links)
        for host in world.hosts.values():
            assert host.up
            assert not host.asleep
            assert not any(p.frozen for p in host.processes)
            assert host.processes
        crashes = [f for f in schedule(seed) if f.kind == "crash"]
        assert bool(started) == bool(crashes)


def test_a_kind_of_ones_own_is_applied_and_undone() -> None:
    seen: list[str] = []

    def strike(world: World, fault: Fault) -> None:
        seen.append(f"{fault.a} at {world.now:g}")

    with World(1) as world:
        world.host("n1")
        fault = Fault(at=3, kind="kill the agent", a="n1")
        world.run(inflict(world, [fault], more={"kill the agent": strike}))

    assert seen == ["n1 at 3"]
    assert describe(1, [fault]).splitlines() == [
        "seed 1, 1 faults:",
        "   3.000 s  kill the agent n1 for 0.000 s",
    ]
