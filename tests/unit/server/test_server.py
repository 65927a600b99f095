"""The pipeline over real sockets: what is seen when, and what happens when the store fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

from tests.unit.server.desk import HandClock
from tests.unit.server.live import Client, connect, running
from tests.waiting import eventually

from incumbent.server import Batch, MemoryStore, Server, StoreFailed
from incumbent.wire import (
    OPEN_ACL,
    Create,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Ping,
    Request,
    SetData,
)


class GatedStore(MemoryStore):
    """Commits wait until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit(self, batch: Batch) -> None:
        await self.gate.wait()
        await super().commit(batch)


async def word(server: Server, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(text[:2])
    await writer.drain()
    writer.write(text[2:])
    return await asyncio.wait_for(reader.read(), 10)


async def test_nothing_that_reveals_a_transaction_leaves_before_it_is_durable() -> None:
    """Neither its reply, nor another connection's read, nor an event, nor a counter."""
    store = GatedStore()
    async with running(store) as server:
        writer, reader, watcher = [await connect(server) for _ in range(3)]
        await watcher.call(Exists("/a", True))
        before = await word(server, b"srvr")
        store.gate.clear()

        writer.send(Create("/a"))
        await eventually(lambda: server._beside.is_committing)
        reader.send(Exists("/a"))
        srvr = asyncio.create_task(word(server, b"srvr"))
        first = [asyncio.create_task(c.reader.read(1)) for c in (writer, reader, watcher)]
        done, _ = await asyncio.wait([srvr, *first], timeout=0.2)

        assert not done
        assert b"Zxid: 0x3\n" in before
        store.gate.set()
        assert b"Zxid: 0x4\n" in await srvr
        assert all([await one for one in first])


async def test_a_write_that_failed_is_never_acknowledged_and_never_was() -> None:
    store, log = MemoryStore(), []
    async with running(store, log=log.append) as server:
        client = await connect(server)
        assert (await client.call(Create("/kept"))).err == 0
        store.failing = lambda number: True

        client.send(Create("/lost"), Exists("/lost"), Ping())

        assert await client.ended()
        assert "ALARM: cannot write" in log[-1]
        again = await connect(
            server, session_id=client.session.session_id, password=client.session.password
        )
        assert again.session.session_id == client.session.session_id
        assert (await again.call(Exists("/kept"))).err == 0
        assert (await again.call(Exists("/lost"))).err == -101
        assert (await again.call(Create("/more"))).err == -1


async def test_writes_are_accepted_again_once_the_store_works() -> None:
    store, log = MemoryStore(), []
    async with running(store, log=log.append) as server:
        client = await connect(server)
        store.failing = lambda number: True
        client.send(Create("/lost"))
        assert await client.ended()

        store.failing = None
        await eventually(lambda: "writing works again" in log[-1])

        again = await connect(
            server, session_id=client.session.session_id, password=client.session.password
        )
        assert (await again.call(Create("/found"))).err == 0
    assert store.load().tree.zxid == 3  # the session, the attempt that worked, the create


async def test_one_failed_commit_costs_no_more_than_a_moment() -> None:
    times: dict[str, float] = {}

    def log(line: str) -> None:
        times[line.partition(" ")[0]] = asyncio.get_running_loop().time()

    store = MemoryStore(failing=lambda number: number == 2)
    async with running(store, log=log) as server:
        client = await connect(server)
        client.send(Create("/lost"))
        assert await client.ended()

        await eventually(lambda: "writing" in times)

        assert times["writing"] - times["ALARM:"] < 0.5
        assert (await (await connect(server)).call(Create("/a"))).err == 0


async def test_a_store_that_goes_on_failing_is_tried_ever_more_rarely_but_once_a_second() -> None:
    store, log = MemoryStore(), []
    async with running(store, log=log.append) as server:
        client = await connect(server)
        store.failing = lambda number: True
        client.send(Create("/lost"))
        assert await client.ended()
        tried: list[float] = []
        store.failing = lambda number: not tried.append(asyncio.get_running_loop().time())

        await eventually(lambda: len(tried) >= 8)

        gaps = [after - before for before, after in itertools.pairwise(tried)]
        assert gaps[0] < 0.5
        assert 0.9 < gaps[-1] < 2.0
        assert sum("ALARM" in line for line in log) == 1


async def test_each_commit_may_fail_and_what_was_acknowledged_is_there() -> None:
    """The first, second, third… fails, until a run needs no more commits than that."""
    for failing in range(1, 20):
        store = MemoryStore(failing=lambda number, failing=failing: number == failing)
        acknowledged: list[str] = []
        async with running(store) as server:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                client = await connect(server)
                for n in range(6):
                    if (await client.call(Create(f"/{n}"))).err == 0:
                        acknowledged.append(f"/{n}")

        kept = [path for path in store.load().tree.nodes if path[1:].isdigit()]

        assert kept == acknowledged
        if store.commits < failing:
            return
    raise AssertionError("it never ran without a failure")


async def test_a_store_that_cannot_be_read_either_turns_connections_away_until_it_can() -> None:
    store, log = MemoryStore(), []
    async with running(store, log=log.append) as server:
        client = await connect(server)
        load = store.load

        def broken() -> object:
            raise StoreFailed("memory", "gone")

        store.failing = lambda number: True
        store.load = broken  # type: ignore[method-assign, assignment]
        client.send(Create("/lost"))
        assert await client.ended()
        stranger = Client(*await asyncio.open_connection(server.host, server.port))
        assert await stranger.ended()

        store.failing, store.load = None, load  # type: ignore[method-assign]

        await eventually(lambda: "writing works again" in log[-1])
        assert (await (await connect(server)).call(Create("/a"))).err == 0


async def test_a_silent_session_expires_and_a_pinging_one_does_not() -> None:
    store = MemoryStore()
    async with running(store, tick=0.05) as server:
        silent, pinging = await connect(server, 100), await connect(server, 100)
        await silent.call(Create("/e", b"", OPEN_ACL, 1))

        async def gone() -> bool:
            return (await pinging.call(Exists("/e"))).err == -101

        await eventually(gone)

        assert await silent.ended()
        assert (await pinging.call(Ping())).err == 0
        refused = await connect(
            server, session_id=silent.session.session_id, password=silent.session.password
        )
        assert refused.session.session_id == 0


async def test_sessions_outlive_the_server() -> None:
    store = MemoryStore()
    async with running(store) as server:
        client = await connect(server)
        await client.call(Create("/e", b"", OPEN_ACL, 1))

    async with running(store) as server:
        again = await connect(
            server,
            session_id=client.session.session_id,
            password=client.session.password,
            last_zxid=2,
        )

        assert again.session == client.session
        assert (await again.call(Delete("/e"))).err == 0


async def test_empty_containers_are_reaped() -> None:
    async with running(MemoryStore(), reap_every=0.05) as server:
        client = await connect(server)
        await client.call(CreateContainer("/c"))
        await client.call(Create("/c/x"))
        await client.call(Delete("/c/x"))

        async def reaped() -> bool:
            return (await client.call(Exists("/c"))).err == -101

        await eventually(reaped)


async def test_four_letter_words_may_come_in_pieces() -> None:
    async with running(MemoryStore()) as server:
        assert await word(server, b"ruok") == b"imok"
        assert b"Mode: standalone\nNode count: 5\n" in await word(server, b"srvr")


async def test_what_was_asked_before_the_end_is_answered() -> None:
    async with running(MemoryStore()) as server:
        client = await connect(server)
        client.send(*[Create(f"/{n}") for n in range(50)])
        client.writer.write_eof()

        errs = [(await client.reply()).err for _ in range(50)]

        assert errs == [0] * 50
        assert await client.ended()


async def test_a_client_that_does_not_read_is_not_served_without_end() -> None:
    """Its replies do not pile up in the server's memory, nor does it hold up others."""
    async with running(MemoryStore()) as server:
        client, other = await connect(server), await connect(server)
        size = 500_000
        await client.call(SetData("/", b"x" * size))
        client.reader._limit = 1024  # type: ignore[attr-defined]
        client.send(*[GetData("/")] * 1000)

        await other.call(Create("/a"))
        await other.call(Create("/b"))

        (slow,) = [c for c in server._connections if c.session_id == client.session.session_id]
        assert slow._transport is not None
        assert slow._transport.get_write_buffer_size() < 4 * size
        assert len(slow.queue) > 900
        for _ in range(1000):
            assert (await client.reply()).err == 0


async def test_the_same_requests_give_the_same_bytes() -> None:
    """With the clock and the randomness given, nothing else decides."""

    async def one() -> list[bytes]:
        clock = HandClock()
        async with running(MemoryStore(), clock=clock, rng=random.Random(5)) as server:
            client = await connect(server)
            got = [client.session.encode()]
            for n in range(20):
                client.send(Create(f"/n{n}", b"", OPEN_ACL, n % 4), GetChildren("/", True))
                got += [await client.receive(), await client.receive()]
            return got

    assert await one() == await one()


async def test_each_request_is_shown_to_whoever_asks() -> None:
    async with running(MemoryStore()) as server:
        seen: list[tuple[int, Request]] = []
        server.on_request = lambda session_id, request: seen.append((session_id, request))
        client = await connect(server)

        await client.call(Exists("/a"))

        assert seen == [(client.session.session_id, Exists("/a"))]


async def test_a_connection_without_a_session_is_closed_in_the_end() -> None:
    clock = HandClock()
    async with running(MemoryStore(), clock=clock, tick=0.02) as server:
        idle = Client(*await asyncio.open_connection(server.host, server.port))
        await eventually(lambda: any(c.idle_since for c in server._connections))

        clock.now += 11

        assert await idle.ended()
