"""Blocks of blocking code that end in unusual ways: closed, collected, joined, left twice."""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

import pytest
from tests.interrupting import interrupt, interrupt_at_step
from tests.waiting import TimedOut, wait_until

import incumbent
from incumbent import blocking, sync
from incumbent.blocking_blocks import Guarded
from incumbent.client import State
from incumbent.errors import Deposed, LockTimeout, SessionClosed
from incumbent.portal import portal
from incumbent.testing import EmbeddedServer


@pytest.fixture
def zk(zookeeper: EmbeddedServer) -> Iterator[sync.Zk]:
    with incumbent.connect(zookeeper.hosts, tick=0.0) as zk:
        zk.ensure("/x")
        yield zk


@pytest.fixture
def other(zookeeper: EmbeddedServer) -> Iterator[sync.Zk]:
    with incumbent.connect(zookeeper.hosts, tick=0.0) as other:
        yield other


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What Python could only print."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    return seen


LASTING: dict[str, Callable[[sync.Zk], AbstractContextManager[Any]]] = {
    "lock": lambda zk: zk.lock("/x"),
    "election": lambda zk: zk.election("/x").lead(),
    "group": lambda zk: zk.group("/x").join("me"),
    "watch": lambda zk: zk.watch("/x"),
    "cache": lambda zk: zk.cache("/x"),
    "double barrier": lambda zk: zk.double_barrier("/x", 1),
    "work queue": lambda zk: zk.work_queue("/x"),
}


@pytest.mark.parametrize("block", LASTING)
def test_while_an_interruption_is_handled_nothing_of_the_block_stands(
    zk: sync.Zk, other: sync.Zk, block: str
) -> None:
    def hold_on() -> None:
        with LASTING[block](zk):
            time.sleep(5)

    def is_tidy() -> bool:
        zk.exists("/x")
        return other.children("/x") == [] and len(zk._zk.client._watches) == 0

    late = []

    def look() -> None:
        try:
            wait_until(is_tidy, 0.5)
        except TimedOut:
            late.append(1)

    for step in range(40):
        interrupt(step * 0.0001, hold_on, look)
        wait_until(is_tidy, 5, "nothing of it to be left")
    assert len(late) <= 2  # in contextlib's own frames an entry lasts as long as the exception


@pytest.mark.parametrize("block", LASTING)
def test_a_generator_that_is_closed_leaves_its_block_also_if_the_object_lives_on(
    zk: sync.Zk, other: sync.Zk, block: str
) -> None:
    manager = LASTING[block](zk)

    def within() -> Iterator[int]:
        with manager:
            yield 1

    generator = within()
    next(generator)
    generator.close()

    wait_until(lambda: other.children("/x") == [] and len(zk._zk.client._watches) == 0)
    with LASTING[block](zk):
        pass


@pytest.mark.parametrize("block", LASTING)
def test_the_loop_s_thread_may_collect_a_suspended_block(
    zk: sync.Zk, other: sync.Zk, unraisable: list[object], block: str
) -> None:
    def within() -> Iterator[Any]:
        with LASTING[block](zk):
            itself = yield
            yield itself

    async def collect() -> None:
        gc.collect()

    generator = within()
    next(generator)
    generator.send(generator)
    gc.disable()
    try:
        del generator
        portal().run(collect)
    finally:
        gc.enable()

    wait_until(lambda: other.children("/x") == [] and len(zk._zk.client._watches) == 0)
    assert unraisable == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_block_that_nobody_has_any_more_is_neither_joined_nor_in_the_way(
    zk: sync.Zk, other: sync.Zk, reentrant: bool
) -> None:
    for _ in range(50):
        guarded = zk.lock("/x", reentrant=reentrant)
        guarded.__enter__()  # and an interruption before the first step of `__exit__`
        del guarded

        with zk.lock("/x", reentrant=reentrant) as hold:
            zk.exists("/x")
            assert hold.name in other.children("/x")
            hold.ensure()


def test_a_block_that_was_joined_lasts_as_long_as_who_joined_it(
    zk: sync.Zk, other: sync.Zk
) -> None:
    guarded = zk.lock("/x", reentrant=True)
    guarded.__enter__()

    with zk.lock("/x", reentrant=True) as hold:
        del guarded
        zk.exists("/x")
        assert other.children("/x") == [hold.name]
        hold.ensure()

    wait_until(lambda: other.children("/x") == [])


def test_a_reentrant_lock_entered_twice_by_one_object_ends_with_the_outer_block(
    zk: sync.Zk, other: sync.Zk
) -> None:
    lock = zk.lock("/x", reentrant=True)
    with lock as hold:
        with lock:
            pass
        zk.exists("/x")
        assert other.children("/x") == [hold.name]
        hold.ensure()
    assert other.children("/x") == []


