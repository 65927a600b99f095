"""`move`, `freeze`: where a seat is, by an operator's word, whatever is planned and whoever fails."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.test_agent_orders import Ordered

from incumbent.agent.tree import Plan, read
from incumbent.cli import lifecycle, moving, orders, wishes
from incumbent.cli.selection import Choice
from incumbent.spec import Spec, decode, encode


class Moved(Ordered):
    """With what an operator does to c0."""

    async def choice(self) -> Choice:
        path = self.tree.component("c0")
        return Choice(component="c0", spec=decode((await self.client.get(path))[0], path))

    async def move(self, to: str) -> None:
        choice = await self.choice()
        await orders.again(lambda: moving.move(self.client, self.tree, [choice], to))
        await lifecycle.until_running(self.client, self.tree, "c0", node=to)

    async def plan(self) -> Plan:
        return read(Plan, (await self.client.get(self.tree.plan))[0], self.tree.plan)

    async def freeze(self, by: str) -> None:
        await orders.again(lambda: wishes.want(self.client, self.tree, "c0", frozen_by=by, now=1.0))

    def owner(self) -> str:
        return self.starts()[-1][1]

    def others(self) -> list[str]:
        return [name for name in self.nodes if name != self.owner()]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_move_reaches_its_node_and_stays_there(seed: int) -> None:
    class There(Moved):
        async def orders(self) -> None:
            self.to = self.others()
            for node in self.to:
                await self.move(node)
            await asyncio.sleep(15.0)  # longer than a plan is new

    cluster = There(seed)

    cluster.run()

    assert [node for _, node in cluster.in_order][1:] == cluster.to


def test_a_move_survives_the_next_plan_and_its_planner_but_not_its_node() -> None:
    class Outlived(Moved):
        async def orders(self) -> None:
            self.to = self.others()[0]
            await self.move(self.to)
            for node in self.nodes.values():  # every planner in turn
                if node.host.name != self.to and node.guardian is not None:
                    node.guardian.shutdown()
                    await asyncio.sleep(15.0)
            self.pinned = (await self.plan()).seats["c0/0"]
            self.meanwhile = self.starts()
            self.nodes[self.to].host.crash()
            await asyncio.sleep(20.0)
            self.after = (await self.plan()).seats["c0/0"]
            self.nodes[self.to].host.restart()
            self.boot(self.to)

    cluster = Outlived(1)

    cluster.run()

    assert (cluster.pinned.node, bool(cluster.pinned.taken_from)) == (cluster.to, True)
    assert [node for _, node in cluster.meanwhile][1:] == [cluster.to]
    assert cluster.after.node != cluster.to
    assert cluster.after.taken_from == ""


def test_what_is_frozen_is_neither_moved_nor_restarted_nor_started_anew() -> None:
    class Frozen(Moved):
        async def orders(self) -> None:
            await self.freeze("ops")
            path = self.tree.component("c0")
            await self.client.set(path, encode(Spec(name="c0", command=("/bin/other",))))
            self.refused = await self.restart("r")
            await asyncio.sleep(10.0)
            self.first = self.starts()
            guardian = self.guardian(self.owner())
            for tree in list(guardian.processes.trees.values()):
                guardian.processes.kill(tree)
            await asyncio.sleep(10.0)
            self.dead = self.starts()
            await self.freeze("")
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Frozen(1)

    cluster.run()

    assert cluster.refused["c0/0"].startswith("refused: frozen by ops since ")
    assert len(cluster.first) == 1
    assert cluster.dead == cluster.first
    assert len(cluster.in_order) == 2


def test_a_freeze_survives_the_leader_and_a_stop_still_stops() -> None:
    class Survived(Moved):
        async def orders(self) -> None:
            await self.freeze("ops")
            owner = self.owner()
            agent = self.guardian(owner).agent
            assert agent is not None
            agent.kill()
            await asyncio.sleep(5.0)
            self.kept = self.starts()
            self.nodes[owner].host.crash()
            await asyncio.sleep(20.0)
            self.down = self.starts()
            self.nodes[owner].host.restart()
            self.boot(owner)
            await asyncio.sleep(5.0)
            self.still = self.starts()
            await self.freeze("")
            await lifecycle.until_running(self.client, self.tree, "c0")
            await self.freeze("ops")
            await wishes.want(self.client, self.tree, "c0", run=False)
            await orders.until_ended(self.client, self.tree, "c0", self.say)
            await wishes.want(self.client, self.tree, "c0", run=True)
            await asyncio.sleep(5.0)
            self.stopped = self.starts()
            await self.freeze("")
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Survived(1)

    cluster.run()

    assert len(cluster.kept) == len(cluster.down) == len(cluster.still) == 1
    assert len(cluster.stopped) == 2
    assert len(cluster.in_order) == 3
