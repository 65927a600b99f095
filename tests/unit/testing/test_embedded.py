"""The embedded server for tests: its life, and each fault that can be ordered from it."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NoAuthError
from tests.conformance.raw import Closed, RawClient
from tests.waiting import eventually, wait_until

import incumbent
from incumbent import aio
from incumbent.errors import FateUnknown
from incumbent.testing import EmbeddedServer
from incumbent.wire import (
    Create,
    CreateFlag,
    Delete,
    Err,
    Exists,
    GetData,
    Multi,
    Op,
    Ping,
    SetData,
)


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@contextlib.contextmanager
def kazoo(server: EmbeddedServer, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(server.hosts, timeout=10.0, **options)
    client.start(15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def raw(server: EmbeddedServer) -> RawClient:
    return RawClient.connected(server.host, server.port)


# -- its life


def test_it_serves_kazoo_and_our_client(server: EmbeddedServer) -> None:
    with kazoo(server) as theirs, incumbent.connect(server.hosts) as ours:
        theirs.create("/a", b"1")

        assert ours.get("/a")[0] == b"1"
        assert set(server.sessions) == {theirs.client_id[0], ours.session_id}


async def test_it_serves_inside_an_event_loop() -> None:
    async with EmbeddedServer() as server, aio.connect(server.hosts) as zk:
        await zk.create("/a", b"1")

        assert (await zk.get("/a"))[0] == b"1"


def test_a_restart_keeps_port_znodes_and_sessions(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        session, port = client.client_id[0], server.port
        client.create("/e", b"", ephemeral=True)

        server.restart()

        assert client.retry(client.exists, "/e").owner_session_id == session
        assert server.port == port


def test_while_stopped_connections_are_refused_and_the_port_stays_ours(
    server: EmbeddedServer,
) -> None:
    server.stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port), 5)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((server.host, server.port))
    server.start()
    with raw(server) as client:
        assert client.call(Exists("/", False)).err == 0


def test_two_hundred_run_side_by_side() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedServer()) for _ in range(200)]
        clients = [stack.enter_context(raw(server)) for server in servers]

        for i, client in enumerate(clients):
            assert client.call(Create("/mine", str(i).encode())).err == 0

        assert len({server.port for server in servers}) == 200
        for i, client in enumerate(clients):
            assert client.call(GetData("/mine", False)).value.data == str(i).encode()


def test_nothing_is_left_of_a_closed_server() -> None:
    def kept() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    with EmbeddedServer():
        pass
    before = kept()
    with EmbeddedServer() as server, raw(server):
        pass

    assert kept() == before


# -- mishaps of single requests


def test_a_lost_reply_was_carried_out_and_kazoo_cannot_know(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        client.ensure_path("/q")
        order = server.lose_reply(op="create", path="/q/*", nth=2)
        client.create("/q/first")

        with pytest.raises(ConnectionLoss):
            client.create("/q/second")

        assert order.happened == 1
        assert sorted(client.retry(client.get_children, "/q")) == ["first", "second"]
        client.create("/q/third")


def test_a_lost_reply_is_a_fate_unknown_of_ours(server: EmbeddedServer) -> None:
    with incumbent.connect(server.hosts) as zk:
        server.lose_reply(op=Op.CREATE2)
        server.lose_reply(op=Op.CREATE)

        with pytest.raises(FateUnknown):
            zk.create("/a")

        assert zk.exists("/a") is not None


def test_a_lost_request_was_not_carried_out(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        server.lose_request(op="create", path="/a")

        with pytest.raises(ConnectionLoss):
            client.create("/a")

        assert client.retry(client.exists, "/a") is None


def test_a_refused_request_changes_nothing_and_keeps_its_place(server: EmbeddedServer) -> None:
    with raw(server) as client:
        client.call(Create("/a", b"old"))
        server.refuse(Err.NO_AUTH, op="set_data", path="/a")

        before, refused, after = client.flight(
            [Exists("/a", False), SetData("/a", b"new", -1), GetData("/a", False)]
        )

        assert (before.err, refused.err, after.value.data) == (0, Err.NO_AUTH, b"old")
        assert client.call(SetData("/a", b"new", -1)).err == 0, "it was ordered once"


def test_a_refusal_is_kazoos_exception(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        with server.refuse(Err.NO_AUTH, times=1_000_000), pytest.raises(NoAuthError):
            client.get_children("/")

        assert client.get_children("/") == ["zookeeper"], "the order ended with its block"


def test_an_order_of_one_session_befalls_no_other(server: EmbeddedServer) -> None:
    with raw(server) as one, raw(server) as other:
        server.refuse(Err.NO_NODE, session_id=one.session_id, op="exists")

        assert other.call(Exists("/", False)).err == 0
        assert one.call(Exists("/", False)).err == Err.NO_NODE


def test_a_multi_is_met_by_any_of_its_paths(server: EmbeddedServer) -> None:
    with raw(server) as client:
        server.refuse(Err.NO_AUTH, op="multi", path="/b")

        assert client.call(Multi([Create("/a"), Create("/b")])).err == Err.NO_AUTH
        assert client.call(Exists("/a", False)).err == Err.NO_NODE


def test_a_late_request_holds_up_those_behind_it_and_no_other_connection(
    server: EmbeddedServer,
) -> None:
    with raw(server) as slow, raw(server) as quick:
        order = server.delay(0.3, op="create")
        began_at = time.monotonic()
        slow.submit(Create("/late"))
        slow.submit(Ping(), xid=-2)
        order.wait()

        assert quick.call(Exists("/late", False)).err == Err.NO_NODE
        slow.reply()
        slow.reply()
        assert time.monotonic() - began_at >= 0.3
        assert quick.call(Exists("/late", False)).err == 0


def test_a_wait_for_what_does_not_happen_says_so(server: EmbeddedServer) -> None:
    order = server.lose_reply(op="delete", path="/a")

    with pytest.raises(TimeoutError, match="reply lost on /a"):
        order.wait(0.01)


def test_an_operation_that_is_none_is_refused(server: EmbeddedServer) -> None:
    with pytest.raises(ValueError, match="'creat' is no operation; there are add_watch, auth,"):
        server.lose_reply(op="creat")


# -- of connections


def test_a_dropped_connection_comes_back_with_its_session(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        session = client.client_id[0]
        states: list[str] = []
        client.add_listener(states.append)

        assert server.drop(session) == 1

        wait_until(lambda: states == [KazooState.SUSPENDED, KazooState.CONNECTED])
        assert client.client_id[0] == session


def test_what_goes_into_a_black_hole_is_neither_carried_out_nor_answered_until_it_heals(
    server: EmbeddedServer,
) -> None:
    with raw(server) as lost, raw(server) as other:
        hole = server.black_hole(lost.session_id, direction="in")
        lost.submit(Create("/a"))
        lost.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            lost.reply()
        assert other.call(Exists("/a", False)).err == Err.NO_NODE

        hole.heal()

        lost.socket.settimeout(10)
        assert lost.reply().err == 0


def test_what_comes_out_of_a_black_hole_is_nothing_though_all_is_carried_out(
    server: EmbeddedServer,
) -> None:
    with raw(server) as lost, raw(server) as other:
        with server.black_hole(lost.session_id, direction="out"):
            lost.submit(Create("/a"))
            wait_until(lambda: other.call(Exists("/a", False)).err == 0)
            lost.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                lost.reply()

        lost.socket.settimeout(10)
        assert lost.reply().err == 0


@pytest.mark.parametrize("tick", [0.1])
def test_a_session_in_a_black_hole_expires_and_the_client_hears_of_it_later(tick: float) -> None:
    with EmbeddedServer(tick=tick) as server, raw(server) as lost:
        lost.call(Create("/e", flags=CreateFlag.EPHEMERAL))
        with server.black_hole(lost.session_id), raw(server) as other:
            wait_until(lambda: other.call(Exists("/e", False)).err == Err.NO_NODE)
            lost.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                lost.receive()
            other.close()

        lost.socket.settimeout(10)
        with pytest.raises(Closed):
            lost.receive()


def test_new_connections_fall_into_a_hole_that_is_everybodys(server: EmbeddedServer) -> None:
    with server.black_hole():
        client = KazooClient(server.hosts, timeout=1.0)
        with pytest.raises(client.handler.timeout_exception):
            client.start(0.5)
        client.stop()
        client.close()

    with raw(server) as after:
        assert after.call(Exists("/", False)).err == 0


# -- of sessions


def test_an_expired_session_is_lost_at_once_with_its_ephemerals(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        session = client.client_id[0]
        client.create("/e", ephemeral=True)
        states: list[str] = []
        client.add_listener(states.append)

        server.expire(session)

        assert session not in server.sessions
        wait_until(lambda: KazooState.LOST in states)
        wait_until(lambda: states[-1] == KazooState.CONNECTED)
        assert client.client_id[0] != session
        assert client.exists("/e") is None


def test_who_has_no_session_cannot_lose_it(server: EmbeddedServer) -> None:
    with pytest.raises(KeyError):
        server.expire(1)


def test_held_ephemerals_outlive_their_session(server: EmbeddedServer) -> None:
    with raw(server) as client, raw(server) as closing, raw(server) as other:
        client.call(Create("/e", flags=CreateFlag.EPHEMERAL))
        closing.call(Create("/f", flags=CreateFlag.EPHEMERAL))
        with server.hold_ephemerals():
            server.expire(client.session_id)
            with kazoo(server) as third:
                third.create("/g", ephemeral=True)
            stat = other.call(Exists("/e", True)).value
            assert stat.ephemeralOwner == client.session_id
            assert client.session_id not in server.sessions
            assert other.call(Exists("/g", False)).err == 0
            server.restart()
            other = raw(server)
            assert other.call(Exists("/e", True)).err == 0

        assert other.event().path == "/e"
        assert other.call(Exists("/g", False)).err == Err.NO_NODE
        assert other.call(Exists("/f", False)).err == 0, "its session lives"
        other.close()


def test_ephemerals_held_when_the_server_stops_go_when_it_starts(server: EmbeddedServer) -> None:
    with raw(server) as client, server.hold_ephemerals():
        client.call(Create("/e", flags=CreateFlag.EPHEMERAL))
        server.expire(client.session_id)
        server.stop()

    server.start()

    with raw(server) as other:
        assert other.call(Exists("/e", False)).err == Err.NO_NODE


# -- of the server


def test_a_preset_counter_goes_on_from_there_also_after_a_restart(server: EmbeddedServer) -> None:
    with kazoo(server) as client:
        client.create("/q")
        client.create("/q/a-", sequence=True)
        server.preset_counter("/q", 2**31 - 3)

        names = [client.create("/q/a-", sequence=True) for _ in range(2)]
        server.restart()
        names.append(client.retry(client.create, "/q/b-", sequence=True))

        assert names == ["/q/a-2147483645", "/q/a-2147483646", "/q/b-2147483647"]
        assert client.exists("/q").numChildren == 4
        with pytest.raises(KeyError):
            server.preset_counter("/none", 1)


def test_a_stalled_server_answers_nothing_and_expires_nobody() -> None:
    with EmbeddedServer(tick=0.1) as server, raw(server) as client:
        client.call(Create("/e", flags=CreateFlag.EPHEMERAL))
        client.socket.settimeout(3.0)

        with server.stalled():
            client.submit(Delete("/nothing", -1))
            with pytest.raises(TimeoutError):
                client.reply()
            with pytest.raises(AssertionError, match="stalled"):
                server.drop()

        assert client.reply().err == Err.NO_NODE
        assert client.call(Exists("/e", False)).err == 0, "its session had 2 seconds at most"


def test_a_stall_ends_with_the_server() -> None:
    with EmbeddedServer() as server:
        server.stall()

    assert not server.is_running


def test_a_stall_makes_kazoo_suspend(server: EmbeddedServer) -> None:
    client = KazooClient(server.hosts, timeout=4.0)
    client.start(10)
    try:
        states: list[str] = []
        client.add_listener(states.append)
        with server.stalled():
            wait_until(lambda: KazooState.SUSPENDED in states)
        wait_until(lambda: states[-1] != KazooState.SUSPENDED)
    finally:
        client.stop()
        client.close()


def test_four_letter_words_pass_the_line(server: EmbeddedServer) -> None:
    with socket.create_connection((server.host, server.port), 5) as s:
        s.sendall(b"srvr")
        told = b""
        while chunk := s.recv(4096):
            told += chunk

    assert b"Mode: standalone" in told


async def test_watches_of_our_client_survive_a_drop(server: EmbeddedServer) -> None:
    async with aio.connect(server.hosts) as zk:
        await zk.create("/w")
        server.drop()

        async def is_there() -> bool:
            return await zk.exists("/w") is not None

        assert await eventually(is_there)
