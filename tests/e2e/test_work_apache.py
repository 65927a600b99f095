"""Work and its queue on Apache ZooKeeper: claims, marks, lost answers, ended sessions, old marks, and
items that come back."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.apache import ApacheServer
from tests.faults.recipes_relay import Relay, relay_to
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import ClaimLost, Taken
from incumbent.wire import Ping, Request
from incumbent.work import Claim, Work, WorkQueue

ITEMS = [f"order/{number}" for number in range(10)]


@pytest.fixture
def hosts(apache: ApacheServer) -> str:
    return apache.hosts


@asynccontextmanager
async def session(hosts: str, seconds: float = 4.0) -> AsyncIterator[aio.Zk]:
    async with aio.connect(hosts, session_timeout=seconds, timeout=15.0) as zk:
        yield zk


@asynccontextmanager
async def behind_a_relay(hosts: str, seconds: float = 4.0) -> AsyncIterator[tuple[Relay, aio.Zk]]:
    host, _, port = hosts.rpartition(":")
    async with relay_to(host, int(port)) as relay, session(relay.hosts, seconds) as zk:
        yield relay, zk


async def standing(work: Work, item: str) -> str:
    found = (await work.take([item]))[item]
    if isinstance(found, Taken):
        return found.standing
    await found.give_back()
    return "free"


async def is_free(work: Work, item: str) -> bool:
    return await standing(work, item) == "free"


async def test_two_share_a_list_and_an_old_one_brings_nothing_back(hosts: str) -> None:
    done: Tally[str] = Tally()
    async with session(hosts) as one, session(hosts) as two:

        async def go(zk: aio.Zk) -> None:
            async with zk.work("/w-share", lag=0.02) as work:
                async for claim in work.claims(ITEMS, batch=3):
                    done[claim.item] += 1
                    await asyncio.sleep(0)

        await asyncio.gather(go(one), go(two))
        assert done == dict.fromkeys(ITEMS, 1)

        async with two.work("/w-share") as work:
            assert {await standing(work, item) for item in ITEMS} == {"done"}
            await work.retry(ITEMS[0])
            assert await standing(work, ITEMS[0]) == "free"


async def test_what_fails_waits_what_is_poison_is_parked_and_tokens_grow(hosts: str) -> None:
    async with session(hosts) as zk, zk.work("/w-fail", lag=0.02) as work:
        tokens = []
        for _ in range(3):
            with pytest.raises(OSError, match="so"):
                async with work.claim("bad") as claim:
                    tokens.append(claim.fencing_token)
                    raise OSError("so")
            await eventually(lambda: is_free(work, "bad"))
        assert tokens == sorted(set(tokens))

        async with work.claim("bad") as claim:
            await claim.fail("later", retry_in=60)
        assert await standing(work, "bad") == "waiting"
        await work.retry("bad")
        async with work.claim("bad") as claim:
            await claim.park("poison")
        assert [(each.item, each.why) for each in await work.parked()] == [("bad", "poison")]


async def test_a_run_that_loses_answers_does_each_item_once(hosts: str) -> None:
    done: Tally[str] = Tally()
    seen = 0

    def every_twelfth(request: Request) -> bool:
        nonlocal seen
        if isinstance(request, Ping):
            return False
        seen += 1
        return seen % 12 == 0

    async def handle(claim: Claim) -> None:
        done[claim.item] += 1

    async with (
        behind_a_relay(hosts) as (relay, one),
        one.work("/w-run", lag=0.02) as work,
    ):
        relay.lose_answer = every_twelfth
        run = work.run(lambda: ITEMS, handle, until_empty=True, idle=0.05)
        counters = await asyncio.wait_for(run, 30)
        relay.lose_answer = lambda request: False

    assert seen >= 12
    assert done == dict.fromkeys(ITEMS, 1)
    assert counters.done == len(ITEMS)


async def test_a_lost_claim_cancels_its_block_and_another_has_the_item_after_it(hosts: str) -> None:
    async with (
        session(hosts) as two,
        two.work("/w-lost", lag=0.02) as other,
        behind_a_relay(hosts, 2.0) as (relay, one),
        one.work("/w-lost", lag=0.02) as work,
    ):
        token = 0
        with pytest.raises(ClaimLost):
            async with work.claim("x") as claim:
                token = claim.fencing_token
                relay.is_closed = True
                relay.cut()
                await asyncio.Event().wait()
        assert await standing(other, "x") == "claimed"  # lost before its session can be over
        await eventually(lambda: is_free(other, "x"), timeout=20)
        async with other.claim("x") as claim:
            assert claim.fencing_token > token
        relay.is_closed = False


async def test_old_marks_are_swept(hosts: str) -> None:
    async def is_unknown(work: Work, item: str) -> bool:
        return await work.look(item) is None

    async with session(hosts) as one, session(hosts) as two:
        async with one.work("/w-old", lag=0.1, keep_done=0.6) as work, work.claim("left behind"):
            pass
        async with two.work("/w-old", lag=0.1, keep_done=0.6) as work:
            async with work.claim("own"):
                pass
            for item in ("own", "left behind"):
                await eventually(lambda item=item: is_unknown(work, item), timeout=20)


async def test_a_queue_gives_out_in_order_again_after_a_death_and_parks_what_kills(
    hosts: str,
) -> None:
    async with session(hosts) as zk, zk.work_queue("/w-queue", tries=2) as queue:
        for data in (b"one", b"two"):
            await queue.put(data)
        assert await _taken(queue) == b"one"
        for tries in (1, 2):  # each consumer dies with it, and its session times out
            async with session(hosts, 2.0) as dying:
                consumer = await dying.work_queue("/w-queue", tries=2).__aenter__()
                claim = await asyncio.wait_for(consumer.take(), 20)
                assert claim is not None
                assert (claim.payload, claim.record.tries) == (b"two", tries)
                dying.detach()
            assert await queue.take(0) is None

        async def is_parked() -> bool:
            assert await queue.take(0) is None
            return bool(await queue.parked())

        await eventually(is_parked, timeout=20)
        (parked,) = await queue.parked()
        await queue.put(b"in a minute", delay=60)
        await queue.retry(parked.item)
        assert await _taken(queue) == b"two"
        assert await queue.take(0) is None
        assert await queue.size() == 1


async def _taken(queue: WorkQueue) -> bytes | None:
    claim = await queue.take(0)
    if claim is not None:
        await claim.done()
    return None if claim is None else claim.payload
