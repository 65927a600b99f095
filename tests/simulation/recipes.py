"""A recipe in the simulated world: clients on hosts that fail, one server, and an outside judge.

A recipe's own file makes a `Trial` of it: `use` is what one client does, again and again, until
`is_over`; `look` is asked every `look_every` seconds, and whenever one of them has a hold;
`progressed` counts what must go on after healing; `leftovers` is what may still stand when all
are done. `run` raises AssertionError, with the schedule and a timeline, for whatever must not be.

Rule of this file: the judge believes no client. It reads the world's true time and the server's
tree, from a host that no fault touches.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.simulation.reports import explain, extra, timeline_of

from incumbent import aio
from incumbent.client import Client
from incumbent.errors import IncumbentError, NoNode
from incumbent.recipes.flight import flight
from incumbent.recipes.hold import Hold
from incumbent.server import MemoryStore, Server
from incumbent.server.store import Batch
from incumbent.server.tree import Transaction
from incumbent.testing.faults import ALL_KINDS, Fault, draw, inflict
from incumbent.testing.timeline import Timeline
from incumbent.testing.world import Host, Process, World
from incumbent.wire import GetChildren, GetData

__all__ = ["FIRST", "SESSION", "SOAK", "Belief", "Trial", "cases"]

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = os.environ.get("SEEDS")

SOAK = 6_600
"""Seeds of each recipe in `make soak`: with a part of them on an ensemble, the election and `once`
some 100,000 in all."""

SESSION = 4.0
"""Seconds: the session timeout of every client."""

LONGEST_FAULT = 8.0  # seconds: beyond the session timeout, so that sessions do end


@dataclass(slots=True)
class Belief:
    """A hold, as long as its process may act on it. `kind` is its user's word for it."""

    process: Process
    hold: Hold
    since: float
    until: float
    kind: str = ""

    @property
    def is_held(self) -> bool:
        """By the world's present moment, whether or not its process runs just now."""
        return self.process.alive and self.hold.remaining() > 0

    def __str__(self) -> str:
        return f"{self.process.host.name} {self.kind} {self.hold.name}"


class _Store(MemoryStore):
    """Tells what it keeps."""

    def __init__(self, tell: Callable[[Transaction], None], **more: Any) -> None:
        super().__init__(**more)
        self._tell = tell

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        for transaction in batch:
            self._tell(transaction)


