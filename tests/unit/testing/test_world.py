"""What hosts, processes and links do to the code that runs on them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from incumbent.testing.world import Host, ProcessKilled, World, here


class End(asyncio.Protocol):
    """Keeps what it gets; answers b"?" with b"!"."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        if data == b"?":
            self.transport.write(b"!")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Town:
    """A server on host `zk` and one connection to it from host `n1`."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.world = World(seed, **settings)
        self.zk = self.world.host("zk")
        self.n1 = self.world.host("n1")
        self.accepted: list[End] = []
        self.near = End()

    def _accept(self) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, "0.0.0.0", 2181)
        await server.serve_forever()

    async def dial(self, target: str = "zk") -> None:
        loop = asyncio.get_running_loop()
        _, self.near = await loop.create_connection(End, target, 2181)
        await loop.create_future()

    async def connected(self) -> End:
        """Both processes run and are connected; the server's end."""
        self.server = self.zk.run(self.serve(), "server")
        await asyncio.sleep(0.01)
        self.client = self.n1.run(self.dial(), "client")
        await asyncio.sleep(0.01)
        return self.accepted[0]

    def run(self, story: Any, limit: float = 1000) -> None:
        with self.world:
            self.world.run(story, limit=limit)


def test_a_crash_is_silent_and_gives_no_last_words() -> None:
    town = Town()
    heard: list[str] = []

    async def talker() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(End, "zk", 2181)
        try:
            await loop.create_future()
        finally:
            heard.append("finally")
            transport.write(b"last words")
            town.world.record("last words")

    async def story() -> None:
        far = await town.connected()
        town.n1.run(talker())
        await asyncio.sleep(0.01)
        town.n1.crash()
        await asyncio.sleep(500)
        assert heard == []
        assert [e.lost for e in town.accepted] == [[], []]
        assert far.got == b""

    town.run(story())

    assert heard == ["finally"]  # at the world's end, to no effect
    assert town.accepted[1].got == b""
    assert "last words" not in town.world.trace()


def test_a_crash_with_resets_is_noticed() -> None:
    town = Town()

    async def story() -> None:
        far = await town.connected()
        town.n1.crash(rst=True)
        await asyncio.sleep(0.1)
        assert isinstance(far.lost[0], ConnectionResetError)

    town.run(story())


def test_a_killed_process_is_noticed_by_eof() -> None:
    town = Town()

    async def story() -> None:
        far = await town.connected()
        town.client.kill()
        await asyncio.sleep(0.1)
        assert far.lost == [None]
        with pytest.raises(ProcessKilled):
            await town.client.wait()

    town.run(story())


def test_a_restarted_host_answers_its_old_connections_with_rst() -> None:
    town = Town()

    async def story() -> None:
        await town.connected()
        town.zk.crash()
        town.near.transport.write(b"?")
        await asyncio.sleep(5)
        assert town.near.lost == []
        town.zk.restart()
        await asyncio.sleep(20)
        assert isinstance(town.near.lost[0], ConnectionResetError)

    town.run(story())


def test_connecting_to_a_host_that_is_down_takes_127_seconds_to_fail() -> None:
    town = Town()

    async def story() -> None:
        town.zk.crash()
        started = town.world.now
        with pytest.raises(TimeoutError):
            await town.n1.call(town.dial())
        assert town.world.now - started == pytest.approx(127, abs=0.1)

    town.run(story())


def test_connecting_where_nobody_listens_is_refused() -> None:
    town = Town()

    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await town.n1.call(town.dial())
        with pytest.raises(OSError, match="not known"):
            await town.n1.call(town.dial("elsewhere"))

    town.run(story())


@pytest.mark.parametrize("seed", range(5))
def test_what_meets_a_cut_arrives_whole_after_healing(seed: int) -> None:
    town = Town(seed)

    async def story() -> None:
        far = await town.connected()
        town.world.cut("n1", "zk")
        for number in range(100):
            town.near.transport.write(b"%03d" % number)
        await asyncio.sleep(30)
        assert far.got == b""
        assert not far.lost
        town.world.heal("n1", "zk")
        town.near.transport.write(b"end")
        await asyncio.sleep(30)
        assert far.got == b"".join(b"%03d" % n for n in range(100)) + b"end"

    town.run(story())


def test_a_one_way_block_lets_the_other_way_through() -> None:
    town = Town()

    async def story() -> None:
        far = await town.connected()
        town.world.block("n1", "zk")
        far.transport.write(b"down")
        town.near.transport.write(b"up")
        await asyncio.sleep(5)
        assert (town.near.got, far.got) == (b"down", b"")

    town.run(story())


def test_a_reset_ends_both_sides_and_only_that_pair() -> None:
    town = Town()
    n2 = town.world.host("n2")
    other = End()

    async def third() -> None:
        await asyncio.get_running_loop().create_connection(lambda: other, "zk", 2181)
        await asyncio.get_running_loop().create_future()

    async def story() -> None:
        far = await town.connected()
        n2.run(third())
        await asyncio.sleep(0.1)
        town.world.reset("n1", "zk")
        await asyncio.sleep(0.1)
        assert isinstance(far.lost[0], ConnectionResetError)
        assert isinstance(town.near.lost[0], ConnectionResetError)
        assert other.lost == []

    town.run(story())


