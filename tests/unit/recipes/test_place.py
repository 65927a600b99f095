"""When being first may be concluded from one event, and when the queue must be read again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.recipes.stand_in import StandIn
from tests.waiting import eventually

from incumbent.client import Client, State
from incumbent.errors import FateUnknown, LockLost, NoNode, NumbersDontFit, SessionExpired
from incumbent.recipes.dialects import OURS
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.wire import Create2, Delete, EventType, GetChildren, Multi, Request

US, A, B = "us__lock__0000000005", "a__lock__0000000001", "b__lock__0000000003"


def standing(client: StandIn, *others: str) -> Place:
    """Our place in a queue with these others, all of whom were in the listing."""
    for name in others:
        client.make(f"/q/{name}", owner=1)
    stat = client.make(f"/q/{US}", owner=client.session_id)
    place = Place(Ledger(cast(Client, client)), "/q", OURS, f"/q/{US}", stat, b"")
    place.listed([*others, US])
    return place


async def wait_for(client: StandIn, name: str) -> None:
    await eventually(lambda: client.watchers.get(f"/q/{name}"))


def listings(client: StandIn) -> int:
    return sum(isinstance(request, GetChildren) for request in client.requests)


def proofs(client: StandIn) -> int:
    return sum(isinstance(request, Multi) for request in client.requests)


async def test_the_deletion_of_the_only_one_ahead_is_the_grant() -> None:
    client = StandIn()
    place = standing(client, A)
    waiting = asyncio.create_task(place.first())
    await wait_for(client, A)

    client.remove(f"/q/{A}")
    await asyncio.wait_for(waiting, 1)

    assert listings(client) == 0
    assert place.ahead() == ()


def data_changed(client: StandIn) -> None:
    client.fire(f"/q/{A}", EventType.CHANGED)
    client.now += 0.001


def lease_over(client: StandIn) -> None:
    client.now = client.lease.valid_until
    client.remove(f"/q/{A}")


@pytest.mark.parametrize("what", [data_changed, lease_over])
async def test_otherwise_the_queue_is_read_again(what: Any) -> None:
    client = StandIn()
    place = standing(client, A)
    waiting = asyncio.create_task(place.first())
    await wait_for(client, A)

    what(client)
    await eventually(lambda: listings(client) == 1)
    assert proofs(client) == 1

    if f"/q/{A}" in client.znodes:
        await wait_for(client, A)
        assert not waiting.done()
        client.remove(f"/q/{A}")
    await asyncio.wait_for(waiting, 1)


async def test_with_two_ahead_the_nearest_ones_end_is_no_grant_and_nobody_beats() -> None:
    client = StandIn()
    place = standing(client, A, B)
    changes: list[str | None] = []
    waiting = asyncio.create_task(place.first(lambda p: changes.append(p.watching)))
    await wait_for(client, B)
    assert client.beating == []

    client.remove(f"/q/{B}")
    await wait_for(client, A)

    assert (listings(client), proofs(client)) == (1, 0)
    assert client.beating == [f"/q/{US}"]
    client.remove(f"/q/{A}")
    await asyncio.wait_for(waiting, 1)
    assert changes == [B, A]
    assert client.beating == []


async def test_whoever_is_first_for_long_lets_the_one_behind_know_that_it_is_next() -> None:
    client = StandIn()
    place = standing(client, A, B)
    waiting = asyncio.create_task(place.first())
    await wait_for(client, B)
    client.remove(f"/q/{A}")
    theirs = Place(place.ledger, "/q", OURS, f"/q/{B}", client.znodes[f"/q/{B}"][1], b"")

    theirs.tell_next()
    await eventually(lambda: client.beating == [f"/q/{US}"])
    await wait_for(client, B)
    read_before = listings(client)
    client.remove(f"/q/{B}")
    await asyncio.wait_for(waiting, 1)

    assert listings(client) == read_before, "its turn came without a round trip"


async def test_a_listing_alone_grants_nothing_once_the_lease_is_over_when_it_comes() -> None:
    client = StandIn()
    place = standing(client, A, B)
    waiting = asyncio.create_task(place.first())
    await wait_for(client, B)
    del client.znodes[f"/q/{A}"]

    def slowly(request: Request) -> None:
        if isinstance(request, GetChildren):
            client.now = max(client.now, client.lease.valid_until)

    client.refuse = slowly
    client.remove(f"/q/{B}")
    await asyncio.wait_for(waiting, 1)

    assert (listings(client), proofs(client)) == (2, 1)


async def test_an_answer_in_the_turn_in_which_the_wait_is_cancelled_harms_nobody() -> None:
    client = StandIn()
    place = standing(client, A, B)
    waiting = asyncio.create_task(place.first())
    await wait_for(client, B)
    client.holds = lambda request: True
    client.remove(f"/q/{B}")
    await eventually(lambda: client.held)

    waiting.cancel()
    client.held[0]()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_the_only_one_ahead_that_is_gone_when_it_is_to_be_watched_is_the_grant() -> None:
    client = StandIn()
    place = standing(client, A)
    del client.znodes[f"/q/{A}"]

    await asyncio.wait_for(place.first(), 1)

    assert (listings(client), proofs(client)) == (0, 0)


async def test_gone_with_another_ahead_or_with_the_lease_over_it_is_no_grant() -> None:
    for ahead, over in (([A, B], False), ([B], True)):
        client = StandIn()
        place = standing(client, *ahead)
        del client.znodes[f"/q/{B}"]

        def slowly(request: Request, client: StandIn = client, over: bool = over) -> None:
            if over and not isinstance(request, Multi):
                client.now = max(client.now, client.lease.valid_until)

        client.refuse = slowly
        waiting = asyncio.create_task(place.first())
        await eventually(lambda client=client: listings(client) == 1)  # type: ignore[misc]

        assert proofs(client) == over
        if A in ahead:
            await wait_for(client, A)
            assert not waiting.done()
            client.remove(f"/q/{A}")
        await asyncio.wait_for(waiting, 1)


async def test_gone_for_the_next_session_grants_nothing() -> None:
    client = StandIn()
    place = standing(client, A)
    del client.znodes[f"/q/{A}"]

    def next_session(request: Request) -> None:
        client.session_id = 8

    client.refuse = next_session

    with pytest.raises(SessionExpired):
        await asyncio.wait_for(place.first(), 1)


@pytest.mark.parametrize("state", [State.LOST, State.CLOSED])
async def test_a_waiter_whose_session_ends_hears_of_it_at_once(state: State) -> None:
    client = StandIn()
    waiting = asyncio.create_task(standing(client, A).first())
    await wait_for(client, A)

    client.move(state)

    with pytest.raises(SessionExpired):
        await asyncio.wait_for(waiting, 1)
    assert client.watchers.get(f"/q/{A}") == []


async def test_an_event_after_the_session_changed_grants_nothing() -> None:
    client = StandIn()
    waiting = asyncio.create_task(standing(client, A).first())
    await wait_for(client, A)

    client.session_id = 8
    client.remove(f"/q/{A}")

    with pytest.raises(SessionExpired):
        await asyncio.wait_for(waiting, 1)


async def test_the_next_in_line_hears_when_its_own_znode_is_deleted() -> None:
    client = StandIn()
    waiting = asyncio.create_task(standing(client, A).first())
    await wait_for(client, US)

    client.remove(f"/q/{US}")

    with pytest.raises(NoNode):
        await asyncio.wait_for(waiting, 1)


async def test_a_deletion_whose_answer_was_lost_spares_a_later_znode_of_the_same_name() -> None:
    client = StandIn()
    place = standing(client)

    def lose(request: Request) -> Exception | None:
        if not isinstance(request, Delete):
            return None
        client.refuse = lambda request: None
        del client.znodes[place.path]  # it was done all the same,
        client.make(place.path, owner=1)  # and the counter began anew
        return FateUnknown("delete", "lost")

    client.refuse = lose
    await asyncio.wait_for(place.leave(), 1)

    assert place.path in client.znodes


async def test_a_deletion_whose_answer_was_lost_is_done_in_the_end() -> None:
    client = StandIn()
    place = standing(client)
    tries: list[Request] = []

    def lose(request: Request) -> Exception | None:
        if isinstance(request, Delete):
            tries.append(request)
        return (
            FateUnknown("delete", "lost")
            if len(tries) < 3 and isinstance(request, Delete)
            else None
        )

    client.refuse = lose
    await asyncio.wait_for(place.leave(), 2)

    assert place.path not in client.znodes
    assert len(tries) == 3


async def test_a_create_that_the_session_before_made_is_not_counted_as_ours() -> None:
    client = StandIn(session_id=7)

    def next_session_begins(request: Request) -> None:
        if isinstance(request, GetChildren):  # … before the create's answer is looked at
            client.session_id = 8

    client.refuse = next_session_begins

    with pytest.raises(SessionExpired):
        await asyncio.wait_for(
            Queue(cast(Client, client), "/q", OURS, rng=random.Random(1)).enter(), 1
        )


async def test_a_create_that_waited_for_the_next_session_is_taken_back() -> None:
    client = StandIn(session_id=7)

    def next_session_begins(request: Request) -> None:
        if isinstance(request, Create2):  # before it was sent
            client.session_id = 8

    client.refuse = next_session_begins
    queue = Queue(cast(Client, client), "/q", OURS, rng=random.Random(1))

    with pytest.raises(SessionExpired):
        await asyncio.wait_for(queue.enter(), 1)
    await asyncio.wait_for(queue.ledger.settled(), 1)

    assert client.znodes == {}


async def test_a_hold_waits_for_a_lease_that_reaches_beyond_its_grace() -> None:
    client = StandIn()
    client.lease.valid_until = 100.5
    hold = Hold(standing(client), grace=1.0, error=LockLost)
    beginning = asyncio.create_task(hold.begin())
    await eventually(lambda: client.beating)
    client.beaten()
    await asyncio.sleep(0)
    assert not beginning.done()

    client.lease.valid_until = 109.0
    client.beaten()
    await asyncio.wait_for(beginning, 1)

    hold.ensure()
    hold.end()


async def test_a_hold_is_lost_one_grace_before_its_lease_ends_by_the_clock_alone() -> None:
    client = StandIn()
    hold = Hold(standing(client), grace=1.0, error=LockLost)
    await hold.begin()

    client.now = 107.999
    hold.ensure()
    client.now = 108.0
    with pytest.raises(LockLost):
        hold.ensure()

    client.lease.valid_until = 200.0  # a beat that comes after all
    with pytest.raises(LockLost):
        hold.ensure()
    assert hold.lost.is_set()
    assert hold.remaining() == 0
    hold.end()


async def test_a_block_that_outlives_its_lease_is_recorded() -> None:
    client = StandIn()
    lines: list[str] = []
    place = standing(client)
    place.ledger.log = lines.append
    with pytest.raises(LockLost):
        async with place.hold(grace=1.0):
            client.now = 109.5

    assert "0.500 s" in lines[0]


@pytest.mark.parametrize("grace", [-1.0, 7.95, 20.0])
async def test_a_grace_that_no_lease_could_cover_is_refused_with_the_sum(grace: float) -> None:
    client = StandIn()

    with pytest.raises(NumbersDontFit, match=r"7\.9 s"):
        await Hold(standing(client), grace=grace, error=LockLost).begin()


async def test_lost_and_cancelled_from_outside_at_once_it_is_a_cancellation() -> None:
    client = StandIn()
    place = standing(client)
    entered = asyncio.Event()

    async def work() -> None:
        async with place.hold():
            entered.set()
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await entered.wait()
    client.move(State.LOST)
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_after_the_block_nothing_of_the_cancellation_is_left() -> None:
    client = StandIn()
    place = standing(client)

    async def work() -> int:
        with pytest.raises(LockLost):
            async with place.hold():
                client.move(State.LOST)
                await asyncio.sleep(5)
        await asyncio.sleep(0.001)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await asyncio.create_task(work()) == 0


async def test_told_by_ensure_inside_the_block_it_is_not_cancelled_later() -> None:
    client = StandIn()
    place = standing(client)

    async def work() -> str:
        with pytest.raises(LockLost):
            async with place.hold() as hold:
                client.now = 109.0
                hold.ensure()
        await asyncio.sleep(0.001)
        return "went on"

    assert await asyncio.create_task(work()) == "went on"


async def test_a_block_that_does_not_stop_keeps_its_znode_until_it_ends() -> None:
    client = StandIn()
    place = standing(client)

    with pytest.raises(LockLost):
        async with place.hold(grace=1.0) as hold:
            client.now = 108.5
            with contextlib.suppress(LockLost):
                hold.ensure()
            for _ in range(5):
                await asyncio.sleep(0)
            assert place.path in client.znodes
    assert place.path in client.znodes  # whoever made the place gives it up

    await place.leave()
    assert place.path not in client.znodes


async def test_a_later_sessions_lease_is_not_taken_for_the_holds() -> None:
    client = StandIn()
    hold = Hold(standing(client), grace=1.0, error=LockLost)
    await hold.begin()

    client.lease = SimpleNamespace(valid_until=200.0, margin=0.1, report_lag=0.0)
    client.now = 108.5

    assert hold.valid_until == 109.0
    with pytest.raises(LockLost):
        hold.ensure()
    hold.end()


async def test_a_znode_deleted_while_its_lease_is_being_proven_makes_no_hold() -> None:
    client = StandIn()
    client.lease.valid_until = 100.5
    place = standing(client)
    beginning = asyncio.create_task(Hold(place, grace=1.0, error=LockLost).begin())
    await wait_for(client, US)

    client.remove(f"/q/{US}")

    with pytest.raises(NoNode):
        await asyncio.wait_for(beginning, 1)
    assert client.beating == []


async def test_a_place_that_was_left_listens_to_nothing() -> None:
    client = StandIn()
    place = standing(client)
    async with place.hold():
        await wait_for(client, US)

    await place.leave()

    assert not client.listeners
    assert place.ledger.standing == {}


async def test_a_hold_given_back_is_over_and_not_lost() -> None:
    client = StandIn()
    place = standing(client)
    async with place.hold() as hold:
        await wait_for(client, US)

    await place.leave()
    for _ in range(5):
        await asyncio.sleep(0)

    assert not hold.lost.is_set()
    assert hold.remaining() == 0
    with pytest.raises(LockLost, match="given back"):
        hold.ensure()


async def test_a_transaction_refused_by_our_own_check_is_the_holds_error() -> None:
    client = StandIn()
    hold = Hold(standing(client), grace=1.0, error=LockLost)
    await hold.begin()
    del client.znodes[f"/q/{US}"]  # and no event has come yet

    with pytest.raises(LockLost, match="deleted by somebody"):
        async with hold.transaction() as t:
            t.create("/made")

    assert "/made" not in client.znodes
    assert hold.lost.is_set()
    hold.end()


async def test_a_transaction_refused_by_another_operation_is_its_refusal() -> None:
    client = StandIn()
    hold = Hold(standing(client), grace=1.0, error=LockLost)
    await hold.begin()

    with pytest.raises(NoNode):
        async with hold.transaction() as t:
            t.check("/nothing")

    hold.ensure()
    hold.end()
