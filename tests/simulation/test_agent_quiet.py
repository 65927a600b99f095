"""What must not happen: writes of an idle cluster, starts that nothing asked for, failures of programs
that only slept, programs that go on because their agent met a bug.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from tests.simulation.cluster import SESSION, Node
from tests.simulation.failing import Well

from incumbent.client import Client
from incumbent.errors import NoNode


async def tree_of(client: Client, path: str = "/incumbent") -> dict[str, tuple[int, int]]:
    """Every znode below, with the zxids of its last change and of its children's."""
    _data, stat = await client.get(path)
    found = {path: (stat.mzxid, stat.pzxid)}
    for name in await client.children(path):
        found |= await tree_of(client, f"{path}/{name}")
    return found


class Idle(Well):
    async def meanwhile(self) -> None:
        await asyncio.sleep(30.0)
        self.before = await self.ask(tree_of)
        await asyncio.sleep(120.0)
        self.after = await self.ask(tree_of)


def test_an_idle_cluster_changes_no_znode() -> None:
    """Its beats are checks, which change nothing."""
    cluster = Idle(1)

    cluster.run()

    assert len(cluster.before) > 30
    assert cluster.after == cluster.before
    assert cluster.later_starts() == []


class Partitioned(Well):
    """n1 is cut off for longer than a session and healed, thirty times."""

    async def meanwhile(self) -> None:
        await asyncio.sleep(10.0)
        for _ in range(30):
            self.world.cut("n1", "zk")
            await asyncio.sleep(9.0)
            self.world.heal_all()
            await asyncio.sleep(9.0)


def test_thirty_partitions_start_a_program_once_for_each_node_that_gets_it() -> None:
    """What took over runs on when the partition heals; nothing is placed besides and stopped again."""
    cluster = Partitioned(1)

    cluster.run()

    for seat in ("c0/0", "c1/0", "c2/0"):
        for before, after in pairwise(cluster.later_starts(seat)):
            assert before["node"] != after["node"], f"{seat} was started in place"


class Trembling(Well):
    """All connections drop and come back every 50 to 300 ms, for a minute."""

    async def meanwhile(self) -> None:
        await asyncio.sleep(10.0)
        rng = self.world.rng
        until = self.world.now + 60.0
        self.most = 0
        while self.world.now < until:
            for name in ("n1", "n2", "n3"):
                self.world.reset(name, "zk")
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            if rng.random() < 0.1:
                self.most = max(self.most, *(await self.ask(self.candidates)).values())
        self.world.heal_all()
        await asyncio.sleep(10.0)

    async def candidates(self, client: Client) -> Counter[tuple[str, str]]:
        """(seat, session) → its candidates."""
        found: Counter[tuple[str, str]] = Counter()
        for number in range(self.seats):
            seat = f"c{number}/0"
            try:
                names = await client.children(self.tree.election(seat))
            except NoNode:
                continue
            found.update((seat, name.partition("-")[0]) for name in names)
        return found


@pytest.mark.parametrize("seed", range(1, 3))
def test_connections_that_drop_all_the_time_make_no_second_candidate_and_no_second_start(
    seed: int,
) -> None:
    cluster = Trembling(seed)

    cluster.run()

    assert cluster.most == 1, "one candidate of a session in a seat's line"
    assert cluster.later_starts() == []


class Asleep(Well):
    """All machines but the server's sleep for ten minutes."""

    async def meanwhile(self) -> None:
        await asyncio.sleep(10.0)
        for name in ("n1", "n2", "n3"):
            self.world.host(name).suspend()
        await asyncio.sleep(600.0)
        for name in ("n1", "n2", "n3"):
            self.world.host(name).resume()
        self.journal.write("fault")
        await asyncio.sleep(20.0)


