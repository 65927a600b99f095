"""Queues of items: order, price, and what becomes of an item when something goes wrong."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import NoNode, QueueExhausted, SessionClosed
from incumbent.recipes.items import Item
from incumbent.server import Server


async def data_of(taking: object) -> bytes | None:
    item = await taking  # type: ignore[misc]
    return None if item is None else item.data


async def test_items_come_out_by_priority_then_in_their_order() -> None:
    async with embedded() as server, connected(server) as zk:
        queue = zk.queue("/jobs")
        for data, priority in (("b", 100), ("c", 100), ("d", 999), ("a", 0)):
            await queue.put(data, priority=priority)

        assert await queue.size() == 4
        taken = [await data_of(queue.take(0)) for _ in range(5)]

        assert taken == [b"a", b"b", b"c", b"d", None]
        assert await queue.size() == 0


async def test_an_urgent_item_goes_before_those_that_a_taker_knows_already() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        queue = zk.queue("/jobs")
        for number in range(5):
            await queue.put(str(number))
        async with queue.items() as items:
            assert await data_of(items.take()) == b"0"
            await other.queue("/jobs").put("now", priority=1)
            await zk.sync("/jobs")  # its event is here when this is answered

            assert await data_of(items.take()) == b"now"
            assert await data_of(items.take()) == b"1"


async def test_whoever_waits_gets_an_item_as_it_comes_even_where_no_queue_was() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        waiting = asyncio.create_task(one.queue("/a/jobs").take(5))
        await asyncio.sleep(0)

        await two.queue("/a/jobs").put("x")

        assert await data_of(waiting) == b"x"


async def test_a_queue_whose_directory_was_deleted_delivers_the_next_item() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await two.create("/jobs")
        asked = Asked(server)
        waiting = asyncio.create_task(one.queue("/jobs").take(5))
        await eventually(lambda: "GetChildren" in asked.names(one.session_id))
        await two.delete("/jobs")

        await two.queue("/jobs").put("x")

        assert await data_of(waiting) == b"x"


async def test_a_take_that_waits_while_its_container_is_reaped_gets_the_next_item() -> None:
    async with (
        embedded(reap_every=0.02) as server,
        connected(server) as one,
        connected(server) as two,
    ):
        await two.create("/jobs", container=True)
        await two.queue("/jobs").put("x")
        assert await data_of(asyncio.create_task(one.queue("/jobs").take(5))) == b"x"
        waiting = asyncio.create_task(one.queue("/jobs").take(5))
        await eventually(lambda: _is_gone(two, "/jobs"))

        await two.queue("/jobs").put("y")

        assert await data_of(waiting) == b"y"


async def test_none_is_taken_within_the_timeout_and_no_watch_stays() -> None:
    async with embedded() as server, connected(server) as zk:
        assert await zk.queue("/jobs").take(0) is None
        assert await zk.queue("/jobs").take(0.05) is None
        assert await zk.queue("/jobs").peek() is None
        await eventually(lambda: _is_unwatched(zk))


async def _is_gone(zk: aio.Zk, path: str) -> bool:
    return not await zk.exists(path)


async def _is_unwatched(zk: aio.Zk) -> bool:
    return not await zk.has_watch("/jobs")


async def test_a_take_behind_another_one_keeps_to_its_own_time() -> None:
    async with embedded() as server, connected(server) as zk, zk.queue("/jobs").items() as items:
        first = asyncio.create_task(items.take())
        await asyncio.sleep(0)

        assert await asyncio.wait_for(items.take(0.05), 5) is None
        assert await asyncio.wait_for(items.take(0), 5) is None
        assert await asyncio.wait_for(items.peek(0), 5) is None

        await zk.queue("/jobs").put("x")
        assert await data_of(first) == b"x"


@pytest.mark.parametrize("wrong", [-1, 1000])
async def test_a_priority_out_of_range_is_refused(wrong: int) -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="from 0"):
            await zk.queue("/jobs").put("x", priority=wrong)
        with pytest.raises(ValueError, match="timeout"):
            await zk.queue("/jobs").take(-1)


async def test_eight_takers_share_out_every_item_once() -> None:
    async with embedded() as server, connected(server) as zk:
        queue = zk.queue("/jobs")
        for number in range(100):
            await queue.put(str(number))
        taken: list[bytes] = []

        async def taker() -> None:
            async with connected(server) as mine, mine.queue("/jobs").items() as items:
                while item := await items.take(0):
                    taken.append(item.data)

        await asyncio.gather(*(taker() for _ in range(8)))

        assert sorted(taken, key=int) == [str(number).encode() for number in range(100)]


async def test_taking_one_after_the_other_costs_two_round_trips_each() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        for number in range(4):
            await other.queue("/jobs").put(str(number))
        queue = zk.queue("/jobs")
        await queue.take()
        asked = Asked(server)

        taken = [await queue.take() for _ in range(3)]

        assert [item and item.data for item in taken] == [b"1", b"2", b"3"]
        assert asked.names(zk.session_id) == ["GetChildren", "GetData", "Delete"] * 3


async def test_an_item_expected_in_vain_is_passed_over() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        for data in ("first", "second", "third"):
            await other.queue("/jobs").put(data)
        queue = zk.queue("/jobs")
        await queue.take()
        await other.queue("/jobs").take()
        await other.queue("/jobs").put("urgent", priority=1)

        taken = [await queue.take(0) for _ in range(3)]

        assert [item and item.data for item in taken] == [b"urgent", b"third", None]


async def test_what_was_put_here_and_changed_by_somebody_is_taken_as_it_is_now() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        queue = zk.queue("/jobs")
        await other.set(await queue.put("as put"), b"as changed")

        item = await queue.take(0)

        assert item is not None
        assert (item.data, item.version) == (b"as changed", 1)


async def test_eight_takers_need_less_than_four_requests_for_an_item() -> None:
    async with embedded() as server, connected(server) as zk:
        for number in range(400):
            await zk.queue("/jobs").put(str(number))
        asked = Asked(server)

        async def taker() -> None:
            async with connected(server) as mine, mine.queue("/jobs").items() as items:
                while await items.take(0):
                    pass

        await asyncio.gather(*(taker() for _ in range(8)))

        kinds = [type(request).__name__ for _, request in asked.requests]
        assert kinds.count("Delete") >= 400
        assert kinds.count("Delete") + kinds.count("GetData") < 4 * 400
        assert kinds.count("GetChildren") == 8


async def test_an_item_that_is_done_in_a_transaction_is_done_once() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.create("/total", b"0")
        queue = one.queue("/jobs")
        await queue.put("7")
        item = await queue.peek()
        again = await two.queue("/jobs").peek()
        assert item is not None
        assert again == item

        async with one.transaction() as t:
            t.delete(item.path, item.version)
            t.set("/total", item.data)
        with pytest.raises(NoNode) as caught:
            async with two.transaction() as t:
                t.delete(again.path, again.version)
                t.set("/total", b"14")

        assert caught.value.index == 0
        assert (await one.get("/total"))[0] == b"7"


async def test_an_item_that_somebody_edited_is_taken_as_it_is_now() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        queue = one.queue("/jobs")
        await queue.put("first")
        path = await queue.put("second")
        async with queue.items() as items:
            assert await data_of(items.take()) == b"first"
            await items.peek()  # its data is in hand
            await two.set(path, b"other")

            assert await data_of(items.take()) == b"other"


async def test_an_item_put_back_has_its_old_place_and_its_old_name() -> None:
    async with embedded() as server, connected(server) as zk:
        queue = zk.queue("/jobs")
        path = await queue.put("a")
        await queue.put("b")
        for _ in range(100):
            item = await queue.take(0)
            assert item is not None
            assert item.path == path
            await queue.put_back(item)

        assert await data_of(queue.take(0)) == b"a"


async def test_other_children_are_passed_over() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/jobs")
        await zk.create("/jobs/notes")
        await zk.create("/jobs/item-", sequential=True)
        await zk.queue("/jobs").put("x")

        assert await data_of(zk.queue("/jobs").take(0)) == b"x"
        assert await zk.queue("/jobs").take(0) is None


async def test_a_counter_near_its_end_refuses_items_in_time() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/jobs")
        server.do(lambda service: setattr(service.tree.nodes["/jobs"], "creations", 2_147_000_000))
        await zk.sync("/")

        with pytest.raises(QueueExhausted):
            await zk.queue("/jobs").put("x")

        assert await zk.children("/jobs") == []


async def test_after_close_every_call_raises_at_once() -> None:
    async with embedded() as server:
        zk = await connected(server)
        await zk.close()
        for call in (
            zk.queue("/q").put("x"),
            zk.queue("/q").take(),
            zk.queue("/q").peek(),
            zk.queue("/q").size(),
            zk.barrier("/b").create(),
            zk.barrier("/b").wait(),
            zk.barrier("/b").remove(),
            zk.counter("/c").add(),
            zk.counter("/c").get(),
            zk.value("/v").get(),
            zk.double_barrier("/d", 2).enter(),
            zk.value("/v").set("x"),
        ):
            with pytest.raises(SessionClosed):
                await asyncio.wait_for(call, 1)


# ── round trips


async def put_some(server: Server, number: int) -> None:
    async with connected(server) as zk:
        for k in range(number):
            await zk.queue("/jobs").put(str(k))


async def test_putting_costs_one_request_and_a_new_queue_one_flight_more() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        await zk.queue("/a/jobs").put("x")
        new = asked.names(zk.session_id)
        asked.requests.clear()
        await zk.queue("/a/jobs").put("x")

        assert asked.names(zk.session_id) == ["Create"]
        assert new == ["Create", "Create", "Create", "Create"]


async def test_taking_one_costs_three_flights() -> None:
    async with embedded() as server:
        await put_some(server, 3)
        async with connected(server) as zk:
            asked = Asked(server)
            await zk.queue("/jobs").take()
            names = asked.names(zk.session_id, without=("Ping", "RemoveWatches"))

    assert names == ["GetChildren", "GetData", "Delete"]


async def test_looking_costs_two_flights_and_finding_nothing_one() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        assert await zk.queue("/jobs").take(0) is None
        nothing = asked.names(zk.session_id)
        await zk.queue("/jobs").put("x")
        asked.requests.clear()
        assert await zk.queue("/jobs").peek() is not None

        assert nothing == ["GetChildren"]
        assert asked.names(zk.session_id) == ["GetChildren", "GetData"]


async def test_taking_on_costs_one_flight_for_each_item() -> None:
    async with embedded() as server:
        await put_some(server, 4)
        async with connected(server) as zk, zk.queue("/jobs").items() as items:
            await items.take()
            asked = Asked(server)
            await items.take()
            await items.take()
            await items.take()

            assert asked.names(zk.session_id) == [
                *("Delete", "GetData"),
                *("Delete", "GetData"),
                "Delete",
            ]


async def test_an_idle_taker_asks_nothing() -> None:
    async with embedded() as server, connected(server) as zk, zk.queue("/jobs").items() as items:
        asked = Asked(server)
        waiting = asyncio.create_task(items.take())
        await eventually(lambda: "GetChildren" in asked.names(zk.session_id))
        asked.requests.clear()
        async with connected(server) as other:
            await other.create("/elsewhere")
            await other.create("/jobs")

        assert asked.names(zk.session_id) == []
        waiting.cancel()
        await asyncio.wait([waiting])


# ── cancelled


async def test_a_take_cancelled_anywhere_loses_nothing_and_keeps_the_order() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        queue = zk.queue("/jobs")
        for data in ("a", "b"):
            await queue.put(data)
        for turns in range(60):
            taking = asyncio.create_task(queue.take(5))
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.wait([taking])
            if not taking.cancelled():
                assert taking.result().data == b"a"
                break
            assert await other.queue("/jobs").size() == 2, turns
        else:
            raise AssertionError("it never got so far")
        assert await data_of(other.queue("/jobs").take(0)) == b"b"


async def test_a_take_that_timed_out_while_it_deleted_put_the_item_back() -> None:
    async with embedded() as server, connected(server) as zk:
        queue = zk.queue("/jobs")
        path = await queue.put("a")
        for turns in range(100):
            item: Item | None = None
            try:
                async with asyncio.timeout(turns / 20_000):
                    item = await queue.take()
            except TimeoutError:
                assert await zk.children("/jobs") == [path[len("/jobs/") :]]
            else:
                assert item is not None
                break
