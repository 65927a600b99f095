"""Three nodes and a server in the simulated world: real agents under the guardian's real table.

As a program (`python tests/simulation/cluster.py SEED [ensemble]`) it prints the seed's whole
trace.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.simulation.reports import explain, extra, timeline_of

from incumbent.agent.agent import Agent, AgentSettings
from incumbent.agent.link import GuardianLink
from incumbent.agent.tree import Tree
from incumbent.cli import orders
from incumbent.cli.pause import set_paused
from incumbent.client import Client, Passport
from incumbent.credentials import Credentials
from incumbent.errors import IncumbentError, NodeExists, NoNode, NotEmpty
from incumbent.guardian.messages import Start
from incumbent.server import MemoryStore, Policy, Server
from incumbent.spec import Spec, encode
from incumbent.testing.auditor import Expectations, audit
from incumbent.testing.ensemble import Ensemble
from incumbent.testing.faults import ALL_KINDS, KINDS, Fault, draw, inflict
from incumbent.testing.guardian import SimGuardian
from incumbent.testing.machine import SimMachine
from incumbent.testing.processes import Journal, Processes, Program
from incumbent.testing.sockets import SimSocket
from incumbent.testing.timeline import Timeline
from incumbent.testing.world import Host, World

NAMES = ("n1", "n2", "n3")
SERVERS = ("zk1", "zk2", "zk3")
TICKS = (0.5, 1.0, 2.0)  # of the ensemble
SESSION = 6.0  # seconds
FAULTS_FOR = 40.0
LONGEST_FAULT = 12.0  # beyond the session timeout, so that sessions do end
PROGRESS_WITHIN = 40.0
SETTLES_FOR = 2.5 * SESSION  # whatever would still happen has happened
OWN_KINDS = (
    "kill agent",
    "kill guardian",
    "freeze agent",
    "freeze guardian",
    "delete candidate",
    "drain",
)
VANDALS = ("scribble", "erase")
"""Kinds that strike the tree itself, as somebody with zkCli and a bad day does."""
_GARBAGE = b"garbage{"


class Node:
    """A machine with an init system that starts its guardian again half a second after its end.
    `name` is what its agent is told to call it.
    """

    def __init__(self, cluster: Cluster, host: Host) -> None:
        self.cluster = cluster
        self.host = host
        self.name = host.name
        self.processes = Processes(host, cluster.journal, cluster.behaves)
        self.machine = SimMachine(self.processes)
        self.guardian: SimGuardian | None = None

    def boot(self) -> None:
        """The guardian's start, after the leftovers of an earlier life are ended."""
        world = self.cluster.world
        for tree in list(self.processes.trees.values()):
            self.processes.kill(tree)
            if not tree.is_empty:
                world.network.at(world.now + 0.05, self.boot)
                return
        self.processes.trees.clear()
        self.guardian = SimGuardian(
            self.processes,
            self.agent,
            closer=self.close,
            beat=SESSION / 10,
            session_timeout=SESSION,
            settings={
                "node": self.name,
                "node_id": f"id-{self.host.name}",
                "boot_id": self.host.boot_id,
                "hosts": self.cluster.hosts,
                "session_timeout": SESSION,
                "tick": self.cluster.tick,
                "containments": [self.cluster.containment],
                "credentials": self.cluster.credentials.to_json(),
            },
        )
        process = self.guardian.start()
        process.looked_at = True
        process.at_end.append(lambda: world.network.at(world.now + 0.5, self.restart))

    def restart(self) -> None:
        if self.host.up and (self.guardian is None or not self.guardian.process.alive):
            self.boot()

    async def agent(self, sock: SimSocket, pid: int) -> int:
        link = GuardianLink()
        await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
        welcome = await link.hello(pid)
        agent = Agent(
            AgentSettings.of(welcome.settings),
            self.machine,
            link,
            clock=self.host.clock,
            rng=self.host.rng,
            say=self.cluster.say,
        )
        self.cluster.agents[self.host.name] = agent
        return await agent.run()

    async def close(self, passport: Mapping[str, Any], hosts: str, crumbs: tuple[str, ...]) -> None:
        client = Client(
            hosts,
            clock=self.host.clock,
            rng=self.host.rng,
            resume=Passport.from_json(dict(passport)),
            log=self.cluster.say,
        )
        await client.connect(timeout=3.0)
        for crumb in crumbs:
            try:
                await client.delete(crumb)
            except NoNode:
                continue
        await client.close()


