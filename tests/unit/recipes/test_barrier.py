"""A barrier: who waits, who passes, at what price."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually


async def test_whoever_comes_while_it_is_up_passes_when_it_is_down() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        barrier = one.barrier("/a/gate")
        assert await barrier.create("why") is True
        assert await two.barrier("/a/gate").create() is False
        waiting = asyncio.create_task(two.barrier("/a/gate").wait())
        assert await two.barrier("/a/gate").wait(0.03) is False
        assert await two.barrier("/a/gate").wait(0) is False
        assert not waiting.done()

        assert await barrier.remove() is True

        assert await asyncio.wait_for(waiting, 5) is True
        assert await barrier.remove() is False
        assert await barrier.wait(0) is True


async def test_a_change_of_its_data_lets_nobody_pass() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.barrier("/gate").create()
        asked = Asked(server)
        waiting = asyncio.create_task(two.barrier("/gate").wait())
        for number in range(1, 4):
            await eventually(lambda n=number: asked.names(two.session_id).count("GetData") == n)
            await one.set("/gate", b"still")
        assert not waiting.done()
        await one.barrier("/gate").remove()
        assert await asyncio.wait_for(waiting, 5)


async def test_whoever_waited_passes_though_it_is_put_up_again_at_once() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.barrier("/gate").create()
        asked = Asked(server)
        waiting = asyncio.create_task(two.barrier("/gate").wait())
        await eventually(lambda: "GetData" in asked.names(two.session_id))
        async with one.transaction() as t:
            t.delete("/gate")
            t.create("/gate")

        assert await asyncio.wait_for(waiting, 5) is True
        assert await two.barrier("/gate").wait(0) is False


async def test_each_step_costs_one_round_trip_and_passing_none() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        asked = Asked(server)
        await one.barrier("/gate").create()
        waiting = asyncio.create_task(two.barrier("/gate").wait())
        await eventually(lambda: asked.names(two.session_id) == ["Multi", "GetData"])
        await one.barrier("/gate").remove()
        await waiting

        assert asked.names(one.session_id) == ["Create2", "Delete"]
        assert asked.names(two.session_id) == ["Multi", "GetData"]


async def test_a_thousand_waits_that_timed_out_leave_no_watch() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.barrier("/gate").create()
        await asyncio.gather(*(zk.barrier("/gate").wait(0.01) for _ in range(1000)))

        async def is_unwatched() -> bool:
            return not await zk.has_watch("/gate")

        await eventually(is_unwatched)


async def test_a_negative_timeout_is_refused() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="timeout"):
            await zk.barrier("/gate").wait(-1)
