"""A program for test_repeats: one seed of a busy little world; prints its whole trace.

It leans on purpose on what would differ between runs if the loop let it: sets of tasks,
`asyncio.wait`, TaskGroup's cancellation, hashes of strings, faults at random times.
"""

from __future__ import annotations

import asyncio
import sys

from incumbent.testing.world import Host, World


class Line(asyncio.Protocol):
    def __init__(self, world: World) -> None:
        self.world = world

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.world.record("got", size=len(data))
        if b"echo" in data:
            self.transport.write(data.replace(b"echo", b"done"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.world.record("lost", why=repr(exc))


async def worker(world: World, host: Host, number: int) -> None:
    try:
        await asyncio.sleep(host.rng.expovariate(1))
        if number == 3:
            raise ValueError(number)
        await asyncio.sleep(100)
    finally:
        world.record("worker ends", number=number)


async def node(world: World, host: Host) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout(5):
                transport, _ = await loop.create_connection(lambda: Line(world), "zk", 1)
        except OSError as error:
            world.record("no connection", why=type(error).__name__)
            await asyncio.sleep(host.rng.uniform(0, 1))
            continue
        transport.write(b"echo" * host.rng.randrange(1, 50_000))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(worker(world, host, number))
        except* ValueError:
            pass
        tasks = {loop.create_task(asyncio.sleep(0.1, name)) for name in ("a", "b", "c", "d")}
        done, _rest = await asyncio.wait(tasks)
        world.record("set order", order=[t.result() for t in done])
        transport.close()


async def serve(world: World) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Line(world), None, 1)
    await server.serve_forever()


async def story(world: World) -> None:
    world.host("zk").run(serve(world), "server")
    for name in ("n1", "n2", "n3"):
        world.host(name).run(node(world, world.host(name)), "node")
    for _ in range(20):
        await asyncio.sleep(world.rng.uniform(0, 2))
        name = world.rng.choice(("n1", "n2", "n3"))
        fault = world.rng.choice(("cut", "block", "freeze", "suspend", "reset", "heal", "crash"))
        host = world.host(name)
        if fault == "cut":
            world.cut(name, "zk")
        elif fault == "block":
            world.block("zk", name)
        elif fault == "reset":
            world.reset(name, "zk")
        elif fault == "crash":
            host.crash(rst=world.rng.random() < 0.5)
            host.restart()
            host.run(node(world, host), "node")
        elif fault == "heal":
            world.heal_all()
        else:
            getattr(host, fault)()
    world.heal_all()
    await asyncio.sleep(10)


def run(seed: int) -> World:
    with World(seed, drift=0.01) as world:
        world.run(story(world))
    return world


if __name__ == "__main__":
    print(run(int(sys.argv[1])).trace(), end="")