def test_who_got_nothing_leaves_nothing_to_be_collected(zk: sync.Zk, other: sync.Zk) -> None:
    class Waiter:
        def __init__(self) -> None:
            self.lock = zk.election("/x").lead(timeout=0.01, on_change=self.moved)

        def moved(self, _: object) -> None: ...

    with other.lock("/x"):
        tried = zk.try_lock("/x")
        with tried as hold:
            assert hold is None
        waiter = Waiter()
        late = False
        try:
            with waiter.lock:
                pass
        except LockTimeout:
            late = True

    assert late
    for guarded in (tried, waiter.lock):
        assert isinstance(guarded, Guarded)
        assert not guarded._last_resort.alive
    is_gone = weakref.ref(waiter)
    del waiter, guarded
    gc.collect()
    assert is_gone() is None


def test_a_work_queue_entered_by_two_threads_is_left_by_each_for_itself(zk: sync.Zk) -> None:
    queue, is_in, may_leave = zk.work_queue("/q"), threading.Event(), threading.Event()
    queue.put("a")

    def enter_too() -> None:
        with queue:
            is_in.set()
            may_leave.wait(5)

    thread = threading.Thread(target=enter_too)
    with queue:
        claim = queue.take(5)
        assert claim is not None
        thread.start()
        assert is_in.wait(5)
        assert not claim.is_ended
        claim.done()
    may_leave.set()
    thread.join(5)


def test_a_wait_for_a_loss_that_is_interrupted_at_any_step_keeps_nobody_from_telling(
    zk: sync.Zk,
) -> None:
    async def tell() -> None:
        hold.lost._happened()

    def may_be_told() -> bool:
        teller = threading.Thread(target=portal().run, args=(tell,), daemon=True)
        teller.start()
        teller.join(5)
        return not teller.is_alive()

    with zk.lock("/x") as hold:
        step = 1
        while interrupt_at_step(
            step,
            lambda file: file in (blocking.__file__, threading.__file__, queue.__file__),
            lambda: hold.lost.wait(0.001),
        ):
            step += 1
        assert may_be_told()
        assert hold.lost.wait(0)
    assert step > 10


def test_a_session_that_was_never_entered_may_be_left(zookeeper: EmbeddedServer) -> None:
    zk = incumbent.connect(zookeeper.hosts, tick=0.0)
    with ExitStack() as stack:
        stack.push(zk)

    with pytest.raises(SessionClosed):
        zk.exists("/")
    assert zk._zk.close not in portal().at_exit


def test_a_session_of_a_generator_that_is_closed_is_closed_and_forgotten(
    zookeeper: EmbeddedServer,
) -> None:
    made: list[sync.Zk] = []

    def within() -> Iterator[int]:
        with incumbent.connect(zookeeper.hosts, tick=0.0) as zk:
            made.append(zk)
            yield 1

    generator = within()
    next(generator)
    generator.close()

    wait_until(lambda: made[0]._zk.close not in portal().at_exit)
    assert made[0].state is State.CLOSED


def test_leaving_what_was_never_entered_hides_no_error(zk: sync.Zk) -> None:
    barrier = zk.double_barrier("/x", 1)
    barrier.enter()
    for manager in (barrier, zk.cache("/x"), zk.work("/w"), zk.work_queue("/q")):
        with pytest.raises(ValueError, match="its own"), ExitStack() as stack:
            stack.push(manager)
            raise ValueError("its own")
    assert zk.children("/x") == []


def test_elections_may_be_abdicated_while_blocks_begin_and_end(zk: sync.Zk) -> None:
    election, is_over = zk.election("/x"), threading.Event()
    failed: list[BaseException] = []
    stood: list[str] = []

    def abdicate() -> None:
        while not is_over.wait(0.0005):  # what is asked for faster than it is done piles up
            try:
                election.abdicate()
            except BaseException as error:
                failed.append(error)

    def stand(path: str) -> None:
        for _ in range(30):
            with suppress(Deposed), election.lead(path):
                stood.append(path)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=stand, args=(f"{n}",)) for n in range(3)]
    asking = threading.Thread(target=abdicate)
    try:
        for each in (asking, *threads):
            each.start()
        for each in threads:
            each.join(20)
    finally:
        is_over.set()
        asking.join(20)
        sys.setswitchinterval(interval)
    assert failed == []
    assert len(stood) == 90
    assert election._terms == {}


async def test_a_session_may_be_about_to_end_on_a_loop_whose_timers_have_no_time(
    zookeeper: EmbeddedServer,
) -> None:
    """uvloop's handle of what is due within a millisecond has no `when`."""
    async with incumbent.aio.connect(zookeeper.hosts, tick=0.0) as zk:
        session = zk.client
        assert session._deadline is not None
        session._deadline.cancel()
        session._deadline = asyncio.get_running_loop().call_soon(session._due)  # type: ignore[assignment]

        session._arm()

        assert await zk.exists("/") is not None
