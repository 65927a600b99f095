"""Claims through lost answers, cut connections and expiries: nobody has what somebody else has,
and no claim is forgotten.

Each request of each step loses its answer in turn, or does not arrive.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.faults.recipes_relay import relay_to
from tests.faults.test_items_faults import WAYS, Nth, with_each_request_lost
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import ClaimLost, FateUnknown, SessionExpired, Taken
from incumbent.wire import Delete, Multi, Request
from incumbent.work import Claim, Work

ITEMS = ["a", "b", "c"]


async def standing(work: Work, item: str) -> str:
    found = (await work.take([item]))[item]
    if isinstance(found, Taken):
        return found.standing
    await found.give_back()
    return "free"


async def _is(work: Work, item: str, wanted: str) -> bool:
    return await standing(work, item) == wanted


@WAYS
async def test_a_claim_is_had_by_one_and_its_mark_is_left(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        path = f"/w{nth.left}{way}"
        async with two.work(path, lag=0.02) as other, one.work(path, lag=0.02) as work:
            found = await work.take(ITEMS)
            for item in ITEMS:
                claim = found[item]
                assert isinstance(claim, Claim), f"nobody else wants {item}"
                claim.ensure()
                assert await standing(other, item) == "claimed"
                await claim.done()
                assert await standing(other, item) == "done"

    await with_each_request_lost(step, way)


@WAYS
async def test_what_is_given_back_or_fails_is_free_again(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        path = f"/w{nth.left}{way}"
        async with two.work(path, lag=0.02) as other:
            async with one.work(path, lag=0.02) as work:
                found = await work.take(ITEMS)
                for claim, end in zip(found.values(), ("give_back", "fail", "park"), strict=True):
                    assert isinstance(claim, Claim)
                    ended = getattr(claim, end)
                    await (ended() if end == "give_back" else ended("why"))
            assert [await standing(other, item) for item in ITEMS] == ["free", "free", "parked"]

    await with_each_request_lost(step, way)


@WAYS
async def test_cancelled_amid_losses_no_claim_is_left(way: str) -> None:
    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        path = f"/w{nth.left}{way}"
        async with two.work(path, lag=0.02) as other:
            async with one.work(path, lag=0.02) as work:
                taking = asyncio.create_task(work.take(ITEMS))
                for _ in range(8):
                    await asyncio.sleep(0)
                taking.cancel()
                await asyncio.wait([taking])
            for item in ITEMS:
                await eventually(lambda item=item: _is(other, item, "free"), timeout=5)

    await with_each_request_lost(step, way)


@WAYS
async def test_two_of_one_session_who_lose_answers_do_not_have_the_same_item(way: str) -> None:
    """The session alone does not tell whose a claim is: the nonce does."""

    async def step(one: aio.Zk, two: aio.Zk, nth: Nth) -> None:
        path = f"/w{nth.left}{way}"
        async with one.work(path, lag=0.02) as work:
            both = await asyncio.gather(work.take(["x"]), work.take(["x"]))
            ours = [found["x"] for found in both if isinstance(found["x"], Claim)]
            assert len(ours) == 1

    await with_each_request_lost(step, way)


async def test_a_session_that_ends_with_its_create_s_answer_leaves_a_claim_to_nobody() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=1.0) as one,
        connected(server) as two,
        two.work("/w", lag=0.02) as other,
    ):
        async with other.claim("x") as claim:
            await claim.give_back()

        def lose(request: Request) -> bool:
            is_claim = isinstance(request, Multi) and len(request.ops) == 2
            relay.is_closed = relay.is_closed or is_claim
            return is_claim

        async with one.work("/w", lag=0.02) as work:
            relay.lose_answer = lose
            taking = asyncio.create_task(work.take(["x"]))
            await eventually(lambda: _closed(relay))
            session_id = one.session_id
            await eventually(lambda: _is(other, "x", "free"), timeout=10)
            relay.lose_answer = lambda request: False
            relay.is_closed = False
            try:
                found = (await asyncio.wait_for(taking, 10))["x"]
            except SessionExpired:
                return
            if isinstance(found, Claim):
                assert one.session_id != session_id
                assert found.session_id == one.session_id
                found.ensure()


async def _closed(relay: Any) -> bool:
    return bool(relay.is_closed)


async def test_a_claim_that_we_no_longer_believe_is_given_back_if_its_session_lives() -> None:
    """Else the item would be nobody's until that session ends."""
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=2.0) as one,
        connected(server) as two,
        two.work("/w", lag=0.02) as other,
        one.work("/w", lag=0.02, grace=1.2) as work,
    ):
        with pytest.raises(ClaimLost):
            async with work.claim("x") as claim:
                session_id = one.session_id
                relay.is_closed = True
                relay.cut()
                try:
                    await claim.lost.wait()
                finally:
                    relay.is_closed = False
        await eventually(lambda: _is(other, "x", "free"), timeout=5)

        assert one.session_id == session_id


async def test_a_run_goes_on_through_cut_connections() -> None:
    done: list[str] = []
    items = [f"o{number}" for number in range(40)]
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=4.0) as one,
        one.work("/w", lag=0.02) as work,
    ):

        async def handle(claim: Claim) -> None:
            done.append(claim.item)
            if len(done) % 7 == 0:
                relay.cut()
            await asyncio.sleep(0.001)

        counters = await asyncio.wait_for(
            work.run(lambda: items, handle, until_empty=True, idle=0.05), 30
        )

    assert sorted(done) == sorted(items)
    assert counters.done == len(items)


async def test_marking_by_hand_without_an_answer_says_so_and_marks_once() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
    ):
        work = one.work("/w")
        await work.done("first")
        relay.lose_answer = Nth(1, Delete)
        with pytest.raises(FateUnknown):
            await work.retry("first")

        assert await work.look("first") is None
