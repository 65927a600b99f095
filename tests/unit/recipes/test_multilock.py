"""Several locks as one on the embedded server: all or none, no circle, one token."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import LockLost, LockTimeout, NoNode

PATHS = ("/a", "/b", "/c")


@contextlib.asynccontextmanager
async def two_sessions() -> AsyncIterator[tuple[Any, aio.Zk, aio.Zk]]:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        for path in PATHS:
            await one.create(path, container=True)
        yield server, one, two


async def standing(zk: aio.Zk, *paths: str) -> list[int]:
    numbers = []
    for path in paths or PATHS:
        try:
            numbers.append(len(await zk.children(path)))
        except NoNode:
            numbers.append(0)
    return numbers


async def _are(zk: aio.Zk, *numbers: int) -> bool:
    return await standing(zk) == list(numbers)


async def test_uncontended_it_costs_two_flights_however_many_they_are() -> None:
    async with two_sessions() as (server, one, _):
        asked = Asked(server)
        async with one.multilock(PATHS).acquire() as hold:
            hold.ensure()
            sent = asked.names(one.session_id)

        assert sent[:7] == ["Multi", *["GetChildren"] * 3, *["Exists"] * 3]
        assert set(sent[7:]) <= {"Multi", "GetData"}  # beats, and the watches on our own znodes


async def test_new_directories_are_made_in_one_flight_more() -> None:
    async with embedded() as server, connected(server) as zk:
        async with zk.multilock(["/x/y/a", "/x/z/b"]).acquire():
            assert await standing(zk, "/x/y/a", "/x/z/b") == [1, 1]
        await eventually(lambda: _none(zk))


async def _none(zk: aio.Zk) -> bool:
    return await standing(zk, "/x/y/a", "/x/z/b") == [0, 0]


async def test_it_has_one_token_good_for_each_of_them() -> None:
    async with two_sessions() as (_, one, two):
        async with one.multilock(PATHS).acquire() as hold:
            for path in PATHS:
                (name,) = await two.children(path)
                stat = await two.exists(f"{path}/{name}")
                assert stat is not None
                assert stat.czxid == hold.fencing_token
        for path in PATHS:
            async with two.lock(path, timeout=5) as later:
                assert later.fencing_token > hold.fencing_token


async def test_in_opposite_orders_they_never_wait_in_a_circle() -> None:
    async with two_sessions() as (_, one, two):
        inside: list[str] = []
        rounds = 0

        async def use(zk: aio.Zk, paths: tuple[str, ...], name: str) -> None:
            nonlocal rounds
            for _ in range(15):
                async with zk.multilock(paths).acquire(timeout=10):
                    assert inside == []
                    inside.append(name)
                    await asyncio.sleep(0)
                    inside.remove(name)
                    rounds += 1

        await asyncio.gather(
            use(one, ("/a", "/b"), "one"),
            use(two, ("/b", "/a"), "two"),
            use(one, ("/c", "/b"), "three"),
            use(two, ("/b", "/c", "/a"), "four"),
        )

        assert rounds == 60
        await eventually(lambda: _are(one, 0, 0, 0))


async def test_while_one_of_them_is_held_by_another_none_is_ours() -> None:
    async with two_sessions() as (_, one, two):
        async with one.lock("/b") as other:
            with pytest.raises(LockTimeout) as caught:
                async with two.multilock(PATHS).acquire(timeout=0.5):
                    raise AssertionError("inside")
            assert caught.value.ahead == (other.name,)
            await eventually(lambda: _are(one, 0, 1, 0))
            async with two.multilock(PATHS).try_acquire() as hold:
                assert hold is None
            with pytest.raises(LockTimeout):
                async with two.multilock(PATHS).acquire(timeout=0):
                    pass
            assert await standing(one) == [0, 1, 0]
        await eventually(lambda: _are(one, 0, 0, 0))
        async with two.multilock(PATHS).try_acquire() as hold:
            assert hold is not None
            hold.ensure()


async def test_one_znode_deleted_by_hand_ends_all() -> None:
    async with two_sessions() as (_, one, two):
        with pytest.raises(LockLost, match="deleted by somebody"):
            async with one.multilock(PATHS).acquire():
                (name,) = await two.children("/c")
                await two.delete(f"/c/{name}")
                await asyncio.sleep(5)
        await eventually(lambda: _are(two, 0, 0, 0))


async def test_a_znode_deleted_while_we_waited_elsewhere_is_noticed_before_we_are_inside() -> None:
    async with two_sessions() as (_, one, two):
        entered = asyncio.Event()

        async def use() -> None:
            async with one.multilock(PATHS).acquire():
                assert await standing(two) == [1, 1, 1]
                entered.set()

        async with two.lock("/a"):
            task = asyncio.create_task(use())
            await eventually(lambda: _are(two, 2, 1, 1))
            (name,) = await two.children("/c")
            await two.delete(f"/c/{name}")
            await asyncio.sleep(0)
            assert not entered.is_set()
        await asyncio.wait_for(task, 5)


async def test_a_transaction_is_refused_once_any_of_them_is_gone() -> None:
    async with two_sessions() as (_, one, two):
        with pytest.raises(LockLost):
            async with one.multilock(PATHS).acquire() as hold:
                async with hold.transaction() as t:
                    t.create("/made")
                assert t.results == ["/made"]
                (name,) = await two.children("/b")
                await two.delete(f"/b/{name}")
                async with hold.transaction() as t:
                    t.create("/more")
        assert await two.exists("/more") is None


async def test_taken_inside_its_own_block_it_raises_at_once() -> None:
    async with two_sessions() as (_, one, _):
        async with one.multilock(["/a", "/b"]).acquire():
            for guarded in (one.lock("/b"), one.multilock(["/c", "/a"]).acquire()):
                with pytest.raises(RuntimeError, match="wait for itself"):
                    async with guarded:
                        pass
        async with one.lock("/b", timeout=5), one.multilock(["/a"]).acquire(timeout=5):
            pass


@pytest.mark.parametrize("paths", [[], ["/a", "/a"]])
async def test_no_path_or_one_twice_is_refused(paths: list[str]) -> None:
    async with two_sessions() as (_, one, _):
        with pytest.raises(ValueError, match="at least one, and none twice"):
            one.multilock(paths)


async def test_a_dialect_without_ids_is_refused_and_curators_is_not() -> None:
    async with two_sessions() as (_, one, _):
        with pytest.raises(ValueError, match="Curator"):
            one.multilock(PATHS, dialect="plain:n_")
        async with one.multilock(PATHS, dialect="curator-lock").acquire() as hold:
            assert hold.name.startswith("_c_")


@pytest.mark.parametrize("held", [None, "/a", "/c"])
async def test_cancelled_after_any_number_of_loop_turns_nothing_is_left(held: str | None) -> None:
    async with two_sessions() as (_, one, two):

        async def attempt() -> None:
            async with two.multilock(PATHS).acquire():
                await asyncio.sleep(5)

        async with one.lock(held) if held else contextlib.nullcontext():
            for turns in range(45):
                task = asyncio.create_task(attempt())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await eventually(lambda: _are(one, *(int(path == held) for path in PATHS)))
        await eventually(lambda: len(two.client._watches) == 0)
