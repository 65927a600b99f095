"""Claims on the embedded server: who has what, what they cost, and how each of them ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import ClaimLost, NumbersDontFit, SessionError, Taken
from incumbent.work import Claim, Work
from incumbent.work.records import SHARDS

ITEMS = [f"order/{number}" for number in range(40)]


@contextlib.asynccontextmanager
async def two_workers(**more: Any) -> AsyncIterator[tuple[Any, Work, Work]]:
    settings = {"lag": 0.05} | more
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.work("/w", **settings) as first,
        two.work("/w", **settings) as second,
    ):
        yield server, first, second


async def taken(work: Work, item: str) -> str:
    try:
        async with work.claim(item) as claim:
            await claim.give_back()
    except Taken as error:
        return error.standing
    return "free"


async def test_an_item_is_one_worker_s_until_it_is_done_and_then_nobody_s() -> None:
    async with two_workers() as (_, one, two):
        async with one.claim("x") as claim:
            assert await taken(two, "x") == "claimed"
            assert await taken(one, "x") == "claimed"
            await claim.done()

        assert await taken(two, "x") == "done"
        assert await taken(one, "x") == "done"


async def test_two_who_take_the_same_list_share_it() -> None:
    async with two_workers() as (_, one, two):
        found: list[str] = []

        async def go(work: Work) -> None:
            async for claim in work.claims(ITEMS, batch=7):
                found.append(claim.item)
                await asyncio.sleep(0)

        await asyncio.gather(go(one), go(two))

        assert sorted(found) == sorted(ITEMS)


async def test_an_old_list_brings_nothing_back() -> None:
    async with two_workers() as (_, one, two):
        assert [claim.item async for claim in one.claims(ITEMS)] == ITEMS
        await one.leave()

        assert [claim.item async for claim in two.claims(ITEMS)] == []


async def test_a_batch_is_one_flight_and_its_ends_another_of_few_transactions() -> None:
    async with embedded() as server, connected(server) as zk:
        for shard in SHARDS:
            await zk.create(f"/w/{shard}", container=True, parents=True)
        asked = Asked(server)
        async with zk.work("/w") as work:
            async for _claim in work.claims(ITEMS):
                pass

        few = ["Multi"] * math.ceil(len(ITEMS) / 16)
        assert asked.names(zk.session_id) == [*few, "MultiRead", *few]


async def test_one_that_is_taken_keeps_nobody_from_those_beside_it() -> None:
    async with two_workers() as (_, one, two), one.claim(ITEMS[3]), one.claim(ITEMS[20]):
        await one.done(ITEMS[5])

        found = await two.take(ITEMS)

        not_ours = {item for item, each in found.items() if isinstance(each, Taken)}
        assert not_ours == {ITEMS[3], ITEMS[5], ITEMS[20]}


async def test_an_end_that_is_refused_keeps_none_beside_it_from_being_written() -> None:
    async with two_workers() as (_, one, two):
        found = await one.take(ITEMS)
        claims = [each for each in found.values() if isinstance(each, Claim)]
        broken = claims[3]
        await two._client.set(broken.path, b"{}")

        ends = await asyncio.gather(*(each.done() for each in claims), return_exceptions=True)

        assert [each for each in ends if each is not None] == [ends[3]]
        assert isinstance(ends[3], ClaimLost)
        assert [await taken(two, each.item) for each in claims if each is not broken] == (
            ["done"] * (len(claims) - 1)
        )


async def test_a_batch_in_a_new_directory_is_three_flights() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:
        asked = Asked(server)
        await work.take(ITEMS)

        sent = asked.names(zk.session_id)
        kinds = [kind for kind, _ in itertools.groupby(sent)]
        assert kinds == ["Multi", "MultiRead", "CreateContainer", "Multi", "MultiRead"]


async def test_a_claim_in_a_known_shard_costs_one_flight_and_its_end_one_more() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w", lag=0.05) as work:
        async with work.claim("x") as claim:
            await claim.give_back()
        asked = Asked(server)
        async with work.claim("x") as claim:
            await claim.done()

        sent = [kind for kind in asked.names(zk.session_id) if kind != "GetChildren"]
        assert sent == ["Multi", "MultiRead", "Multi"]


async def test_the_token_grows_with_each_claim_and_the_key_stays() -> None:
    async with two_workers() as (_, one, two):
        found = []
        for work in (one, two, one):
            async with work.claim("x") as claim:
                found.append((claim.fencing_token, claim.key))
                await claim.fail("again")

        tokens = [token for token, _ in found]
        assert tokens == sorted(set(tokens))
        assert len({key for _, key in found}) == 1


async def test_below_another_root_it_is_the_same_item_with_the_same_key() -> None:
    async with embedded() as server:
        hosts = f"{server.host}:{server.port}"
        async with (
            aio.connect(hosts, tick=0.0) as whole,
            aio.connect(f"{hosts}/app", tick=0.0) as below,
            whole.work("/app/w") as one,
            below.work("/w") as two,
        ):
            async with one.claim("x") as claim:
                key = claim.key
                assert await taken(two, "x") == "claimed"
                await claim.give_back()
            async with two.claim("x") as claim:
                assert claim.key == key


async def test_an_exception_counts_and_a_break_gives_back() -> None:
    async with two_workers() as (_, one, two):
        with contextlib.suppress(KeyError):
            async with one.claim("x"):
                raise KeyError("so")
        await eventually(lambda: _is(two, "x", "free"))
        record = await one.look("x")
        assert record is not None
        assert (record.failures, record.why) == (1, "KeyError: 'so'")

        async for claim in one.claims(["a", "b"]):
            assert claim.item == "a"
            break
        await eventually(lambda: _is(two, "a", "free"))
        await eventually(lambda: _is(two, "b", "free"))
        assert await one.look("a") is None


async def _is(work: Work, item: str, standing: str) -> bool:
    return await taken(work, item) == standing


async def test_a_failed_claim_stands_for_the_lag_and_a_done_one_does_not() -> None:
    async with two_workers(lag=0.3) as (_, one, two):
        async with one.claim("x") as claim:
            failing = claim.fail("so")
        assert await taken(two, "x") == "claimed"
        assert not failing.done()
        await failing
        assert await taken(two, "x") == "free"


async def test_what_failed_is_not_begun_before_its_time() -> None:
    async with two_workers() as (_, one, two):
        async with one.claim("x") as claim:
            await claim.fail("so", retry_in=60)

        assert await taken(two, "x") == "waiting"
        await two.retry("x")
        assert await taken(two, "x") == "free"


async def test_parked_items_are_listed_retried_and_done_by_hand() -> None:
    async with two_workers() as (_, one, two):
        for item in ("b", "a/..", "x" * 1000):
            async with one.claim(item) as claim:
                await claim.park(f"no {item[:3]}")

        found = await two.parked()
        assert [(each.item, each.why) for each in found] == [
            ("a/..", "no a/."),
            ("b", "no b"),
            ("x" * 1000, "no xxx"),
        ]
        assert await taken(two, "b") == "parked"
        await two.retry("b")
        await two.done("a/..")
        assert await taken(one, "b") == "free"
        assert await taken(one, "a/..") == "done"


async def test_by_hand_nothing_is_changed_under_a_claim() -> None:
    async with two_workers() as (_, one, two), one.claim("x") as claim:
        with pytest.raises(Taken):
            await two.done("x")
        with pytest.raises(Taken):
            await two.retry("x")
        await claim.done()


async def test_a_dead_worker_s_items_are_taken_up_when_its_session_is_over() -> None:
    async with embedded() as server, connected(server) as two, two.work("/w") as work:
        one = await connected(server)
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(one.work("/w"))
            found = await first.take(["x"])
            assert isinstance(found["x"], Claim)
            passport = one.detach()  # its znodes stay, nobody cares for them
            assert await taken(work, "x") == "claimed"
            await eventually(lambda: _is(work, "x", "free"), timeout=10)
            record = await work.look("x")
            assert record is None or record.deaths <= 1
            assert passport.session_id


async def test_a_lost_claim_cancels_its_block_and_leaving_it_raises() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:
        begun = asyncio.Event()

        async def handle() -> None:
            async with work.claim("x"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(handle())
        await begun.wait()
        await server.stop()

        with pytest.raises(ClaimLost):
            await asyncio.wait_for(task, 10)


async def test_going_on_under_a_lost_claim_raises() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:
        with pytest.raises(ClaimLost):
            async for claim in work.claims(["x", "y"]):
                await server.stop()
                await claim.lost.wait()
                assert claim.remaining() == 0
                with pytest.raises(ClaimLost):
                    claim.ensure()


async def test_a_claim_is_lost_at_least_the_lag_before_its_session_could_be_over() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        zk.work("/w", lag=1.0) as work,
        work.claim("x") as claim,
    ):
        assert claim.remaining() <= 2.0 - 1.0


async def test_a_lag_that_leaves_no_room_is_refused() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w", lag=1.9) as work:
        with pytest.raises(NumbersDontFit, match="lag"):
            await work.take(["x"])


async def test_a_mark_that_would_not_outlive_the_lag_is_refused() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="outlive"):
            zk.work("/w", lag=1.0, keep_done=1.5)
        with pytest.raises(TypeError, match="one item"):
            async with zk.work("/w") as work:
                async for _ in work.claims("abc"):
                    pass


async def test_outside_its_block_nothing_is_claimed() -> None:
    async with embedded() as server, connected(server) as zk:
        work = zk.work("/w")
        with pytest.raises(RuntimeError, match="inside the block"):
            await work.take(["x"])
        async with work:
            pass
        with pytest.raises(RuntimeError, match="inside the block"):
            await work.take(["x"])


async def test_leaving_the_block_waits_until_the_marks_are_there() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.work("/w") as work:
            async for _ in work.claims(ITEMS):
                pass
        other = two.work("/w")
        records = [await other.look(item) for item in ITEMS]

        assert [record.state for record in records if record] == ["done"] * len(ITEMS)


async def test_a_session_that_is_closed_leaves_its_work_first() -> None:
    async with embedded() as server, connected(server) as two:
        one = await connected(server)
        work = await one.work("/w", lag=0.05).__aenter__()
        found = await work.take(["x", "y"])
        assert isinstance(found["x"], Claim)
        found["x"].begun().done()
        await one.close()

        other = two.work("/w")
        record = await other.look("x")
        assert record is not None
        assert record.state == "done"
        assert await other.look("y") is None


@pytest.mark.parametrize("turns", range(12))
async def test_cancelled_at_any_moment_it_leaves_no_claim(turns: int) -> None:
    async with two_workers() as (_, one, two):
        taking = asyncio.create_task(one.take(ITEMS))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            for found in (await taking).values():
                assert isinstance(found, Claim)
                found.give_back()

        for item in (ITEMS[0], ITEMS[-1]):
            await eventually(lambda item=item: _is(two, item, "free"))


@pytest.mark.parametrize("turns", [0, 1, 3, 6, 10])
async def test_a_block_cancelled_at_any_moment_gives_its_item_back(turns: int) -> None:
    async with two_workers() as (_, one, two):

        async def handle() -> None:
            async with one.claim("x"):
                await asyncio.Event().wait()

        task = asyncio.create_task(handle())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await eventually(lambda: _is(two, "x", "free"))


async def test_a_znode_that_somebody_deleted_is_a_lost_claim() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        connected(server) as hand,
        zk.work("/w", lag=0.05) as work,
    ):
        found = await work.take(["x"])
        claim = found["x"]
        assert isinstance(claim, Claim)
        await hand.delete(claim.path, recursive=True)
        with pytest.raises(ClaimLost, match="by somebody"):
            await claim.done()


async def test_a_closed_session_says_so() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:
        await zk.close()
        with pytest.raises((SessionError, RuntimeError)):
            await work.take(["x"])


async def test_a_claim_that_was_ended_while_it_was_being_proven_holds_nobody_up() -> None:
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:
        claim = (await work.take(["x"]))["x"]
        assert isinstance(claim, Claim)
        await claim.give_back()

        await asyncio.wait_for(work._here._prove([claim]), 5)


async def test_old_marks_are_swept_by_who_made_them_and_by_others() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.work("/w", lag=0.1, keep_done=0.6) as work:
            async for _ in work.claims(["mine"]):
                pass
            await eventually(lambda: _unknown(work, "mine"), timeout=10)
            async for _ in work.claims(["left"]):
                pass
        async with two.work("/w", lag=0.1, keep_done=0.6) as work:
            async for _ in work.claims(["tells the time"]):
                pass
            await eventually(lambda: _unknown(work, "left"), timeout=10)


async def _unknown(work: Work, item: str) -> bool:
    return await work.look(item) is None