def cases(trials: Sequence[type[Trial]], share: int = 1) -> list[Any]:
    """Parameters `trial` and `seed` of a test; of so many seeds one in `share`."""
    return [
        pytest.param(trial, seed, id=f"{trial.name}-{seed}")
        for trial in trials
        for seed in range(FIRST, FIRST + int(SEEDS or trial.seeds) // share)
    ]


class Trial:
    """One seed of one recipe. `faults` takes the place of what the seed draws.

    name     of the recipe, for reports
    names    the hosts that use it
    root     below it all its znodes are
    seeds    how many are run for each change, where SEEDS doesn't say: about ten seconds' worth
    """

    name = "recipe"
    names: Sequence[str] = ("n1", "n2", "n3")
    root = "/app"
    seeds = 100
    faults_for = 20.0  # seconds
    look_every = 0.1  # seconds; whoever begins to hold something is looked at then
    progress_within = 30.0  # seconds from healing, or from the last progress, to the next
    calm = 0.0  # seconds that they go on without faults before they stop

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        self.world = World(seed, drift=0.004, limit=1_000)
        self.rng = self.world.rng
        disk = self.world.host("zk").disk
        self.store = _Store(
            self.committed,
            delay=lambda: self.world.host("zk").rng.uniform(0.0, 0.01) + extra(disk),
            failing=disk.failing,
        )
        self.server: Server | None = None
        self.clients: list[tuple[Process, Client]] = []
        self.beliefs: list[Belief] = []
        self._held: list[Belief] = []
        self.busy: dict[str, bool] = {}
        self.is_over = False
        self.healed_at = math.inf
        drawn = draw(
            self.rng,
            hosts=self.names,
            servers=["zk"],
            duration=self.faults_for,
            longest=LONGEST_FAULT,
            kinds=kinds or tuple(ALL_KINDS),
        )
        self.faults: list[Fault] = drawn if faults is None else list(faults)

    # -- what a recipe says of itself

    async def use(self, zk: aio.Zk, host: Host) -> None:
        """What a client does in one session; it returns soon after `is_over`. Errors of the
        library end it, and it begins anew."""
        raise NotImplementedError

    def look(self) -> None:
        """Judge this moment; `blame` says what is wrong."""

    def committed(self, transaction: Transaction) -> None:
        """Each thing that the server makes durable, in its order, before anybody hears of it."""

    def progressed(self) -> Mapping[str, int]:
        """What must go on: each count grows after healing, and once more after that."""
        raise NotImplementedError

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        """Of all znodes below the root, once nobody uses the recipe: those that leaked."""
        return list(tree)

    async def done(self, zk: aio.Zk) -> None:
        """A last look by the judge's own client."""

    def believes(self, host: Host, hold: Hold, kind: str = "") -> Belief:
        """One of the users has a hold from now on, and believes it as long as it says so."""
        now = self.world.now
        belief = Belief(host.processes[0], hold, now, now, kind)
        self.beliefs.append(belief)
        self._held.append(belief)
        self.world.record("holds", kind=kind, name=hold.name)
        self.look()
        return belief

    def held(self) -> list[Belief]:
        """Who believes to hold something at this moment."""
        self._held = [belief for belief in self._held if belief.is_held]  # lost is lost
        for belief in self._held:
            belief.until = self.world.now
        return self._held

    # -- what runs on the hosts

    async def serve(self, host: Host) -> None:
        self.server = Server(self.store, clock=host.clock, tick=0.2, rng=host.rng)
        await self.server.start("0.0.0.0", 2181)
        await self.server.wait()

    async def live(self, host: Host) -> None:
        while True:
            try:
                async with self.connect(host) as zk:
                    self.clients.append((host.processes[0], zk.client))
                    await self.work(zk, host)
            except IncumbentError as error:
                self.world.record("no session", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.5))

    async def work(self, zk: aio.Zk, host: Host) -> None:
        while not self.is_over:
            self.busy[host.name] = True
            try:
                await self.use(zk, host)
            except IncumbentError as error:
                self.world.record("begins anew", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.2))
            self.busy[host.name] = False
        await asyncio.Event().wait()  # its session lives on, so that a leak is seen

    def connect(self, host: Host) -> aio.Connecting:
        return aio.connect(
            "zk:2181",
            session_timeout=SESSION,
            tick=0.0,
            clock=host.clock,
            rng=host.rng,
            log=lambda line: self.world.record("log", line=line),
        )

    # -- what is judged

    def blame(self, what: str) -> None:
        if not self.world.problems:
            self.world.note(f"problem: {what}")
        if len(self.world.problems) < 10:
            self.world.problems.append(what)

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(self.look_every)

    async def progress(self) -> None:
        """Each count has grown."""
        before = dict(self.progressed())
        deadline = self.world.now + self.progress_within
        while stuck := [what for what, n in before.items() if self.progressed()[what] <= n]:
            if self.world.now > deadline:
                self.blame(f"no progress within {self.progress_within:g} s of healing: {stuck}")
                return
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Everybody stops using it; then nothing of it may be left."""
        self.is_over = True
        deadline = self.world.now + self.progress_within + 4 * SESSION
        while any(self.busy.values()):
            if self.world.now > deadline:
                self.blame(f"still busy: {[name for name, busy in self.busy.items() if busy]}")
                return
            await asyncio.sleep(0.1)
        judge = self.world.host("judge")
        process = judge.run(self.judge(judge), "main")
        await process.wait()

    async def judge(self, host: Host) -> None:
        async with self.connect(host) as zk:
            deadline = self.world.now + 3 * SESSION  # what is left of sessions that died unseen
            while True:
                leaked = self.leftovers(await self.tree(zk))
                if not leaked or self.world.now > deadline:
                    break
                await asyncio.sleep(0.2)
            if leaked:
                self.blame(f"leaked: {', '.join(leaked)}")
            await self.done(zk)

    async def tree(self, zk: aio.Zk) -> dict[str, bytes]:
        """All znodes below the root, with their data; a flight for each level."""
        found: dict[str, bytes] = {}
        paths = [self.root]
        while paths:
            answers = await flight(zk.client, *map(GetData, paths), *map(GetChildren, paths))
            below: list[str] = []
            for path, read, names in zip(paths, answers, answers[len(paths) :], strict=False):
                for answer in (read, names):
                    if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                        raise answer
                if isinstance(read, NoNode) or isinstance(names, NoNode):
                    continue
                found[path] = read[0]
                below += [f"{path}/{name}" for name in names]
            paths = below
        found.pop(self.root, None)
        return found

    # -- the whole

    def boot(self, name: str) -> None:
        host = self.world.host(name)
        self.busy[name] = False
        host.run(self.serve(host) if name == "zk" else self.live(host), "main")

    async def story(self) -> None:
        for name in ("zk", *self.names):
            self.boot(name)
        watch = asyncio.ensure_future(self.watch())
        await inflict(self.world, self.faults, on_up=self.boot)
        self.world.note("healed")
        self.healed_at = self.world.now
        await self.progress()
        await self.progress()
        await asyncio.sleep(self.calm)
        await self.settle()
        watch.cancel()

    def timeline(self) -> Timeline:
        timeline = timeline_of(self.world, f"{self.name}, seed {self.world.seed}")
        for b in self.beliefs:
            timeline.bar(b.process.host.name, b.since, b.until, f"{b.kind} {b.hold.name}", "held")
        return timeline

    def run(self) -> World:
        try:
            with self.world:
                self.world.run(self.story())
        except BaseException as error:
            explain(error, self.name, self.world, self.faults, self.timeline())
            raise
        return self.world
