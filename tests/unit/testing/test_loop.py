"""The loop alone: virtual time, the order of things, and its ends."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from incumbent.testing.loop import Domain, NothingLeft, SimLoop, Timebase, TooLong


def loop(seed: int = 1) -> SimLoop:
    return SimLoop(random.Random(seed))


def test_a_day_passes_in_no_time() -> None:
    started = time.monotonic()
    sim = loop()

    sim.run_until_complete(asyncio.sleep(86_400))

    assert sim.now == 86_400
    assert time.monotonic() - started < 60


def test_within_a_domain_callbacks_run_in_the_order_they_were_scheduled() -> None:
    sim = loop()
    ran: list[int] = []

    async def story() -> None:
        for number in range(50):
            sim.call_soon(ran.append, number)
        await asyncio.sleep(0)

    sim.run_until_complete(story())

    assert ran == list(range(50))


def interleaving(seed: int) -> list[str]:
    sim = loop(seed)
    ran: list[str] = []
    for name in "abc":
        context = sim.enter(Domain(name))
        for number in range(5):
            sim.call_soon(ran.append, f"{name}{number}", context=context)
    sim.run_until_complete(asyncio.sleep(1))
    return ran


def test_between_domains_the_seed_decides() -> None:
    assert interleaving(7) == interleaving(7)
    assert len({tuple(interleaving(seed)) for seed in range(10)}) > 5
    for name in "abc":
        own = [x for x in interleaving(3) if x.startswith(name)]
        assert own == sorted(own)


def test_a_timer_is_never_early_on_the_clock_it_was_set_by() -> None:
    sim = loop()
    rng = random.Random(5)
    domain = Domain("n1", Timebase(rate=1.00317, offset=12345.678))

    async def story() -> None:
        for _ in range(300):
            until = sim.time() + rng.expovariate(10)
            await asyncio.sleep(until - sim.time())
            assert sim.time() >= until - 1e-9

    sim.run_until_complete(sim.create_task(story(), context=sim.enter(domain)))


def test_waiting_for_what_cannot_happen_says_so() -> None:
    sim = loop()

    async def story() -> None:
        await sim.create_future()

    with pytest.raises(NothingLeft, match=r"world in .*story"):
        sim.run_until_complete(story())


def test_a_loop_that_never_waits_is_stopped() -> None:
    sim = loop()

    async def story() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(TooLong, match="time stands still"):
        sim.run_until_complete(story())


def test_the_limit_of_virtual_time_holds() -> None:
    sim = loop()
    sim.limit = 10

    with pytest.raises(TooLong, match="limit of 10"):
        sim.run_until_complete(asyncio.sleep(11))


def test_cancelled_timers_do_not_pile_up() -> None:
    sim = loop()

    async def story() -> None:
        for _ in range(5_000):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0.001)

    sim.run_until_complete(story())

    assert len(sim._timers) < 1_500


def test_a_frozen_domain_runs_nothing_and_loses_nothing() -> None:
    sim = loop()
    domain = Domain("n1")
    ran: list[float] = []

    async def story() -> None:
        context = sim.enter(domain)
        sim.freeze(domain)
        sim.call_later(1, lambda: ran.append(sim.now), context=context)
        sim.call_later(2, lambda: ran.append(sim.now), context=context)
        await asyncio.sleep(5)
        assert ran == []
        sim.thaw(domain)
        await asyncio.sleep(0.5)

    sim.run_until_complete(story())

    assert ran == [5, 5]


def test_a_parked_clock_makes_its_timers_late_by_as_much() -> None:
    sim = loop()
    domain = Domain("n1")
    ran: list[tuple[float, float]] = []

    async def story() -> None:
        context = sim.enter(domain)
        sim.call_later(10, lambda: ran.append((sim.now, sim.time())), context=context)
        await asyncio.sleep(4)
        sim.freeze(domain)
        parked = sim.park(domain.timebase)
        await asyncio.sleep(100)
        domain.timebase.lost += 100
        sim.unpark(parked, 100)
        sim.thaw(domain)
        await asyncio.sleep(50)

    sim.run_until_complete(story())

    assert ran == [(110, 10)]


def test_a_killed_domain_never_runs_again() -> None:
    sim = loop()
    domain = Domain("n1")
    ran: list[str] = []

    async def process() -> None:
        try:
            ran.append("started")
            await asyncio.sleep(1)
            ran.append("went on")
        finally:
            ran.append("last words")

    async def story() -> None:
        sim.create_task(process(), context=sim.enter(domain))
        await asyncio.sleep(0.5)
        kept = sim.kill(domain)
        await asyncio.sleep(5)
        assert ran == ["started"]
        assert len(kept) == 1
        kept[0].get_coro().close()  # type: ignore[union-attr]

    sim.run_until_complete(story())


def test_there_are_no_threads() -> None:
    sim = loop()

    with pytest.raises(RuntimeError, match="no threads"):
        sim.run_in_executor(None, print)


def test_sets_of_tasks_and_futures_have_an_order_of_their_own() -> None:
    sim = loop()

    async def story() -> None:
        tasks = [sim.create_task(asyncio.sleep(1)) for _ in range(100)]
        numbers = [t.number for t in tasks]  # type: ignore[attr-defined]
        assert [hash(t) for t in tasks] == numbers == sorted(numbers)
        first, second = sim.create_future(), sim.create_future()
        assert hash(second) == hash(first) + 1
        assert first != second

    sim.run_until_complete(story())
