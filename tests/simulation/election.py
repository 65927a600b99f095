"""Three contenders and a server in the simulated world, and what must hold of their leadership.

As a program (`python tests/simulation/election.py SEED [ensemble]`) it prints the seed's whole
trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.reports import explain, extra, timeline_of

from incumbent import aio
from incumbent.client import Client
from incumbent.errors import IncumbentError
from incumbent.recipes.hold import Hold
from incumbent.server import MemoryStore, Server
from incumbent.testing.ensemble import Ensemble
from incumbent.testing.faults import ALL_KINDS, KINDS, Fault, draw, inflict
from incumbent.testing.timeline import Timeline
from incumbent.testing.world import Host, Process, World

NAMES = ("n1", "n2", "n3")
SERVERS = ("zk1", "zk2", "zk3")
SESSION = 4.0  # seconds
FAULTS_FOR = 40.0
LONGEST_FAULT = 8.0  # beyond the session timeout, so that sessions do end
LONGEST_LEAD = 15.0  # long enough to be cut off while leading, for longer than a session
TICKS = (0.4, 1.0, 2.0)  # of the ensemble; two of the longest make a session


@dataclass(slots=True)
class Belief:
    """A hold, as long as its process may act on it."""

    process: Process
    hold: Hold
    session_id: int
    since: float
    until: float

    @property
    def is_held(self) -> bool:
        """By the world's present moment, whether or not its process runs just now."""
        return self.process.alive and self.hold.remaining() > 0

    def __str__(self) -> str:
        return f"{self.process.host.name} token {self.hold.fencing_token}"


