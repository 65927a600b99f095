"""Writers who share a commit: whoever is waited for, and for how long at most."""

from __future__ import annotations

import asyncio

from tests.unit.server.desk import HandClock
from tests.unit.server.live import Client, connect, running
from tests.waiting import eventually

from incumbent.server import MemoryStore
from incumbent.server.company import Company
from incumbent.server.sessions import Peer
from incumbent.wire import SetData


async def looks(company: Company, ready: dict[Peer, None], comes: Peer | None = None) -> int:
    """So many turns of the loop pass until nobody else is expected; one may come in the third."""
    gathering = asyncio.ensure_future(company.gather(ready))
    turns = 0
    while not gathering.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 3 and comes is not None:
            ready[comes] = None
    return turns - 1


async def test_right_after_a_commit_the_writers_of_the_last_two_are_waited_for() -> None:
    clock, first, second = HandClock(), Peer(), Peer()
    company = Company(clock)
    company.committed([first], 0.001)
    company.committed([second], 0.001)

    assert await looks(company, {first: None, second: None}) == 0
    assert 0 < await looks(company, {second: None}, comes=first) < 5
    assert 0 < await looks(company, {first: None}, comes=second) < 5


async def test_nobody_is_waited_for_longer_than_a_few_looks() -> None:
    company = Company(HandClock())
    company.committed([Peer()], 60.0)

    assert await looks(company, {}) < 10


async def test_once_as_much_time_as_the_commit_took_is_over_nobody_is_waited_for() -> None:
    clock = HandClock()
    company = Company(clock)
    company.committed([Peer()], 0.001)

    clock.now += 0.002

    assert await looks(company, {}) == 0


async def test_who_did_not_write_in_the_last_two_is_not_waited_for() -> None:
    company, other = Company(HandClock()), Peer()
    company.committed([Peer()], 1.0)
    company.committed([other], 1.0)
    company.committed([other], 1.0)

    assert await looks(company, {other: None}) == 0


async def test_two_groups_of_clients_that_wait_for_each_answer_come_to_share_their_commits() -> (
    None
):
    store = MemoryStore(delay=0.002)
    async with running(store) as server:
        clients = [await connect(server) for _ in range(8)]
        before = store.commits

        async def writes(client: Client) -> None:
            for _ in range(50):
                assert (await client.call(SetData("/", b""))).err == 0

        async with asyncio.TaskGroup() as group:
            for client in clients[:4]:
                group.create_task(writes(client))
            await eventually(lambda: store.commits > before + 2)
            for client in clients[4:]:
                group.create_task(writes(client))

        assert store.commits - before < 75, "they took turns"
