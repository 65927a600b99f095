"""The cluster again, while somebody changes the configuration at random moments, faults or not."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.cluster import FAULTS_FOR, Cluster

from incumbent.agent.tree import Config, ConfigEntry, read, write
from incumbent.client import Client
from incumbent.errors import IncumbentError, NodeExists
from incumbent.guardian.messages import Start
from incumbent.spec import Spec
from incumbent.spec.config import Use
from incumbent.testing.processes import Program
from incumbent.testing.world import World

__all__ = ["Rewritten", "record", "record_over"]


def record(value: str) -> bytes:
    """A key's znode."""
    return write(Config(now=ConfigEntry(value=value)))


def record_over(data: bytes, value: str) -> bytes:
    """The same, with what was there before in it."""
    now = ConfigEntry(value=value)
    if not data:
        return write(Config(now=now))
    before = read(Config, data, "")
    return write(Config(now=now, before=[before.now, *before.before][:20]))


class Rewritten(Cluster):
    """Random faults, while somebody changes the configuration at random moments."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.levels: dict[str, str] = {}
        self.within += 10  # a change settles

    def spec(self, name: str) -> Spec:
        return Spec(name=name, command=(f"/bin/{name}",), config={"LEVEL": Use(key="level")})

    def behaves(self, start: Start) -> Program:
        self.levels[start.seat] = start.env["LEVEL"]
        return super().behaves(start)

    async def apply(self) -> None:
        await super().apply()
        host = self.world.host("ops")
        host.run(self.rewrite(), "writer")

    async def rewrite(self) -> None:
        host, number = self.world.host("ops"), 0
        client = Client(self.hosts, clock=host.clock, rng=host.rng, log=self.say)
        while self.world.now < FAULTS_FOR - 6.0:
            number += 1
            await self.write(client, str(number))
            await asyncio.sleep(host.rng.choice([0.1, 1.0, 7.0]))
        while not await self.write(client, "final"):  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.5)

    async def write(self, client: Client, value: str) -> bool:
        path = self.tree.config_key("level")
        try:
            if not client.session_id:
                await client.connect(timeout=5.0)
            try:
                await client.create(path, record(value))
            except NodeExists:
                await client.set(path, record(value))
        except IncumbentError as error:
            self.say(f"writer: {error}")
            return False
        return True

    @property
    def final(self) -> dict[str, str]:
        return {f"c{number}/0": "final" for number in range(self.seats)}

    def is_well(self) -> bool:
        return super().is_well() and self.levels == self.final

    def run(self) -> World:
        world = super().run()
        assert self.levels == self.final, f"not all ended with the last value: {self.levels}"
        return world
