"""Machines that join one after another get their share, each seat moved to the node it is meant for."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.simulation.cluster import Cluster


class Growing(Cluster):
    """Three seats on n1; then n2 joins, then n3. Nothing fails."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = 3
        self.programs = self.programs[:1]

    async def story(self) -> None:
        for name in ("zk", "n1"):
            self.boot(name)
        self.world.host("ops")
        await self.world.host("ops").call(self.apply(), "apply")
        for name in ("n2", "n3"):
            await asyncio.sleep(10.0)
            self.boot(name)
        await asyncio.sleep(20.0)

    def owners(self) -> list[str]:
        """Where each seat was started last."""
        last: dict[str, str] = {}
        for line in self.journal.lines:
            event = json.loads(line)
            if event["event"] == "start":
                last[event["seat"]] = event["node"]
        return sorted(last.values())


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_planned_move_reaches_its_node_past_those_who_stood_before_it(seed: int) -> None:
    cluster = Growing(seed)

    cluster.run()

    assert cluster.owners() == ["n1", "n2", "n3"]
    moves = sum('"event": "start"' in line for line in cluster.journal.lines) - cluster.seats
    assert moves == 2, "one seat for each node that joined"
