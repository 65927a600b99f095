"""Locks through lost replies, cut connections, expiries and deletions by hand.

Each test is a fault that a peer has shown in public.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.clock import SYSTEM
from incumbent.errors import Deposed, LockLost, LockTimeout, NoNode
from incumbent.wire import Create2, Delete, GetChildren, GetData, Request


def once(kind: type[Request], match: Callable[[Request], bool] = lambda request: True):  # type: ignore[no-untyped-def]
    """True for the first request of that kind."""
    seen: list[Request] = []

    def check(request: Request) -> bool:
        if isinstance(request, kind) and not seen and match(request):
            seen.append(request)
            return True
        return False

    check.seen = seen  # type: ignore[attr-defined]
    return check


def makes_contender(request: Request) -> bool:
    return isinstance(request, Create2) and request.flags == 3


async def empty(zk: aio.Zk, path: str) -> bool:
    return await zk.children(path) == []


async def takes(zk: aio.Zk, path: str, *, dialect: str = "ours") -> int:
    async with zk.lock(path, timeout=5, dialect=dialect) as hold:
        hold.ensure()
        return hold.fencing_token


@pytest.mark.parametrize("dialect", ["ours", "plain:node_"])
@pytest.mark.parametrize("is_answer", [True, False])
async def test_a_create_that_was_lost_is_read_back_and_stands_once(
    dialect: str, is_answer: bool
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.ensure("/l")
        lost = once(Create2, makes_contender)
        if is_answer:
            relay.lose_answer = lost
        else:
            relay.lose_request = lost

        async with one.lock("/l", timeout=5, dialect=dialect, member="x") as hold:
            assert await two.children("/l") == [hold.name]
            stat = await two.exists(f"/l/{hold.name}")
            assert stat is not None
            assert stat.ephemeralOwner == one.session_id
            assert stat.czxid == hold.fencing_token

        assert lost.seen
        await eventually(lambda: empty(two, "/l"))


async def test_both_contenders_lose_their_creates_answer_and_both_get_in() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as near,
        relay_to(server.host, server.port) as far,
        connected(near) as one,
        connected(far) as two,
    ):
        near.lose_answer = once(Create2, makes_contender)
        far.lose_answer = once(Create2, makes_contender)

        tokens = await asyncio.gather(takes(one, "/l"), takes(two, "/l"))

        assert len(set(tokens)) == 2


async def test_without_a_nonce_another_sessions_equal_znode_is_not_taken_for_ours() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.ensure("/e")
        other = await two.create("/e/n_", b"same", ephemeral=True, sequential=True)
        relay.lose_request = once(Create2, makes_contender)

        waiting = asyncio.create_task(_leads(one, "/e", b"same"))
        await eventually(lambda: _count(two, "/e", 2))
        await two.delete(other.path)

        assert await asyncio.wait_for(waiting, 5) == "n_0000000001"


async def test_two_of_one_session_without_nonces_read_back_one_znode_each() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        await two.ensure("/e")
        for k in range(4):
            creates: list[Request] = []
            relay.lose_answer = lambda request, creates=creates, k=k: (  # type: ignore[misc]
                makes_contender(request) and (creates.append(request) or len(creates) == k + 1)
            )

            names = await asyncio.gather(*(_leads(one, "/e", b"same") for _ in range(4)))

            assert len(set(names)) == 4
        await eventually(lambda: empty(two, "/e"))


async def _leads(zk: aio.Zk, path: str, member: bytes) -> str:
    async with zk.lead(path, member=member, dialect="plain:n_", timeout=10) as leadership:
        return leadership.name


async def _count(zk: aio.Zk, path: str, number: int) -> bool:
    return len(await zk.children(path)) == number


async def test_a_predecessor_that_left_while_we_were_cut_off_is_noticed() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        asked = Asked(server)
        async with two.lock("/l"):
            waiting = asyncio.create_task(takes(one, "/l"))
            await eventually(lambda: "Multi" in asked.names(one.session_id))
            relay.is_closed = True
            relay.cut()
        await eventually(lambda: _count(two, "/l", 1))
        relay.is_closed = False

        await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_predecessor_deleted_as_its_watch_is_set_is_noticed(when: str) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        first = await two.create("/x__lock__", ephemeral=True, sequential=True)
        await two.ensure("/l")
        first = await two.create("/l/x__lock__", ephemeral=True, sequential=True)
        deletions: list[asyncio.Task[None]] = []

        def delete() -> None:
            if not deletions:
                deletions.append(asyncio.get_running_loop().create_task(two.delete(first.path)))

        def answered(request: Request) -> None:
            if isinstance(request, GetData if when == "after" else GetChildren):
                delete()

        relay.on_answer = answered

        assert await asyncio.wait_for(takes(one, "/l"), 5) > first.stat.czxid


async def test_the_session_expires_while_waiting_and_we_stand_again_in_the_next_one() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.5) as one,
        connected(server) as two,
    ):
        old = one.session_id
        async with two.lock("/l"):
            waiting = asyncio.create_task(_owner(one, "/l"))
            await eventually(lambda: _count(two, "/l", 2))
            relay.is_closed = True
            relay.cut()
            await eventually(lambda: _count(two, "/l", 1))
            relay.is_closed = False
            await eventually(lambda: _count(two, "/l", 2))
            assert not waiting.done()

        owner = await asyncio.wait_for(waiting, 5)
        assert owner == one.session_id != old


async def _owner(zk: aio.Zk, path: str) -> int:
    async with zk.lock(path) as hold:
        stat = await zk.exists(f"{path}/{hold.name}")
        assert stat is not None
        return stat.ephemeralOwner


@pytest.mark.parametrize("fault", ["cut", "silence"])
async def test_a_holder_that_is_cut_off_stops_before_the_next_one_begins(fault: str) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=1.0) as one,
        connected(server) as two,
    ):
        events: list[str] = []
        entered = asyncio.Event()

        async def hold() -> None:
            with pytest.raises(Deposed):
                async with one.lead("/e") as leadership:
                    entered.set()
                    try:
                        await asyncio.Event().wait()  # until it is cancelled
                    finally:
                        events.append("one ends")
                        left = leadership.valid_until - SYSTEM.boottime()
                        assert 0 < left <= 0.1, "it was told before its grace, a tenth, began"

        holding = asyncio.create_task(hold())
        await entered.wait()
        waiting = asyncio.create_task(_begins(two, "/e", events))
        await eventually(lambda: _count(two, "/e", 2))
        if fault == "cut":
            relay.is_closed = True
            relay.cut()
        else:
            relay.is_silent = True

        await asyncio.wait_for(waiting, 5)
        assert events == ["one ends", "two begins"]
        relay.is_closed = relay.is_silent = False
        await holding


async def _begins(zk: aio.Zk, path: str, events: list[str]) -> None:
    async with zk.lead(path):
        events.append("two begins")


async def test_a_short_outage_ends_no_hold() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=2.0) as one,
        one.lock("/l") as hold,
    ):
        for _ in range(3):
            before = hold.valid_until
            relay.cut()
            await eventually(lambda before=before: hold.valid_until > before)  # type: ignore[misc]
        hold.ensure()


async def test_a_lost_answer_to_the_release_leaves_nothing_behind() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        relay.lose_answer = once(Delete)
        await takes(one, "/l")

        await eventually(lambda: empty(two, "/l"))
        await takes(one, "/l")
        relay.lose_answer = lambda request: False
        relay.lose_request = once(Delete)
        await takes(one, "/l")
        await takes(one, "/l")
        await eventually(lambda: empty(two, "/l"))


@pytest.mark.parametrize("dialect", ["ours", "plain:n_"])
@pytest.mark.parametrize("is_answer", [True, False])
@pytest.mark.parametrize("k", range(8))
async def test_the_connection_is_cut_at_the_kth_request_of_a_contended_lock(
    dialect: str, is_answer: bool, k: int
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        asked = Asked(server)
        counted: list[Request] = []

        def kth(request: Request) -> bool:
            counted.append(request)
            return len(counted) == k + 1

        async with two.lock("/l", dialect=dialect):
            if is_answer:
                relay.lose_answer = kth
            else:
                relay.lose_request = kth
            waiting = asyncio.create_task(takes(one, "/l", dialect=dialect))
            await eventually(lambda: _count(two, "/l", 2))
            await eventually(lambda: "Multi" in asked.names(one.session_id))
        await asyncio.wait_for(waiting, 5)

        await takes(two, "/l", dialect=dialect)
        await eventually(lambda: empty(two, "/l"))


async def test_the_directory_removed_between_two_locks_is_made_again() -> None:
    async with embedded() as server, connected(server) as zk:
        await takes(zk, "/a/b/l")
        await eventually(lambda: empty(zk, "/a/b/l"))
        for path in ("/a/b/l", "/a/b", "/a"):
            await zk.delete(path)

        await takes(zk, "/a/b/l")


async def test_the_whole_directory_deleted_by_hand_ends_the_hold_and_the_waiter_stands_again() -> (
    None
):
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(LockLost):
            async with one.lock("/l"):
                waiting = asyncio.create_task(takes(two, "/l"))
                await eventually(lambda: _count(one, "/l", 2))
                for name in await one.children("/l"):
                    with contextlib.suppress(NoNode):  # the waiter had it, and gave it back
                        await one.delete(f"/l/{name}")
                await asyncio.Event().wait()  # until it is cancelled

        await asyncio.wait_for(waiting, 5)


async def test_many_waits_in_vain_leave_no_watch_and_no_znode() -> None:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.lock("/l"),
    ):

        async def in_vain() -> None:
            with pytest.raises(LockTimeout):
                async with two.lock("/l", timeout=0.02):
                    pass

        for _ in range(10):
            await asyncio.gather(*(in_vain() for _ in range(20)))

        await eventually(lambda: _count(one, "/l", 1))
        await eventually(lambda: len(two.client._watches) == 0)


async def test_cancelled_after_any_number_of_loop_turns_nothing_is_left() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        for dialect in ("ours", "plain:n_"):
            path = f"/{dialect[:5]}"
            await one.ensure(path)
            for is_contended in (False, True):
                for turns in range(40):
                    await _cancelled(one, two, path, dialect, is_contended, turns)
        assert len(two.client._watches) == 0


async def _cancelled(
    one: aio.Zk, two: aio.Zk, path: str, dialect: str, is_contended: bool, turns: int
) -> None:
    async def attempt() -> None:
        async with two.lock(path, dialect=dialect):
            await asyncio.sleep(5)

    async def cancel() -> None:
        task = asyncio.create_task(attempt())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    if is_contended:
        async with one.lock(path, dialect=dialect):
            await cancel()
            await eventually(lambda: _count(one, path, 1))
    else:
        await cancel()
    await eventually(lambda: empty(one, path))


async def test_an_observer_that_is_cut_off_again_and_again_ends_with_the_true_leader() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.6) as one,
        connected(server) as two,
    ):
        seen: list[str] = []
        await one.create("/of-this-session", ephemeral=True)

        async def observe() -> None:
            async with one.election("/e").observe() as views:
                async for view in views:
                    seen.append(view.leader.name if view.leader else "nobody")

        observing = asyncio.create_task(observe())
        for round_ in range(12):
            async with two.lead("/e") as leadership:
                relay.cut()
                if round_ == 6:  # long enough for its session to end
                    relay.is_closed = True
                    relay.cut()
                    await eventually(lambda: _is_gone(two, "/of-this-session"))
                    relay.is_closed = False
                await eventually(lambda name=leadership.name: seen and seen[-1] == name)  # type: ignore[misc]
        await eventually(lambda: seen[-1] == "nobody")
        assert not observing.done()
        observing.cancel()


async def _is_gone(zk: aio.Zk, path: str) -> bool:
    return await zk.exists(path) is None


async def test_many_reconnects_while_waiting_keep_the_place() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        async with two.lock("/l"):
            waiting = asyncio.create_task(takes(one, "/l"))
            await eventually(lambda: _count(two, "/l", 2))
            for _ in range(20):
                relay.cut()
                await eventually(lambda: one.state is State.SUSPENDED)
                await eventually(lambda: one.state is State.CONNECTED)
            assert await _count(two, "/l", 2)
        await asyncio.wait_for(waiting, 5)
