"""A change reaches the copies of a component one after the other, and no further than it works."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from tests.simulation.cluster import Node
from tests.simulation.rolled import BAD, Rolled

from incumbent.agent.tree import Rollout, altered, write
from incumbent.cli import orders, wishes
from incumbent.client import Client
from incumbent.testing.processes import Program

SEEDS = min(8, int(os.environ.get("SEEDS", "1")))


class Quiet(Rolled):
    """Five copies, no faults, and one operator."""

    most, reverts = 1, False

    def __init__(self, seed: int = 1) -> None:
        most, reverts = self.most, self.reverts
        super().__init__(seed, faults=[])
        self.copies, self.most, self.reverts = 5, most, reverts
        self.good, self.bad = Program(ready_after=0.5), Program(lives=0.1, code=1)
        self.wanted: dict[str, tuple[str, str]] = {}

    async def story(self) -> None:
        for name in ("zk", *self.nodes):
            self.boot(name)
        await self.world.host("ops").call(self.apply(), "apply")
        await asyncio.sleep(10.0)
        self.world.host("ops").run(self.watch(), "watches")
        self.starts = 0
        self.records = [await self.world.host("ops").call(self._operate(), "operates")]

    async def change(self) -> None:
        """Only what `operate` does."""

    async def operate(self, client: Client) -> None:
        raise NotImplementedError

    async def _operate(self) -> Rollout | None:
        """The record, as it is at the end."""
        client = await self.operator()
        await self.operate(client)
        record = await self.record(client)
        await client.close()
        return record

    def behaves(self, start: Any) -> Program:
        self.starts = getattr(self, "starts", 0) + 1
        return super().behaves(start)

    def check(self) -> None:
        with self.world:
            self.world.run(self.story())

    @property
    def levels(self) -> list[str]:
        return [level for level, _ in self._of_seats()]

    @property
    def versions(self) -> list[str]:
        return [version for _, version in self._of_seats()]

    def _of_seats(self) -> list[tuple[str, str]]:
        return [self.runs[f"c0/{k}"] for k in range(self.copies)]


@pytest.mark.parametrize("most", [1, 2])
def test_never_more_copies_are_down_than_that_many(most: int) -> None:
    class Few(Quiet):
        async def operate(self, client: Client) -> None:
            await self.set(client, "1")
            await asyncio.sleep(15.0)

    Few.most = most
    cluster = Few()

    cluster.check()

    (record,) = cluster.records
    assert cluster.levels == ["1"] * 5 and cluster.starts == 5
    assert cluster.most_down == most
    assert record is not None and record.state == "done"


def test_a_bad_value_stops_at_the_first_failure_and_a_better_one_goes_on() -> None:
    class Stopped(Quiet):
        async def operate(self, client: Client) -> None:
            await self.set(client, BAD)
            await asyncio.sleep(20.0)
            self.bad_ones = self.levels.count(BAD)
            self.stopped = await self.record(client)
            await self.set(client, "better")
            await asyncio.sleep(25.0)

    cluster = Stopped()

    cluster.check()

    assert cluster.bad_ones == 1 and cluster.most_down == 1
    assert cluster.stopped is not None and cluster.stopped.state == "stopped"
    assert "exited with 1" in cluster.stopped.why
    assert cluster.levels == ["better"] * 5


class Thirty(Quiet):
    """Thirty copies on five nodes."""

    most = 3

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.copies = 30
        for name in ("n4", "n5"):
            self.nodes[name] = Node(self, self.world.host(name))

    async def operate(self, client: Client) -> None:
        await self.set(client, "1")
        await asyncio.sleep(25.0)
        self.good_ones, self.good_starts = self.levels.count("1"), self.starts
        await self.set(client, BAD)
        await asyncio.sleep(20.0)


def test_of_thirty_copies_on_five_nodes_a_few_restart_at_a_time_and_few_get_a_bad_value() -> None:
    cluster = Thirty()

    cluster.check()

    assert (cluster.good_ones, cluster.good_starts) == (30, 30)
    assert cluster.most_down == 3
    assert 1 <= cluster.levels.count(BAD) <= 3
    assert cluster.levels.count("1") == 30 - cluster.levels.count(BAD)


@pytest.mark.parametrize("is_spec", [True, False], ids=["spec", "config"])
def test_with_auto_revert_all_go_back_to_what_ran_before(is_spec: bool) -> None:
    class Reverted(Quiet):
        reverts = True

        async def operate(self, client: Client) -> None:
            for value in ("1", BAD):
                await self.a_change(value, is_spec)(client)
                await asyncio.sleep(20.0)

    cluster = Reverted()

    cluster.check()

    (record,) = cluster.records
    assert (cluster.versions if is_spec else cluster.levels) == ["1"] * 5
    assert cluster.starts == 5 + 2, "one was tried, and taken back"
    assert record is not None and record.state == "reverted" and "exited with 1" in record.why


def test_a_copy_that_had_no_turn_stays_as_it_is_wherever_it_is_started() -> None:
    class Moved(Quiet):
        async def operate(self, client: Client) -> None:
            await self.set(client, BAD)
            await asyncio.sleep(15.0)
            owner = next(n for n, led in self.leaders("c0/4").items() if led)
            guardian = self.nodes[owner].guardian
            assert guardian is not None
            guardian.process.kill()
            await asyncio.sleep(15.0)

    cluster = Moved()

    cluster.check()

    assert cluster.levels.count(BAD) == 1 and cluster.levels[4] == "0"


def test_retry_tries_once_more() -> None:
    class Retried(Quiet):
        async def operate(self, client: Client) -> None:
            await self.set(client, BAD)
            await asyncio.sleep(20.0)
            self.bad = self.good  # it was not the value
            await wishes.roll_on(client, self.tree, "c0")
            await asyncio.sleep(25.0)

    cluster = Retried()

    cluster.check()

    assert cluster.levels == [BAD] * 5


def test_what_was_stopped_starts_with_the_change_at_once() -> None:
    class Apart(Quiet):
        async def operate(self, client: Client) -> None:
            await wishes.want(client, self.tree, "c0", run=False)
            await asyncio.sleep(2.0)
            await orders.apply(client, self.tree, [self.spec("c0", "1")])
            await asyncio.sleep(2.0)
            await wishes.want(client, self.tree, "c0", run=True)
            await asyncio.sleep(3.0)

    cluster = Apart()

    cluster.check()

    assert cluster.versions == ["1"] * 5 and cluster.starts == 5


def test_what_all_were_started_with_after_a_stop_is_what_one_goes_back_to() -> None:
    class Restarted(Quiet):
        reverts = True

        async def operate(self, client: Client) -> None:
            await orders.apply(client, self.tree, [self.spec("c0", "1")])
            await asyncio.sleep(15.0)
            await wishes.want(client, self.tree, "c0", run=False)
            await asyncio.sleep(2.0)
            await orders.apply(client, self.tree, [self.spec("c0", "2")])
            await wishes.want(client, self.tree, "c0", run=True)
            await asyncio.sleep(5.0)
            await orders.apply(client, self.tree, [self.spec("c0", BAD)])
            await asyncio.sleep(15.0)

    cluster = Restarted()

    cluster.check()

    (record,) = cluster.records
    assert cluster.versions == ["2"] * 5, "not the older one that was rolled out last"
    assert record is not None and [each.state for each in record.before] == ["done", "done"]


def test_a_record_out_of_another_ensemble_holds_up_no_change() -> None:
    class Copied(Quiet):
        async def operate(self, client: Client) -> None:
            await self.set(client, "1")
            await asyncio.sleep(15.0)
            record = await self.record(client)
            assert record is not None
            await client.set(self.tree.rollout("c0"), write(altered(record, zxid=2**40)))
            await self.set(client, "2")
            await asyncio.sleep(15.0)

    cluster = Copied()

    cluster.check()

    assert cluster.levels == ["2"] * 5


def test_a_stop_amid_a_roll_out_is_obeyed_and_the_start_ends_it() -> None:
    class Amid(Quiet):
        async def operate(self, client: Client) -> None:
            await orders.apply(client, self.tree, [self.spec("c0", "1")])
            await asyncio.sleep(1.2)
            await wishes.want(client, self.tree, "c0", run=False)
            await asyncio.sleep(3.0)
            trees = [t for n in self.nodes.values() for t in n.processes.trees.values()]
            self.alive = [t for t in trees if t.main_lives]
            await wishes.want(client, self.tree, "c0", run=True)
            await asyncio.sleep(5.0)

    cluster = Amid()

    cluster.check()

    (record,) = cluster.records
    assert cluster.alive == [] and cluster.versions == ["1"] * 5
    assert record is not None and record.state == "done"


def test_what_is_frozen_is_left_as_it_is_until_it_is_not() -> None:
    class Frozen(Quiet):
        async def operate(self, client: Client) -> None:
            await wishes.want(client, self.tree, "c0", frozen_by="ops", now=1.0)
            await self.set(client, "1")
            await asyncio.sleep(10.0)
            self.frozen = list(self.levels)
            await wishes.want(client, self.tree, "c0", frozen_by="")
            await asyncio.sleep(15.0)

    cluster = Frozen()

    cluster.check()

    assert cluster.frozen == ["0"] * 5 and cluster.levels == ["1"] * 5


def test_five_hundred_rapid_changes_are_at_most_two_restarts_of_each_copy() -> None:
    class Rapid(Quiet):
        async def operate(self, client: Client) -> None:
            for number in range(500):
                await self.set(client, str(number))
            await self.set(client, "final")
            await asyncio.sleep(40.0)

    cluster = Rapid()

    cluster.check()

    assert cluster.levels == ["final"] * 5
    assert cluster.starts <= 2 * 5 and cluster.most_down == 1


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_agents_may_be_killed_at_any_moment(seed: int) -> None:
    Rolled(seed, gentle=True).run()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_through_any_faults_all_end_with_the_last_change(seed: int) -> None:
    Rolled(seed).run()
