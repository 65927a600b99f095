"""Queues, barriers, counters and values for blocking code, interrupted wherever it may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.interrupting import interrupt
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import BarrierTimeout, BrokenBarrier, LockLost
from incumbent.testing import EmbeddedServer


@pytest.fixture
def zk(zookeeper_hosts: str) -> Iterator[sync.Zk]:
    with incumbent.connect(zookeeper_hosts, tick=0.0) as zk:
        yield zk


def test_a_queue_in_blocking_code(zk: sync.Zk) -> None:
    queue = zk.queue("/jobs")
    queue.put("b")
    queue.put(b"a", priority=1)
    assert queue.size() == 2
    first = queue.peek()
    assert first is not None
    assert first.data == b"a"
    with queue.items() as items:
        assert [item.data for _, item in zip(range(2), items, strict=False)] == [b"a", b"b"]
        assert items.take(0.01) is None
        assert items.peek(0) is None
    assert queue.take(0) is None


def test_a_counter_and_a_value_in_blocking_code(zk: sync.Zk) -> None:
    assert zk.counter("/hits", initial=2).add(3) == 5
    assert zk.counter("/hits").get() == 5
    value = zk.value("/limit", "1")
    with value.follow() as following:
        assert next(following) == (b"1", None)
        assert value.set("2") == 0
        assert value.compare_and_set("3", 0) == 1
        assert value.update(lambda data: data + b"0") == b"30"
        while next(following).data != b"30":
            pass
        assert following.now == value.get() == (b"30", 2)


def test_barriers_in_blocking_code(zk: sync.Zk) -> None:
    gate = zk.barrier("/gate")
    assert gate.create()
    assert gate.wait(0.01) is False
    threading.Timer(0.02, gate.remove).start()
    assert gate.wait(5) is True

    with pytest.raises(BarrierTimeout), zk.double_barrier("/b", 2, timeout=0.05):
        pass
    other = threading.Thread(target=_goes_through, args=(zk,))
    other.start()
    _goes_through(zk)
    other.join(5)
    assert not other.is_alive()


def _goes_through(zk: sync.Zk) -> None:
    with zk.double_barrier("/b", 2, timeout=5):
        pass


def test_a_block_that_fails_inside_a_double_barrier_breaks_it_and_stays_itself(zk: sync.Zk) -> None:
    broken: list[BaseException] = []

    def other() -> None:
        try:
            _goes_through(zk)
        except BrokenBarrier as error:
            broken.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(LockLost), zk.double_barrier("/b", 2, timeout=5):
        raise LockLost("/x", "in the test")
    thread.join(5)

    assert len(broken) == 1


def test_a_take_interrupted_at_any_moment_loses_no_item(
    zk: sync.Zk, zookeeper: EmbeddedServer
) -> None:
    slipped = 0  # between a call's return and what the caller does with it there is always a gap
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        for step in range(40):
            path = other.queue("/jobs").put("x")
            had: list[object] = []

            def take(had: list[object] = had) -> None:
                had.append(zk.queue("/jobs").take(5))

            interrupt(step * 0.0003, take)

            left = other.queue("/jobs").take(0.2 if not had else 0)
            slipped += left is None and not had
            if left is not None:
                assert not had
                assert left.path == path
    assert slipped <= 1


def test_a_double_barrier_interrupted_at_any_moment_has_nobody_left_in_it(
    zk: sync.Zk, zookeeper: EmbeddedServer
) -> None:
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:

        def is_empty() -> bool:
            stat = other.exists("/b")
            return stat is None or stat.numChildren == 0

        for step in range(30):
            interrupt(step * 0.0005, lambda: _goes_through(zk))
            wait_until(is_empty)


def test_an_addition_interrupted_at_any_moment_counts_at_most_once(zk: sync.Zk) -> None:
    counter = zk.counter("/hits")
    for step in range(30):
        before = counter.get()
        interrupt(step * 0.0002, counter.add)
        assert counter.get() - before in (0, 1)
