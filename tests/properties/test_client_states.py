"""Whatever happens to network, server and clocks, the client's states tell a true story.

The real client and server in the simulated world, under faults drawn from a seed: between two
session ids there is exactly one LOST, LOST comes by the client's own clock at the latest when
its lease ends, and once faults end the client is CONNECTED again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.scripted import reached

from incumbent.client import Client, State
from incumbent.errors import IncumbentError
from incumbent.server import MemoryStore, Server
from incumbent.testing.world import Host, Process, World

SESSION = 4.0


class Story:
    """One seed: a server, a client that beats, writes and watches, and faults."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, drift=0.004, limit=2_000)
        self.zk, self.one = self.world.host("zk", drift=0.0), self.world.host("one")
        self.store = MemoryStore(delay=lambda: self.zk.rng.uniform(0.0, 0.02))
        self.serving: Process | None = None
        self.client: Client | None = None
        self.server: Server | None = None
        self.looks = 0
        self.told: list[tuple[State, int, int]] = []
        self.watchers = [0, 0]  # registered, called
        self.outcomes: dict[str, int] = {}

    async def serve(self, host: Host) -> None:
        self.server = server = Server(self.store, clock=host.clock, tick=0.5, rng=host.rng)
        await server.start("0.0.0.0", 2181)
        await server.wait()

    async def live(self, host: Host) -> None:
        async def prove() -> None:
            await asyncio.sleep(host.rng.uniform(0, 0.5))

        self.client = client = Client(
            "zk:2181",
            session_timeout=SESSION,
            clock=host.clock,
            rng=host.rng,
            tick=0.0,
            on_lost=prove,
            log=lambda line: self.world.record("log", line=line),
        )
        client.watch_state(lambda state: self.tell(client, state))
        await client.connect(600)
        tasks = [asyncio.ensure_future(self.hold(client)), asyncio.ensure_future(self.work(client))]
        await asyncio.gather(*tasks)

    def tell(self, client: Client, state: State) -> None:
        self.world.record("state", state=state.name, session=client.session_id)
        self.told.append((state, client.session_id, client.generation))
        if state is State.LOST:
            assert client.lease.valid_until == -math.inf

    async def hold(self, client: Client) -> None:
        """Beat, and believe in the session only as long as the lease says so."""
        while True:
            generation = client.generation
            try:
                path = f"/{client.session_id:x}-{generation}"
                created = await client.create(path, ephemeral=True)
                assert created.stat.ephemeralOwner == client.session_id
                with client.beat(path):
                    await reached(client, State.LOST)
            except IncumbentError:
                await asyncio.sleep(0.1)

    def watcher(self) -> Callable[[object], None]:
        """A new one each time: one that stands in several places hears of the end once."""

        def called(event: object) -> None:
            self.watchers[1] += 1

        return called

    async def work(self, client: Client) -> None:
        """Requests, each with one outcome within its deadline."""
        number = 0
        while True:
            number += 1
            began = client.clock.boottime()
            try:
                if number % 3:
                    await client.create(f"/{client.generation}-{number}")
                else:
                    await client.exists(f"/nothing-{number}", watcher=self.watcher())
                    self.watchers[0] += 1
                name = "done"
            except IncumbentError as error:
                name = type(error).__name__
            self.outcomes[name] = self.outcomes.get(name, 0) + 1
            took = client.clock.boottime() - began
            assert took < SESSION + 0.1 or self.was_still, f"an outcome after {took:.1f} s"
            self.was_still = False
            await asyncio.sleep(0.1)

    was_still = False

    async def run(self) -> None:
        rng = self.world.rng
        self.serving = self.zk.run(self.serve(self.zk))
        living = self.one.run(self.live(self.one))
        looking = asyncio.ensure_future(self.look())
        for _ in range(12):
            await asyncio.sleep(rng.uniform(0.2, 5))
            await self.fault(rng.randrange(8), rng.choice([0.2, 1.0, 3.0, 5.0, 9.0]))
        self.world.heal_all()
        assert living.alive, "the client's process has died"
        client = self.client
        assert client is not None
        await asyncio.sleep(2 * SESSION + 5)
        assert client.state is State.CONNECTED, f"still {client.state} long after all faults"
        if looking.done():
            looking.result()
        looking.cancel()
        self.check(client)
        assert self.looks > 100, "the lease was hardly ever valid"
        living.kill()

    async def look(self) -> None:
        """As long as the lease says that the session lives, the server has it."""
        while True:
            await asyncio.sleep(0.02)
            client, service = self.client, self.server and self.server._service
            if client is None or service is None or not (self.serving and self.serving.alive):
                continue
            if client.lease.valid_until > client.clock.boottime():
                self.looks += 1
                assert client.session_id in service.tree.sessions, "believed in for too long"

    async def fault(self, kind: int, seconds: float) -> None:
        world, zk, one = self.world, self.zk, self.one
        if kind == 0:
            world.reset("one", "zk")
        elif kind in (1, 2, 3):
            if kind == 1:
                world.cut("one", "zk")
            else:
                world.block(*(("one", "zk") if kind == 2 else ("zk", "one")))
            await asyncio.sleep(seconds)
            world.heal("one", "zk")
        elif kind == 4:
            zk.freeze()
            await asyncio.sleep(seconds)
            zk.thaw()
        elif kind in (5, 6):
            self.was_still = True
            (one.freeze if kind == 5 else one.suspend)()
            await asyncio.sleep(seconds)
            (one.thaw if kind == 5 else one.resume)()
        else:
            assert self.serving is not None
            self.serving.kill()
            await asyncio.sleep(seconds)
            self.serving = zk.run(self.serve(zk))

    def check(self, client: Client) -> None:
        states = [state for state, _, _ in self.told]
        for (before, old, _), (after, new, _) in zip(self.told, self.told[1:], strict=False):
            assert before is not after, "the same state twice in a row"
            if old != new:
                assert (before, after) == (State.LOST, State.CONNECTED)
        connected = [(sid, gen) for state, sid, gen in self.told if state is State.CONNECTED]
        sessions = list(dict.fromkeys(connected))
        assert states.count(State.LOST) == len(sessions) - 1, "one LOST between two sessions"
        assert [generation for _, generation in sessions] == list(range(1, len(sessions) + 1))
        registered, called = self.watchers
        assert called == registered - len(client._watches), "each watcher is called once or waits"


@pytest.mark.parametrize("seed", range(30))
def test_states_tell_a_true_story(seed: int) -> None:
    story = Story(seed)
    with story.world:
        story.world.run(story.run())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30, 600))
def test_states_tell_a_true_story_for_long(seed: int) -> None:
    test_states_tell_a_true_story(seed)


def test_the_seeds_reach_what_they_are_for() -> None:
    """A checker that saw nothing proves nothing."""
    seen: dict[str, Any] = {}
    for seed in range(6):
        story = Story(seed)
        with story.world:
            story.world.run(story.run())
        for state, _, _ in story.told:
            seen[state.name] = seen.get(state.name, 0) + 1
        for name, count in story.outcomes.items():
            seen[name] = seen.get(name, 0) + count
    for name in ("LOST", "SUSPENDED", "FateUnknown", "SessionExpired", "NotSent", "done"):
        assert seen.get(name), f"no seed led to {name}: {seen}"
