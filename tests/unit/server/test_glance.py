"""A slow commit delays those who write and those who read what was written, nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.server.desk import Desk
from tests.unit.server.live import Client, connect, running
from tests.waiting import eventually

from incumbent.server import MemoryStore, Server
from incumbent.server.connection import Connection
from incumbent.server.glance import Glance, only_reads
from incumbent.wire import (
    OPEN_ACL,
    Check,
    Create,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Ping,
    ReplyHeader,
    Request,
    SetData,
    Sync,
    frame,
)


class Gate(MemoryStore):
    """A store whose commits take until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def commit(self, batch: tuple) -> None:  # type: ignore[type-arg]
        await self.is_open.wait()
        await super().commit(batch)


@pytest.fixture
async def store() -> Gate:
    return Gate()


@pytest.fixture
async def server(store: Gate) -> AsyncIterator[Server]:
    async with running(store) as server:
        client = await connect(server)
        for path in ("/a", "/a/b", "/c"):
            assert (await client.call(Create(path))).err == 0
        client.writer.close()
        yield server
        store.is_open.set()


async def begin(server: Server, store: Gate, write: Request) -> Client:
    """A client whose write is being committed."""
    writer = await connect(server)
    store.is_open.clear()
    writer.send(write)
    await eventually(lambda: server._beside.is_committing)
    return writer


async def test_pings_and_reads_elsewhere_do_not_wait(server: Server, store: Gate) -> None:
    reader = await connect(server)
    shown = await reader.call(Ping())
    writer = await begin(server, store, SetData("/a", b"new"))

    reader.send(Ping(), GetData("/a/b"), Exists("/c", True), GetChildren("/c"), Exists("/no"))
    reader.send(Multi([Check("/c"), Check("/c", 7)]), Ping())
    replies = [await reader.reply() for _ in range(7)]

    assert server._beside.is_committing
    assert [reply.err for reply in replies] == [0, 0, 0, 0, -101, 0, 0]
    assert {reply.zxid for reply in replies} == {shown.zxid + 1}  # that of the writer's session
    store.is_open.set()
    assert (await writer.reply()).zxid == shown.zxid + 2


@pytest.mark.parametrize(
    "read",
    [
        Exists("/a/n"),
        GetChildren("/a"),
        GetData("/a"),
        Multi([Check("/a")]),
        Multi([Check("/c"), Check("/a/n")]),
        Sync("/c"),
    ],
    ids=str,
)
async def test_what_would_show_the_commit_waits_for_it(
    server: Server, store: Gate, read: Request
) -> None:
    reader = await connect(server)
    writer = await begin(server, store, Create("/a/n"))

    reader.send(Ping())
    assert (await reader.reply()).err == 0
    reader.send(read, Ping())
    await asyncio.sleep(0.05)

    assert reader.reader._buffer == b""  # type: ignore[attr-defined]
    store.is_open.set()
    replies = [await reader.reply() for _ in range(2)]
    assert [reply.xid for reply in replies] == [1, -2]
    assert {reply.zxid for reply in replies} == {(await writer.reply()).zxid}


async def test_a_reply_never_overtakes_another_of_its_connection(
    server: Server, store: Gate
) -> None:
    writer = await begin(server, store, SetData("/a", b"new"))

    writer.send(Ping(), GetData("/c"))
    await asyncio.sleep(0.05)

    assert writer.reader._buffer == b""  # type: ignore[attr-defined]
    store.is_open.set()
    assert [(await writer.reply()).xid for _ in range(3)] == [1, -2, 2]


async def test_a_ping_overtakes_an_event_that_waits(server: Server, store: Gate) -> None:
    watcher = await connect(server)
    await watcher.call(GetData("/a", True))
    await begin(server, store, SetData("/a", b"new"))

    watcher.send(Ping())

    assert (await watcher.reply()).xid == -2
    store.is_open.set()
    assert (await watcher.reply()).xid == -1


async def test_a_watch_set_beside_a_commit_sees_the_next_one(server: Server, store: Gate) -> None:
    watcher = await connect(server)
    await begin(server, store, SetData("/a", b"new"))
    await watcher.call(GetData("/c", True))

    store.is_open.set()
    other = await connect(server)
    await other.call(SetData("/c", b"new"))

    assert (await watcher.reply()).xid == -1


async def test_each_request_is_shown_once_whenever_it_is_answered(
    server: Server, store: Gate
) -> None:
    seen: list[str] = []
    reader = await connect(server)
    server.on_request = lambda _, request: seen.append(type(request).__name__)
    await begin(server, store, SetData("/a", b"new"))

    reader.send(Ping(), GetData("/a"), Ping())
    await reader.reply()
    store.is_open.set()
    await reader.reply()
    await reader.reply()

    assert sorted(seen) == ["GetData", "Ping", "Ping", "SetData"]


