"""The guardian's stand-in and the simulated programs, driven by a scripted agent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from incumbent.guardian import codec
from incumbent.guardian import messages as m
from incumbent.guardian.actions import SpawnSeat
from incumbent.guardian.table import Policy
from incumbent.testing.auditor import audit
from incumbent.testing.guardian import SimGuardian
from incumbent.testing.machine import SimMachine
from incumbent.testing.processes import Journal, Processes, Program
from incumbent.testing.sockets import SimSocket
from incumbent.testing.world import World

PASSPORT = {"session_id": 1, "timeout_ms": 10_000, "s_min_ms": 10_000, "last_zxid": 0}


class ScriptedAgent(asyncio.Protocol):
    """Says HELLO, keeps a lease as long as `leases`, and notes what it hears."""

    def __init__(self, town: Town, pid: int) -> None:
        self.town = town
        self.pid = pid
        self.heard: list[m.Message] = []
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leases = True
        self.generation = 0
        self._splitter = codec.Splitter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send(m.Hello(pid=self.pid))

    def data_received(self, data: bytes) -> None:
        for message in self._splitter.feed(data):
            self.heard.append(message)
            if isinstance(message, m.Welcome):
                self.generation = message.generation
                if message.passport is None:
                    self.send(m.Session(generation=self.generation, passport=PASSPORT, hosts="zk"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def send(self, message: m.FromAgent) -> None:
        self._transport.write(codec.encode(message))

    async def run(self) -> int:
        while not self.closed.done():
            await asyncio.wait([self.closed], timeout=0.5)
            if not self.generation:
                continue
            until = self.town.host.clock.boottime() + 8
            self.send(m.Alive(generation=self.generation))
            if self.leases:
                lease = m.Lease(generation=self.generation, valid_until=until, last_zxid=1)
                self.send(lease)
        return 3

    def start_seat(self, epoch: int, **settings: Any) -> None:
        self.send(
            m.Start(
                generation=self.generation,
                seat="web",
                epoch=epoch,
                soft=4.0,
                hard=0.5,
                argv=("web",),
                env={},
                cwd="/",
                **settings,
            )
        )

    def tags(self, *, without: tuple[str, ...] = ("LEASE_ACK",)) -> list[str]:
        return [x.tag for x in self.heard if x.tag not in without]


class Town:
    """One host with a guardian; `agents` in the order they were spawned."""

    def __init__(self, seed: int = 1, *, program: Program | None = None, **settings: Any) -> None:
        self.world = World(seed)
        self.host = self.world.host("n1")
        self.journal = Journal(self.world)
        self.program = program or Program()
        self.processes = Processes(self.host, self.journal, lambda start: self.program)
        self.machine = SimMachine(self.processes)
        self.agents: list[ScriptedAgent] = []
        self.closed: list[Any] = []
        self.guardian = SimGuardian(self.processes, self._agent, closer=self._close, **settings)

    async def _agent(self, sock: SimSocket, pid: int) -> int:
        loop: Any = asyncio.get_running_loop()
        _, agent = await loop.create_connection(lambda: ScriptedAgent(self, pid), sock=sock)
        self.agents.append(agent)
        return cast(int, await agent.run())

    async def _close(self, passport: Any, hosts: str, breadcrumbs: tuple[str, ...]) -> None:
        self.closed.append((dict(passport)["session_id"], hosts, breadcrumbs))

    def run(self, story: Callable[[Town], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            self.guardian.start()
            await asyncio.sleep(1.5)  # a welcomed agent with a lease
            await story(self)

        with self.world:
            self.world.run(main(), limit=300)

    def tree(self, epoch: int = 1) -> Any:
        return self.processes.find("web", epoch)

    def violations(self) -> list[str]:
        return audit(self.journal.lines).violations


def test_a_started_program_runs_and_an_ordered_stop_proves_it_dead() -> None:
    async def story(town: Town) -> None:
        agent = town.agents[0]
        agent.start_seat(1)
        await asyncio.sleep(1)
        assert agent.tags() == ["WELCOME", "STARTED"]
        assert town.tree().main_lives

        agent.send(m.Stop(seat="web", epoch=1, grace=3))
        await asyncio.sleep(1)
        assert agent.tags()[2:] == ["STOPPING", "EXITED", "EMPTY"]
        assert town.tree().is_empty

    town = Town()
    town.run(story)
    assert town.violations() == []


def test_the_agent_killed_the_programs_go_on_and_the_next_is_told_of_them() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        town.guardian.agent.kill()  # type: ignore[union-attr]
        await asyncio.sleep(1)
        welcome = cast(m.Welcome, town.agents[1].heard[0])
        assert (welcome.generation, welcome.passport and welcome.passport["session_id"]) == (2, 1)
        assert [(s.seat, s.epoch, s.state) for s in welcome.seats] == [("web", 1, "running")]
        await asyncio.sleep(10)
        assert town.tree().main_lives

    Town().run(story)


def test_the_guardian_killed_ends_a_sealed_tree_and_the_agent_has_the_proof() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        tree = town.tree()
        dead = town.machine.death_of(tree.pid)
        town.guardian.process.kill()
        await asyncio.sleep(0.1)
        assert tree.is_empty
        assert dead.done()
        assert town.agents[0].closed.done()

    Town().run(story)


def test_the_guardian_killed_leaves_a_swept_tree_for_the_agent_to_sweep() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1, containment="swept")
        await asyncio.sleep(1)
        tree = town.tree()
        town.guardian.process.kill()
        await asyncio.sleep(5)
        assert tree.main_lives
        await town.machine.sweep("web", 1)
        assert tree.is_empty

    Town().run(story)


@pytest.mark.parametrize("frozen", [False, True], ids=["guardian awake", "guardian frozen"])
def test_without_a_lease_a_sealed_tree_is_dead_by_its_hard_deadline(frozen: bool) -> None:
    async def story(town: Town) -> None:
        agent = town.agents[0]
        agent.start_seat(1)
        await asyncio.sleep(1)
        agent.leases = False
        leased = town.host.clock.boottime()
        if frozen:
            town.guardian.process.freeze()
        while not town.tree().is_empty:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert town.host.clock.boottime() - leased < 7.6

    Town(program=Program(stop_takes=None)).run(story)


def test_a_guardian_frozen_past_the_lease_kills_late_and_starts_nothing() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        tree = town.tree()
        town.guardian.process.freeze()
        town.guardian.agent.freeze()  # type: ignore[union-attr]
        await asyncio.sleep(30)
        assert tree.is_empty  # by its init
        town.guardian.process.thaw()
        await asyncio.sleep(0.1)
        assert town.tree() is None or town.tree().is_empty

    Town().run(story)


def test_policy_release_stops_the_programs_and_closes_the_session() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1, breadcrumb="/incumbent/running/1")
        await asyncio.sleep(1)
        town.guardian.agent.kill()  # type: ignore[union-attr]
        assert await town.guardian.process.wait() == 1
        assert town.tree().is_empty
        assert town.closed == [(1, "zk", ("/incumbent/running/1",))]
        assert len(town.agents) == 1

    Town(policy=Policy.RELEASE).run(story)


def test_descendants_left_behind_are_killed_and_the_tree_is_empty_only_then() -> None:
    async def story(town: Town) -> None:
        agent = town.agents[0]
        agent.start_seat(1)
        await asyncio.sleep(1)
        exited = next(x for x in agent.heard if isinstance(x, m.Exited))
        assert (exited.code, exited.left) == (5, 2)
        assert agent.tags()[-2:] == ["EXITED", "EMPTY"]

    Town(program=Program(lives=0.3, code=5, children=2)).run(story)


def test_what_cannot_be_killed_is_stuck_and_never_called_empty() -> None:
    async def story(town: Town) -> None:
        agent = town.agents[0]
        agent.start_seat(1)
        await asyncio.sleep(1)
        agent.send(m.Stop(seat="web", epoch=1, grace=0))
        await asyncio.sleep(20)
        assert "STUCK" in agent.tags()
        assert "EMPTY" not in agent.tags()
        agent.start_seat(2)
        await asyncio.sleep(1)
        assert agent.tags()[-1] == "REFUSED"

    Town(program=Program(dies_in=float("inf"))).run(story)


def test_a_program_that_cannot_start_is_refused_for_good() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        (refused,) = [x for x in town.agents[0].heard if isinstance(x, m.Refused)]
        assert (refused.permanent, refused.why) == (True, "ENOENT")

    Town(program=Program(cannot_start="ENOENT")).run(story)


def test_shutdown_is_passed_on_and_bye_ends_the_guardian() -> None:
    async def story(town: Town) -> None:
        agent = town.agents[0]
        town.guardian.shutdown("SIGTERM")
        await asyncio.sleep(0.1)
        assert agent.tags()[-1] == "SHUTDOWN"
        agent.send(m.Bye(code=0))
        assert await town.guardian.process.wait() == 0

    Town().run(story)


def test_a_crashed_host_takes_its_programs_with_it_in_that_moment() -> None:
    async def story(town: Town) -> None:
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        tree = town.tree()
        town.host.crash()
        assert tree.is_empty

    town = Town()
    town.run(story)
    assert town.violations() == []


def test_two_programs_of_one_seat_are_seen_by_the_auditor() -> None:
    async def story(town: Town) -> None:
        other = Processes(town.world.host("n2"), town.journal, lambda start: Program())
        town.agents[0].start_seat(1)
        await asyncio.sleep(1)
        start = m.Start(
            generation=1, seat="web", epoch=2, soft=1, hard=0, argv=("web",), env={}, cwd="/"
        )
        other.spawn(SpawnSeat(start, math.inf, math.inf, 1), town.guardian.process)
        await asyncio.sleep(1)

    town = Town()
    town.run(story)
    assert len([v for v in town.violations() if v.startswith("overlap")]) == 2
