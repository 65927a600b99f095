"""Nobody takes more of a server than the policy gives."""

from __future__ import annotations

import asyncio

from tests.unit.server.live import connect, running
from tests.waiting import eventually

from incumbent.server import MemoryStore, Policy
from incumbent.server.limits import Limits
from incumbent.wire import AddWatch, Create, Ping, SetData


async def test_one_connection_too_many_from_an_address_is_closed_and_the_others_stay() -> None:
    log: list[str] = []
    policy = Policy(connections_per_address=3)
    async with running(MemoryStore(), policy=policy, log=log.append) as server:
        clients = [await connect(server) for _ in range(3)]

        for _ in range(2):
            _, writer = await asyncio.open_connection(server.host, server.port)
            reader = _
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

        assert (await clients[0].call(Ping())).err == 0
        assert [line for line in log if "more are turned away" in line] == log
        assert len(log) == 1
        clients.pop().writer.close()
        await eventually(lambda: len(server._connections) == 2)
        assert (await (await connect(server)).call(Ping())).err == 0


async def test_no_limit_of_connections_if_told_so() -> None:
    async with running(MemoryStore(), policy=Policy(connections_per_address=0)) as server:
        clients = [await connect(server) for _ in range(100)]

        assert (await clients[-1].call(Ping())).err == 0


async def test_a_client_that_never_reads_its_events_is_cut_off_and_nobody_else_is() -> None:
    log: list[str] = []
    policy = Policy(reply_bytes=300_000)
    async with running(MemoryStore(), policy=policy, log=log.append) as server:
        actor, deaf, listener = [await connect(server) for _ in range(3)]
        path = "/" + "x" * 200_000
        await actor.call(Create(path))
        for watcher in (deaf, listener):
            await watcher.call(AddWatch(path))
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]

        for _ in range(100):
            await actor.call(SetData(path, b""))
            assert (await listener.reply()).xid == -1
            if any("cut off" in line for line in log):
                break

        assert any("left" in line and "unread" in line for line in log)
        assert (await listener.call(Ping())).err == 0
        await eventually(lambda: len(server._connections) == 2)
        assert server._service is not None
        assert deaf.session.session_id in server._service.tree.sessions


def test_when_all_together_are_over_the_limit_the_one_with_the_most_goes() -> None:
    limits: Limits[str] = Limits(Policy(reply_bytes=100, all_reply_bytes=200), lambda line: None)

    steps = [limits.unread(*step) for step in (("a", 90), ("b", 80), ("c", 40), ("c", 50))]

    assert steps == [[], [], ["a"], []]
    assert limits.unread("b", 101) == ["b"]
    assert limits.unread("c", 0) == []
    assert limits._all_unread == 0
