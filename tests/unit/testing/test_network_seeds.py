"""Whatever breaks, a connection delivers a prefix of what was written, and ends at most once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from incumbent.testing.faults import KINDS, draw, inflict
from incumbent.testing.world import World

GENTLE = tuple(k for k in KINDS if k not in ("crash", "reset"))


class End(asyncio.Protocol):
    """Writes a numbered stream in pieces of all sizes, as far as it may; keeps what it gets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent = bytearray()
        self.got = bytearray()
        self.lost = 0
        self.is_paused = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.transport is None
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.lost
        self.got += data

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1

    async def talk(self, rng: Any) -> None:
        for number in range(60):
            await asyncio.sleep(rng.expovariate(1.0))
            if self.transport.is_closing():
                return
            if not self.is_paused:
                piece = b"%06d" % number * rng.choice((1, 40, 3_000, 60_000))
                self.sent += piece
                self.transport.write(piece)


class Talk:
    """Three hosts that talk with a server on each other's lines."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, drift=0.01, limit=5_000)
        self.near: list[End] = []
        self.far: dict[Any, End] = {}

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()

        def accept() -> End:
            end = End(self.world)
            talk = loop.create_task(self.answer(end))
            tasks.append(talk)
            return end

        tasks: list[asyncio.Task[None]] = []
        server = await loop.create_server(accept, None, 1)
        await server.serve_forever()

    async def answer(self, end: End) -> None:
        while end.transport is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.far[end.transport.get_extra_info("peername")] = end
        await end.talk(self.world.host("zk").rng)

    async def call(self, name: str) -> None:
        host = self.world.host(name)
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, end = await loop.create_connection(lambda: End(self.world), "zk", 1)
            except OSError:
                await asyncio.sleep(1)
                continue
            self.near.append(end)
            await end.talk(host.rng)
            await asyncio.sleep(10_000)

    def boot(self, name: str) -> None:
        self.world.host(name).run(self.serve() if name == "zk" else self.call(name), name)

    def run(self, kinds: tuple[str, ...]) -> None:
        names = ["n1", "n2", "n3"]

        async def story() -> None:
            for name in ("zk", *names):
                self.boot(name)
            faults = draw(
                self.world.rng, hosts=names, servers=["zk"], duration=60, longest=20, kinds=kinds
            )
            await inflict(self.world, faults, on_up=self.boot)
            await asyncio.sleep(300)

        with self.world:
            self.world.run(story())

    def pairs(self) -> list[tuple[End, End]]:
        known = [(n, self.far.get(n.transport.get_extra_info("sockname"))) for n in self.near]
        return [(near, far) for near, far in known if far is not None]


@pytest.mark.parametrize("seed", range(40))
def test_without_a_death_everything_arrives(seed: int) -> None:
    talk = Talk(seed)
    talk.run(GENTLE)

    assert len(talk.pairs()) == 3
    for near, far in talk.pairs():
        assert far.got == near.sent
        assert near.got == far.sent
        assert near.lost == far.lost == 0


@pytest.mark.parametrize("seed", range(60))
def test_with_deaths_a_prefix_arrives_and_the_end_comes_once(seed: int) -> None:
    talk = Talk(seed)
    talk.run(tuple(KINDS))

    assert talk.pairs()
    for near, far in talk.pairs():
        assert near.sent.startswith(far.got)
        assert far.sent.startswith(near.got)
        assert near.lost <= 1
        assert far.lost <= 1
