"""Read-write locks, semaphores and multilocks through lost replies, cut connections and expiries.

Each test is a fault that a peer has shown in public.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import HoldLost, NoNode, SessionClosed
from incumbent.recipes.hold import Hold
from incumbent.server import MemoryStore, Server
from incumbent.wire import Request, SetData

Guarded = AbstractAsyncContextManager[Hold]

KINDS: dict[str, Callable[[aio.Zk], Guarded]] = {
    "lock": lambda zk: zk.lock("/x/l", timeout=8),
    "curators lock": lambda zk: zk.lock("/x/l", timeout=8, dialect="curator-lock"),
    "reader": lambda zk: zk.rwlock("/x/l").read(timeout=8),
    "writer": lambda zk: zk.rwlock("/x/l").write(timeout=8),
    "semaphore": lambda zk: zk.semaphore("/x/s", size=1).acquire(timeout=8),
    "multilock": lambda zk: zk.multilock(["/x/l", "/x/m"]).acquire(timeout=8),
}
OTHERS = KINDS | {"reader": KINDS["writer"]}
"""Who keeps each kind out."""

DIRECTORIES = ("/x/l", "/x/m", "/x/s/queue")


async def number(zk: aio.Zk) -> int:
    """Of znodes that stand anywhere."""
    total = 0
    for path in DIRECTORIES:
        try:
            total += len(await zk.children(path))
        except NoNode:
            continue
    return total


async def _is(zk: aio.Zk, n: int) -> bool:
    return await number(zk) == n


async def takes(guarded: Guarded, *, inside: Callable[[], None] = lambda: None) -> None:
    async with guarded as hold:
        hold.ensure()
        inside()


def kth(k: int) -> Callable[[Request], bool]:
    seen: list[Request] = []

    def check(request: Request) -> bool:
        seen.append(request)
        return len(seen) == k + 1

    return check


@pytest.mark.parametrize("is_answer", [True, False], ids=["answer", "request"])
@pytest.mark.parametrize("k", range(8))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "lock" not in kind or kind[0] == "m"])
async def test_the_connection_is_cut_at_the_kth_request(kind: str, k: int, is_answer: bool) -> None:
    """Somebody holds it, we wait, get in and leave; one reply, or request, of ours is lost."""
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        alone = await _stands(two, OTHERS[kind])
        async with OTHERS[kind](two):
            if is_answer:
                relay.lose_answer = kth(k)
            else:
                relay.lose_request = kth(k)
            waiting = asyncio.create_task(takes(KINDS[kind](one)))
            await eventually(lambda: _is(two, 2 * alone))
        await asyncio.wait_for(waiting, 8)

        relay.lose_answer = relay.lose_request = lambda request: False
        await takes(OTHERS[kind](two))
        await takes(KINDS[kind](one))
        await eventually(lambda: _is(two, 0))


async def _stands(zk: aio.Zk, kind: Callable[[aio.Zk], Guarded]) -> int:
    """How many znodes one of this kind has."""
    async with kind(zk):
        alone = await number(zk)
    await eventually(lambda: _is(zk, 0))
    return alone


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_that_expires_while_waiting_stands_again_in_the_next_one(kind: str) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=0.5) as one,
        connected(server) as two,
    ):
        alone = await _stands(two, OTHERS[kind])
        old = one.session_id
        async with OTHERS[kind](two):
            waiting = asyncio.create_task(takes(KINDS[kind](one)))
            await eventually(lambda: _is(two, 2 * alone))
            relay.is_closed = True
            relay.cut()
            await eventually(lambda: _is(two, alone))
            relay.is_closed = False
            await eventually(lambda: _is(two, 2 * alone))
            assert not waiting.done()
        await asyncio.wait_for(waiting, 8)

        assert one.session_id != old
        await eventually(lambda: _is(two, 0))


@pytest.mark.parametrize("kind", KINDS)
async def test_everything_deleted_by_hand_the_waiter_stands_again(kind: str) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        alone = await _stands(two, OTHERS[kind])
        with pytest.raises(Exception, match="deleted by somebody"):
            async with OTHERS[kind](two):
                waiting = asyncio.create_task(takes(KINDS[kind](one)))
                await eventually(lambda: _is(two, 2 * alone))
                for path in DIRECTORIES:
                    if await two.exists(path) is not None:
                        await two.delete(path, recursive=True)
                await asyncio.Event().wait()  # until it is cancelled
        await asyncio.wait_for(waiting, 8)
        await eventually(lambda: _is(two, 0))


async def stays(zk: aio.Zk, until: asyncio.Event) -> None:
    async with zk.semaphore("/x/s", size=2).acquire():
        await until.wait()


@pytest.mark.parametrize("lost", ["lose_answer", "lose_request"])
async def test_a_mark_that_is_lost_is_made_all_the_same(lost: str) -> None:
    """Else who waits behind would never learn that it is the first that waits."""
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(server) as zero,
        connected(relay) as one,
        connected(server) as two,
    ):
        leave = [asyncio.Event() for _ in range(4)]
        tasks: list[asyncio.Task[None]] = []
        for zk, until in zip((zero, zero, one, two), leave, strict=True):
            tasks.append(asyncio.create_task(stays(zk, until)))
            await eventually(lambda: _is(two, len(tasks)))
        marks: list[Request] = []

        def first_mark(request: Request) -> bool:
            marks.extend([request] if isinstance(request, SetData) else [])
            return isinstance(request, SetData) and len(marks) == 1

        setattr(relay, lost, first_mark)
        leave[0].set()
        await eventually(lambda: marks, what="the third to be inside")
        leave[1].set()
        leave[3].set()

        await asyncio.wait_for(tasks[3], 8)
        assert not tasks[2].done()
        leave[2].set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_answer_to_the_release_leaves_nothing_and_the_next_one_gets_in(
    kind: str,
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        for lost in ("lose_answer", "lose_request"):
            seen: list[Request] = []

            def once(request: Request, seen: list[Request] = seen) -> bool:
                is_it = type(request).__name__ == "Delete" and not seen
                seen.extend([request] if is_it else [])
                return is_it

            setattr(relay, lost, once)
            await takes(KINDS[kind](one))
            await takes(OTHERS[kind](two))
            await takes(KINDS[kind](one))
            await eventually(lambda: _is(two, 0))
            assert seen


@pytest.mark.parametrize("kind", KINDS)
async def test_many_reconnects_while_waiting_keep_the_place(kind: str) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        alone = await _stands(two, OTHERS[kind])
        async with OTHERS[kind](two):
            waiting = asyncio.create_task(takes(KINDS[kind](one)))
            await eventually(lambda: _is(two, 2 * alone))
            for _ in range(3):
                number_then = len(relay.requests)
                relay.cut()
                await eventually(lambda n=number_then: len(relay.requests) > n)  # type: ignore[misc]
            assert await _is(two, 2 * alone)
        await asyncio.wait_for(waiting, 8)


@pytest.mark.parametrize("kind", KINDS)
async def test_after_a_restart_of_the_server_the_former_holder_gets_it_again(kind: str) -> None:
    store = MemoryStore()
    first = Server(store, tick=0.1, rng=random.Random(1))
    await first.start()
    second = Server(store, tick=0.1, rng=random.Random(2))
    try:
        async with connected(first) as zk:
            with contextlib.suppress(HoldLost):  # a slow restart may cost it
                async with KINDS[kind](zk):
                    await first.stop()
                    await second.start(first.host, first.port)
            await asyncio.wait_for(takes(KINDS[kind](zk)), 8)
            await eventually(lambda: _is(zk, 0))
    finally:
        await second.stop()


CALLS: dict[str, Callable[[aio.Zk], Awaitable[object]]] = {
    **{kind: lambda zk, kind=kind: takes(KINDS[kind](zk)) for kind in KINDS},  # type: ignore[misc]
    "try_read": lambda zk: takes(zk.rwlock("/x/l").try_read()),  # type: ignore[arg-type]
    "try_acquire": lambda zk: takes(zk.semaphore("/x/s", size=1).try_acquire()),  # type: ignore[arg-type]
    "size": lambda zk: zk.semaphore("/x/s").size(),
    "resize": lambda zk: zk.semaphore("/x/s").resize(3),
    "several": lambda zk: takes(zk.multilock(["/x/l", "/x/m"]).try_acquire()),  # type: ignore[arg-type]
    "revoke": lambda zk: zk.revoke("/x/l"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_on_a_closed_client_every_call_raises_at_once(call: str) -> None:
    async with embedded() as server:
        zk = await connected(server)
        await zk.close()
        with pytest.raises(SessionClosed):
            await asyncio.wait_for(CALLS[call](zk), 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_closed_while_it_waits_the_wait_ends_at_once(kind: str) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        alone = await _stands(two, OTHERS[kind])
        async with OTHERS[kind](two):
            waiting = asyncio.create_task(takes(KINDS[kind](one)))
            await eventually(lambda: _is(two, 2 * alone))
            await one.close()
            with pytest.raises(SessionClosed):
                await asyncio.wait_for(waiting, 1)
            await eventually(lambda: _is(two, alone))
