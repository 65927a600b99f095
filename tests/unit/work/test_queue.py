"""The work queue: an item stays until it is done, whoever dies with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent.errors import ItemUnknown, NoNode, Taken
from incumbent.wire import Create
from incumbent.work import Claim, WorkQueue


@contextlib.asynccontextmanager
async def two_ends(tries: int = 5) -> AsyncIterator[tuple[WorkQueue, WorkQueue]]:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.work_queue("/q", tries=tries) as first,
        two.work_queue("/q", tries=tries) as second,
    ):
        yield first, second


async def taken(queue: WorkQueue) -> bytes | None:
    """Take one and finish it."""
    claim = await queue.take(0)
    if claim is None:
        return None
    await claim.done()
    return claim.payload


async def test_items_come_in_their_order_and_once() -> None:
    async with two_ends() as (one, two):
        for number in range(20):
            await one.put(f"{number}")
        found = [await taken(two) for _ in range(20)]

        assert found == [f"{number}".encode() for number in range(20)]
        assert await taken(one) is None
        assert await one.size() == 0


async def test_what_is_taken_nobody_else_gets_and_what_is_not_done_comes_back() -> None:
    async with two_ends() as (one, two):
        await one.put(b"x")
        claim = await one.take(0)
        assert isinstance(claim, Claim)
        assert await two.take(0) is None
        assert await one.size() == 1
        await claim.give_back()

        assert await taken(two) == b"x"


async def test_a_dead_consumer_s_item_is_given_out_once_more() -> None:
    async with embedded() as server, connected(server) as zk, zk.work_queue("/q") as queue:
        dead = await connected(server, session_timeout=1.0)
        await queue.put("x")
        async with contextlib.AsyncExitStack() as stack:
            theirs = await stack.enter_async_context(dead.work_queue("/q"))
            assert await theirs.take(0) is not None
            dead.detach()
            assert await queue.take(0) is None
            claim = await queue.take(10)
            assert claim is not None
            assert claim.record.deaths == 2
            await claim.done()
        assert await queue.take(0) is None


async def test_one_that_is_begun_too_often_is_parked_and_can_be_retried() -> None:
    async with two_ends(tries=2) as (one, two):
        name = await one.put("poison")
        for _ in range(2):
            claim = await two.take(0)
            assert claim is not None
            await claim.fail("no")
        assert await two.take(0) is None
        (parked,) = await one.parked()
        assert (parked.item, parked.payload) == (name, b"poison")
        assert parked.why == "begun 2 times: no"

        await one.retry(name)
        assert await taken(two) == b"poison"
        with pytest.raises(NoNode):
            await one.retry(name)


async def test_a_delayed_item_waits_and_others_go_first() -> None:
    async with two_ends() as (one, two):
        await one.put("later", delay=0.5)
        await one.put("now")

        assert await taken(two) == b"now"
        assert await taken(two) is None
        claim = await asyncio.wait_for(two.take(), 5)
        assert claim is not None
        assert claim.payload == b"later"
        await claim.done()


async def test_who_waits_is_woken_by_a_put() -> None:
    async with two_ends() as (one, two):
        taking = asyncio.create_task(two.take(10))
        await asyncio.sleep(0)
        await one.put("x")
        claim = await taking

        assert claim is not None
        async with claim:
            assert claim.payload == b"x"
        await eventually(lambda: _is_empty(one))


async def _is_empty(queue: WorkQueue) -> bool:
    return await queue.size() == 0


async def test_many_consumers_share_the_items() -> None:
    async with two_ends() as (one, two):
        for number in range(40):
            await one.put(f"{number}")
        found: list[bytes] = []

        async def consume(queue: WorkQueue) -> None:
            while (claim := await queue.take(0)) is not None:
                async with claim:
                    found.append(claim.payload)

        await asyncio.gather(*(consume(each) for each in (one, two, one, two)))

        assert sorted(map(int, found)) == list(range(40))


async def test_nobody_s_item_is_retried_under_them() -> None:
    async with two_ends() as (one, two):
        name = await one.put("x")
        claim = await two.take(0)
        assert claim is not None
        with pytest.raises(Taken):
            await one.retry(name)


@pytest.mark.parametrize("turns", range(0, 16, 2))
async def test_a_cancelled_take_leaves_the_item(turns: int) -> None:
    async with two_ends() as (one, two):
        await one.put("x")
        taking = asyncio.create_task(one.take())
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            claim = await taking
            assert claim is not None
            claim.give_back()

        claim = await two.take(5)
        assert claim is not None


async def test_a_put_whose_answer_is_lost_is_read_back() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
        one.work_queue("/q") as queue,
        two.work_queue("/q") as other,
    ):
        await other.put("first")
        assert await taken(other) == b"first"
        lost = iter([True])
        relay.lose_answer = lambda request: isinstance(request, Create) and next(lost, False)
        await queue.put("x")
        assert await taken(other) == b"x"
        assert await taken(other) is None

        lost_request = iter([True])
        relay.lose_request = lambda request: (
            isinstance(request, Create) and next(lost_request, False)
        )
        with pytest.raises(ItemUnknown):
            await queue.put("y")


async def test_what_cannot_be_is_refused() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="tries"):
            zk.work_queue("/q", tries=0)
        with pytest.raises(ValueError, match="delay"):
            await zk.work_queue("/q").put("x", delay=-1)
