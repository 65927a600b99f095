"""Faults that peers have shown in public, on real servers over a bad network.

Each runs on our own server and on Apache ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apache import ApacheServer, four_letters
from tests.relay import Relay, relay_to
from tests.unit.client.scripted import Peer, client_of, reached, scripted
from tests.waiting import eventually

from incumbent.client import Client, State
from incumbent.errors import (
    FateUnknown,
    NodeExists,
    NotSent,
    RemoteWireError,
    SessionExpired,
    TooLarge,
)
from incumbent.server import MemoryStore, Server
from incumbent.wire import EventType, GetChildren, Request, SetData, WatchEvent
from incumbent.wire.jute import INT

S = 2.0


@pytest.fixture(params=["ours", "apache"])
async def relay(request: pytest.FixtureRequest) -> AsyncIterator[Relay]:
    """A relay to a running server."""
    if request.param == "apache":
        apache: ApacheServer = request.getfixturevalue("apache")
        async with relay_to(apache.hosts) as it:
            yield it
        return
    server = Server(MemoryStore(), tick=0.2)
    await server.start()
    async with relay_to(f"127.0.0.1:{server.port}") as it:
        yield it
    await server.stop()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A znode for this test alone: the Apache server is shared."""
    return "/" + "".join(c if c.isalnum() else "-" for c in request.node.name)


async def direct(relay: Relay, **settings: Any) -> Client:
    """Another client, not over the relay."""
    host, port = relay._target
    client = Client(f"{host}:{port}", session_timeout=S, tick=0.0, **settings)
    await client.connect(5)
    return client


@pytest.mark.parametrize("when", ["down", "up again"])
async def test_one_shot_watches_of_each_kind_survive_a_reconnect_and_fire_once(
    relay: Relay, root: str, when: str
) -> None:
    """Whether the znodes are changed while the connection is down or when it is there again"""
    other = await direct(relay)
    async with client_of(relay.hosts, session_timeout=S) as client:
        await client.ensure(f"{root}/data")
        heard: list[WatchEvent] = []
        await client.get(f"{root}/data", watcher=heard.append)
        await client.exists(f"{root}/exist", watcher=heard.append)
        await client.children(root, watcher=heard.append)
        await client.get(f"{root}/data", watcher=lambda event: heard.append(event))
        relay.refuse()
        relay.cut()
        await reached(client, State.SUSPENDED)
        if when == "up again":
            await relay.start()
            await reached(client, State.CONNECTED)
        for _ in range(3):
            await other.set(f"{root}/data", b"new")
        await other.create(f"{root}/exist")

        if when == "down":
            await relay.start()
        await eventually(lambda: len(heard) == 4, 5)
        await other.set(f"{root}/data", b"newer")
        await other.delete(f"{root}/exist")
        await client.sync(root)

        assert sorted((event.type, event.path) for event in heard) == [
            (EventType.CREATED, f"{root}/exist"),
            (EventType.CHANGED, f"{root}/data"),
            (EventType.CHANGED, f"{root}/data"),
            (EventType.CHILD, root),
        ]
        assert len(client._watches) == 0
    await other.close()


@pytest.mark.parametrize("way", ["up", "down", "both"])
@pytest.mark.parametrize("keeps_sending", [False, True])
async def test_a_black_hole_is_lost_within_the_timeout_of_the_last_answered_beat(
    relay: Relay, root: str, way: str, keeps_sending: bool
) -> None:
    """Also while the program keeps sending"""
    async with client_of(relay.hosts, session_timeout=S) as client:
        clock = client.clock
        path = (await client.create(root, ephemeral=True)).path
        beats: list[float] = []
        client.watch_beats(beats.append)
        lost_at: list[float] = []
        client.watch_state(
            lambda state: lost_at.append(clock.boottime()) if state is State.LOST else None
        )
        with client.beat(path):
            await eventually(lambda: len(beats) >= 3, 5)
            relay.swallow_up = way in ("up", "both")
            relay.swallow_down = way in ("down", "both")

            async def send() -> None:
                while keeps_sending and not lost_at:
                    client.submit(SetData(path, b"")).add_done_callback(_hear)
                    await asyncio.sleep(0.01)

            await asyncio.gather(send(), reached(client, State.LOST))

        timeout = 4 * S  # Apache may have granted more than S
        assert client.timeout <= timeout
        assert beats[-1] + client.timeout * 0.9 < lost_at[0] <= beats[-1] + client.timeout
        relay.heal()
        await reached(client, State.CONNECTED)
        assert client.generation == 2
        # the old session was closed first: its znode is gone, or goes before we could meet it
        await client.create(path, ephemeral=True)


async def test_a_session_given_up_ends_at_the_server_though_its_answers_are_lost(
    relay: Relay, root: str
) -> None:
    """what would attach again and again, unheard, would keep it alive there"""
    other = await direct(relay)
    async with client_of(relay.hosts, session_timeout=S) as client:
        made = await client.create(root, ephemeral=True)
        gone = asyncio.Event()
        await other.exists(made.path, watcher=lambda _: gone.set())
        relay.swallow_down = True
        relay.cut()

        await reached(client, State.LOST)
        async with asyncio.timeout(20):
            await gone.wait()

        await other.create(root)
        relay.heal()
        await reached(client, State.CONNECTED)
        assert client.generation == 2
    await other.close()


