"""Holds that are counted: `epoch_path`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import cast

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.unit.recipes.stand_in import StandIn
from tests.waiting import eventually

import incumbent
from incumbent import aio
from incumbent.client import Client
from incumbent.errors import BadContent, NoNode
from incumbent.recipes.hold import Hold
from incumbent.recipes.queue import Queue
from incumbent.testing import EmbeddedServer
from incumbent.wire import Multi, Request, SetData

KINDS: dict[str, Callable[[aio.Zk], AbstractAsyncContextManager[Hold]]] = {
    "lock": lambda zk: zk.lock("/l", epoch_path="/app/epoch"),
    "lead": lambda zk: zk.lead("/l", epoch_path="/app/epoch"),
    "election": lambda zk: zk.election("/l", epoch_path="/app/epoch").lead(),
    "reader": lambda zk: zk.rwlock("/l", epoch_path="/app/epoch").read(),
    "writer": lambda zk: zk.rwlock("/l", epoch_path="/app/epoch").write(),
    "semaphore": lambda zk: zk.semaphore("/l", size=2, epoch_path="/app/epoch").acquire(),
    "multilock": lambda zk: zk.multilock(["/l", "/m"], epoch_path="/app/epoch").acquire(),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_hold_has_the_number_after_the_one_before(kind: str) -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        tokens = []
        for zk in (one, two, two, one):
            async with KINDS[kind](zk) as hold:
                tokens.append(hold.fencing_token)
        kept, _ = await one.get("/app/epoch")

    assert tokens == [1, 2, 3, 4]
    assert kept == b"4"


async def test_those_who_hold_together_have_different_numbers() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with KINDS["semaphore"](one) as first, KINDS["semaphore"](two) as second:
            assert (first.fencing_token, second.fencing_token) == (1, 2)
        async with KINDS["reader"](one) as first, KINDS["reader"](two) as second:
            assert (first.fencing_token, second.fencing_token) == (3, 4)


async def test_counting_costs_one_round_trip_more_or_two_after_somebody_else() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        for zk in (one, two):
            async with KINDS["lock"](zk):
                pass
        asked = Asked(server)
        async with KINDS["lock"](one) as hold:
            after_another = asked.names(one.session_id)
        asked.requests.clear()
        async with KINDS["lock"](one) as hold:
            again = asked.names(one.session_id, without=("Delete",))

    assert hold.fencing_token == 4
    standing = ["Create2", "GetChildren"]
    assert after_another == [*standing, "Multi", "GetData", "Multi", "GetData"]
    assert again == [*standing, "Multi", "GetData"]


async def test_an_answer_that_was_lost_uses_a_number_up_and_none_is_had_twice() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
    ):
        async with KINDS["lock"](zk) as hold:
            first = hold.fencing_token
        losses = [True]
        relay.lose_answer = lambda request: _counts(request) and bool(losses) and losses.pop()
        async with KINDS["lock"](zk) as hold:
            second = hold.fencing_token
        kept, _ = await zk.get("/app/epoch")

    assert first == 1
    assert second > first
    assert kept == b"%d" % second


def _counts(request: Request) -> bool:
    return isinstance(request, Multi) and any(isinstance(op, SetData) for op in request.ops)


async def test_a_hold_whose_znode_was_deleted_meanwhile_is_not_counted() -> None:
    client = StandIn()
    client.make("/epoch", owner=0, data=b"7")
    queue = Queue(cast(Client, client), "/q", rng=random.Random(1), epoch_path="/epoch")
    place = await queue.enter()
    client.remove(place.path)
    place.ledger.epochs["/epoch"] = 7, 0

    with pytest.raises(NoNode):
        async with place.hold():
            pass

    assert client.znodes["/epoch"][0] == b"7"


async def test_what_is_no_count_is_named_and_nobody_is_left_standing() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/app/epoch", b"seven", parents=True)

        with pytest.raises(BadContent, match="/app/epoch: 'seven' is not a count of holds"):
            async with KINDS["lock"](zk):
                pass

        assert await zk.children("/l") == []


async def test_a_count_among_the_contenders_is_refused() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="only contenders"):
            zk.lock("/l", epoch_path="/l/epoch")


async def test_without_a_count_a_shared_hold_says_how_to_have_a_token() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        zk.semaphore("/l", size=2).acquire() as hold,
    ):
        with pytest.raises(AttributeError, match="epoch_path="):
            _ = hold.fencing_token


def test_blocking_holds_are_counted_by_the_same_names() -> None:
    with EmbeddedServer() as server, incumbent.connect(server.hosts, tick=0.0) as zk:
        tokens = []
        with zk.lock("/l", epoch_path="/epoch") as hold:
            tokens.append(hold.fencing_token)
        with zk.try_lock("/l", epoch_path="/epoch") as tried:
            assert tried is not None
            tokens.append(tried.fencing_token)
        with zk.semaphore("/s", size=1, epoch_path="/epoch").acquire() as hold:
            tokens.append(hold.fencing_token)
        with zk.rwlock("/rw", epoch_path="/epoch").read() as hold:
            tokens.append(hold.fencing_token)
        with zk.lead("/e", epoch_path="/epoch") as hold:
            tokens.append(hold.fencing_token)

    assert tokens == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
async def test_cancelled_after_any_number_of_loop_turns_nobody_is_left_standing(kind: str) -> None:
    directory = "/l" if kind == "lock" else "/l/queue"
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        async with KINDS[kind](other):
            pass
        entered: list[int] = []

        async def holds() -> None:
            async with KINDS[kind](zk) as hold:
                entered.append(hold.fencing_token)
                await asyncio.sleep(5)

        for turns in range(0, 60, 2):
            task = asyncio.create_task(holds())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: _is_empty(other, directory))

        assert entered, "the last ones were let run until they held it"
        assert entered == sorted(set(entered))


async def _is_empty(zk: aio.Zk, directory: str) -> bool:
    return await zk.children(directory) == []
