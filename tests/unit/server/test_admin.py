"""Questions to a server whose disk fails or that stops; a crowd at the admin endpoint."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.server.live import connect, running
from tests.waiting import eventually

from incumbent.server import MemoryStore
from incumbent.server.admin import Admin
from incumbent.server.report import Report
from incumbent.wire import Create


def node_count(report: Report) -> str:
    return str(report.server_stats()["node_count"])


async def ask_http(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_an_answer_shows_nothing_that_is_not_durable() -> None:
    """It waits for the commit that is under way, and says what was written then."""
    store = MemoryStore()
    async with running(store) as server:
        client = await connect(server)
        store.delay = 0.2
        client.send(Create("/x"))
        await eventually(lambda: store.commits >= 2)

        answer = await asyncio.wait_for(server.ask(node_count), 10)

        assert answer == "6"
        assert (await client.reply()).err == 0


async def test_a_failed_commit_answers_with_what_is_there() -> None:
    store = MemoryStore(failing=lambda commit: commit >= 2)
    async with running(store) as server:
        client = await connect(server)
        client.send(Create("/x"))
        assert await client.ended()

        assert await asyncio.wait_for(server.ask(node_count), 10) == "5"
        is_read_only = server.ask(lambda report: str(report.is_read_only()["read_only"]))
        assert await asyncio.wait_for(is_read_only, 10) == "True"


async def test_a_stopped_server_answers_nothing() -> None:
    async with running(MemoryStore()) as server:
        pass

    with pytest.raises(ConnectionError, match="stopping"):
        await server.ask(node_count)


async def test_a_crowd_is_turned_away_and_leaves_room_when_it_goes() -> None:
    async with running(MemoryStore()) as server:
        admin = Admin(server.ask)
        await admin.start("127.0.0.1", 0)
        crowd = [await asyncio.open_connection("127.0.0.1", admin.port) for _ in range(64)]
        with contextlib.suppress(ConnectionError):
            assert await ask_http(admin.port, "/commands/ruok") == b""

        for _, writer in crowd:
            writer.close()
            await writer.wait_closed()

        async with asyncio.timeout(10):
            answer = b""
            while not answer.startswith(b"HTTP/1.1 200"):
                with contextlib.suppress(ConnectionError):
                    answer = await ask_http(admin.port, "/commands/ruok")
        admin.stop()


async def test_a_server_that_cannot_answer_is_503() -> None:
    async with running(MemoryStore()) as server:
        pass
    admin = Admin(server.ask)
    await admin.start("127.0.0.1", 0)

    answer = await ask_http(admin.port, "/metrics")

    admin.stop()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b"the server is stopping\n")
