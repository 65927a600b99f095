"""Queues, counters, values and barriers on Apache ZooKeeper, through a relay that loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apache import ApacheServer
from tests.faults.recipes_relay import Relay, relay_to
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import BrokenBarrier, ItemUnknown
from incumbent.wire import Ping, Request


@asynccontextmanager
async def session(hosts: str, root: str = "") -> AsyncIterator[aio.Zk]:
    async with aio.connect(hosts + root, session_timeout=5.0, timeout=15.0) as zk:
        yield zk


@asynccontextmanager
async def relayed(apache: ApacheServer) -> AsyncIterator[tuple[Relay, aio.Zk]]:
    host, _, port = apache.hosts.rpartition(":")
    async with relay_to(host, int(port)) as relay, session(relay.hosts) as zk:
        yield relay, zk


class EverySo:
    """Loses each n-th answer."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = self.lost = 0

    def __call__(self, request: Request) -> bool:
        if isinstance(request, Ping):
            return False
        self.seen += 1
        self.lost += (loses := self.seen % self.number == 0)
        return loses


async def test_every_item_is_taken_once_by_takers_that_lose_answers(apache: ApacheServer) -> None:
    taken: list[bytes] = []
    unknown: set[bytes] = set()

    async def taker() -> None:
        async with relayed(apache) as (relay, zk), zk.queue("/items/q").items() as items:
            relay.lose_answer = EverySo(11)
            while True:
                try:
                    item = await items.take(0.5)
                except ItemUnknown as error:
                    unknown.add(error.data)
                    continue
                if item is None:
                    return
                taken.append(item.data)

    async with session(apache.hosts) as zk:
        for number in range(40):
            await zk.queue("/items/q").put(str(number), priority=number % 3)
        await asyncio.gather(*(taker() for _ in range(3)))
        assert await zk.queue("/items/q").size() == 0

    assert len(taken) == len(set(taken))
    assert {int(data) for data in {*taken, *unknown}} == set(range(40))


async def test_whoever_waits_gets_what_comes_below_a_root_too(apache: ApacheServer) -> None:
    async with session(apache.hosts) as plain:
        await plain.ensure("/items/root")
    async with (
        session(apache.hosts, "/items/root") as one,
        session(apache.hosts, "/items/root") as two,
    ):
        async with one.queue("/jobs").items() as items:
            for number in range(5):
                waiting = asyncio.create_task(items.take(10))
                await two.queue("/jobs").put(str(number))
                item = await waiting
                assert item is not None
                assert (item.path[:11], item.data) == ("/jobs/item-", str(number).encode())
            await two.delete("/jobs")
            waiting = asyncio.create_task(items.take(10))
            path = await two.queue("/jobs").put("anew")
            item = await waiting
            assert item is not None
            assert item.path == path
        assert await one.counter("/hits").add(2) == 2
        async with one.value("/limit").follow() as following:
            await two.value("/limit").set("7")
            await eventually(lambda: following.now == (b"7", 0))


async def test_additions_count_once_though_answers_are_lost(apache: ApacheServer) -> None:
    async def adder() -> None:
        async with relayed(apache) as (relay, zk):
            loses = relay.lose_answer = EverySo(7)
            counter = zk.counter("/items/hits")
            for _ in range(10):
                await counter.add()
            assert loses.lost

    await asyncio.gather(adder(), adder(), adder())

    async with session(apache.hosts) as zk:
        assert await zk.counter("/items/hits").get() == 30


async def test_a_double_barrier_goes_round_though_answers_are_lost(apache: ApacheServer) -> None:
    async with relayed(apache) as (relay, one), session(apache.hosts) as two:
        loses = relay.lose_answer = EverySo(9)

        async def member(zk: aio.Zk) -> None:
            for _ in range(6):
                async with zk.double_barrier("/items/b", 2, timeout=30):
                    pass

        await asyncio.gather(member(one), member(two))
        assert loses.lost


async def test_a_member_whose_session_ends_breaks_it(apache: ApacheServer) -> None:
    async with session(apache.hosts) as one:
        async with session(apache.hosts) as two:
            barriers = [zk.double_barrier("/items/broken", 2) for zk in (one, two)]
            await asyncio.gather(*(barrier.enter() for barrier in barriers))
            leaving: asyncio.Task[Any] = asyncio.create_task(barriers[0].leave())
        with pytest.raises(BrokenBarrier):
            await asyncio.wait_for(leaving, 10)


async def test_a_barrier_lets_nobody_pass_until_it_is_down(apache: ApacheServer) -> None:
    async with session(apache.hosts) as one, session(apache.hosts) as two:
        await one.barrier("/items/gate").create()
        assert await two.barrier("/items/gate").wait(0.05) is False
        waiting = asyncio.create_task(two.barrier("/items/gate").wait(20))
        await one.barrier("/items/gate").remove()
        assert await waiting is True
