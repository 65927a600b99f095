"""What requests do, without a socket. What Apache does too is in tests/conformance."""

from __future__ import annotations

import pytest
from tests.unit.server.desk import Desk

from incumbent.server.sessions import Peer
from incumbent.server.tree import Tree
from incumbent.wire import (
    OPEN_ACL,
    Check,
    CloseSession,
    ConnectResponse,
    Create,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Ping,
    SetData,
)
from incumbent.wire.protocol import MAX_SEQUENCE


def test_a_wrong_password_does_not_disturb_the_owner() -> None:
    desk = Desk()
    owner, stranger = desk.peer(), Peer()

    answer = desk.greet(stranger, session_id=owner.session_id, password=b"guess")

    assert answer == ConnectResponse(0, 0, bytes(16))
    assert stranger.is_leaving
    assert not owner.is_leaving
    assert desk.call(owner, Ping(), -2) == (0, None)


def test_the_right_password_moves_the_session() -> None:
    desk = Desk()
    owner, heir = Peer(), Peer()
    first = desk.greet(owner)
    assert first is not None

    second = desk.greet(heir, session_id=first.session_id, password=first.password)

    assert second == first
    assert owner.is_leaving
    assert not heir.is_leaving


def test_a_password_does_not_follow_from_the_id() -> None:
    desk, other = Desk(), Desk(seed=2)
    mine, theirs = desk.greet(Peer()), other.greet(Peer())
    assert mine is not None
    assert theirs is not None

    assert mine.password != theirs.password
    assert len(mine.password) == 16


@pytest.mark.parametrize(
    ("asked", "granted"), [(1, 4000), (0, 4000), (-5, 4000), (4001, 4001), (10**7, 40_000)]
)
def test_timeouts_are_2_to_20_ticks_also_when_asked_for_again(asked: int, granted: int) -> None:
    desk = Desk(tick=2.0)
    first = desk.greet(Peer(), timeout_ms=asked)
    assert first is not None

    again = desk.greet(
        Peer(), session_id=first.session_id, password=first.password, timeout_ms=asked
    )

    assert first.timeout_ms == granted
    assert again == first


def test_a_session_is_a_transaction_at_both_ends() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/e", b"", OPEN_ACL, 1))

    desk.call(peer, CloseSession())

    assert [t.zxid for t in desk.journal] == [1, 2, 3]
    assert desk.service.tree.sessions == {}
    assert "/e" not in desk.service.tree.nodes


def test_a_client_ahead_of_us_gets_no_answer() -> None:
    desk = Desk()
    peer = Peer()

    assert desk.greet(peer, last_zxid=1) is None
    assert peer.is_leaving
    assert desk.journal == []


def test_expiry_ends_the_session_tells_watchers_and_cuts_the_connection() -> None:
    desk = Desk()
    dead, alive = desk.peer(timeout_ms=4000), desk.peer(timeout_ms=40_000)
    desk.call(dead, Create("/e", b"", OPEN_ACL, 1))
    desk.call(alive, Exists("/e", True))
    overdue = desk.pass_time_until_one_is_overdue()

    for _ in desk.service.expire(overdue):
        pass

    assert overdue == [dead.session_id]
    assert dead.is_cut
    assert [event.path for event in desk.events(alive)] == ["/e"]
    assert list(desk.service.tree.sessions) == [alive.session_id]


def test_a_session_that_was_found_overdue_twice_ends_once() -> None:
    desk = Desk()
    desk.peer(timeout_ms=4000)
    overdue = desk.pass_time_until_one_is_overdue()

    for _ in range(2):
        for _piece in desk.service.expire(overdue):
            pass

    assert len(desk.service.transactions) == 1


def test_who_spoke_after_it_was_found_overdue_stays() -> None:
    desk = Desk()
    peer = desk.peer(timeout_ms=4000)
    overdue = desk.pass_time_until_one_is_overdue()

    desk.service.sessions.heard(peer)
    for _ in desk.service.expire(overdue):
        pass

    assert not peer.is_leaving


def test_a_new_service_gives_every_session_its_full_timeout() -> None:
    tree = Tree()
    tree.sessions[5] = 30_000

    desk = Desk(tree)

    assert desk.service.sessions.expiry.timeouts == {5: 30.0}


def test_a_beat_costs_no_transaction() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/e", b"", OPEN_ACL, 1))
    before = len(desk.journal)

    assert desk.call(peer, Multi([Check("/e")])) == (0, [None])
    assert len(desk.journal) == before


def test_a_refused_multi_changes_nothing_and_fires_no_watch() -> None:
    desk = Desk()
    peer, watcher = desk.peer(), desk.peer()
    desk.call(peer, Create("/a"))
    desk.call(watcher, GetData("/a", True))
    before = desk.service.tree.zxid

    desk.call(peer, Multi([SetData("/a", b"x"), Create("/b"), Delete("/nothing")]))

    assert desk.events(watcher) == []
    assert desk.service.tree.zxid == before
    assert desk.service.tree.nodes["/a"].data == b""
    assert "/b" not in desk.service.tree.nodes


def test_the_counter_sticks_and_then_there_is_no_new_name() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/q"))
    desk.service.tree.nodes["/q"].creations = MAX_SEQUENCE - 1

    results = [desk.call(peer, Create("/q/n", b"", OPEN_ACL, 2)) for _ in range(3)]

    assert results == [(0, "/q/n2147483646"), (0, "/q/n2147483647"), (-110, None)]
    assert desk.call(peer, Exists("/q"))[0] == 0


def test_versions_wrap_as_in_java() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/v"))
    desk.service.tree.nodes["/v"].version = 2**31 - 1

    assert desk.call(peer, SetData("/v", b""))[1].version == -(2**31)


def test_containers_are_reaped_once_they_were_used() -> None:
    desk = Desk()
    peer = desk.peer()
    for path in ("/used", "/unused", "/busy"):
        desk.call(peer, CreateContainer(path))
    desk.call(peer, Create("/used/x"))
    desk.call(peer, Create("/busy/x"))
    desk.call(peer, Delete("/used/x"))

    desk.service.reap()

    assert set(desk.call(peer, GetChildren("/"))[1]) == {"zookeeper", "unused", "busy"}


def test_while_the_store_fails_writes_are_refused_and_reads_go_on() -> None:
    desk = Desk()
    peer = desk.peer()
    desk.call(peer, Create("/a"))
    desk.service.is_writable = False
    before = len(desk.journal)

    for write in (Create("/b"), Delete("/a"), SetData("/a", b""), Multi([]), CloseSession()):
        assert desk.call(peer, write) == (-1, None)
    new = Peer()

    assert desk.greet(new) is None
    assert new.is_leaving
    assert desk.call(peer, GetData("/a"))[0] == 0
    assert desk.call(peer, Ping(), -2) == (0, None)
    assert len(desk.journal) == before


def test_nothing_is_served_to_whom_the_session_was_taken_from() -> None:
    desk = Desk()
    owner = Peer()
    session = desk.greet(owner)
    assert session is not None
    desk.peer(session_id=session.session_id, password=session.password)

    desk.send(owner, Create("/ghost"))

    assert owner.out == []
    assert "/ghost" not in desk.service.tree.nodes


def test_nothing_is_left_of_a_connection_that_went() -> None:
    desk = Desk()
    peer = desk.peer()
    for n in range(100):
        desk.call(peer, Exists(f"/{n}", True))

    desk.service.forget(peer)
    desk.settle()

    assert len(desk.service.watches) == 0
    assert desk.service.sessions._owners == {}
    assert peer.session_id in desk.service.tree.sessions
