"""Elections on the embedded server: seen, stood in again and again, abdicated."""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.errors import Abdicated, Deposed, MixedDialects
from incumbent.recipes.election import Standings, View
from incumbent.recipes.hold import Hold
from incumbent.wire import SetData


async def is_empty(zk: aio.Zk) -> bool:
    return await zk.children("/e") == []


async def next_of(views: Standings) -> View:
    async with asyncio.timeout(5):
        return await anext(views)


async def test_an_observer_sees_each_leader_and_what_it_says() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        connected(server) as other,
        zk.election("/e").observe() as views,
    ):
        assert (await next_of(views)).leader is None
        async with other.lead("/e", member="starting") as leadership:
            leader = (await next_of(views)).leader
            assert leader is not None
            assert (leader.member, leader.czxid) == (b"starting", leadership.fencing_token)
            await leadership.update("ready")
            leader = (await next_of(views)).leader
            assert leader is not None
            assert (leader.member, leader.name) == (b"ready", leadership.name)
        assert (await next_of(views)).leader is None


async def test_an_observer_asks_once_per_change_and_nothing_while_idle() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        connected(server) as other,
        zk.election("/e").observe() as views,
        other.lead("/e"),
    ):
        while (await next_of(views)).leader is None:
            pass
        asked = Asked(server)
        async with asyncio.timeout(5), other.contenders("/e").place() as place:
            while not (await next_of(views)).waiting:
                pass
            assert place.ahead()

        assert asked.names(zk.session_id) == ["MultiRead"]


async def test_a_leadership_that_is_lost_ends_the_term_and_the_next_one_begins() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        tokens: list[int] = []
        async with asyncio.timeout(5):
            async for term in zk.election("/e").terms("me"):
                async with term as leadership:
                    tokens.append(leadership.fencing_token)
                    if len(tokens) == 3:
                        break
                    await other.delete(f"/e/{leadership.name}")
                    await asyncio.sleep(5)

        assert tokens == sorted(set(tokens))
        await eventually(lambda: is_empty(other))


async def test_another_elections_loss_goes_through_a_term() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        with pytest.raises(Deposed, match="/inner"):
            async for term in zk.election("/e").terms():
                async with term, zk.lead("/inner") as inner:
                    await other.delete(f"/inner/{inner.name}")
                    await asyncio.sleep(5)
        await eventually(lambda: is_empty(other))


async def test_who_abdicates_is_cancelled_and_the_next_one_leads_when_its_block_has_ended() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        election = one.election("/e")
        order: list[str] = []

        async def first() -> None:
            async with election.lead("one") as leadership:
                try:
                    await asyncio.sleep(5)
                except asyncio.CancelledError:
                    with pytest.raises(Abdicated):
                        leadership.ensure()
                    order.append("one ends")
                    raise
            order.append("one is out")

        async def second() -> None:
            async with two.lead("/e"):
                order.append("two leads")

        leading = asyncio.create_task(first())
        await eventually(lambda: bool(election._terms))
        waiting = asyncio.create_task(second())
        await eventually(lambda: _stand(one, 2))
        election.abdicate()
        await asyncio.wait_for(asyncio.gather(leading, waiting), 5)

        assert order[0] == "one ends"
        assert sorted(order[1:]) == ["one is out", "two leads"]
        election.abdicate()  # nobody leads: nothing happens


async def _stand(zk: aio.Zk, number: int) -> bool:
    return len(await zk.children("/e")) == number


async def test_terms_go_on_after_an_abdication() -> None:
    async with embedded() as server, connected(server) as zk:
        election, terms = zk.election("/e"), 0
        async with asyncio.timeout(5):
            async for term in election.terms():
                async with term:
                    terms += 1
                    if terms == 3:
                        break
                    election.abdicate()
                    await asyncio.sleep(5)

        assert terms == 3


async def test_run_gives_the_result_of_the_term_that_was_not_lost() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        names: list[str] = []

        async def work(leadership: Hold) -> str:
            names.append(leadership.name)
            if len(names) == 1:
                await other.delete(f"/e/{leadership.name}")
                await leadership.lost.wait()
            return leadership.name

        assert await asyncio.wait_for(zk.election("/e").run(work), 5) == names[1]


async def test_an_update_whose_answer_is_lost_is_written_again() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        zk.lead("/e") as leadership,
    ):
        seen: list[object] = []

        def loses(request: object) -> bool:
            seen.extend([request] if isinstance(request, SetData) else [])
            return len(seen) == 1 and request is seen[0]

        relay.lose_answer = loses
        await asyncio.wait_for(leadership.update("newest"), 5)

        assert (await other.get(f"/e/{leadership.name}"))[0] == b"newest"
        assert len(seen) == 2


async def test_an_update_without_the_leadership_says_so() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        with pytest.raises(Deposed):
            async with zk.lead("/e") as leadership:
                await other.delete(f"/e/{leadership.name}")
                await leadership.update("x")
        with pytest.raises(Deposed):
            await leadership.update("x")


async def test_an_observer_goes_on_through_reconnects_and_into_the_next_session() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        zk.election("/e").observe() as views,
    ):
        await next_of(views)
        for is_lost in (False, True):
            relay.is_closed = True
            relay.cut()
            state = State.LOST if is_lost else State.SUSPENDED
            await eventually(lambda state=state: zk.state is state)
            async with other.lead("/e", member=f"{is_lost}") as leadership:
                relay.is_closed = False
                view = await next_of(views)
                while view.leader is None:
                    view = await next_of(views)
                assert view.leader.czxid == leadership.fencing_token


async def test_an_observer_of_mixed_dialects_is_told() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/e/n_", ephemeral=True, sequential=True, parents=True)
        await zk.create("/e/x__lock__", ephemeral=True, sequential=True)
        async with zk.election("/e").observe() as views:
            with pytest.raises(MixedDialects):
                await next_of(views)
