"""Changed configuration: it settles, then takes effect once, wherever it is used, and last wins."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.simulation.configured import Rewritten, record
from tests.simulation.test_agent_orders import Ordered

from incumbent.errors import NodeExists
from incumbent.guardian.messages import Start
from incumbent.spec import Spec
from incumbent.spec.config import Use
from incumbent.testing.processes import Program

SEEDS = min(8, int(os.environ.get("SEEDS", "2")))


class Configured(Ordered):
    """One seat that uses a key, and remembers what it was started with."""

    use = Use(key="level")
    on_config = "restart"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.levels: list[str] = []

    def spec(self, name: str) -> Spec:
        uses = {"LEVEL": self.use}
        return Spec(name=name, command=(f"/bin/{name}",), config=uses, on_config=self.on_config)  # type: ignore[arg-type]

    def behaves(self, start: Start) -> Program:
        self.levels.append(start.env.get("LEVEL", ""))
        return super().behaves(start)

    async def set(self, value: str, key: str = "level") -> None:
        path = self.tree.config_key(key)
        try:
            await self.client.create(path, record(value))
        except NodeExists:
            await self.client.set(path, record(value))


def test_nothing_starts_until_what_it_uses_is_set() -> None:
    class Unset(Configured):
        async def orders(self) -> None:
            await asyncio.sleep(5.0)
            self.before = list(self.levels)
            await self.set("1")
            await asyncio.sleep(5.0)

    cluster = Unset(1)

    cluster.run()

    assert (cluster.before, cluster.levels[:1]) == ([], ["1"])


def test_five_hundred_rapid_changes_are_at_most_two_restarts_and_the_last_one_wins() -> None:
    class Rapid(Configured):
        async def orders(self) -> None:
            await self.set("first")
            await asyncio.sleep(5.0)
            for number in range(500):
                await self.set(str(number))
            await self.set("final")
            await asyncio.sleep(70.0)

    cluster = Rapid(1)

    cluster.run()

    in_order = cluster.levels[: len(cluster.in_order)]
    assert in_order[0] == "first" and in_order[-1] == "final"
    assert len(in_order) <= 3
    assert len({node for _, node in cluster.in_order}) == 1, "it changed nodes"


def test_another_components_key_restarts_nothing() -> None:
    class Other(Configured):
        async def orders(self) -> None:
            await self.set("1")
            await asyncio.sleep(5.0)
            await self.set("x", key="other")
            await asyncio.sleep(70.0)

    cluster = Other(1)

    cluster.run()

    assert len(cluster.in_order) == 1


@pytest.mark.parametrize("on_config", ["SIGHUP", "none"])
def test_a_signal_or_nothing_leaves_the_program_alone(on_config: str) -> None:
    class Told(Configured):
        use = Use(key="level", file=True)

        async def orders(self) -> None:
            await self.set("1")
            await asyncio.sleep(5.0)
            await self.set("2")
            await asyncio.sleep(20.0)
            machines = [node.machine for node in self.nodes.values()]
            self.files = [m.written["c0/0", "LEVEL"] for m in machines if m.written]

    Told.on_config = on_config
    cluster = Told(1)

    cluster.run()

    assert len(cluster.in_order) == 1
    assert cluster.files == (["2"] if on_config == "SIGHUP" else ["1"])


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_through_any_faults_everybody_ends_with_the_last_value(seed: int) -> None:
    Rewritten(seed).run()
