"""The control: the same faults, over real sockets, with kazoo 2.11's recipes and with ours.

What docs/recipes says of kazoo's locks, queue, counter and barriers is shown here to be so; and that
the faults are real ones, which ours go through beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout as TheirTimeout
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import ItemUnknown, LockLost, LockTimeout
from incumbent.testing import EmbeddedServer


@pytest.fixture
def theirs(zookeeper: EmbeddedServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts, timeout=4.0)
    client.start(10)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def ours(zookeeper_hosts: str) -> Iterator[sync.Zk]:
    with incumbent.connect(zookeeper_hosts, tick=0.0) as zk:
        yield zk


def test_an_addition_whose_answer_is_lost_counts_twice_with_theirs_and_once_with_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    counter = theirs.Counter("/theirs")
    counter += 1
    lost = zookeeper.lose_reply(op="set_data", path="/theirs")
    counter += 1

    mine = ours.counter("/ours")
    mine.add()
    zookeeper.lose_reply(op="set_data", path="/ours")
    sum_ = mine.add()

    assert lost.happened
    assert counter.value == 3
    assert sum_ == mine.get() == 2


def test_an_item_whose_deletion_is_not_answered_is_lost_with_theirs_and_named_by_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    queue = theirs.Queue("/theirs")
    queue.put(b"x")
    zookeeper.lose_reply(op="delete", path="/theirs/*")
    got = queue.get()

    ours.queue("/ours").put("x")
    zookeeper.lose_reply(op="delete", path="/ours/*")
    with pytest.raises(ItemUnknown) as caught:
        ours.queue("/ours").take(5)

    assert got is None
    assert ours.children("/theirs") == []
    assert caught.value.data == b"x"


def test_whoever_waits_at_a_barrier_through_a_reconnect_hangs_with_theirs_and_passes_with_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    passed: dict[str, bool] = {}
    theirs.Barrier("/theirs").create()
    ours.barrier("/ours").create()
    waiting = [
        threading.Thread(target=lambda: passed.update(theirs=theirs.Barrier("/theirs").wait(3.0))),
        threading.Thread(target=lambda: passed.update(ours=ours.barrier("/ours").wait(30.0))),
    ]
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        for thread, path in zip(waiting, ("/theirs", "/ours"), strict=True):
            thread.start()
            wait_until(lambda path=path: other.has_watch(path))
        for session_id in (theirs.client_id[0], ours.session_id):
            zookeeper.drop(session_id)
        theirs.retry(theirs.exists, "/")  # both are back
        ours.exists("/")

        other.delete("/theirs")
        other.delete("/ours")
        for thread in waiting:
            thread.join(10)

    assert passed == {"theirs": False, "ours": True}


def test_a_double_barrier_through_a_reconnect_hangs_with_theirs_and_is_gone_through_with_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    inside: dict[str, bool] = {}

    def enters() -> None:
        theirs.DoubleBarrier("/theirs", 2, "one").enter()
        inside["theirs"] = True

    def goes_through() -> None:
        with ours.double_barrier("/ours", 2, timeout=30):
            inside["ours"] = True

    waiting = [threading.Thread(target=each, daemon=True) for each in (enters, goes_through)]
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        for thread in waiting:
            thread.start()
        wait_until(lambda: other.has_watch("/theirs/ready"))
        wait_until(lambda: other.exists("/ours") and other.children("/ours"))
        for session_id in (theirs.client_id[0], ours.session_id):
            zookeeper.drop(session_id)
        theirs.retry(theirs.exists, "/")
        ours.exists("/")

        second = KazooClient(zookeeper.hosts, timeout=4.0)
        second.start(10)
        second.DoubleBarrier("/theirs", 2, "two").enter()  # it sees two, and is in
        with other.double_barrier("/ours", 2, timeout=30):
            pass
        waiting[1].join(10)
        waiting[0].join(1)
        second.stop()
        second.close()

    assert inside == {"ours": True}


def test_a_lock_given_up_in_vain_is_left_behind_by_theirs_and_taken_away_by_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    """The time is over, our znode's deletion does not reach the server, and the session lives on."""
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        with other.lock("/theirs"), other.lock("/ours"):
            lost = zookeeper.lose_request(op="delete", path="/theirs/*")
            with pytest.raises(TheirTimeout):
                theirs.Lock("/theirs").acquire(timeout=0.3)
            lost.wait()
            zookeeper.lose_request(op="delete", path="/ours/*")
            with pytest.raises(LockTimeout), ours.lock("/ours", timeout=0.3):
                pass
        theirs.retry(theirs.exists, "/")

        with pytest.raises(LockTimeout), other.lock("/theirs", timeout=1.0):
            pass
        with other.lock("/ours", timeout=10) as hold:
            hold.ensure()


def test_a_lock_whose_session_is_over_is_still_acquired_with_theirs_and_lost_with_ours(
    zookeeper: EmbeddedServer, theirs: KazooClient, ours: sync.Zk
) -> None:
    lock = theirs.Lock("/theirs")
    lock.acquire()
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        with pytest.raises(LockLost), ours.lock("/ours") as hold:
            for session_id in (theirs.client_id[0], ours.session_id):
                zookeeper.expire(session_id)
            assert hold.lost.wait(10)
        with other.lock("/theirs", timeout=10), other.lock("/ours", timeout=10):
            assert lock.is_acquired
