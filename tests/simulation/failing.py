"""Components that fail, among faults: three nodes, up to three seats, programs that end too soon.

Until the faults are over each start fails after a moment; then all is well. Each failure counts
once, whoever dies while it is told; a back-off is kept whoever dies in it; and in the end all run.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulation.cluster import SESSION, Cluster

from incumbent.agent.tree import Failures, read
from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.guardian.messages import Start
from incumbent.spec import Spec
from incumbent.testing.faults import Fault
from incumbent.testing.processes import Program

__all__ = ["Failing", "Quiet", "Well"]

MOST_STARTS = 50
"""Of a seat in the 45 s in which it fails: some 14 on each node, and what faults add."""


class Failing(Cluster):
    """`history` is filled at the end: component → its failures as they stand in the tree.
    `fails`: whether there will be any.
    """

    fails = True

    def __init__(
        self,
        seed: int,
        *,
        kinds: tuple[str, ...] | None = None,
        faults: Sequence[Fault] | None = None,
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        rng = self.world.rng
        self.on_failure = rng.choice(["backoff", "move"])
        self.lives = [rng.uniform(0.01, 1.0) for _ in range(3)]
        self.well_from = 0.0
        self.history: dict[str, Failures] = {}

    def spec(self, name: str) -> Spec:
        return Spec(
            name=name,
            command=(f"/bin/{name}",),
            on_failure=self.on_failure,  # type: ignore[arg-type]
            max_failures=3,
            window=20.0,
            backoff_most=4.0,
        )

    def behaves(self, start: Start) -> Program:
        if self.well_from and self.world.now > self.well_from:
            return Program()
        return Program(lives=self.lives[int(start.seat[1])], code=1)

    def is_well(self) -> bool:
        return super().is_well() and self.world.now > self.well_from + SESSION

    async def story(self) -> None:
        self.well_from = self.world.now + 45.0
        await super().story()
        await self.world.host("ops").call(self._read(), "reader")

    async def _read(self) -> None:
        ops = self.world.host("ops")
        client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say)
        await client.connect(timeout=30.0)
        for number in range(self.seats):
            path = self.tree.failures(f"c{number}")
            try:
                data, _ = await client.get(path)
            except NoNode:
                continue
            self.history[f"c{number}"] = read(Failures, data, path)
        await client.close()

    def starts(self) -> list[dict[str, Any]]:
        """What the programs testify, first to last."""
        events = [json.loads(line) for line in self.journal.lines]
        return [each for each in events if each["event"] == "start"]

    def run(self) -> Any:
        world = super().run()
        epochs = Counter((each["seat"], each["epoch"]) for each in self.starts())
        for component, history in self.history.items():
            ids = [each.id for each in history.failures]
            assert len(set(ids)) == len(ids), f"{component}: one failure counted twice: {ids}"
            for each in history.failures:
                seat, _, epoch = each.id.partition("@")
                assert not epoch or (seat, int(epoch)) in epochs, f"{each.id} never ran"
        ill = Counter(
            each["seat"] for each in self.starts() if each["boottime_ns"] / 1e9 < self.well_from
        )
        assert max(ill.values(), default=0) <= MOST_STARTS, f"no back-off: {ill}"
        assert bool(self.history) == self.fails, f"counted: {sorted(self.history)}"
        return world


class Quiet(Failing):
    """No faults but those of the program; `story` is `lasts` seconds long."""

    lasts = 60.0
    spec_of: dict[str, Any] = {}

    def __init__(self, seed: int) -> None:
        super().__init__(seed, faults=[])
        self.seats, self.containment = 1, "sealed"
        self.world.limit = 4_000

    def spec(self, name: str) -> Spec:
        return Spec(name=name, command=(f"/bin/{name}",), **self.spec_of)

    async def story(self) -> None:
        for name in ("zk", *self.nodes):
            self.boot(name)
        self.world.host("ops")
        await self.world.host("ops").call(self.apply(), "apply")
        await self.meanwhile()
        await self.world.host("ops").call(self._read(), "reader")

    async def meanwhile(self) -> None:
        await asyncio.sleep(self.lasts)


class Well(Quiet):
    """Seats whose programs never fail."""

    fails = False
    how_many = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = self.how_many

    def behaves(self, start: Start) -> Program:
        return Program()

    async def ask(self, question: Any) -> Any:
        """`question(client)`, in a session of an operator's."""
        answers: list[Any] = []

        async def asking() -> None:
            client = await self.operator()
            answers.append(await question(client))
            await client.close()

        await self.world.host("ops").call(asking(), "asking")
        return answers[0]

    def later_starts(self, seat: str = "") -> list[dict[str, Any]]:
        """Those after the first ten seconds, in which nodes join one after the other."""
        later = [each for each in self.starts() if each["boottime_ns"] > 10e9]
        return [each for each in later if seat in ("", each["seat"])]
