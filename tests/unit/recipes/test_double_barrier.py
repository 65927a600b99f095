"""A double barrier: together in, together out, or broken for all of the round."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import BarrierTimeout, BrokenBarrier, MalformedValue, SessionClosed
from incumbent.recipes.double_barrier import DoubleBarrier
from incumbent.recipes.round import MOST, Word


async def is_empty(zk: aio.Zk, path: str = "/b") -> bool:
    stat = await zk.exists(path)
    return stat is None or stat.numChildren == 0


async def ends(*waiting: Awaitable[object]) -> list[object]:
    """What each returns or raises."""
    return list(await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10))


async def test_nobody_is_inside_before_all_came_nor_outside_before_all_left() -> None:
    async with embedded() as server, connected(server) as zk:
        log: list[str] = []

        async def member(name: str) -> None:
            async with connected(server) as mine, mine.double_barrier("/b", 3):
                log.append(f"{name} in")
                await eventually(lambda: len(log) >= 3)
                log.append(f"{name} leaves")
            log.append(f"{name} out")

        waiting = [asyncio.create_task(member(name)) for name in "ab"]
        await eventually(lambda: _stand(zk, 2))
        assert log == []

        assert await ends(*waiting, member("c")) == [None] * 3

        steps = [line.split()[1] for line in log]
        assert steps == ["in"] * 3 + ["leaves"] * 3 + ["out"] * 3
        await eventually(lambda: is_empty(zk))


async def _stand(zk: aio.Zk, number: int) -> bool:
    return await zk.exists("/b") is not None and len(await zk.children("/b")) == number


async def test_a_path_is_used_again_and_again_by_members_of_different_speed() -> None:
    turns_each = 20
    async with embedded() as server, connected(server) as one, connected(server) as two:
        count = {"in": 0, "out": 0}

        async def member(zk: aio.Zk, turns: int) -> None:
            barrier = zk.double_barrier("/b", 2)
            for number in range(turns_each):
                async with barrier:
                    count["in"] += 1
                    assert count["in"] > 2 * number
                    assert count["out"] >= 2 * number
                    for _ in range((number * turns) % 7):
                        await asyncio.sleep(0)
                count["out"] += 1

        assert await ends(member(one, 1), member(two, 3)) == [None, None]
        assert count == {"in": 2 * turns_each, "out": 2 * turns_each}
        await eventually(lambda: is_empty(one))


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_path_is_used_ten_thousand_times() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:

        async def member(zk: aio.Zk) -> None:
            for _ in range(10_000):
                async with zk.double_barrier("/b", 2, timeout=60):
                    pass

        await asyncio.gather(member(one), member(two))
        await eventually(lambda: is_empty(one))


async def test_more_members_than_fit_go_in_by_rounds() -> None:
    async with embedded() as server, connected(server) as zk:
        inside: list[int] = []
        most: list[int] = []

        async def member(number: int) -> None:
            async with connected(server) as mine, mine.double_barrier("/b", 2):
                inside.append(number)
                most.append(len(inside))
                await asyncio.sleep(0)
            inside.remove(number)

        assert await ends(*(member(number) for number in range(8))) == [None] * 8
        await eventually(lambda: is_empty(zk))


@pytest.mark.parametrize("lost", ["its block fails", "its session ends", "its znode is deleted"])
@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_member_lost_inside_breaks_the_barrier_for_all_and_it_serves_again(
    lost: str, is_waiting: bool
) -> None:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        connected(server) as three,
    ):
        barriers = [zk.double_barrier("/b", 3) for zk in (one, two, three)]
        await ends(*(barrier.enter() for barrier in barriers))
        leaving = [asyncio.create_task(barrier.leave()) for barrier in barriers[:2]]
        if is_waiting:
            await eventually(lambda: _all_wait(one, 2))
        if lost == "its block fails":
            barriers[2].abandon()
        elif lost == "its session ends":
            await three.close()
        else:
            assert barriers[2]._place is not None
            await one.delete(barriers[2]._place.path)
            with pytest.raises(BrokenBarrier, match="deleted"):
                await barriers[2].leave()

        broken = await ends(*leaving)

        assert [type(error) for error in broken] == [BrokenBarrier, BrokenBarrier]
        assert all(error.is_certain for error in broken)  # type: ignore[attr-defined]
        await eventually(lambda: is_empty(one))
        async with connected(server) as four:
            again = [*barriers[:2], four.double_barrier("/b", 3)]
            assert await ends(*(barrier.enter() for barrier in again)) == [None] * 3
            assert await ends(*(barrier.leave() for barrier in again)) == [None] * 3


async def _all_wait(zk: aio.Zk, number: int) -> bool:
    words = [Word.read(name, (await zk.get(f"/b/{name}"))[0]) for name in await zk.children("/b")]
    return [word.state for word in words].count("leaving") == number


async def test_a_members_znode_that_somebody_wrote_over_is_named() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        waiting = asyncio.create_task(one.double_barrier("/b", 2).enter())
        await eventually(lambda: _stand(two, 1))
        (name,) = await two.children("/b")
        await two.set(f"/b/{name}", b"{}")

        with pytest.raises(MalformedValue, match=name):
            await asyncio.wait_for(waiting, 5)

        await eventually(lambda: is_empty(two))


async def test_who_does_not_come_in_time_is_told_how_many_did_and_leaves_nothing() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        waiting = asyncio.create_task(two.double_barrier("/b", 3).enter())
        await eventually(lambda: _stand(one, 1))

        with pytest.raises(BarrierTimeout) as caught:
            await one.double_barrier("/b", 3, timeout=0.05).enter()

        assert (caught.value.here, caught.value.count) == (2, 3)
        await eventually(lambda: _stand(one, 1))
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually(lambda: is_empty(one))


def test_who_found_it_full_is_told_so() -> None:
    assert "1 of 3 came within 2 s" in str(BarrierTimeout("/b", 2.0, 1, 3))
    assert "3 others were there" in str(BarrierTimeout("/b", 2.0, 4, 3))


async def test_who_waits_too_long_for_the_others_to_leave_breaks_it_for_all() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        first = one.double_barrier("/b", 2, timeout=0.1)
        second = two.double_barrier("/b", 2)
        assert await ends(first.enter(), second.enter()) == [None, None]

        with pytest.raises(BrokenBarrier, match=r"within 0\.1 s"):
            await first.leave()
        with pytest.raises(BrokenBarrier, match="lost"):
            await second.leave()

        await eventually(lambda: is_empty(one))


@pytest.mark.parametrize("part", ["enter", "leave"])
async def test_a_member_cancelled_anywhere_leaves_nothing_and_hangs_nobody(part: str) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        for turns in range(0, 60, 3):
            first = one.double_barrier("/b", 2)
            second = two.double_barrier("/b", 2, timeout=5)
            other = asyncio.create_task(_whole(second))
            if part == "leave":
                await first.enter()
            step = asyncio.create_task(first.enter() if part == "enter" else first.leave())
            for _ in range(turns):
                await asyncio.sleep(0)
            step.cancel()
            await asyncio.wait([step])
            first.abandon()  # it may have been cancelled before its first step
            if step.cancelled() and part == "enter":  # it may wait still, or be broken
                other.cancel()
            (result,) = await ends(other)
            assert isinstance(result, BrokenBarrier | asyncio.CancelledError | None)
            await eventually(lambda: is_empty(one))


async def _whole(barrier: object) -> None:
    async with barrier:  # type: ignore[attr-defined]
        pass


async def test_a_member_that_times_out_as_it_is_let_in_is_in() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        for turns in range(40):
            first = one.double_barrier("/b", 2, timeout=(turns + 1) / 4000)
            other = asyncio.create_task(_whole(two.double_barrier("/b", 2)))
            try:
                await first.enter()
            except BarrierTimeout:
                other.cancel()
            else:
                with contextlib.suppress(BrokenBarrier):
                    await first.leave()
            await asyncio.wait([other])
            await eventually(lambda: is_empty(one))


@pytest.mark.parametrize(
    ("count", "timeout"), [(0, None), (-1, None), (MOST + 1, None), (2, -1.0), (2, 0)]
)
async def test_numbers_that_mean_nothing_are_refused(count: int, timeout: float | None) -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match=r"count|timeout"):
            zk.double_barrier("/b", count, timeout=timeout)


async def test_steps_out_of_turn_are_refused_at_once() -> None:
    async with embedded() as server, connected(server) as zk:
        barrier = zk.double_barrier("/b", 1)
        with pytest.raises(RuntimeError, match="enter first"):
            await barrier.leave()
        async with barrier:
            with pytest.raises(RuntimeError, match="leave first"):
                await barrier.enter()


async def test_the_largest_round_fits_into_its_multis() -> None:
    async with embedded(tick=3.0) as server, connected(server, session_timeout=60.0) as zk:
        barriers = [zk.double_barrier("/b", MOST) for _ in range(MOST)]

        for step in (DoubleBarrier.enter, DoubleBarrier.leave):
            assert await asyncio.gather(*(step(barrier) for barrier in barriers)) == [None] * MOST


async def test_closing_the_client_ends_the_wait() -> None:
    async with embedded() as server:
        zk = await connected(server)
        waiting = asyncio.create_task(zk.double_barrier("/b", 2).enter())
        await eventually(lambda: _stand(zk, 1))
        await zk.close()
        assert [type(error) for error in await ends(waiting)] == [SessionClosed]


# ── round trips


async def test_the_last_one_goes_in_with_two_flights_and_out_with_one() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.create("/b", container=True)
        first, last = one.double_barrier("/b", 2), two.double_barrier("/b", 2)
        asked = Asked(server)
        waiting = asyncio.create_task(first.enter())
        await eventually(lambda: asked.names(one.session_id)[2:] == ["GetData"])
        await last.enter()
        await waiting
        went_in = asked.names(two.session_id)
        waited = asked.names(one.session_id)
        asked.requests.clear()
        waiting = asyncio.create_task(first.leave())
        await eventually(lambda: asked.names(one.session_id).count("GetData") == 2)
        await last.leave()
        await waiting
        came_out = [n for n in asked.names(two.session_id) if n not in ("Delete", "RemoveWatches")]

    assert went_in == ["Create2", "GetChildren", "Multi"]
    assert waited == ["Create2", "GetChildren", "GetData", "GetData"]
    assert came_out[-2:] == ["SetData", "Multi"]
