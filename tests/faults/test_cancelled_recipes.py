"""Cancelled after any number of turns of the loop, a recipe leaves nothing, and serves the next one.

Locks, semaphores, multilocks, queues of items, double barriers, groups and caches have the same test
beside their others; here are the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import Client
from incumbent.client.calls import Call
from incumbent.errors import NoNode

TURNS = 30

HOLDS: dict[str, Callable[[aio.Zk], Coroutine[Any, Any, Any]]] = {
    "lead": lambda zk: _stays(zk.lead("/e")),
    "election": lambda zk: _stays(zk.election("/e").lead()),
    "terms": lambda zk: _terms(zk),
    "run": lambda zk: zk.election("/e").run(lambda _: asyncio.sleep(5)),
    "try": lambda zk: _stays(zk.try_lock("/e")),
    "counted": lambda zk: _stays(zk.lead("/e", epoch_path="/epoch")),
}


async def _stays(guarded: Any) -> None:
    async with guarded:
        await asyncio.sleep(5)


async def _terms(zk: aio.Zk) -> None:
    async for term in zk.election("/e").terms():
        await _stays(term)


async def cancelled(attempt: Coroutine[Any, Any, Any], turns: int) -> None:
    task = asyncio.create_task(attempt)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def cancelled_at_answer(client: Client, task: asyncio.Task[Any], number: int) -> Iterator[None]:
    """Cancel it in the moment in which answer `number` from now on comes, just before it is told:
    then the answer comes in the turn of the loop in which the task does not know yet."""
    settle, traffic, count = client._traffic.settle, client._traffic, 0

    def cancelling(call: Call, value: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            task.cancel()
        settle(call, value)

    traffic.settle = cancelling  # type: ignore[method-assign]
    try:
        yield
    finally:
        traffic.settle = settle  # type: ignore[method-assign]


async def _standing(zk: aio.Zk, number: int) -> bool:
    try:
        return len(await zk.children("/e")) == number
    except NoNode:
        return number == 0


@pytest.mark.parametrize("is_contended", [False, True])
@pytest.mark.parametrize("kind", HOLDS)
async def test_who_stands_for_something_leaves_no_contender(kind: str, is_contended: bool) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.lock("/e") if is_contended else contextlib.nullcontext():
            for turns in range(TURNS):
                await cancelled(HOLDS[kind](two), turns)
                await eventually(lambda: _standing(one, int(is_contended)))
        assert len(two.client._watches) == 0
        async with two.lead("/e", timeout=2):
            pass


@pytest.mark.parametrize("kind", [kind for kind in HOLDS if kind != "try"])
async def test_cancelled_in_the_moment_of_an_answer_it_leaves_nothing_and_harms_nobody(
    kind: str,
) -> None:
    """Behind two, the nearer of whom gives up: whoever waits looks, and waits for the other."""
    log: list[str] = []
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as other,
        connected(server, log=log.append) as two,
        one.lock("/e"),
    ):
        for number in range(1, 9):
            nearer = asyncio.create_task(_stays(other.lock("/e")))
            await eventually(lambda: _standing(one, 2))
            task = asyncio.create_task(HOLDS[kind](two))
            with cancelled_at_answer(two.client, task, number):
                await eventually(lambda task=task: _is_over_or_stands(task, one, 3))  # type: ignore[misc]
                nearer.cancel()
                await asyncio.wait([nearer])
                await asyncio.wait([task], timeout=0.2)  # not all have so many answers
                task.cancel()
                await asyncio.wait([task])
            await eventually(lambda: _standing(one, 1))
        assert len(two.client._watches) == 0
        assert (log, two.client.generation) == ([], 1)


async def _is_over_or_stands(task: asyncio.Task[Any], zk: aio.Zk, number: int) -> bool:
    return task.done() or await _standing(zk, number)


async def test_who_waits_at_a_barrier_leaves_no_watch_and_passes_the_next_time() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        await one.barrier("/b").create()
        for turns in range(TURNS):
            await cancelled(two.barrier("/b").wait(), turns)
            await eventually(lambda: len(two.client._watches) == 0)
        waiting = asyncio.create_task(two.barrier("/b").wait(5))
        await one.barrier("/b").remove()
        assert await waiting


@pytest.mark.parametrize("step", ["create", "remove"])
async def test_a_step_of_a_barrier_is_done_or_not_and_can_be_done_again(step: str) -> None:
    async with embedded() as server, connected(server) as zk:
        barrier = zk.barrier("/b")
        for turns in range(TURNS):
            if step == "remove":
                await barrier.create()
            await cancelled(barrier.create() if step == "create" else barrier.remove(), turns)
            await barrier.create()
            assert await barrier.wait(0) is False
            await barrier.remove()
            assert await barrier.wait(0)


async def test_an_addition_counts_once_or_not_at_all() -> None:
    async with embedded() as server, connected(server) as zk:
        counter = zk.counter("/n")
        for turns in range(TURNS):
            before = await counter.get()
            await cancelled(counter.add(10), turns)
            assert await counter.add(1) - before in (1, 11)


async def test_a_change_of_a_value_is_made_whole_or_not_at_all() -> None:
    async with embedded() as server, connected(server) as zk:
        value = zk.value("/v", default=b"0")
        for turns in range(TURNS):
            await value.set(b"before")
            await cancelled(value.update(lambda _: b"after"), turns)
            assert (await value.get()).data in (b"before", b"after")


async def test_who_follows_a_value_or_an_election_leaves_no_watch() -> None:
    async def follow(manager: Any) -> None:
        async with manager as stream:
            async for _ in stream:
                pass

    async with embedded() as server, connected(server) as zk:
        for turns in range(TURNS):
            await cancelled(follow(zk.value("/v", default=b"").follow()), turns)
            await cancelled(follow(zk.election("/e").observe()), turns)
            await cancelled(follow(zk.group("/g").observe()), turns)
            await eventually(lambda: len(zk.client._watches) == 0)


async def test_an_item_is_put_once_or_not_at_all() -> None:
    async with embedded() as server, connected(server) as zk:
        queue = zk.queue("/q")
        for turns in range(TURNS):
            await cancelled(queue.put(b"x"), turns)
            assert await queue.size() in (0, 1)
            await queue.take(0)
            assert await queue.size() == 0
