"""Deadlines of many calls by one timer."""

from __future__ import annotations

import asyncio

from incumbent.client.calls import Call, Deadlines
from incumbent.testing import World
from incumbent.wire import Ping


def made() -> Call:
    return Call(Ping(), b"", asyncio.get_running_loop().create_future())


def test_each_call_is_overdue_after_its_own_time_and_none_that_was_met() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[tuple[Call, float]] = []
        deadlines = Deadlines(lambda call, limit: told.append((call, loop.time() - began)))
        began = loop.time()
        calls = [made() for _ in range(4)]
        deadlines.add(calls[0], 2.0, loop)
        deadlines.add(calls[1], 1.0, loop)
        await asyncio.sleep(0.5)
        deadlines.add(calls[2], 2.0, loop)
        deadlines.add(calls[3], 2.0, loop)
        deadlines.met(calls[2])

        await asyncio.sleep(5)

        assert [call for call, _ in told] == [calls[1], calls[0], calls[3]]
        assert all(abs(at - due) < 0.01 for (_, at), due in zip(told, (1, 2, 2.5), strict=True))
        assert deadlines._lines == deadlines._timers == {}

    with World(1) as world:
        world.run(story())


async def test_what_was_met_in_order_is_not_kept() -> None:
    deadlines = Deadlines(lambda call, limit: None)
    for _ in range(1000):
        call = made()
        deadlines.add(call, 60.0, asyncio.get_running_loop())
        deadlines.met(call)

    assert len(deadlines._lines[60.0]) == 0
    deadlines.end()
