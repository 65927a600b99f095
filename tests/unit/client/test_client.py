"""What a client does with answers, lost answers and silence; against a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.scripted import STAT, Peer, ShiftedClock, client_of, reached, scripted
from tests.waiting import eventually

from incumbent.client import Client, Passport, State
from incumbent.errors import (
    AuthFailed,
    BadVersion,
    ConnectTimeout,
    FateUnknown,
    NodeExists,
    NoNode,
    NotSent,
    Refused,
    SessionClosed,
    SessionExpired,
    SessionMoved,
    TooLarge,
)
from incumbent.wire import (
    AuthPacket,
    Check,
    CloseSession,
    ConnectResponse,
    Create,
    Create2,
    Delete,
    Err,
    EventType,
    Exists,
    GetData,
    KeeperState,
    Multi,
    Op,
    OpError,
    Ping,
    RemoveWatches,
    ReplyHeader,
    Request,
    SetData,
    SetWatches,
    WatchEvent,
    frame,
)


def changed(path: str, kind: EventType = EventType.CHANGED) -> WatchEvent:
    return WatchEvent(kind, KeeperState.CONNECTED, path)


SESSION_OVER = WatchEvent(EventType.NONE, KeeperState.EXPIRED, "")


# -- requests and their outcomes -----------------------------------------------------------------


async def test_requests_of_one_turn_leave_in_one_flight_in_order() -> None:
    async with scripted() as server, client_of(server) as client:
        flight = [client.submit(SetData(f"/{i}", b"")) for i in range(50)]
        await asyncio.gather(*flight)

        assert [request.path for request in server.requests(SetData)] == [
            f"/{i}" for i in range(50)
        ]


async def test_who_asks_is_told_in_the_moment_of_the_answer_the_value_or_the_error() -> None:
    async with scripted() as server, client_of(server) as client:
        told: list[Any] = []

        client.ask(GetData("/a"), told.append)
        await eventually(lambda: told)
        assert told.pop() == (b"", STAT)

        server.on_request = lambda peer, xid, request: _refuse(peer, xid, request, Err.NO_NODE)
        client.ask(GetData("/a"), told.append)
        await eventually(lambda: told)
        assert isinstance(told.pop(), NoNode)
        server.on_request = lambda *_: False
    client.ask(GetData("/a"), told.append)
    assert isinstance(told.pop(), SessionClosed), "at once"


async def test_who_is_told_and_fails_harms_nobody() -> None:
    log: list[str] = []
    async with scripted() as server, client_of(server, log=log.append) as client:

        def fail(outcome: object) -> None:
            raise ValueError("a stranger's mistake")

        client.ask(GetData("/a"), fail)
        beside = client.submit(SetData("/b", b""))
        await beside
        assert any("a stranger's mistake" in line for line in log)

        server.on_request = lambda *_: True
        client.ask(SetData("/a", b""), fail)
        late = client.submit(SetData("/b", b""), timeout=5)
        server.on_request = _drop_at(SetData)
        client.ask(SetData("/c", b""), fail)
        with pytest.raises(FateUnknown):
            await late
        server.on_request = lambda *_: False
        await client.get("/a")
        assert (client.generation, len(log) >= 3) == (1, True)


async def test_an_overdue_answer_whose_asker_fails_does_not_stop_the_watch_on_deadlines() -> None:
    async with (
        scripted() as server,
        client_of(server, request_timeout=0.2, session_timeout=60.0) as client,
    ):

        def fail(outcome: object) -> None:
            raise ValueError("a stranger's mistake")

        server.on_request = lambda *_: True
        client.ask(SetData("/a", b""), fail)
        for _ in range(2):
            async with asyncio.timeout(5):
                with pytest.raises(FateUnknown):
                    await client.set("/b", b"")
        server.on_request = lambda *_: False


async def test_who_asked_and_cancelled_is_not_told_and_what_was_not_sent_never_is() -> None:
    async with scripted() as server, client_of(server) as client:
        told: list[Any] = []

        client.ask(GetData("/unsent"), told.append).cancel()
        sent = client.ask(GetData("/sent", watch=True), told.append, watcher=told.append)
        client.flush()
        sent.cancel()
        await client.get("/a")
        await eventually(lambda: server.requests(RemoveWatches))

        assert told == []
        assert [each.path for each in server.requests(GetData)] == ["/sent", "/a"]
        assert [each.path for each in server.requests(RemoveWatches)] == ["/sent"]
        assert len(client._watches) == 0


async def test_a_refusal_is_typed_and_names_the_path() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: _refuse(peer, xid, request, Err.BAD_VERSION)

        with pytest.raises(BadVersion) as caught:
            await client.set("/a", b"x", 3)

        assert caught.value.path == "/a"


async def test_an_unknown_error_code_is_a_plain_refusal_and_the_connection_stays() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: _refuse(peer, xid, request, -999)

        with pytest.raises(Refused) as caught:
            await client.get("/a")

        assert caught.value.code == -999
        assert client.state is State.CONNECTED


async def test_a_refused_multi_names_the_operation_that_was_refused() -> None:
    async with scripted() as server, client_of(server) as client:

        def refuse_second(peer: Peer, xid: int, request: Request) -> bool:
            errors = [OpError(0), OpError(Err.NO_NODE), OpError(Err.RUNTIME_INCONSISTENCY)]
            peer.answer(xid, request, [(Op.ERROR, error) for error in errors])
            return True

        server.on_request = refuse_second
        with pytest.raises(NoNode) as caught:
            await client.multi([Check("/a"), Delete("/b"), Create("/c")])
        server.on_request = lambda *_: False

        assert (caught.value.index, caught.value.path) == (1, "/b")


async def test_a_write_whose_connection_drops_has_an_unknown_fate() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = _drop_at(SetData)

        with pytest.raises(FateUnknown):
            await client.set("/a", b"x")

        server.on_request = lambda *_: False
        await client.get("/a")
        assert len(server.requests(SetData)) == 1


async def test_a_read_whose_connection_drops_is_asked_again() -> None:
    async with scripted() as server, client_of(server) as client:
        drops = iter([True, True, False])
        server.on_request = lambda peer, xid, request: (
            isinstance(request, GetData) and next(drops) and _close(peer)
        )

        assert await client.get("/a") == (b"", STAT)

        assert len(server.requests(GetData)) == 3


async def test_a_request_without_a_connection_is_sent_after_the_next_attach_in_order() -> None:
    async with scripted() as server, client_of(server) as client:
        server.peer.reset()
        await eventually(lambda: client.state is State.SUSPENDED, 2)
        flight = [client.submit(SetData(f"/{i}", b"")) for i in range(5)]

        await asyncio.gather(*flight)

        assert [request.path for request in server.requests(SetData)] == [f"/{i}" for i in range(5)]


async def test_a_request_that_found_no_connection_in_time_was_not_sent() -> None:
    async with scripted() as server, client_of(server, session_timeout=10) as client:
        server.stop()
        await eventually(lambda: client.state is State.SUSPENDED, 2)

        with pytest.raises(NotSent) as caught:
            await client.submit(SetData("/a", b""), timeout=0.05)

        assert "refused" in str(caught.value)
        assert server.requests(SetData) == []


async def test_a_request_without_an_answer_in_time_has_an_unknown_fate() -> None:
    async with scripted() as server, client_of(server, session_timeout=20) as client:
        server.on_request = lambda peer, xid, request: isinstance(request, SetData)

        with pytest.raises(FateUnknown):
            await client.submit(SetData("/a", b""), timeout=0.05)

        assert client.state is State.CONNECTED


async def test_a_late_answer_to_a_request_that_was_given_up_harms_nobody() -> None:
    async with scripted() as server, client_of(server, session_timeout=20) as client:
        kept: list[tuple[int, Request]] = []
        server.on_request = lambda peer, xid, request: (
            isinstance(request, SetData) and not kept.append((xid, request))
        )
        with pytest.raises(FateUnknown):
            await client.submit(SetData("/a", b""), timeout=0.05)

        server.peer.answer(*kept[0])

        await client.get("/a")
        assert client.state is State.CONNECTED
        assert len(server.peers) == 1


async def test_a_cancelled_request_that_was_not_sent_is_not_sent_later() -> None:
    async with scripted() as server, client_of(server) as client:
        server.peer.reset()
        await eventually(lambda: client.state is State.SUSPENDED, 2)

        client.submit(SetData("/a", b"")).cancel()
        await client.get("/b")

        assert server.requests(SetData) == []


async def test_the_line_of_unsent_requests_is_bounded() -> None:
    async with scripted() as server, client_of(server, session_timeout=10) as client:
        server.stop()
        await eventually(lambda: client.state is State.SUSPENDED, 2)
        flight = [client.submit(SetData("/a", bytes(1_000_000))) for _ in range(40)]

        with pytest.raises(NotSent):
            await flight[-1]

        for future in flight:
            future.cancel()


async def test_what_no_server_would_accept_is_too_large_and_is_not_sent() -> None:
    async with scripted() as server, client_of(server) as client:
        with pytest.raises(TooLarge):
            await client.set("/a", bytes(2_000_000))
        with pytest.raises(TooLarge):
            await client.multi([SetData("/a", bytes(200_000)), SetData("/b", bytes(100_000))])

        await client.set("/a", bytes(300_000))
        assert [len(request.data) for request in server.requests(SetData)] == [300_000]
        assert len(server.peers) == 1


async def test_ephemeral_paths_of_one_session_are_capped_and_freed_by_deletion() -> None:
    async with scripted() as server, client_of(server) as client:
        long = "/" + "x" * 99_990
        for i in range(5):
            await client.create(f"{long}{i}", ephemeral=True)

        with pytest.raises(TooLarge):
            await client.create(f"{long}5", ephemeral=True)
        await client.create(f"{long}5")  # persistent ones don't count
        await client.delete(f"{long}0")
        await client.create(f"{long}5", ephemeral=True)

        assert len(server.requests(Create2)) == 7


async def test_every_method_answers_at_once_before_connect_and_after_close() -> None:
    async with scripted() as server:
        client = Client(server.hosts)
        for _ in range(2):
            calls: list[Any] = [
                client.get("/a"),
                client.set("/a", b""),
                client.exists("/a"),
                client.children("/a"),
                client.create("/a"),
                client.delete("/a"),
                client.sync("/a"),
                client.ensure("/a"),
                client.multi([Check("/a")]),
                client.submit(Exists("/a")),
                client.create("/a/b", parents=True),
                client.delete("/a", recursive=True),
                client.children_and_stat("/a"),
                client.descendants("/a"),
                client.ephemerals(),
                client.get_acl("/a"),
                client.set_acl("/a", ()),
                client.who_am_i(),
                client.read_all([GetData("/a")]),
                client.has_watch("/a"),
                client.remove_watches("/a"),
                client.reconfig(),
                client.config(),
                client.watch("/a").__aenter__(),
            ]
            async with asyncio.timeout(1):
                for call in calls:
                    with pytest.raises(SessionClosed):
                        await call
            with pytest.raises(NotSent):
                await client.add_auth("digest", b"a:b")
            with pytest.raises(SessionClosed):
                client.detach()
            with client.beat("/a"):
                pass
            await client.close()
        with pytest.raises(SessionClosed):
            await client.connect(1)


# -- the protocol ---------------------------------------------------------------------------------


async def test_xids_wrap_before_they_become_negative() -> None:
    async with scripted() as server, client_of(server) as client:
        client._handshake.xids._next = 2**31 - 3

        for _ in range(10):
            await client.get("/a")

        xids = [seen.xid for seen in server.seen if isinstance(seen.request, GetData)]
        assert xids == [2**31 - 3, 2**31 - 2, 2**31 - 1, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("xid", [77, -4, -8, 0])
async def test_an_unsolicited_reply_means_a_new_connection_not_death(xid: int) -> None:
    async with scripted() as server, client_of(server) as client:
        server.peer.raw(ReplyHeader(xid, 1, 0).encode())

        await eventually(lambda: len(server.peers) == 2, 2)
        await client.get("/a")
        assert client.session_id == 1


async def test_bytes_that_are_not_the_protocol_mean_a_new_connection() -> None:
    async with scripted() as server, client_of(server) as client:
        for garbage in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x02ab", b"\xff\xff\xff\xff"):
            peers = len(server.peers)
            server.peer.transport.write(garbage)
            await eventually(lambda peers=peers: len(server.peers) > peers, 3)
            await client.get("/a")

        assert client.generation == 1


async def test_an_answer_that_cannot_be_read_fails_its_request_once() -> None:
    async with scripted() as server, client_of(server) as client:

        def truncated(peer: Peer, xid: int, request: Request) -> bool:
            if isinstance(request, GetData):
                peer.raw(ReplyHeader(xid, 1, 0).encode() + b"\0\0")
            return isinstance(request, GetData)

        server.on_request = truncated
        with pytest.raises(Exception, match="body ends early"):
            await client.get("/a")

        assert len(server.requests(GetData)) == 1
        await client.set("/a", b"")


async def test_silence_while_an_answer_is_outstanding_means_another_connection() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:
        server.on_request = lambda peer, xid, request: peer.number == 1

        assert await client.get("/a") == (b"", STAT)  # asked again on the second connection

        assert [seen.connection for seen in server.seen[:2]] == [1, 2]


async def test_silence_is_noticed_while_the_caller_keeps_sending() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:
        server.on_request = lambda peer, xid, request: True
        server.on_hello = lambda hello: None
        states: list[State] = []
        client.watch_state(states.append)

        async def keep_sending() -> None:
            while State.LOST not in states:
                client.submit(SetData("/a", b"")).add_done_callback(lambda done: done.exception())
                await asyncio.sleep(0.01)

        await asyncio.wait_for(keep_sending(), 3)

        assert states == [State.SUSPENDED, State.LOST]


# -- watches --------------------------------------------------------------------------------------


async def test_each_kind_of_watch_fires_once_and_a_failing_watcher_harms_nobody() -> None:
    async with scripted() as server, client_of(server) as client:
        heard: list[tuple[str, WatchEvent]] = []

        def fail(event: WatchEvent) -> None:
            raise RuntimeError("on purpose")

        await client.get("/a", watcher=fail)
        await client.get("/a", watcher=lambda event: heard.append(("data", event)))
        await client.children("/a", watcher=lambda event: heard.append(("child", event)))
        for _ in range(2):
            server.peer.event(changed("/a"))
            server.peer.event(changed("/a", EventType.CHILD))
        await client.get("/a")

        assert heard == [
            ("data", changed("/a")),
            ("child", changed("/a", EventType.CHILD)),
        ]
        assert len(client._watches) == 0


async def test_a_watch_on_a_missing_znode_hears_of_its_creation() -> None:
    async with scripted() as server, client_of(server) as client:
        heard: list[WatchEvent] = []
        server.on_request = lambda peer, xid, request: _refuse(peer, xid, request, Err.NO_NODE)

        assert await client.exists("/a", watcher=heard.append) is None
        with pytest.raises(NoNode):
            await client.get("/a", watcher=heard.append)
        server.on_request = lambda *_: False
        server.peer.event(changed("/a", EventType.CREATED))
        await client.get("/b")

        assert heard == [changed("/a", EventType.CREATED)]


async def test_after_a_reconnect_one_set_watches_goes_first_and_has_each_kind() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            isinstance(request, Exists) and _refuse(peer, xid, request, Err.NO_NODE)
        )
        heard: list[WatchEvent] = []
        await client.get("/data", watcher=heard.append)
        await client.exists("/exist", watcher=heard.append)
        await client.children("/child", watcher=heard.append)
        zxid = client.last_zxid

        server.peer.reset()
        await client.get("/other")

        second = [seen.request for seen in server.seen if seen.connection == 2]
        assert second[0] == SetWatches(zxid, ["/data"], ["/exist"], ["/child"])
        assert len(server.requests(SetWatches)) == 1


async def test_many_watches_are_set_again_in_several_requests() -> None:
    async with scripted() as server, client_of(server) as client:
        paths = [f"/{i:05}{'x' * 1000}" for i in range(300)]
        for path in paths:
            await client.get(path, watcher=lambda event: None)

        server.peer.reset()
        await client.get("/other")

        again = [path for request in server.requests(SetWatches) for path in request.data]
        assert again == paths
        assert len(server.requests(SetWatches)) == 3


async def test_cancelled_waits_leave_no_watcher_behind() -> None:
    async with scripted() as server, client_of(server) as client:
        for i in range(1000):

            def watcher(event: WatchEvent) -> None: ...

            future = client.submit(GetData(f"/{i % 7}", watch=True), watcher=watcher)
            if i % 2:
                future.cancel()
            else:
                await future
                client.unwatch(f"/{i % 7}", watcher)

        await client.get("/a")
        assert len(client._watches) == 0


async def test_when_the_session_ends_each_watcher_hears_of_it_once() -> None:
    async with scripted() as server, client_of(server) as client:
        heard: list[WatchEvent] = []
        await client.get("/a", watcher=heard.append)
        await client.children("/a", watcher=heard.append)

        await client.close()

        assert heard == [SESSION_OVER]


# -- the life of a session ------------------------------------------------------------------------


async def test_each_attach_asks_for_the_first_timeout_and_the_smallest_grant_counts() -> None:
    async with scripted() as server, client_of(server, session_timeout=3.0) as client:
        for granted in (2000, 9000):
            server.on_hello = lambda hello, granted=granted: ConnectResponse(
                granted, hello.session_id, hello.password
            )
            peers = len(server.peers)
            server.peer.reset()
            await eventually(lambda peers=peers: len(server.peers) > peers, 2)
            await client.get("/a")

        assert [hello.timeout_ms for hello in server.hellos] == [3000, 3000, 3000]
        assert client.timeout == 2.0
        assert client.passport.s_min_ms == 2000


async def test_the_servers_word_is_lost_at_once_then_another_session_begins() -> None:
    async with scripted() as server, client_of(server) as client:
        states: list[tuple[State, int, int]] = []
        client.watch_state(
            lambda state: states.append((state, client.session_id, client.generation))
        )
        old_lease = client.lease
        with client.beat("/me"):
            await eventually(lambda: client.lease.valid_until > 0, 2)
            server.on_hello = server.refuse
            server.peer.reset()
            await eventually(lambda: client.generation == 2, 2)

        assert states == [
            (State.SUSPENDED, 1, 1),
            (State.LOST, 1, 1),
            (State.CONNECTED, 2, 2),
        ]
        assert old_lease.valid_until == float("-inf")
        assert server.hellos[-1].last_zxid == 0


async def test_session_expired_as_an_answer_is_the_servers_word_too() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            peer.number == 1 and _refuse(peer, xid, request, Err.SESSION_EXPIRED)
        )

        with pytest.raises(SessionExpired):
            await client.set("/a", b"")

        await eventually(lambda: client.generation == 2, 2)


async def test_session_moved_refuses_the_request_and_attaches_again() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            peer.number == 1 and _refuse(peer, xid, request, Err.SESSION_MOVED)
        )

        with pytest.raises(SessionMoved):
            await client.set("/a", b"")

        await client.set("/a", b"")
        assert (client.session_id, client.generation) == (1, 1)


async def test_what_is_pending_at_lost_gets_its_outcome() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: True
        write = client.submit(SetData("/a", b""))
        read = client.submit(GetData("/a"))
        await eventually(lambda: len(server.seen) == 2, 2)
        server.on_hello = server.refuse
        server.peer.reset()

        with pytest.raises(FateUnknown):
            await write
        with pytest.raises(SessionExpired):
            await read


async def test_our_own_clock_ends_the_session_though_the_server_would_go_on() -> None:
    clock = ShiftedClock()
    proofs: list[str] = []

    async def prove() -> None:
        proofs.append(f"proof with {len(server.hellos)} hellos")

    async with scripted() as server, client_of(server, clock=clock, on_lost=prove) as client:
        states: list[State] = []
        client.watch_state(states.append)
        with client.beat("/me"):
            await eventually(lambda: client.lease.valid_until > clock.boottime(), 2)
            clock.ahead += 2.1

            assert client.state is State.LOST  # before anybody was told
            assert client.lease.valid_until < clock.boottime()
            await eventually(lambda: client.generation == 2, 3)

        assert states == [State.LOST, State.CONNECTED]
        assert proofs == ["proof with 1 hellos"]
        # the old session was attached once more, only to be closed, before the new one began
        assert [hello.session_id for hello in server.hellos] == [0, 1, 0]
        assert len(server.requests(CloseSession)) == 1


async def test_an_answer_that_comes_after_the_end_by_our_clock_is_not_believed() -> None:
    clock = ShiftedClock()
    async with scripted() as server, client_of(server, clock=clock) as client:
        kept: list[tuple[int, Request]] = []
        server.on_request = lambda peer, xid, request: (
            isinstance(request, SetData) and not kept.append((xid, request))
        )
        write = client.submit(SetData("/a", b""), timeout=30)
        await eventually(lambda: kept, 2)
        clock.ahead += 2.1
        server.peer.answer(*kept[0])

        with pytest.raises(FateUnknown):
            await write

        await reached(client, State.CONNECTED)
        assert client.generation == 2


async def test_who_relies_on_beats_is_not_kept_alive_by_other_answers() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:
        clock = client.clock
        lost_at: list[float] = []
        client.watch_state(
            lambda state: lost_at.append(clock.boottime()) if state is State.LOST else None
        )
        with client.beat("/me"):
            await eventually(lambda: client.lease.valid_until > clock.boottime(), 2)
            server.on_request = lambda peer, xid, request: (
                isinstance(request, Multi)
                and not peer.answer(xid, request, [(Op.ERROR, OpError(Err.NO_NODE))])
            )
            valid_until = client.lease.valid_until

            async def keep_reading() -> None:
                with contextlib.suppress(SessionExpired):
                    while not lost_at:
                        await client.submit(GetData("/a"))

            await asyncio.wait_for(keep_reading(), 5)

        late = client.timeout / 20  # a late wake-up shortens the lease by no more
        assert valid_until - late <= lost_at[0] < valid_until + 0.5


async def test_an_attach_counts_from_the_sending_of_its_request() -> None:
    async with scripted() as server:
        asked_at: list[float] = []
        server.on_hello = lambda hello: asked_at.append(asyncio.get_running_loop().time())
        client = Client(server.hosts, session_timeout=9.0, tick=4.0, clock=ShiftedClock())
        connecting = asyncio.ensure_future(client.connect(5))
        await eventually(lambda: asked_at, 2)
        await asyncio.sleep(0.3)  # the answer is under way
        server.peer.transport.write(frame(ConnectResponse(9000, 1, bytes(16)).encode()))
        await connecting

        await client.create("/me", ephemeral=True)

        assert client.lease.valid_until <= asked_at[0] + 9.0 * 0.99
        await client.close()


async def test_without_proof_of_death_no_new_session_begins() -> None:
    async def fail() -> None:
        raise RuntimeError("a program still runs")

    async with scripted() as server, client_of(server, on_lost=fail) as client:
        server.on_hello = server.refuse
        server.peer.reset()

        await eventually(lambda: client.state is State.CLOSED, 2)
        assert [hello.session_id for hello in server.hellos] == [0, 1]
        assert client._task is not None
        assert isinstance(client._task.exception(), RuntimeError)


async def test_a_silent_server_cannot_keep_a_session_believed_in() -> None:
    async with scripted() as server, client_of(server, session_timeout=0.8) as client:
        clock = client.clock
        states: list[tuple[State, float]] = []
        client.watch_state(lambda state: states.append((state, clock.boottime())))
        with client.beat("/me"):
            await eventually(lambda: client.lease.valid_until > clock.boottime(), 2)
            valid_until = client.lease.valid_until
            server.on_request = lambda peer, xid, request: True
            server.on_hello = lambda hello: None

            await eventually(lambda: State.LOST in dict(states), 3)

        assert [state for state, _ in states] == [State.SUSPENDED, State.LOST]
        assert states[-1][1] >= valid_until


async def test_an_idle_session_is_kept_alive_by_pings_and_has_no_lease() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:
        await eventually(lambda: len(server.requests(Ping)) >= 6, 5)

        assert client.state is State.CONNECTED
        assert client.lease.valid_until == float("-inf")
        assert server.requests(Multi) == []


async def test_beats_are_counted_and_stop_with_the_last_holder() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:
        beats: list[float] = []
        forget = client.watch_beats(beats.append)
        with client.beat("/me"), client.beat("/me"):
            with client.beat("/me"):
                await eventually(lambda: len(beats) >= 2, 3)
            seen = len(beats)
            await eventually(lambda: len(beats) > seen, 3)
        forget()

        beaten, pinged = len(server.requests(Multi)), len(server.requests(Ping))
        await eventually(lambda: len(server.requests(Ping)) >= pinged + 3, 3)
        assert len(server.requests(Multi)) == beaten
        assert all(request == Multi([Check("/me")]) for request in server.requests(Multi))


async def test_a_refused_beat_renews_nothing_and_the_next_uses_another_path() -> None:
    async with scripted() as server, client_of(server, session_timeout=1.0) as client:

        def gone(peer: Peer, xid: int, request: Request) -> bool:
            if isinstance(request, Multi) and request.ops[0].path == "/gone":
                peer.answer(xid, request, [(Op.ERROR, OpError(Err.NO_NODE))])
                return True
            return False

        server.on_request = gone
        with client.beat("/gone"), client.beat("/here"):
            await eventually(lambda: client.lease.valid_until > client.clock.boottime(), 3)

        paths = [request.ops[0].path for request in server.requests(Multi)]
        assert paths[:2] == ["/gone", "/here"]


async def test_a_session_goes_over_to_another_client_by_its_passport() -> None:
    async with scripted() as server:
        async with client_of(server, auth=[("digest", b"me:secret")]) as client:
            await client.get("/a")
            passport = Passport.from_json(client.detach().to_json())
            assert client.state is State.CLOSED

        async with client_of(server, resume=passport, session_timeout=77) as heir:
            assert (heir.session_id, heir.generation) == (1, 1)
            hello = server.hellos[-1]
            assert (hello.session_id, hello.timeout_ms, hello.last_zxid) == (
                1,
                2000,
                passport.last_zxid,
            )
            assert hello.password == passport.password
            assert len(server.requests(AuthPacket)) == 2
            assert heir.lease.valid_until == float("-inf")
            with heir.beat("/me"):
                await eventually(lambda: heir.lease.valid_until > 0, 2)
        assert "secret" not in repr(passport)


async def test_a_passport_of_an_ended_session_leads_to_lost_and_a_new_session() -> None:
    async with scripted() as server:
        async with client_of(server) as client:
            passport = client.detach()
        server.on_hello = server.refuse
        heir = Client(server.hosts, resume=passport)
        states: list[State] = []
        heir.watch_state(states.append)
        try:
            await heir.connect(3)

            assert states == [State.LOST, State.CONNECTED]
            assert (heir.session_id, heir.generation) == (2, 2)
        finally:
            await heir.close()


async def test_a_refused_credential_is_auth_failed_and_leaves_the_session_alone() -> None:
    async with scripted() as server:

        def refuse(peer: Peer, xid: int, request: Request) -> bool:
            if isinstance(request, AuthPacket):
                _refuse(peer, xid, request, Err.AUTH_FAILED)
                peer.close()
            return isinstance(request, AuthPacket)

        server.on_request = refuse
        client = Client(server.hosts, auth=[("nonsense", b"")])
        with pytest.raises(AuthFailed):
            await client.connect(3)

        assert client.state is State.CLOSED
        assert server.requests(CloseSession) == []


async def test_nothing_is_sent_before_the_credentials_are_accepted() -> None:
    async with (
        scripted() as server,
        client_of(server) as other,
        client_of(server, auth=[("digest", b"a:b")]) as client,
    ):
        kept: list[int] = []
        server.on_request = lambda peer, xid, request: (
            isinstance(request, AuthPacket) and not kept.append(xid)
        )
        server.peer.reset()
        await eventually(lambda: kept, 2)
        peer, answer = server.peer, client.submit(GetData("/a"))
        for _ in range(3):  # what had been sent would be there before the answers of others
            await other.exists("/a")
        assert server.requests(GetData) == []

        server.on_request = lambda *_: False
        peer.answer(kept[0], AuthPacket(0, "digest", b""))

        await answer


async def test_closing_ends_the_session_and_whatever_is_pending() -> None:
    async with scripted() as server, client_of(server) as client:
        server.peer.reset()
        server.on_hello = lambda hello: None
        await eventually(lambda: client.state is State.SUSPENDED, 2)
        pending = client.submit(SetData("/a", b""))

        await client.close()
        await client.close()

        with pytest.raises(SessionClosed):
            await pending
        assert client.state is State.CLOSED


async def test_a_listener_may_call_anything_also_close() -> None:
    async with scripted() as server, client_of(server) as client:
        made: list[asyncio.Future[Any]] = []
        tasks: list[asyncio.Task[None]] = []

        def listener(state: State) -> None:
            if state is State.CONNECTED:
                made.append(client.submit(Create2("/member")))
            if state is State.LOST:
                tasks.append(asyncio.ensure_future(client.close()))

        client.watch_state(listener)
        server.peer.reset()
        await eventually(lambda: made, 2)
        await made[0]
        server.on_hello = server.refuse
        server.peer.reset()
        await eventually(lambda: client.state is State.CLOSED, 2)
        await tasks[0]


async def test_ensure_is_one_flight_and_what_exists_is_success() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            isinstance(request, Create2)
            and request.path != "/a/b/c"
            and _refuse(peer, xid, request, Err.NODE_EXISTS)
        )

        await client.ensure("/a/b/c")

        assert [request.path for request in server.requests(Create2)] == ["/a", "/a/b", "/a/b/c"]
        with pytest.raises(NodeExists):
            await client.create("/a")


async def test_ensure_goes_on_after_lost_replies_and_reaped_parents() -> None:
    async with scripted() as server, client_of(server) as client:
        answers = iter(["drop", Err.NO_NODE])

        def trouble(peer: Peer, xid: int, request: Request) -> bool:
            if not isinstance(request, Create2) or request.path != "/a/b":
                return False
            match next(answers, None):
                case None:
                    return False
                case "drop":
                    return _close(peer)
                case code:
                    return _refuse(peer, xid, request, int(code))

        server.on_request = trouble
        await client.ensure("/a/b")

        assert len(server.requests(Create2)) == 6


# -- reaching a server ----------------------------------------------------------------------------


async def test_connect_timeout_lists_every_address_and_its_answer() -> None:
    async with scripted() as server:
        server.on_hello = lambda hello: None
        client = Client(f"127.0.0.1:1,{server.hosts}", session_timeout=1)

        with pytest.raises(ConnectTimeout) as caught:
            await client.connect(1.0)

        report = dict(caught.value.report)
        assert report["127.0.0.1:1"] == "connection refused"
        assert report[server.hosts].startswith("no answer")
        assert client.state is State.CLOSED


async def test_a_hundred_failed_starts_leave_no_task_thread_or_descriptor() -> None:
    async with scripted() as server:
        server.on_hello = lambda hello: None
        hosts = f"127.0.0.1:1,{server.hosts}"

        async def fail() -> None:
            client = Client(hosts, session_timeout=1, rng=random.Random(1))
            with pytest.raises(ConnectTimeout):
                await client.connect(0.01)

        await fail()
        gc.collect()
        before = _in_use()
        for _ in range(100):
            await fail()
        for peer in server.peers:
            await eventually(lambda peer=peer: not peer.is_open, 2)
        gc.collect()

        assert all(now <= then for now, then in zip(_in_use(), before, strict=True))


async def test_a_cancelled_connect_leaves_nothing() -> None:
    async with scripted() as server:
        server.on_hello = lambda hello: None
        client = Client(server.hosts)
        task = asyncio.ensure_future(client.connect(10))
        await eventually(lambda: server.hellos, 2)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert client.state is State.CLOSED
        await eventually(lambda: not server.peer.is_open, 2)


def _refuse(peer: Peer, xid: int, request: Request, code: int) -> bool:
    if isinstance(request, CloseSession):
        return False
    peer.refuse(xid, code)
    return True


def _in_use() -> tuple[int, int, int]:
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return descriptors, threading.active_count(), len(asyncio.all_tasks())


def _close(peer: Peer) -> bool:
    peer.reset()
    return True


def _drop_at(kind: type[Request]) -> Any:
    return lambda peer, xid, request: isinstance(request, kind) and _close(peer)