class Cluster:
    """One seed: `run` raises AssertionError, with the schedule, for whatever must not be.

    With `ensemble`, three servers stand in the place of one. `faults` takes the place of what the
    seed draws.
    """

    policy: Policy | None = None
    credentials = Credentials(insecure=True)
    """Of the agents: their tree is open."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: tuple[str, ...] | None = None,
        ensemble: bool = False,
        faults: Sequence[Fault] | None = None,
    ) -> None:
        self.world = World(seed, drift=0.004, limit=2_000)
        rng = self.world.rng
        self.journal = Journal(self.world)
        self.ensemble: Ensemble | None = None
        self.hosts, self.tick = "zk:2181", 0.0 if not ensemble else None
        self.within = PROGRESS_WITHIN
        disk = self.world.host("zk").disk if not ensemble else None
        self.store = MemoryStore(
            delay=lambda: self.world.host("zk").rng.uniform(0.0, 0.01) + extra(disk),
            failing=lambda number: disk is not None and disk.failing(number),
        )
        self.tree = Tree()
        self.seats = rng.randint(1, 3)
        self.containment = rng.choice(["sealed", "sealed", "swept"])
        self.programs = [
            Program(),
            Program(stop_takes=None),
            Program(stop_takes=0.5, children=2),
            Program(lives=rng.uniform(1.0, 20.0), code=1),
        ]
        self.nodes = {name: Node(self, self.world.host(name)) for name in NAMES}
        self.agents: dict[str, Agent] = {}
        if ensemble:
            tick = rng.choice(TICKS)
            self.ensemble = Ensemble(self.world, SERVERS, tick=tick)
            self.hosts, self.tick = self.ensemble.hosts, rng.choice([tick, None])
            self.within += 5 + 6 * tick
            own = tuple(self.ensemble.kinds)
            drawn = draw(
                rng,
                hosts=NAMES,
                servers=(*SERVERS, "zk leader"),
                duration=FAULTS_FOR,
                longest=LONGEST_FAULT,
                kinds=kinds or (*ALL_KINDS, *OWN_KINDS, *own, *own),
                on_servers=own,
                sparing=("jump boottime",),
            )
        else:
            drawn = draw(
                rng,
                hosts=NAMES,
                servers=["zk"],
                duration=FAULTS_FOR,
                longest=LONGEST_FAULT,
                kinds=kinds or (*KINDS, *OWN_KINDS),
            )
        self.faults: list[Fault] = drawn if faults is None else list(faults)
        if self.containment == "swept":
            # A guardian and agent that die together are outside of what swept promises.
            self.faults = [
                f
                for f in self.faults
                if f.kind not in ("freeze", "suspend", "crash", "freeze guardian")
            ]

    def say(self, line: str) -> None:
        self.world.record("says", line=line)

    def behaves(self, start: Start) -> Program:
        return self.programs[int(start.seat.partition("/")[0][1:]) % len(self.programs)]

    def spec(self, name: str) -> Spec:
        return Spec(name=name, command=(f"/bin/{name}",))

    # -- what runs on the hosts

    async def serve(self, host: Host) -> None:
        server = Server(self.store, clock=host.clock, tick=0.5, rng=host.rng, policy=self.policy)
        await server.start("0.0.0.0", 2181)
        await server.wait()

    def boot(self, name: str) -> None:
        if name == "zk":
            host = self.world.host(name)
            host.run(self.serve(host), "server")
        elif self.ensemble is not None and name in SERVERS:
            self.ensemble.boot(name)
        else:
            self.nodes[name].boot()

    async def apply(self) -> None:
        """What `incumbent apply` does, by an operator on the server's host."""
        client = await self.operator()
        wanted = list(self.tree.skeleton())
        for number in range(self.seats):
            name = f"c{number}"
            spec = self.spec(name)
            wanted.append((self.tree.component(name), encode(spec)))
            wanted += self.tree.component_skeleton(name, 1)
        for path, data in wanted:
            try:
                await client.create(path, data)
            except NodeExists:
                continue
        await client.close()

    async def operator(self) -> Client:
        """Connected."""
        ops = self.world.host("ops")
        client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say)
        await client.connect(timeout=30.0)
        return client

    # -- more faults

    def _kill_agent(self, world: World, fault: Fault) -> None:
        guardian = self.nodes[fault.a].guardian
        if guardian is not None and guardian.agent is not None:
            guardian.agent.kill()

    def _kill_guardian(self, world: World, fault: Fault) -> None:
        guardian = self.nodes[fault.a].guardian
        if guardian is not None:
            guardian.process.kill()

    def _drain(self, world: World, fault: Fault) -> None:
        """The node is stopped in order: its seats are handed over. It comes back by itself."""
        guardian = self.nodes[fault.a].guardian
        if guardian is not None and guardian.process.alive:
            guardian.shutdown()

    def _freeze_agent(self, world: World, fault: Fault) -> Any:
        guardian = self.nodes[fault.a].guardian
        agent = guardian.agent if guardian is not None else None
        if agent is None:
            return None
        agent.freeze()
        return agent.thaw

    def _freeze_guardian(self, world: World, fault: Fault) -> Any:
        guardian = self.nodes[fault.a].guardian
        if guardian is None or not guardian.process.alive:
            return None
        guardian.process.freeze()
        return guardian.process.thaw

    def _delete_candidate(self, world: World, fault: Fault) -> None:
        """By hand, as an operator who believes that a lock hangs."""
        host = self.world.host("ops")

        async def delete() -> None:
            client = Client(self.hosts, clock=host.clock, rng=host.rng, log=self.say)
            try:
                await client.connect(timeout=5.0)
                election = self.tree.election(f"c{host.rng.randrange(self.seats)}/0")
                for name in (await client.children(election))[:1]:
                    await client.delete(f"{election}/{name}")
                await client.close()
            except IncumbentError as error:
                self.say(f"no candidate deleted: {error}")

        host.run(delete(), "operator")

    def _pause(self, world: World, fault: Fault) -> Any:
        """An operator pauses the cluster, and resumes it at the end, as soon as that is possible."""

        async def order(client: Client, paused: bool) -> None:
            await orders.again(
                lambda: set_paused(client, self.tree, paused=paused, by="ops", now=1.0)
            )
            self.say(f"operator: {'paused' if paused else 'resumed'}")

        host = self.world.host("ops")
        pausing = host.run(self._until_done(lambda client: order(client, True)), "pause")

        async def afterwards() -> None:
            await pausing.wait()
            await self._until_done(lambda client: order(client, False))

        return lambda: host.run(afterwards(), "resume") and None

    async def _until_done(self, job: Callable[[Client], Awaitable[None]]) -> None:
        """By an operator who tries again until it works."""
        host = self.world.host("ops")
        while True:
            client = Client(self.hosts, clock=host.clock, rng=host.rng, log=self.say)
            try:
                await client.connect(timeout=5.0)
                await job(client)
                await client.close()
                return
            except NoNode:
                return  # gone before we came
            except IncumbentError as error:
                self.say(f"operator: {error}")
                await asyncio.sleep(0.5)

    def _scribble(self, world: World, fault: Fault) -> Any:
        """Something of ours cannot be read, until an operator puts it right."""
        return self._vandalise(lambda client, path: client.set(path, _GARBAGE))

    def _erase(self, world: World, fault: Fault) -> Any:
        return self._vandalise(lambda client, path: client.delete(path), spared="/running/")

    def _vandalise(
        self, act: Callable[[Client, str], Awaitable[object]], *, spared: str = "//"
    ) -> Callable[[], None]:
        """To delete a breadcrumb is to call its instance dead: that one is `spared`."""
        host = self.world.host("ops")
        done: list[tuple[str, bytes]] = []

        async def vandal(client: Client) -> None:
            path = await self._target(client, host.rng)
            if spared in path:
                return
            data, stat = await client.get(path)
            try:
                await act(client, path)
            except (NotEmpty, NoNode):
                return
            self.say(f"vandal: {path}")
            if not stat.ephemeralOwner:
                done.append((path, data))

        async def put_right(client: Client) -> None:
            for path, data in done:
                crumb_or_told = "/running/" in path or path.endswith("/observed")
                try:
                    if (await client.get(path))[0] == _GARBAGE:
                        await client.set(path, data)
                except NoNode:
                    if not crumb_or_told:
                        with suppress(NodeExists):
                            await client.create(path, data)

        vandalism = host.run(self._until_done(vandal), "vandal")

        async def afterwards() -> None:
            await vandalism.wait()  # it may take longer than its fault
            await self._until_done(put_right)

        return lambda: host.run(afterwards(), "operator") and None

    async def _target(self, client: Client, rng: random.Random) -> str:
        """A znode of ours to strike; sessions are left alone."""
        tree, component = self.tree, f"c{rng.randrange(self.seats)}"
        seat = f"{component}/0"
        paths = [
            *(tree.plan, tree.control, tree.component(component), tree.desired(component)),
            *(tree.seat(seat), tree.observed(seat)),
        ]
        for folder in (tree.running(seat), tree.nodes, tree.planner):
            paths += [f"{folder}/{name}" for name in await client.children(folder)]
        return rng.choice(paths)

    # -- the whole

    def who(self, name: str) -> str:
        if self.ensemble is not None and name == "zk leader":
            return self.ensemble.leader or SERVERS[0]
        return name

    async def story(self) -> None:
        for name in (*(("zk",) if self.ensemble is None else SERVERS), *NAMES):
            self.boot(name)
        self.world.host("ops")
        await self.world.host("ops").call(self.apply(), "apply")
        self.journal.write("fault")
        await inflict(
            self.world,
            self.faults,
            more={
                "kill agent": self._kill_agent,
                "kill guardian": self._kill_guardian,
                "freeze agent": self._freeze_agent,
                "freeze guardian": self._freeze_guardian,
                "delete candidate": self._delete_candidate,
                "drain": self._drain,
                "pause": self._pause,
                "scribble": self._scribble,
                "erase": self._erase,
                **(self.ensemble.kinds if self.ensemble is not None else {}),
            },
            on_up=self.boot,
            who=self.who,
        )
        self.journal.write("healed")
        await self.settle()
        if self.containment == "sealed":
            self.journal.write("fault")
            self.nodes[self.world.rng.choice(NAMES)].host.crash()  # for good
            self.journal.write("healed")
            await self.settle()

    async def settle(self) -> None:
        """Until all is well, but for a while at least and `within` at the longest."""
        ends = self.world.now + self.within + 1
        await asyncio.sleep(SETTLES_FOR)
        while self.world.now < ends and not self.is_well():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(1.0)

    def is_well(self) -> bool:
        """Whether every seat runs, and whatever else must be so in the end."""
        trees = [tree for node in self.nodes.values() for tree in node.processes.trees.values()]
        return len({tree.seat for tree in trees if tree.main_lives}) >= self.seats

    def leaders(self, seat: str) -> dict[str, bool]:
        """Node → whether its living agent takes itself for the leader of a seat."""
        terms = {
            name: agent.term
            for name, agent in self.agents.items()
            if self.nodes[name].host.up and agent.term is not None
        }
        return {
            name: seat in term.seats and term.seats[seat].is_leading for name, term in terms.items()
        }

    def run(self) -> World:
        try:
            with self.world:
                self.world.run(self.story())
            for name, agent in sorted(self.agents.items()):
                seats = agent.term.seats if agent.term is not None else {}
                for seat in seats.values():
                    self.world.note(
                        f"at the end {name}: {seat.name} {seat.word.state} {seat.word.reason}"
                    )
            for seat in (f"c{number}/0" for number in range(self.seats)):
                leaders = [name for name, each in sorted(self.leaders(seat).items()) if each]
                assert len(leaders) <= 1, f"{seat} is led by {leaders}"
            verdict = audit(self.journal.lines, Expectations(within=self.within))
            assert verdict.clean, str(verdict)
            started = {line for line in self.journal.lines if '"event": "start"' in line}
            for number in range(self.seats):
                assert any(f'"c{number}/0"' in line for line in started), f"c{number} never ran"
        except BaseException as error:
            name = "cluster" if self.ensemble is None else "cluster-ensemble"
            explain(error, name, self.world, self.faults, self.timeline())
            raise
        return self.world

    def timeline(self) -> Timeline:
        """Each instance as a bar on its node, from its start to its last sign of life."""
        timeline = timeline_of(self.world, f"cluster, seed {self.world.seed}")
        lives: dict[tuple[str, str, int, int], tuple[float, float]] = {}
        for line in self.journal.lines:
            event = json.loads(line)
            at = event["boottime_ns"] / 1e9
            key = event["node"], event["seat"], event["epoch"], event["pid"]
            if event["event"] == "overlap":
                timeline.mark(event["node"], at, f"overlap: {event['seat']}", "bad")
            elif event["seat"]:
                lives[key] = lives.get(key, (at, at))[0], at
        for (node, seat, epoch, _), (start, end) in lives.items():
            timeline.bar(node, start, end, f"{seat} epoch {epoch}", "held")
        return timeline


if __name__ == "__main__":
    seed, *rest = sys.argv[1:]
    print(Cluster(int(seed), ensemble="ensemble" in rest).run().trace(), end="")