def test_machines_that_slept_fence_their_programs_and_count_no_failure() -> None:
    cluster = Asleep(1)

    cluster.run()  # no failure is in the tree, or it would say so

    for seat in ("c0/0", "c1/0", "c2/0"):
        assert len(cluster.later_starts(seat)) == 1
    assert all(len(node.machine.losses()) == 1 for node in cluster.nodes.values())


class Stalled(Well):
    """Forty seats on five nodes, and a server that stands still for twice a session."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = 40
        for name in ("n4", "n5"):
            self.nodes[name] = Node(self, self.world.host(name))

    async def meanwhile(self) -> None:
        await asyncio.sleep(20.0)
        self.before = {each["seat"]: each["node"] for each in self.starts()}
        processes = list(self.world.host("zk").processes)
        for process in processes:
            process.freeze()
        await asyncio.sleep(2 * SESSION)
        for process in processes:
            process.thaw()
        self.journal.write("fault")
        await asyncio.sleep(20.0)
        self.after = {each["seat"]: each["node"] for each in self.starts()}


def test_a_server_that_stood_still_costs_each_program_one_restart_where_it_was() -> None:
    """All nodes are silent at once: that is no reason to move anything."""
    cluster = Stalled(1)

    cluster.run()

    restarts = Counter(each["seat"] for each in cluster.starts() if each["boottime_ns"] > 20e9)
    assert set(restarts.values()) == {1}
    assert cluster.after == cluster.before


class Renamed(Well):
    """c0's machine is called otherwise when it comes back; what ran there could not be sealed."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        super().__init__(seed)
        self.containment = "swept"
        self.whole = whole

    async def meanwhile(self) -> None:
        await asyncio.sleep(10.0)
        there = next(each["node"] for each in reversed(self.starts()) if each["seat"] == "c0/0")
        node = self.nodes[there]
        assert node.guardian is not None
        node.name = "db-7"
        if self.whole:
            node.host.crash()
            await asyncio.sleep(3 * SESSION)
            self.meantime = self.later_starts("c0/0")
            node.host.restart()
            self.boot(there)
        else:
            self.meantime = []
            node.guardian.process.kill()  # its init starts it again
        self.journal.write("fault")
        await asyncio.sleep(20.0)


@pytest.mark.parametrize("whole", [True, False], ids=["booted anew", "same boot"])
def test_a_machine_that_was_renamed_is_known_by_its_id(whole: bool) -> None:
    """What it left under its old name is proven dead by its return, whatever it is called."""
    cluster = Renamed(1, whole=whole)

    cluster.run()

    assert cluster.meantime == [], "nobody could know that it was dead"
    assert cluster.later_starts("c0/0"), "its breadcrumb held everybody up"


class Raising:
    """A machine whose `at`-th call raises what nobody expects."""

    def __init__(self, machine: Any, at: int) -> None:
        self.machine = machine
        self.at = at
        self.calls = 0
        self.raised = ""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.machine, name)

        def call(*arguments: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                self.raised = name
                raise RuntimeError(f"{name} failed")
            return real(*arguments, **more)

        return call if callable(real) else real


class Bug(Well):
    """n1's agent meets a bug in its `at`-th call of anything on its machine; then it is cut off."""

    def __init__(self, seed: int, at: int) -> None:
        super().__init__(seed)
        node = self.nodes["n1"]
        self.machine = Raising(node.machine, at)
        node.machine = self.machine  # type: ignore[assignment]
        self.world.strict = False  # a bug is what it is about

    async def meanwhile(self) -> None:
        await asyncio.sleep(12.0)
        self.world.cut("n1", "zk")
        await asyncio.sleep(9.0)
        self.world.heal_all()
        self.journal.write("fault")
        await asyncio.sleep(20.0)


def test_whatever_call_meets_a_bug_programs_are_fenced_and_run_again() -> None:
    """The auditor looks for two at once, and for one in the end."""
    raised = set()
    for at in range(1, 60, 4):
        cluster = Bug(at, at)
        cluster.run()
        raised.add(cluster.machine.raised)

    assert len(raised) >= 4, raised