class Election:
    """One seed: `run` raises AssertionError, with the schedule, for whatever must not be.

    With `ensemble`, three servers stand in the place of one. `faults` takes the place of what the
    seed draws.
    """

    def __init__(
        self,
        seed: int,
        *,
        ensemble: bool = False,
        kinds: Sequence[str] = (),
        faults: Sequence[Fault] | None = None,
    ) -> None:
        self.world = World(seed, drift=0.004, limit=1_000)
        rng = self.world.rng
        disk = self.world.host("zk").disk if not ensemble else None
        self.store = MemoryStore(
            delay=lambda: self.world.host("zk").rng.uniform(0.0, 0.02) + extra(disk),
            failing=lambda number: disk is not None and disk.failing(number),
        )
        self.beliefs: list[Belief] = []
        self.tokens: list[int] = []
        self.clients: list[tuple[Process, Client]] = []
        self.leases: dict[tuple[str, int], tuple[float, float]] = {}  # for the timeline
        # None: the usual tenth of a session; 0: believed to the last moment that is proven.
        self.grace = rng.choice([None, 0.0])
        self.ensemble: Ensemble | None = None
        self.hosts, self.tick = "zk:2181", 0.0 if not ensemble else None
        self.progress_within = LONGEST_LEAD + 2 * SESSION
        contenders = (*NAMES, "leader", "leader")
        if ensemble:
            tick = rng.choice(TICKS)
            self.ensemble = Ensemble(self.world, SERVERS, tick=tick)
            self.ensemble.on_session_end = self.session_over
            self.hosts = self.ensemble.hosts
            self.tick = rng.choice([tick, None])
            self.progress_within += 5 + 6 * tick
            own = tuple(self.ensemble.kinds)
            drawn = draw(
                rng,
                hosts=contenders,
                servers=(*SERVERS, "zk leader", "zk of leader", "zk of leader"),
                duration=FAULTS_FOR,
                longest=LONGEST_FAULT,
                kinds=kinds or (*ALL_KINDS, *own, *own),
                on_servers=own,
                sparing=("jump boottime",),  # a session's clock at the leader is one of Apache's
            )
        else:
            drawn = draw(
                rng,
                hosts=contenders,
                servers=["zk"],
                duration=FAULTS_FOR,
                longest=LONGEST_FAULT,
                kinds=kinds or tuple(KINDS),
            )
        self.faults: list[Fault] = drawn if faults is None else list(faults)

    # -- what runs on the hosts

    async def serve(self, host: Host) -> None:
        server = Server(self.store, clock=host.clock, tick=0.2, rng=host.rng)
        await server.start("0.0.0.0", 2181)
        await server.wait()

    async def contend(self, host: Host) -> None:
        while True:
            try:
                async with aio.connect(
                    self.hosts,
                    session_timeout=SESSION,
                    tick=self.tick,
                    clock=host.clock,
                    rng=host.rng,
                    log=lambda line: self.world.record("log", line=line),
                ) as zk:
                    self.clients.append((host.processes[0], zk.client))
                    await self.stand(zk, host)
            except IncumbentError as error:
                self.world.record("no session", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.5))

    async def stand(self, zk: aio.Zk, host: Host) -> None:
        """Lead for a while, again and again."""
        while True:
            try:
                async with zk.lead("/app/leader", member=host.name, grace=self.grace) as hold:
                    self.acquired(host, hold, zk.session_id)
                    for_s = host.rng.choice([0.3, 3.0, LONGEST_LEAD]) * host.rng.random()
                    if self.ensemble is None:
                        await asyncio.sleep(for_s)
                    else:
                        await self.work(zk, host, for_s)
                    hold.ensure()
                    self.world.record("leaves", token=hold.fencing_token)
            except IncumbentError as error:
                self.world.record("no longer leads", why=str(error))
                await asyncio.sleep(host.rng.uniform(0, 0.2))

    async def work(self, zk: aio.Zk, host: Host, seconds: float) -> None:
        """Write now and then: whatever is acknowledged renews the lease, at its own times."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await asyncio.sleep(host.rng.uniform(0.0, 0.3))
                    await zk.client.set("/app", host.name.encode())

    # -- what is judged

    def acquired(self, host: Host, hold: Hold, session_id: int) -> None:
        (process,) = host.processes
        now = self.world.now
        self.beliefs.append(Belief(process, hold, session_id, now, now))
        self.world.record("leads", token=hold.fencing_token)
        assert not self.tokens or hold.fencing_token > self.tokens[-1], "a token did not rise"
        self.tokens.append(hold.fencing_token)
        self.look()

    def look(self) -> None:
        held = [b for b in self.beliefs[-5:] if b.is_held]
        for belief in held:
            belief.until = self.world.now
        self.note_leases()
        if len(held) > 1:
            self.blame(f"overlap at {self.world.now:.6f} s: {', '.join(map(str, held))}")

    def note_leases(self) -> None:
        now = self.world.now
        for process, client in self.clients[-6:]:
            key, clock = (process.host.name, client.session_id), process.host.clock
            until = clock.world_time(client.lease.valid_until)
            if process.alive and until > now:
                self.leases[key] = self.leases.get(key, (now, until))[0], until

    def session_over(self, session_id: int) -> None:
        """The ensemble ended it: until `valid_until` it must not."""
        for process, client in self.clients:
            left = client.lease.valid_until - client.clock.boottime()
            if client.session_id == session_id and process.alive and left > 0:
                self.blame(
                    f"session {session_id:#x} of {process.host.name} over at {self.world.now:.6f} "
                    f"s, believed in for {left:.3f} s more"
                )

    def blame(self, what: str) -> None:
        if not self.world.problems:
            self.world.note(f"problem: {what}")
        self.world.problems.append(what)

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.1)

    async def progress(self) -> None:
        """Somebody leads who did not before."""
        known = len(self.tokens)
        try:
            async with asyncio.timeout(self.progress_within):
                while len(self.tokens) == known:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            self.blame(f"no progress within {self.progress_within:g} s of healing")

    # -- the whole

    def boot(self, name: str) -> None:
        host = self.world.host(name)
        if self.ensemble is not None and name in SERVERS:
            self.ensemble.boot(name)
        else:
            host.run(self.serve(host) if name == "zk" else self.contend(host), "main")

    def who(self, name: str) -> str:
        """The host behind a name of the schedule: who leads, or did so last, and its server."""
        last = self.beliefs[-1] if self.beliefs else None
        if name == "leader":
            return last.process.host.name if last else NAMES[0]
        if self.ensemble is not None and name == "zk leader":
            return self.ensemble.leader or SERVERS[0]
        if self.ensemble is not None and name == "zk of leader":
            return (last and self.ensemble.server_of(last.session_id)) or SERVERS[1]
        return name

    async def story(self) -> None:
        for name in (*(("zk",) if self.ensemble is None else SERVERS), *NAMES):
            self.boot(name)
        watch = asyncio.ensure_future(self.watch())
        more = self.ensemble.kinds if self.ensemble is not None else {}
        await inflict(self.world, self.faults, more=more, on_up=self.boot, who=self.who)
        self.world.note("healed")
        await self.progress()
        await self.progress()
        watch.cancel()

    def timeline(self) -> Timeline:
        timeline = timeline_of(self.world, f"election, seed {self.world.seed}")
        for b in self.beliefs:
            lane = b.process.host.name
            timeline.bar(lane, b.since, b.until, f"leads, token {b.hold.fencing_token}", "held")
        for (lane, session_id), (since, until) in self.leases.items():
            timeline.bar(lane, since, until, f"lease of {session_id:#x}")
        return timeline

    def run(self) -> World:
        try:
            with self.world:
                self.world.run(self.story())
        except BaseException as error:
            name = "election" if self.ensemble is None else "election-ensemble"
            explain(error, name, self.world, self.faults, self.timeline())
            raise
        return self.world


if __name__ == "__main__":
    seed, *rest = sys.argv[1:]
    print(Election(int(seed), ensemble="ensemble" in rest).run().trace(), end="")
