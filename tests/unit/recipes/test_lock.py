"""Locks and leaderships on the embedded server: who gets in, when, at what price."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import Deposed, LockLost, LockTimeout, MixedDialects, SessionClosed


async def test_an_uncontended_lock_costs_one_flight() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        await zk.ensure("/locks")
        async with zk.lock("/locks/a"):  # makes the directory
            pass
        await eventually(lambda: "Delete" in asked.names(zk.session_id))
        asked.requests.clear()

        async with zk.lock("/locks/a") as hold:
            before_block = asked.names(zk.session_id)
            hold.ensure()

        assert before_block == ["Create2", "GetChildren"]


async def test_the_second_waits_for_the_first_and_then_has_a_larger_token() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        entered = asyncio.Event()

        async def second() -> int:
            async with two.lock("/l") as hold:
                entered.set()
                return hold.fencing_token

        async with one.lock("/l") as hold:
            waiting = asyncio.create_task(second())
            await eventually(lambda: _count(one, "/l", 2))
            assert not entered.is_set()
        assert await waiting > hold.fencing_token


async def _count(zk: object, path: str, number: int) -> bool:
    return len(await zk.children(path)) == number  # type: ignore[attr-defined]


async def test_a_handover_costs_no_request() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        asked = Asked(server)
        taken = asyncio.Event()
        seen: list[str] = []

        async def second() -> None:
            async with two.lock("/l"):
                seen.extend(asked.names(two.session_id))
                taken.set()

        async with one.lock("/l"):
            waiting = asyncio.create_task(second())
            await eventually(lambda: asked.names(two.session_id).count("GetData") == 2)
            await eventually(lambda: "Multi" in asked.names(two.session_id))
            asked.requests.clear()
        await asyncio.wait_for(waiting, 5)

        assert [name for name in seen if name not in ("Multi",)] == []


async def test_a_lock_not_had_in_time_names_who_is_ahead_and_leaves_nothing() -> None:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.lock("/l") as hold,
    ):
        with pytest.raises(LockTimeout) as caught:
            async with two.lock("/l", timeout=0.5):
                pass

        assert caught.value.ahead == (hold.name,)
        await eventually(lambda: _count(one, "/l", 1))


@pytest.mark.parametrize("timeout", [0, None])
async def test_trying_reads_once_and_writes_nothing(timeout: float | None) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.lock("/l"):
            asked = Asked(server)
            if timeout is None:
                async with two.try_lock("/l") as hold:
                    assert hold is None
            else:
                with pytest.raises(LockTimeout):
                    async with two.lock("/l", timeout=timeout):
                        pass

            assert set(asked.names(two.session_id)) == {"GetChildren"}
        await eventually(lambda: _count(one, "/l", 0))
        async with two.try_lock("/l") as hold:
            assert hold is not None
            hold.ensure()


async def test_the_holders_znode_deleted_by_hand_ends_the_block_at_once() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(Deposed, match="deleted by somebody"):
            async with one.lead("/e", member="one") as leadership:
                await two.delete(f"/e/{leadership.name}")
                await asyncio.sleep(5)
                raise AssertionError("the block went on")
        assert leadership.lost.is_set()
        with pytest.raises(Deposed):
            leadership.ensure()


async def test_a_block_that_swallows_the_cancellation_still_ends_with_the_error() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(LockLost):
            async with one.lock("/l") as hold:
                await two.delete(f"/l/{hold.name}")
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(5)


async def test_a_cancellation_from_outside_stays_one() -> None:
    async with embedded() as server, connected(server) as zk:
        entered = asyncio.Event()

        async def work() -> None:
            async with zk.lock("/l"):
                entered.set()
                await asyncio.sleep(5)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: _count(zk, "/l", 0))


async def test_an_exception_of_the_block_releases_the_lock_and_stays_itself() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(KeyError):
            async with zk.lock("/l"):
                raise KeyError

        await eventually(lambda: _count(zk, "/l", 0))


async def test_a_transaction_is_refused_once_our_znode_is_gone() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(LockLost):
            async with one.lock("/l") as hold:
                async with hold.transaction() as t:
                    t.create("/made", b"1")
                    t.set("/made", b"2")
                assert t.results[0] == "/made"
                await two.delete(f"/l/{hold.name}")
                async with hold.transaction() as t:
                    t.set("/made", b"3")

        assert (await two.get("/made"))[0] == b"2"


async def test_a_directory_of_another_dialect_is_not_entered_and_nothing_is_left_in_it() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/e")
        await zk.create("/e/node_", ephemeral=True, sequential=True)

        with pytest.raises(MixedDialects, match="node_0000000000"):
            async with zk.lock("/e"):
                pass

        await eventually(lambda: _count(zk, "/e", 1))
        async with (
            zk.lead("/e", dialect=None, timeout=0.5) if False else zk.election("/e").observe()
        ):
            pass


async def test_a_plain_election_is_joined_in_its_dialect() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.create("/e")
        first = await one.create("/e/node_", ephemeral=True, sequential=True)
        watching: list[str | None] = []

        async def second() -> str:
            async with two.lead(
                "/e", dialect=None, on_change=lambda place: watching.append(place.watching)
            ) as leadership:
                return leadership.name

        waiting = asyncio.create_task(second())
        await eventually(lambda: watching)
        await one.delete(first.path)

        assert await asyncio.wait_for(waiting, 5) == "node_0000000001"
        assert watching == ["node_0000000000"]


async def test_an_observer_sees_each_leader() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        election = two.election("/e")
        async with election.observe() as views:
            assert (await anext(views)).leader is None
            async with one.lead("/e", member="one"):
                view = await anext(views)
                assert view.leader is not None
                assert view.leader.member == b"one"
                assert view.leader.session_id == one.session_id
            assert (await anext(views)).leader is None


async def test_an_observer_whose_wait_was_cancelled_misses_nothing() -> None:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        two.election("/e").observe() as views,
    ):
        assert (await anext(views)).leader is None
        async with one.lead("/e"):
            for turns in range(12):  # cancelled before, during and after its look
                looking = asyncio.create_task(anext(views))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if looking.done():
                    break
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            else:
                looking = asyncio.create_task(anext(views))
            view = await asyncio.wait_for(looking, 5)
            assert view.leader is not None


async def test_run_stands_again_after_being_deposed() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        names: list[str] = []

        async def work(leadership: object) -> str:
            names.append(leadership.name)  # type: ignore[attr-defined]
            if len(names) == 1:
                await two.delete(f"/e/{names[0]}")
                await asyncio.sleep(5)
            return "done"

        assert await asyncio.wait_for(one.election("/e").run(work), 5) == "done"
        assert len(set(names)) == 2


@pytest.mark.parametrize("timeout", [-1, -0.5])
async def test_a_negative_timeout_is_refused(timeout: float) -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="timeout"):
            async with zk.lock("/l", timeout=timeout):
                pass


async def test_a_lock_taken_again_inside_its_own_block_raises_at_once() -> None:
    async with embedded() as server, connected(server) as zk, zk.lock("/l"):
        with pytest.raises(RuntimeError, match="reentrant"):
            async with zk.lock("/l"):
                pass
        async with zk.try_lock("/l") as hold:
            assert hold is None
        with pytest.raises(LockTimeout):
            await asyncio.create_task(_takes(zk, "/l", 0.02))


async def _takes(zk: aio.Zk, path: str, timeout: float) -> None:
    async with zk.lock(path, timeout=timeout):
        pass


async def test_a_reentrant_lock_keeps_its_znode_until_the_outermost_block_ends() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        async with zk.lock("/l", reentrant=True) as outer:
            asked = Asked(server)
            async with zk.lock("/l", reentrant=True) as inner, zk.lock("/l", reentrant=True):
                assert inner is outer
            assert await other.children("/l") == [outer.name]
            outer.ensure()
            assert asked.names(zk.session_id, without=("Ping", "Multi", "GetData")) == []
            with pytest.raises(LockTimeout):  # another task is another owner
                await asyncio.create_task(_takes_again(zk, 0.02))
        await eventually(lambda: _count(other, "/l", 0))


async def _takes_again(zk: aio.Zk, timeout: float) -> None:
    async with zk.lock("/l", reentrant=True, timeout=timeout):
        pass


async def test_a_reentrant_lock_that_is_lost_is_not_entered_again() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(LockLost):
            async with one.lock("/l", reentrant=True) as hold:
                await two.delete(f"/l/{hold.name}")
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(5)
                with pytest.raises(LockLost):
                    async with one.lock("/l", reentrant=True):
                        raise AssertionError("entered")


@pytest.mark.parametrize("dialect", ["ours", "curator-lock", "plain:n_"])
async def test_a_holder_is_asked_to_give_way_and_nothing_is_taken_from_it(dialect: str) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        assert await two.revoke("/l") is None
        async with one.lock("/l", dialect=dialect, member="one") as hold:
            assert not hold.asked.is_set()

            assert await two.revoke("/l") == hold.name

            await asyncio.wait_for(hold.asked.wait(), 5)
            hold.ensure()
        async with two.lock("/l", dialect=dialect, timeout=5) as hold:
            assert not hold.asked.is_set()


async def test_after_the_block_the_same_task_takes_it_again() -> None:
    async with embedded() as server, connected(server) as zk:
        for _ in range(3):
            await _takes(zk, "/l", 5)


async def test_a_client_closed_inside_the_block_ends_it_and_its_hold() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(Deposed):
            async with one.lead("/e") as leadership:
                await one.close()
                await asyncio.sleep(5)
        assert leadership.lost.is_set()
        await asyncio.wait_for(_takes(two, "/e", 5), 5)


async def test_every_call_after_close_raises_at_once() -> None:
    async with embedded() as server:
        zk = await connected(server)
        await zk.close()
        for call in (
            zk.children("/"),
            zk.create("/x"),
            zk.ensure("/x"),
            _takes(zk, "/l", 5),
            zk.election("/e").view(),
            zk.contenders("/q").enter(),
        ):
            with pytest.raises(SessionClosed):
                await asyncio.wait_for(call, 1)
        await zk.close()


async def test_closing_with_one_who_waits_ends_the_wait() -> None:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.lock("/l"),
    ):
        waiting = asyncio.create_task(_takes(two, "/l", 20))
        await eventually(lambda: _count(one, "/l", 2))

        await two.close()

        with pytest.raises(SessionClosed):
            await asyncio.wait_for(waiting, 1)
        await eventually(lambda: _count(one, "/l", 1))