def test_a_frozen_process_has_a_kernel_that_goes_on() -> None:
    town = Town()

    async def story() -> None:
        far = await town.connected()
        town.server.freeze()
        town.near.transport.write(b"?")
        client = town.n1.run(town.dial(), "second")
        await asyncio.sleep(10)
        assert far.got == b""
        assert client.alive  # accepted by the kernel
        assert len(town.accepted) == 1
        town.server.thaw()
        await asyncio.sleep(0.1)
        assert far.got == b"?"
        assert len(town.accepted) == 2

    town.run(story())


def test_boottime_goes_on_in_suspend_and_monotonic_time_does_not() -> None:
    town = Town()
    seen: list[tuple[float, float]] = []

    async def sleeper() -> None:
        loop = asyncio.get_running_loop()
        before = town.n1.clock.boottime(), loop.time()
        await asyncio.sleep(10)
        seen.append((town.n1.clock.boottime() - before[0], loop.time() - before[1]))

    async def story() -> None:
        process = town.n1.run(sleeper())
        await asyncio.sleep(4)
        town.n1.suspend()
        await asyncio.sleep(600)
        assert seen == []
        town.n1.resume()
        await process.wait()

    town.run(story())

    assert seen[0] == (pytest.approx(610, abs=0.01), pytest.approx(10, abs=0.01))


def test_a_sleeping_host_hears_nothing_until_it_wakes() -> None:
    town = Town()

    async def story() -> None:
        far = await town.connected()
        town.zk.suspend()
        town.near.transport.write(b"?")
        await asyncio.sleep(30)
        assert far.got == b""
        town.zk.resume()
        await asyncio.sleep(30)
        assert town.near.got == b"!"

    town.run(story())


def test_clocks_drift_within_bounds_and_true_time_can_be_told() -> None:
    with World(3, drift=0.01) as world:
        hosts = [world.host(f"n{i}") for i in range(5)]

        async def story() -> None:
            before = [h.clock.boottime() for h in hosts]
            await asyncio.sleep(100)
            passed = [h.clock.boottime() - b for h, b in zip(hosts, before, strict=True)]
            assert all(99 <= p <= 101 for p in passed)
            assert len(set(passed)) == 5
            for host in hosts:
                clock = host.clock
                assert clock.world_time(clock.boottime()) == pytest.approx(world.now)

        world.run(story())


def test_a_restart_is_another_boot() -> None:
    with World(3) as world:
        host = world.host("n1")

        async def story() -> None:
            await asyncio.sleep(5_000)
            before = host.boot_id, host.clock.boottime()
            host.crash()
            host.restart()
            assert host.boot_id != before[0]
            assert host.clock.boottime() < before[1]

        world.run(story(), limit=10_000)


def test_code_knows_where_it_runs() -> None:
    seen: list[str] = []

    async def look() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: seen.append(here()))

    with World(3) as world:
        world.run(world.host("n1").call(look(), "agent"))

    assert (here(), seen) == ("world", ["n1/agent"])


def test_the_end_of_main_is_the_end_of_the_process() -> None:
    ends: list[str] = []

    async def straggler() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ends.append(here())

    async def main() -> str:
        task = asyncio.create_task(straggler())
        await asyncio.sleep(1)
        return task.get_name() and "done"

    with World(3) as world:
        assert world.run(world.host("n1").call(main(), "m")) == "done"
        assert ends == ["n1/m"]


def test_a_failure_that_nobody_waited_for_fails_the_world() -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    with pytest.raises(AssertionError, match="nobody looks"), World(3) as world:
        world.host("n1").run(fail())
        world.run(asyncio.sleep(1))


def test_an_error_that_asyncio_reports_fails_the_world() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"), World(3) as world:
        world.loop.call_soon(lambda: 1 / 0)
        world.run(asyncio.sleep(1))


def test_a_joined_pair_belongs_to_its_processes() -> None:
    async def live() -> None:
        await asyncio.get_running_loop().create_future()

    with World(3) as world:
        host: Host = world.host("n1")

        async def story() -> None:
            agent, guardian = host.run(live(), "agent"), host.run(live(), "guardian")
            (a, near), (_, far) = await world.pair(agent, End, guardian, End)
            world.isolate("n1")
            a.write(b"over the pair")
            await asyncio.sleep(0.01)
            assert far.got == b"over the pair"
            guardian.kill()
            await asyncio.sleep(0.01)
            assert near.lost == [None]

        world.run(story())


def test_loss_delays_and_loses_nothing() -> None:
    town = Town(5)

    async def story() -> None:
        far = await town.connected()
        town.world.link("n1", "zk").loss = 0.5
        for number in range(50):
            town.near.transport.write(b"%03d" % number)
            await asyncio.sleep(0.001)
        await asyncio.sleep(60)
        assert far.got == b"".join(b"%03d" % n for n in range(50))

    town.run(story())


def test_an_error_that_a_killed_process_had_no_time_to_look_at_is_no_problem() -> None:
    held: list[asyncio.Future[None]] = []

    async def victim() -> None:
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.exception())
        held.append(future)
        del future
        await asyncio.sleep(100)

    async def story() -> None:
        host = world.host("a")
        host.run(victim(), "victim")
        await asyncio.sleep(1)
        held.pop().set_exception(ValueError("unseen"))
        host.crash()

    with World(1) as world:
        world.run(story())

    assert world.problems == []
