"""Three contenders and a server in the simulated world, and what must hold of their leadership.

As a program (`python tests/simulation/election.py SEED`) it prints the seed's whole trace.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from incumbent import aio
from incumbent.errors import IncumbentError
from incumbent.recipes.hold import Hold
from incumbent.server import MemoryStore, Server
from incumbent.testing.faults import KINDS, Fault, describe, draw, inflict
from incumbent.testing.world import Host, Process, World

NAMES = ("n1", "n2", "n3")
SESSION = 4.0  # seconds
FAULTS_FOR = 40.0
LONGEST_FAULT = 8.0  # beyond the session timeout, so that sessions do end
LONGEST_LEAD = 15.0  # long enough to be cut off while leading, for longer than a session
PROGRESS_WITHIN = LONGEST_LEAD + 2 * SESSION


@dataclass(frozen=True, slots=True)
class Belief:
    """A hold, as long as its process may act on it."""

    process: Process
    hold: Hold

    @property
    def is_held(self) -> bool:
        """By the world's present moment, whether or not its process runs just now."""
        return self.process.alive and self.hold.remaining() > 0


class Election:
    """One seed: `run` raises AssertionError, with the schedule, for whatever must not be."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, drift=0.004, limit=1_000)
        self.store = MemoryStore(delay=lambda: self.world.host("zk").rng.uniform(0.0, 0.02))
        self.beliefs: list[Belief] = []
        self.tokens: list[int] = []
        # None: the usual tenth of a session; 0: believed to the last moment that is proven.
        self.grace = self.world.rng.choice([None, 0.0])
        self.faults: list[Fault] = draw(
            self.world.rng,
            hosts=(*NAMES, "leader", "leader"),
            servers=["zk"],
            duration=FAULTS_FOR,
            longest=LONGEST_FAULT,
            kinds=tuple(KINDS),
        )

    # -- what runs on the hosts

    async def serve(self, host: Host) -> None:
        server = Server(self.store, clock=host.clock, tick=0.2, rng=host.rng)
        await server.start("0.0.0.0", 2181)
        await server.wait()

    async def contend(self, host: Host) -> None:
        while True:
            try:
                async with aio.connect(
                    "zk:2181",
                    session_timeout=SESSION,
                    tick=0.0,
                    clock=host.clock,
                    rng=host.rng,
                    log=lambda line: self.world.record("log", line=line),
                ) as zk:
                    await self.stand(zk, host)
            except IncumbentError as error:
                self.world.record("no session", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.5))

    async def stand(self, zk: aio.Zk, host: Host) -> None:
        """Lead for a while, again and again."""
        while True:
            try:
                async with zk.lead("/app/leader", member=host.name, grace=self.grace) as hold:
                    self.acquired(host, hold)
                    await asyncio.sleep(
                        host.rng.choice([0.3, 3.0, LONGEST_LEAD]) * host.rng.random()
                    )
                    hold.ensure()
                    self.world.record("leaves", token=hold.fencing_token)
            except IncumbentError as error:
                self.world.record("no longer leads", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.2))

    # -- what is judged

    def acquired(self, host: Host, hold: Hold) -> None:
        (process,) = host.processes
        self.beliefs.append(Belief(process, hold))
        self.world.record("leads", token=hold.fencing_token)
        assert not self.tokens or hold.fencing_token > self.tokens[-1], "a token did not rise"
        self.tokens.append(hold.fencing_token)
        self.look()

    def look(self) -> None:
        held = [b for b in self.beliefs[-5:] if b.is_held]
        who = [f"{b.process.host.name} token {b.hold.fencing_token}" for b in held]
        if len(held) > 1:
            self.world.problems.append(f"overlap at {self.world.now:.6f} s: {', '.join(who)}")

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.02)

    async def progress(self) -> None:
        """Somebody leads who did not before."""
        known = len(self.tokens)
        try:
            async with asyncio.timeout(PROGRESS_WITHIN):
                while len(self.tokens) == known:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.world.problems.append(f"no progress within {PROGRESS_WITHIN:g} s of healing")

    # -- the whole

    def boot(self, name: str) -> None:
        host = self.world.host(name)
        host.run(self.serve(host) if name == "zk" else self.contend(host), "main")

    def who(self, name: str) -> str:
        """The host behind a name of the schedule: who leads, or did so last."""
        if name != "leader":
            return name
        return self.beliefs[-1].process.host.name if self.beliefs else NAMES[0]

    async def story(self) -> None:
        for name in ("zk", *NAMES):
            self.boot(name)
        watch = asyncio.ensure_future(self.watch())
        await inflict(self.world, self.faults, on_up=self.boot, who=self.who)
        self.world.note("healed")
        await self.progress()
        await self.progress()
        watch.cancel()

    def run(self) -> World:
        try:
            with self.world:
                self.world.run(self.story())
        except BaseException as error:
            error.add_note(describe(self.world.seed, self.faults))
            raise
        return self.world


if __name__ == "__main__":
    print(Election(int(sys.argv[1])).run().trace(), end="")