@pytest.mark.parametrize("beats", [False, True])
async def test_lost_comes_by_our_clock_when_the_server_is_dead_whether_or_not_we_beat(
    relay: Relay, root: str, beats: bool
) -> None:
    async with client_of(relay.hosts, session_timeout=S) as client:
        clock = client.clock
        await client.create(root, ephemeral=beats)
        with client.beat(root) if beats else contextlib.nullcontext():
            if beats:
                await eventually(lambda: client.lease.valid_until > clock.boottime())
            answered_at = clock.boottime()
            relay.refuse()
            relay.cut()

            await reached(client, State.LOST)
            lost_at = clock.boottime()

        assert client.timeout * 0.8 < lost_at - answered_at < client.timeout + 0.5
        with pytest.raises(NotSent):
            await client.submit(SetData(root, b""), timeout=0.05)
        await relay.start()
        await client.exists(root)


async def test_an_expired_session_is_followed_by_a_new_one_whose_znodes_have_the_new_owner(
    relay: Relay, root: str
) -> None:
    """With the old ephemeral in the way until the old session is closed"""
    async with client_of(relay.hosts, session_timeout=S) as client:
        old = await client.create(root, ephemeral=True)
        client._lose("us", "a test says so")
        with pytest.raises(SessionExpired):
            client.passport  # noqa: B018

        try:
            new = await client.create(root, ephemeral=True)
        except NodeExists:
            raise AssertionError("the old session was not closed before the new one") from None

        assert new.stat.ephemeralOwner == client.session_id != old.stat.ephemeralOwner
        assert client.generation == 2


async def test_a_thousand_given_up_waits_leave_no_watcher_here_and_none_there_after_a_reconnect(
    relay: Relay, root: str
) -> None:
    async with client_of(relay.hosts, session_timeout=S) as client:

        async def wait(i: int) -> None:
            happened = asyncio.Event()

            def watcher(event: WatchEvent) -> None:
                happened.set()

            path = f"{root}/{i % 50}"
            await client.exists(path, watcher=watcher)
            try:
                async with asyncio.timeout(0.001):
                    await happened.wait()
            except TimeoutError:
                client.unwatch(path, watcher)

        for _ in range(20):
            await asyncio.gather(*(wait(i) for i in range(50)))
        assert len(client._watches) == 0

        relay.cut()
        await reached(client, State.SUSPENDED)
        await reached(client, State.CONNECTED)
        await client.sync(root)
        watched = await asyncio.to_thread(four_letters, *relay._target, "wchp")
        assert root not in watched


async def test_connections_dropped_again_and_again_end_no_session_and_lose_no_write(
    relay: Relay, root: str
) -> None:
    """an answered write is there, whatever the network did between"""
    async with client_of(relay.hosts, session_timeout=4) as client:
        await client.create(root)
        done, unknown = set(), set()

        async def write(i: int) -> None:
            try:
                await client.create(f"{root}/{i}")
                done.add(str(i))
            except FateUnknown:
                unknown.add(str(i))

        async def drop() -> None:
            for _ in range(15):
                await asyncio.sleep(0.05)
                relay.cut()

        dropping = asyncio.ensure_future(drop())
        number = 0
        while not dropping.done():
            await asyncio.gather(*(write(number + i) for i in range(20)))
            number += 20
        there = set(await client.children(root))

        assert done <= there <= done | unknown
        assert done
        assert client.generation == 1


async def test_what_is_too_large_is_a_typed_error_after_one_attempt(
    relay: Relay, root: str
) -> None:
    async with client_of(relay.hosts, session_timeout=S) as client:
        await client.create(root)
        connections = relay.connections

        with pytest.raises(TooLarge):
            await client.set(root, bytes(2_000_000))

        await client.set(root, bytes(1_000_000))
        assert len((await client.get(root))[0]) == 1_000_000
        assert relay.connections == connections


async def test_two_hundred_thousand_children_are_one_answer() -> None:
    names = [f"member-{i:020}" for i in range(200_000)]
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            isinstance(request, GetChildren) and not peer.answer(xid, request, names)
        )

        assert await client.children("/many") == names

        assert len(server.requests(GetChildren)) == 1


async def test_an_answer_beyond_all_bounds_is_refused_once_and_not_asked_for_again() -> None:
    def endless(peer: Peer, xid: int, request: Request) -> bool:
        if isinstance(request, GetChildren):
            length = bytearray()
            INT.write(length, 1 << 30)
            peer.transport.write(length)
        return isinstance(request, GetChildren)

    async with scripted() as server, client_of(server) as client:
        server.on_request = endless
        with pytest.raises(RemoteWireError, match="the limit is"):
            await client.children("/many")

        assert len(server.requests(GetChildren)) == 1
        await client.get("/a")


def test_a_program_with_a_live_client_exits() -> None:
    program = """
        import asyncio
        from incumbent.client import Client
        from incumbent.server import MemoryStore, Server

        async def main():
            server = Server(MemoryStore())
            await server.start()
            client = Client(f"127.0.0.1:{server.port}")
            await client.connect(5)
            await client.create("/me", ephemeral=True)
            client.beat("/me").__enter__()
            print("alive", flush=True)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=20
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def _hear(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
