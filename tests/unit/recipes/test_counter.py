"""Counters and values: who wins, at what price, and what a lost answer leaves known."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent.errors import BadVersion, MalformedValue
from incumbent.recipes.counter import Count, was_made


async def test_a_counter_begins_at_its_initial_number_and_counts_both_ways() -> None:
    async with embedded() as server, connected(server) as zk:
        counter = zk.counter("/a/hits", initial=40)

        assert await counter.get() == 40
        assert await counter.add() == 41
        assert await counter.add(3) == 44
        assert await zk.counter("/a/hits").add(-4) == 40
        assert await counter.get() == 40


async def test_a_number_that_somebody_set_by_hand_is_counted_on() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/hits", b"7")
        assert await zk.counter("/hits").add() == 8
        await zk.set("/hits", b"-1\n")
        assert await zk.counter("/hits").add() == 0
        await zk.set("/hits", b"many")
        with pytest.raises(MalformedValue, match="whole number"):
            await zk.counter("/hits").add()


async def test_a_counter_that_was_deleted_begins_anew() -> None:
    async with embedded() as server, connected(server) as zk:
        counter = zk.counter("/hits", initial=5)
        assert await counter.add() == 6
        await zk.delete("/hits")
        assert await counter.get() == 5
        assert await counter.add(10) == 15


async def test_additions_of_many_at_once_all_count() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        counters = [one.counter("/hits"), two.counter("/hits"), two.counter("/hits")]

        sums = await asyncio.gather(*(counter.add() for counter in counters for _ in range(20)))

        assert sorted(sums) == list(range(1, 61))


async def test_an_addition_costs_one_round_trip_and_three_after_somebody_elses() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        counter = one.counter("/hits")
        await counter.add()
        asked = Asked(server)
        await counter.add()
        await two.counter("/hits").add()
        alone = asked.names(one.session_id)
        asked.requests.clear()
        await counter.add()

        assert alone == ["SetData"]
        assert asked.names(one.session_id) == ["SetData", "GetData", "SetData"]


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (Count(4, (), 3, 9), Count(5, ("x",), 4, 9), True),
        (Count(4, (), 3, 9), Count(6, ("x", "y"), 5, 9), True),
        (Count(4, (), 3, 9), Count(4, (), 3, 9), False),
        (Count(4, (), 3, 9), Count(5, ("y",), 4, 9), False),
        (Count(4, (), 3, 9), Count(9, (), 4, 9), None),  # a stranger's change
        (Count(4, (), 3, 9), Count(9, ("y",), 5, 9), None),  # a stranger's and one of ours
        (Count(4, (), 3, 9), Count(5, ("y",), 4, 8), None),  # another znode
        (Count(4, (), 3, 9), Count(0), None),  # deleted since
        (Count(0), Count(0), False),
        (Count(0), Count(1, ("y",), 0, 9), False),
        (Count(0), Count(1, ("x",), 0, 9), True),
        (Count(0), Count(2, ("y", "z"), 2, 9), None),
    ],
)
def test_what_a_later_state_says_of_an_addition(
    before: Count, now: Count, verdict: bool | None
) -> None:
    assert was_made(before, now, "x") is verdict


def test_only_the_last_nonces_are_kept() -> None:
    count = Count(0)
    for number in range(100):
        count = count.plus(1, f"{number}")

    assert count.nonces == tuple(str(number) for number in range(84, 100))


# ── values


async def test_of_two_who_compare_and_set_one_wins() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        first, second = one.value("/a/limit", "10"), two.value("/a/limit", "10")
        assert await first.get() == (b"10", None)
        assert await first.compare_and_set("11", None) == 0
        with pytest.raises(BadVersion):
            await second.compare_and_set("12", None)
        assert await second.get() == (b"11", 0)
        assert await second.compare_and_set("12", 0) == 1
        with pytest.raises(BadVersion):
            await first.compare_and_set("13", 0)
        assert await first.set("14") == 2
        assert await one.get("/a/limit") == (b"14", await one.exists("/a/limit"))


async def test_updates_of_many_at_once_all_count() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        values = [one.value("/v", b""), two.value("/v", b"")]

        await asyncio.gather(
            *(value.update(lambda data: data + b"x") for value in values for _ in range(20))
        )

        assert await values[0].get() == (b"x" * 40, 39)


async def test_a_value_that_is_followed_is_had_without_asking() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.value("/v", "none").follow() as following:
            assert following.now == (b"none", None)
            assert await anext(following) == (b"none", None)
            await two.create("/v", b"1")
            assert await anext(following) == (b"1", 0)
            await two.set("/v", b"2")
            await two.set("/v", b"3")
            while following.now.data != b"3":
                await anext(following)
            await eventually(lambda: asked_twice(one))
            asked = Asked(server)
            for _ in range(1000):
                assert following.now == (b"3", 2)
            assert asked.names(one.session_id) == []
            await two.delete("/v")
            while following.now.version is not None:
                await anext(following)
            assert following.now == (b"none", None)

        async def is_unwatched() -> bool:
            return not await one.has_watch("/v")

        await eventually(is_unwatched)


async def asked_twice(zk: object) -> bool:
    """Whatever was under way is answered."""
    await zk.sync("/")  # type: ignore[attr-defined]
    await zk.sync("/")  # type: ignore[attr-defined]
    return True
