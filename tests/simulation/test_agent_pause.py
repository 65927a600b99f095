"""A pause: programs outlive ZooKeeper, and there are never two, whoever has heard of it."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.simulation.cluster import OWN_KINDS, SESSION, Cluster
from tests.simulation.test_agent_freeze import Moved

from incumbent.agent.pausing import Known, order_of
from incumbent.cli import lifecycle, orders, wishes
from incumbent.cli.cluster import read_cluster
from incumbent.cli.explain import seat_rows
from incumbent.cli.pause import set_paused, until_heard
from incumbent.client import Client
from incumbent.testing.faults import KINDS

FIRST = int(os.environ.get("FIRST", "1"))
SEEDS = int(os.environ.get("SEEDS", "12"))
PAUSES = ("pause",) * 8


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_never_two_and_soon_one_with_pauses_at_any_moment(seed: int) -> None:
    Cluster(seed, kinds=(*KINDS, *OWN_KINDS, *PAUSES)).run()


class Maintained(Moved):
    """c0 on three nodes, while somebody works at ZooKeeper."""

    async def pause(self, paused: bool) -> None:
        async def order(client: Client) -> None:
            _before, zxid = await orders.again(
                lambda: set_paused(client, self.tree, paused=paused, by="ops", now=1.0)
            )
            self.zxid = zxid

        await self._until_done(order)

    async def heard(self, *, paused: bool) -> None:
        async with asyncio.timeout(30):
            await until_heard(self.client, self.tree, self.zxid if paused else 0, lambda _: None)

    def cut(self, node: str) -> None:
        self.world.cut(node, "zk")

    async def down(self, seconds: float) -> None:
        """ZooKeeper is away."""
        self.world.host("zk").crash()
        await asyncio.sleep(seconds)
        self.world.host("zk").restart()
        self.boot("zk")
        await asyncio.sleep(5.0)


@pytest.mark.parametrize("seed", range(1, 6))
def test_zookeeper_is_away_for_longer_than_a_session_and_nothing_is_restarted(seed: int) -> None:
    class Away(Maintained):
        async def orders(self) -> None:
            await self.pause(True)
            await self.heard(paused=True)
            await self.down(3 * SESSION)
            await self.pause(False)
            await self.heard(paused=False)
            await asyncio.sleep(5.0)
            self.kept = self.starts()
            self.owner_before = self.owner()
            self.nodes[self.owner()].host.crash()  # and from now on it is as ever
            await asyncio.sleep(3 * SESSION)
            self.after = self.starts()
            self.nodes[self.owner_before].host.restart()
            self.boot(self.owner_before)

    cluster = Away(seed)

    cluster.run()

    assert len(cluster.kept) == 1
    assert len(cluster.after) == 2


@pytest.mark.parametrize("agent_dies", [False, True])
def test_a_node_that_is_cut_off_in_a_pause_runs_on_and_is_honoured_until_it_answers(
    agent_dies: bool,
) -> None:
    class CutOff(Maintained):
        async def orders(self) -> None:
            there = self.owner()
            await self.pause(True)
            await self.heard(paused=True)
            self.cut(there)
            if agent_dies:
                agent = self.guardian(there).agent
                assert agent is not None
                agent.kill()
            await asyncio.sleep(3 * SESSION)
            await self.pause(False)
            await asyncio.sleep(3 * SESSION)  # it has not heard of that
            self.honoured = self.starts()
            self.alive = [
                tree for tree in self.guardian(there).processes.trees.values() if not tree.is_empty
            ]
            self.world.heal_all()
            await self.heard(paused=False)
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = CutOff(1)

    cluster.run()

    assert len(cluster.honoured) == 1
    assert len(cluster.alive) == 1, "it ran on"
    assert len(cluster.in_order) == 2, "its session had ended: restarted once"


def test_a_node_that_never_heard_of_the_pause_keeps_its_deadline() -> None:
    class Deaf(Maintained):
        async def orders(self) -> None:
            there = self.owner()
            self.cut(there)
            await self.pause(True)
            await asyncio.sleep(3 * SESSION)
            trees = self.guardian(there).processes.trees.values()
            self.alive = [tree for tree in trees if not tree.is_empty]
            self.meanwhile = self.starts()
            await self.pause(False)
            self.world.heal_all()
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Deaf(1)

    cluster.run()

    assert cluster.alive == []
    assert len(cluster.meanwhile) == 1, "nothing starts in a pause"
    assert len(cluster.in_order) == 2


def test_a_node_that_dies_in_a_pause_is_waited_for_or_confirmed_dead() -> None:
    class Dead(Maintained):
        async def orders(self) -> None:
            there = self.owner()
            await self.pause(True)
            await self.heard(paused=True)
            self.nodes[there].host.crash()
            await asyncio.sleep(3 * SESSION)
            await self.pause(False)
            await asyncio.sleep(3 * SESSION)
            self.waiting = self.starts()
            cluster = await read_cluster(self.client, self.tree)
            (row,) = seat_rows(cluster, now=0.0)
            self.said = row.state, row.why
            await orders.confirm_dead(self.client, self.tree, cluster, there)
            await lifecycle.until_running(self.client, self.tree, "c0")
            self.nodes[there].host.restart()
            self.boot(there)

    cluster = Dead(1)

    cluster.run()

    assert len(cluster.waiting) == 1
    assert cluster.said[0] == "unproven"
    assert "may run on: it began before a pause, and n" in cluster.said[1]
    assert len(cluster.in_order) == 2


def test_in_a_pause_a_stop_stops_and_what_ends_stays_down() -> None:
    class Stops(Maintained):
        async def orders(self) -> None:
            await self.pause(True)
            await wishes.want(self.client, self.tree, "c0", run=False)
            await orders.until_ended(self.client, self.tree, "c0", self.say)
            await wishes.want(self.client, self.tree, "c0", run=True)
            await asyncio.sleep(5.0)
            self.down_ = self.starts()
            await self.pause(False)
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Stops(1)

    cluster.run()

    assert len(cluster.down_) == 1
    assert len(cluster.in_order) == 2


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_the_guardian_hears_of_a_pause_that_was_read_and_of_its_end_once_it_is_bound(
    told: bool, is_paused: bool, is_read: bool
) -> None:
    for is_leased in (False, True):
        for is_carried in (False, True):
            known = Known(
                is_read=is_read, is_paused=is_paused, is_leased=is_leased, is_carried=is_carried
            )

            order = order_of(known, told=told)

            if not is_read or told == is_paused:
                assert order is None
            elif is_paused:
                assert order is True
            else:
                assert order is (False if is_leased and not is_carried else None)
