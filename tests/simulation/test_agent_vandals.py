"""Znodes of ours scribbled over and deleted by hand, among other faults, and put right later.

What is wrong in the tree concerns nobody but whom it concerns: no agent dies of it, nothing runs
twice, and everything runs again once it is put right.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import pytest
from tests.simulation.cluster import VANDALS, Cluster
from tests.simulation.corpus import SCRIBBLED
from tests.simulation.failing import Quiet

from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.guardian.messages import Start
from incumbent.testing.processes import Program
from incumbent.testing.world import World

FIRST = int(os.environ.get("FIRST", "1"))
SEEDS = int(os.environ.get("SEEDS", "20"))
KINDS = (*VANDALS, *VANDALS, "cut", "kill agent", "kill guardian", "freeze agent", "crash")


@pytest.mark.parametrize("seed", list(SCRIBBLED))
def test_a_seed_that_once_failed(seed: int) -> None:
    test_what_is_wrong_in_the_tree_stops_only_what_it_concerns(seed)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_is_wrong_in_the_tree_stops_only_what_it_concerns(seed: int) -> None:
    cluster = Cluster(seed, kinds=KINDS)

    cluster.run()

    died = re.search(r"agent\d+ ended: .*", cluster.world.trace())
    assert died is None, f"of what it read: {died}"


class ByHand(Quiet):
    """One seat in quiet; `does` is what an operator does to it, with a client."""

    fails = False
    does: Any = None
    found: Any = None

    def behaves(self, start: Start) -> Program:
        return Program(children=1)

    async def meanwhile(self) -> None:
        await asyncio.sleep(5.0)
        await self.world.host("ops").call(self._operate(), "operator")
        await asyncio.sleep(5.0)

    async def _operate(self) -> None:
        ops = self.world.host("ops")
        client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say)
        await client.connect(timeout=30.0)
        self.found = await self.does(client)
        await client.close()

    def said(self) -> str:
        return self.world.trace().encode().decode("unicode_escape")


class CrumbDeleted(ByHand):
    """A live instance's breadcrumb is deleted."""

    async def does(self, client: Client) -> tuple[bytes, bytes]:
        path = "/incumbent/components/c0/seats/0/running/1"
        before, _ = await client.get(path)
        await client.delete(path)
        await asyncio.sleep(2.0)
        try:
            return before, (await client.get(path))[0]
        except NoNode:
            return before, b""

    def run(self) -> World:
        world = super().run()
        before, after = self.found
        assert before == after, "it was not made again"
        assert len(self.starts()) == 1
        return world


def test_a_live_breadcrumb_deleted_by_hand_is_made_again_and_nothing_restarts() -> None:
    CrumbDeleted(1).run()


def test_a_breadcrumb_that_cannot_be_made_again_stops_what_it_was_for() -> None:
    async def delete(client: Client) -> Any:
        folder = "/incumbent/components/c0/seats/0/running"
        await client.delete(folder, recursive=True)
        await asyncio.sleep(2.0)
        left = [tree for node in cluster.nodes.values() for tree in node.processes.trees.values()]
        await client.create(folder)
        return [tree for tree in left if not tree.is_empty]

    cluster = ByHand(1)
    cluster.does = delete

    cluster.run()

    assert cluster.found == []
    assert [each["epoch"] for each in cluster.starts()] == [1, 2]
    assert "its breadcrumb was deleted by hand and cannot be made again" in cluster.said()


def test_the_last_word_on_a_seat_deleted_by_hand_is_said_again() -> None:
    async def delete(client: Client) -> Any:
        path = "/incumbent/components/c0/seats/0/observed"
        await client.delete(path)
        await asyncio.sleep(2.0)
        return (await client.get(path))[0]

    cluster = ByHand(1)
    cluster.does = delete

    cluster.run()

    assert b'"state":"running"' in cluster.found
    assert len(cluster.starts()) == 1


def test_a_nodes_facts_written_over_are_put_right_and_everybody_knows_the_node_again() -> None:
    async def scribble(client: Client) -> Any:
        before, _ = await client.get("/incumbent/nodes/n2")
        await client.set("/incumbent/nodes/n2", b"garbage{")
        await asyncio.sleep(2.0)
        terms = [agent.term for agent in cluster.agents.values()]
        known = [sorted(term.view.nodes) for term in terms if term is not None]
        return (await client.get("/incumbent/nodes/n2"))[0] == before, known

    cluster = ByHand(1)
    cluster.does = scribble

    cluster.run()

    assert cluster.found == (True, [["n1", "n2", "n3"]] * 3)
    assert len(cluster.starts()) == 1


def test_an_old_breadcrumb_put_back_by_hand_is_vouched_for_again() -> None:
    """Else its node would have to be confirmed dead, though all went by its lease."""

    async def put_back(client: Client) -> Any:
        path = "/incumbent/components/c0/seats/0/running/1"
        before, _ = await client.get(path)
        await client.set(path, b"garbage{")
        await client.set("/incumbent/control", (await client.get("/incumbent/control"))[0])
        await asyncio.sleep(2.0)
        await client.set(path, before)
        await asyncio.sleep(2.0)
        owner = cluster.starts()[0]["node"]
        cluster.nodes[owner].host.crash()
        await asyncio.sleep(20.0)

    cluster = ByHand(1)
    cluster.does = put_back

    cluster.run()

    assert len({each["node"] for each in cluster.starts()}) == 2


def test_a_receipt_says_that_a_session_was_gone_only_if_it_was() -> None:
    async def delete(client: Client) -> Any:
        election = "/incumbent/components/c0/seats/0/election"
        names = await client.children(election)
        await client.delete(f"{election}/{min(names, key=lambda name: name[-10:])}")

    cluster = ByHand(1)
    cluster.does = delete

    cluster.run()

    moved = re.findall(r"c0 n\d → n\d in .*", cluster.said())
    assert len(cluster.starts()) == 2
    assert len(moved) == 1 and "proved dead" in moved[0]
