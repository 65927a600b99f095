"""Queues, counters, values and barriers through lost answers, cut connections and expiries.

Each request of each step loses its answer in turn, or does not arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.errors import BadVersion, BrokenBarrier, FateUnknown, ItemUnknown
from incumbent.recipes.round import Word
from incumbent.wire import Create, Create2, Delete, GetChildren, Ping, Request, SetData


class Nth:
    """True for the n-th request, and only for it; `is_over` when there was no such request."""

    def __init__(self, number: int, *kinds: type[Request]) -> None:
        self.left = number
        self.kinds = kinds
        self.request: Request | None = None

    def __call__(self, request: Request) -> bool:
        if isinstance(request, Ping) or (self.kinds and not isinstance(request, self.kinds)):
            return False
        self.left -= 1
        if self.left == 0:
            self.request = request
        return self.left == 0


async def with_each_request_lost(
    step: Callable[[aio.Zk, aio.Zk, Nth], Awaitable[None]], way: str, most: int = 40
) -> None:
    """Play the step again and again, losing its first request or answer, its second, …"""
    async with embedded() as server:
        for number in range(1, most):
            async with (
                relay_to(server.host, server.port) as relay,
                connected(relay) as one,
                connected(server) as two,
            ):
                nth = Nth(number)
                setattr(relay, way, nth)
                await asyncio.wait_for(step(one, two, nth), 10)
                if nth.request is None:
                    return
        raise AssertionError("it never ran to its end undisturbed")


WAYS = pytest.mark.parametrize("way", ["lose_answer", "lose_request"])


@WAYS
async def test_an_item_is_put_once_or_said_to_be_unknown(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        queue = two.queue("/q")
        try:
            path = await one.queue("/q").put("x")
        except ItemUnknown as error:
            assert isinstance(nth.request, Create)
            assert error.data == b"x"
            assert await queue.take(0) is None
        else:
            item = await queue.take(0)
            assert item is not None
            assert item.path == path
            assert await queue.take(0) is None

    await with_each_request_lost(step, way)


async def test_an_item_whose_put_was_not_answered_is_found_by_its_nonce() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.queue("/q").put("before")
        relay.lose_answer = Nth(1, Create)

        path = await one.queue("/q").put("x")

        assert await two.get(path) == (b"x", await two.exists(path))
        assert await two.queue("/q").size() == 2


@WAYS
async def test_an_item_is_taken_once_or_said_to_be_unknown(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        await two.queue("/q").put("x")
        try:
            item = await one.queue("/q").take()
        except ItemUnknown as error:
            assert isinstance(nth.request, Delete)
            assert error.data == b"x"
        else:
            assert item is not None
            assert item.data == b"x"
        assert await two.queue("/q").take(0) is None

    await with_each_request_lost(step, way)


async def test_a_deletion_that_never_arrived_is_asked_for_again() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.queue("/q").put("x")
        relay.lose_request = Nth(1, Delete)

        item = await one.queue("/q").take()

        assert item is not None
        assert await two.queue("/q").size() == 0


async def test_a_taker_that_loses_the_race_for_the_first_has_the_next_at_once() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        first = await two.queue("/q").put("a")
        await two.queue("/q").put("b")
        deletions: list[asyncio.Task[None]] = []

        def snatch(request: Request) -> bool:
            if isinstance(request, Delete) and not deletions:
                deletions.append(asyncio.get_running_loop().create_task(two.delete(first)))
                return True  # ours is lost on its way
            return False

        relay.lose_request = snatch
        try:
            item = await one.queue("/q").take(5)
        except ItemUnknown as error:  # it is gone, and the answer cannot say by whom
            assert error.data == b"a"
            item = await one.queue("/q").take(5)

        assert item is not None
        assert item.data == b"b"


async def test_a_taker_whose_session_ends_goes_on_in_the_next_one() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.5) as one,
        connected(server) as two,
    ):
        old = one.session_id
        async with one.queue("/q").items() as items:
            waiting = asyncio.create_task(items.take())
            await eventually(lambda: any(isinstance(r, GetChildren) for r in relay.requests))
            relay.is_closed = True
            relay.cut()
            await two.queue("/q").put("x")
            await eventually(lambda: one.session_id != old or one.state is State.LOST)
            relay.is_closed = False

            item = await asyncio.wait_for(waiting, 5)

        assert item is not None
        assert item.data == b"x"
        assert one.session_id != old


@WAYS
async def test_a_cancelled_take_loses_no_item_whatever_is_lost_on_the_way(way: str) -> None:
    async with embedded() as server:
        for turns in range(0, 40, 2):
            async with (
                relay_to(server.host, server.port) as relay,
                connected(relay) as one,
                connected(server) as two,
            ):
                lines: list[str] = []
                one._ledger.log = lines.append
                path = await two.queue("/q").put("x")
                setattr(relay, way, Nth(1, Delete))
                taking = asyncio.create_task(one.queue("/q").take())
                for _ in range(turns):
                    await asyncio.sleep(0)
                taking.cancel()
                await asyncio.wait([taking])
                await one._ledger.settled()
                is_there = await two.queue("/q").take(0) is not None
                is_told = not taking.cancelled() or any(path in line for line in lines)
                assert is_there or is_told, turns


# ── counters and values


@WAYS
async def test_each_addition_counts_once(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        before = await two.counter("/c").get()
        counter = one.counter("/c")
        assert await counter.add() == before + 1
        assert await counter.add() == before + 2
        assert await two.counter("/c").get() == before + 2

    await with_each_request_lost(step, way)


async def test_an_addition_is_found_even_if_others_added_since() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        counter = one.counter("/c")
        await counter.add()
        relay.is_closed = False
        relay.lose_answer = Nth(1, SetData)
        adding = asyncio.create_task(counter.add())
        await eventually(lambda: relay.lose_answer.request is not None)  # type: ignore[attr-defined]
        others = [await two.counter("/c").add() for _ in range(3)]

        mine = await adding

        assert sorted([mine, *others]) == [2, 3, 4, 5]


async def test_an_addition_hidden_by_too_many_others_is_said_to_be_unknown() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        counter, other = one.counter("/c"), two.counter("/c")
        await counter.add()
        nth = relay.lose_answer = Nth(1, SetData)
        adding = asyncio.create_task(counter.add())
        await eventually(lambda: nth.request is not None)
        relay.is_closed = True
        relay.cut()
        for _ in range(17):
            await other.add()
        relay.is_closed = False

        with pytest.raises(FateUnknown, match="others changed it"):
            await adding

        assert await other.get() == 19


@WAYS
async def test_a_value_is_set_once_or_said_to_be_unknown(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        value = one.value("/v", "0")
        data, version = await value.get()
        new = b"%d" % (int(data) + 1)
        try:
            made = await value.compare_and_set(new, version)
        except FateUnknown:
            assert way == "lose_answer"
            assert isinstance(nth.request, SetData | Create2)
        else:
            assert await two.value("/v").get() == (new, made)

    await with_each_request_lost(step, way)


async def test_a_change_that_was_lost_and_overtaken_is_refused() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.create("/v", b"0")
        nth = relay.lose_request = Nth(1, SetData)
        setting = asyncio.create_task(one.value("/v").compare_and_set("1", 0))
        await eventually(lambda: nth.request is not None)
        relay.is_closed = True
        relay.cut()
        await two.set("/v", b"2")
        relay.is_closed = False

        with pytest.raises(BadVersion):
            await setting


# ── barriers


@WAYS
async def test_a_barrier_is_put_up_and_taken_down_all_the_same(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        barrier = one.barrier("/gate")
        assert await barrier.create()
        assert await two.barrier("/gate").wait(0) is False
        waiting = asyncio.create_task(one.barrier("/gate").wait())
        await barrier.remove()
        assert await waiting is True
        assert await two.barrier("/gate").wait(0) is True

    await with_each_request_lost(step, way)


async def test_a_barrier_that_another_put_up_since_is_not_taken_down_unasked() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await one.barrier("/gate").create()
        nth = relay.lose_answer = Nth(1, Delete)
        removing = asyncio.create_task(one.barrier("/gate").remove())
        await eventually(lambda: nth.request is not None)
        relay.is_closed = True
        relay.cut()
        await two.barrier("/gate").create()
        relay.is_closed = False

        with pytest.raises(FateUnknown):
            await removing

        assert await two.exists("/gate") is not None


async def test_a_waiter_that_was_cut_off_while_the_barrier_went_passes() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.5) as one,
        connected(server) as two,
    ):
        await two.barrier("/gate").create()
        for outage in ("short", "longer than the session"):
            await two.barrier("/gate").create()
            old = one.session_id
            relay.requests.clear()
            waiting = asyncio.create_task(one.barrier("/gate").wait())
            await eventually(lambda: relay.requests)
            relay.is_closed = True
            relay.cut()
            await two.barrier("/gate").remove()
            if outage != "short":
                await eventually(lambda old=old: one.session_id != old or one.state is State.LOST)
            relay.is_closed = False

            assert await asyncio.wait_for(waiting, 5), outage


@WAYS
@pytest.mark.parametrize("who", ["first", "last"])
async def test_a_double_barrier_goes_through_with_each_request_lost(way: str, who: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        barriers = [zk.double_barrier("/b", 3) for zk in (one, two, two)]
        if who == "last":
            barriers.reverse()
        results: list[Any] = await asyncio.gather(
            *(_whole(barrier) for barrier in barriers), return_exceptions=True
        )
        assert results == [None] * 3
        await eventually(lambda: _is_empty(two, "/b"))

    await with_each_request_lost(step, way, most=60)


async def _whole(barrier: Any) -> None:
    async with barrier:
        pass


async def _is_empty(zk: aio.Zk, path: str) -> bool:
    stat = await zk.exists(path)
    return stat is None or stat.numChildren == 0


@pytest.mark.parametrize("number", range(1, 12))
async def test_a_member_that_vanishes_at_any_request_breaks_it_for_all_or_none(number: int) -> None:
    """It is cut off for good at its n-th request, until its session has ended."""
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.4) as one,
        connected(server) as two,
        connected(server) as three,
    ):

        def vanishes(request: Request, nth: Nth = Nth(number)) -> bool:  # noqa: B008
            if nth(request):
                relay.is_closed = True
            return relay.is_closed

        relay.lose_request = vanishes
        gone = asyncio.create_task(_whole(one.double_barrier("/b", 3)))
        others = [asyncio.create_task(_whole(zk.double_barrier("/b", 3))) for zk in (two, three)]
        await eventually(
            lambda: one.state is State.LOST or gone.done() or all(task.done() for task in others)
        )
        relay.is_closed = False  # if they never got in, it comes back, and they do

        results = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 10)

        kinds = {type(result) for result in results}
        assert kinds in ({type(None)}, {BrokenBarrier})
        await asyncio.wait_for(asyncio.gather(gone, return_exceptions=True), 10)
        again = [_whole(zk.double_barrier("/b", 3)) for zk in (one, two, three)]
        assert await asyncio.wait_for(asyncio.gather(*again), 10) == [None] * 3


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_one_whose_session_ended_as_it_waited_to_leave_learns_that_its_round_had_left(
    is_hidden: bool,
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.5) as one,
        connected(server) as two,
    ):
        first, second = one.double_barrier("/b", 2), two.double_barrier("/b", 2)
        await asyncio.gather(first.enter(), second.enter())
        leaving = asyncio.create_task(first.leave())
        await eventually(lambda: _wants_out(two, "/b"))
        relay.is_closed = True
        relay.cut()
        await second.leave()
        if is_hidden:  # another round has left since
            async with two.double_barrier("/b", 1):
                pass
        await eventually(lambda: one.state is State.LOST)
        relay.is_closed = False

        (result,) = await asyncio.wait_for(asyncio.gather(leaving, return_exceptions=True), 10)

        if is_hidden:
            assert isinstance(result, BrokenBarrier)
            assert not result.is_certain
        else:
            assert result is None


async def _wants_out(zk: aio.Zk, path: str) -> bool:
    datas = [(await zk.get(f"{path}/{name}"))[0] for name in await zk.children(path)]
    return any(Word.read(path, data).state == "leaving" for data in datas)