async def test_what_comes_together_with_a_write_of_another_is_not_held_up_by_it(
    server: Server, store: Gate
) -> None:
    writer, reader, second = [await connect(server) for _ in range(3)]
    for client in (writer, reader, second):
        await client.call(Ping())
    store.is_open.clear()

    # All in one turn, since the loop does not come round in between.
    (theirs,) = [c for c in server._connections if c.session_id == writer.session.session_id]
    for client, request in ((reader, Ping()), (writer, SetData("/a", b"")), (second, Ping())):
        (mine,) = [c for c in server._connections if c.session_id == client.session.session_id]
        mine.data_received(frame(request.encode(1)))

    assert (await reader.reply()).xid == -2
    assert (await second.reply()).xid == -2
    assert server._beside.is_committing
    assert len(theirs.out) == 1
    store.is_open.set()
    assert (await writer.reply()).xid == 1


async def test_those_who_read_and_then_write_share_a_commit(server: Server, store: Gate) -> None:
    clients = [await connect(server) for _ in range(3)]
    before = store.commits
    flight = frame(GetData("/a").encode(1)) + frame(SetData("/a", b"new").encode(2))

    for client in clients:
        (mine,) = [c for c in server._connections if c.session_id == client.session.session_id]
        mine.data_received(flight)
    replies = [await client.reply() for client in clients for _ in range(2)]

    assert [reply.err for reply in replies] == [0] * 6
    assert store.commits == before + 1


async def test_a_ping_is_answered_as_it_comes_unless_it_would_reveal_a_commit(
    server: Server, store: Gate
) -> None:
    client = await connect(server)
    (mine,) = [c for c in server._connections if c.session_id == client.session.session_id]

    mine.data_received(frame(Ping().encode(-2)))

    assert not mine.queue
    durable = (await client.reply()).zxid + 1  # the writer's session
    writer = await begin(server, store, SetData("/a", b"new"))
    mine.data_received(frame(Ping().encode(-2)))
    assert mine.queue
    assert (await client.reply()).zxid == durable
    store.is_open.set()
    assert (await writer.reply()).zxid == durable + 1
    assert (await client.call(Ping())).zxid == durable + 1


def test_between_the_pieces_of_a_sessions_end_only_what_it_leaves_alone_is_answered() -> None:
    desk = Desk()
    dying, watcher, other = desk.peer(timeout_ms=4000), desk.peer(), desk.peer()
    desk.call(watcher, Create("/e"))
    for n in range(2500):
        desk.call(dying, Create(f"/e/{n}", b"", OPEN_ACL, 1))
        desk.call(watcher, Exists(f"/e/{n}", True))
    overdue = desk.pass_time_until_one_is_overdue()
    service, zxid = desk.service, desk.service.tree.zxid
    pauses = 0

    for transaction in service.expire(overdue):
        pauses += 1
        glance = Glance(service, (transaction,))
        assert glance.answer(other, Ping().encode(7)) == frame(ReplyHeader(-2, zxid, 0).encode())
        assert glance.answer(other, GetData("/zookeeper").encode(7)) is not None
        assert glance.answer(other, Exists("/e").encode(7)) is None
        assert glance.answer(other, Exists("/e/2499").encode(7)) is None

    assert pauses > 3
    assert [transaction.zxid for transaction in service.transactions] == [zxid + 1]
    assert len(desk.events(watcher)) == 2500
    assert not service.tree.nodes["/e"].children


async def test_a_ping_comes_back_while_a_large_session_is_being_ended() -> None:
    store = MemoryStore()
    async with running(store, tick=0.5) as server:
        dying, other = await connect(server, 1000), await connect(server, 10_000)
        await other.call(Create("/e"))
        for at in range(0, 10_000, 500):
            dying.send(*[Create(f"/e/{n}", b"", OPEN_ACL, 1) for n in range(at, at + 500)])
            for _ in range(500):
                assert (await dying.reply()).err == 0
        for _turn in range(1_000_000):
            if server._beside.is_committing:
                break
            await asyncio.sleep(0)
        commits = store.commits

        pong = await other.call(Ping())

        assert store.commits == commits, "it came after the end"
        assert (await other.call(Exists("/e/1"))).zxid == pong.zxid + 1


@pytest.mark.parametrize(
    ("asked", "is_reading"),
    [
        ((GetData("/a"),), True),
        ((Exists("/a"), GetChildren("/")), True),
        ((GetData("/a"), SetData("/a", b"")), False),
        ((Multi([Check("/a", 0)]),), False),
    ],
)
def test_whoever_asks_for_anything_but_reads_is_put_off_for_company(
    asked: tuple[Request, ...], is_reading: bool
) -> None:
    bodies = [each.encode(1) for each in asked]
    connection = cast(Connection, SimpleNamespace(queue=bodies))

    assert only_reads(connection) is is_reading
