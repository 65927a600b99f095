"""The cluster again, with one component of several copies, whose spec and configuration are changed at
random moments, faults or not; some of the changes are bad.

A bad change reaches no more copies at a time than `max_parallel`, and whatever happened, all end with the
last change, which is a good one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.cluster import FAULTS_FOR, NAMES, Cluster
from tests.simulation.configured import record_over

from incumbent.agent.tree import Rollout, read
from incumbent.cli import orders
from incumbent.client import Client
from incumbent.errors import IncumbentError, NoNode
from incumbent.guardian.messages import Start
from incumbent.spec import Check, Spec
from incumbent.spec.config import Use
from incumbent.testing.faults import Fault
from incumbent.testing.processes import Program, Tree
from incumbent.testing.world import World

__all__ = ["Rolled"]

BAD = "bad"


class Rolled(Cluster):
    """`runs`: seat → (what it was started with of the configuration, and of the spec). `gentle`: agents
    are killed, and nothing else takes a copy down but roll-outs; these are watched.
    """

    def __init__(self, seed: int, *, gentle: bool = False, **options: Any) -> None:
        super().__init__(seed, **options)
        rng = self.world.rng
        self.gentle = gentle
        if gentle:
            self.faults = [
                Fault(at=at + rng.uniform(0.0, 3.0), kind="kill agent", a=rng.choice(NAMES))
                for at in range(11, int(FAULTS_FOR), 7)
            ]
        self.seats, self.copies = 1, rng.randint(2, 4)
        self.most, self.reverts = rng.choice([1, 1, 2]), rng.random() < 0.5
        self.good = Program(ready_after=rng.uniform(0.05, 1.0))
        self.bad = rng.choice(
            [
                Program(lives=rng.uniform(0.01, 0.5), code=1),
                Program(),  # never ready
                Program(cannot_start="no such file"),
            ]
        )
        self.within += 20
        self.runs: dict[str, tuple[str, str]] = {}
        self.most_down = 0

    def spec(self, name: str, version: str = "0") -> Spec:
        return Spec(
            name=name,
            command=(f"/bin/{name}", version),
            copies=self.copies,
            config={"LEVEL": Use(key="level")},
            ready=Check(way="notify", interval=1.0, timeout=1.0, within=4.0),
            debounce=1.0,
            debounce_max=4.0,
            max_parallel=self.most,
            auto_revert=self.reverts,
            backoff_most=2.0,
        )

    def behaves(self, start: Start) -> Program:
        self.runs[start.seat] = start.env["LEVEL"], start.argv[1]
        return self.bad if BAD in self.runs[start.seat] else self.good

    # ── what operators do

    async def apply(self) -> None:
        client = await self.operator()
        await orders.apply(client, self.tree, [self.spec("c0")])
        await self.set(client, "0")
        await client.close()
        self.world.host("ops").run(self.change(), "changes")

    async def change(self) -> None:
        """At random moments, until shortly before the faults are over; then a good one."""
        rng = self.world.host("ops").rng
        await asyncio.sleep(10.0)
        watching = self.world.host("ops").run(self.watch(), "watches") if self.gentle else None
        number = 0
        while self.world.now < FAULTS_FOR - 8.0:
            number += 1
            value = BAD if rng.random() < 0.3 else str(number)
            await self._until_done(self.a_change(value, rng.random() < 0.5))
            await asyncio.sleep(rng.choice([0.1, 1.0, 4.0, 8.0]))
        await self._until_done(self.a_change("final", True))
        await self._until_done(self.a_change("final", False))
        if watching is not None:
            await asyncio.sleep(self.within)

    def a_change(self, value: str, is_spec: bool) -> Any:
        async def job(client: Client) -> None:
            if is_spec:
                await orders.apply(client, self.tree, [self.spec("c0", value)])
            else:
                await self.set(client, value)

        return job

    async def set(self, client: Client, value: str) -> None:
        path = self.tree.config_key("level")
        try:
            data, _ = await client.get(path)
        except NoNode:
            await client.create(path, record_over(b"", value))
        else:
            await client.set(path, record_over(data, value))

    async def watch(self) -> None:
        """Where nothing else takes copies down, never are more down than the roll-outs may."""
        while True:
            trees = [t for n in self.nodes.values() for t in n.processes.trees.values()]
            up = {t.seat for t in trees if t.main_lives and self._is_ready(t)}
            down = self.copies - len(up)
            if down > self.most_down:
                self.world.note(f"{down} copies are down")
            self.most_down = max(self.most_down, down)
            await asyncio.sleep(0.02)

    def _is_ready(self, tree: Tree) -> bool:
        return self.world.now >= tree.started_at + tree.program.ready_after

    # ── the end

    @property
    def final(self) -> dict[str, tuple[str, str]]:
        return {f"c0/{k}": ("final", "final") for k in range(self.copies)}

    def is_well(self) -> bool:
        return super().is_well() and self.runs == self.final

    def run(self) -> World:
        world = super().run()
        assert self.runs == self.final, f"not all ended with the last change: {self.runs}"
        if self.gentle:
            assert self.most_down <= self.most, f"{self.most_down} copies were down at a time"
        return world

    async def record(self, client: Client) -> Rollout | None:
        path = self.tree.rollout("c0")
        try:
            return read(Rollout, (await client.get(path))[0], path)
        except (NoNode, IncumbentError):
            return None
