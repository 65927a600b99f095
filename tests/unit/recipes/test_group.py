"""Groups on the embedded server: joining, staying, leaving, and who sees it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.errors import NameTaken, NotSent, SessionClosed
from incumbent.wire import Create2, CreateFlag, Delete, Request, SetData


async def with_directory(zk: aio.Zk) -> None:
    await zk.ensure("/g")


async def test_joining_costs_one_flight_and_leaving_is_not_waited_for() -> None:
    async with embedded() as server, connected(server) as zk:
        await with_directory(zk)
        asked = Asked(server)

        async with zk.group("/g").join(b"here") as membership:
            assert asked.names(zk.session_id) == ["AddWatch", "Create2"]
            assert membership.is_in
            assert (await zk.get(membership.path))[0] == b"here"
        await eventually(lambda: len(asked.names(zk.session_id)) == 5)

        assert asked.names(zk.session_id)[3:] == ["Delete", "RemoveWatches"]


async def test_a_new_directory_costs_one_more() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        async with zk.group("/a/b/g").join(b"here", name="me"):
            assert asked.names(zk.session_id) == [
                *("AddWatch", "Create2"),
                *("Create", "Create", "CreateContainer", "Create2"),
            ]


async def test_members_are_listed_in_two_round_trips() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        group = zk.group("/g")
        async with group.join("a", name="one") as one, other.group("/g").join("b", name="two"):
            asked = Asked(server)
            members = await group.members()

            assert asked.names(zk.session_id) == ["GetChildren", "MultiRead"]
            assert {name: each.data for name, each in members.items()} == {
                "one": b"a",
                "two": b"b",
            }
            assert members["one"].session_id == zk.session_id
            assert members["one"].name == one.name
        assert await zk.group("/nobody").members() == {}


async def test_rosters_tell_who_came_who_left_and_who_says_something_else() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        connected(server) as other,
        zk.group("/g").observe() as rosters,
    ):
        assert (await rosters.next(1)).members == {}
        async with other.group("/g").join("1", name="x") as membership:
            assert (await rosters.next(1)).joined == ("x",)
            membership.update("2")
            roster = await rosters.next(1)
            assert roster.updated == ("x",)
            assert roster.members["x"].data == b"2"
        roster = await rosters.next(1)
        assert (roster.left, roster.resumed) == (("x",), False)
        assert rosters.members == {}


async def test_what_happened_while_away_is_one_roster_that_says_so() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        group = other.group("/g")
        stays = await stack.enter_async_context(group.join("1", name="stays"))
        async with zk.group("/g").observe() as rosters, contextlib.AsyncExitStack() as goes:
            await goes.enter_async_context(group.join("1", name="goes"))
            await eventually(lambda: len(rosters.members) == 2)
            await rosters.next(1)
            relay.is_closed = True
            relay.cut()
            await eventually(lambda: zk.state is State.SUSPENDED)
            await goes.aclose()
            await stack.enter_async_context(group.join("1", name="comes"))
            async with group.join("1", name="comes and goes"):
                pass
            stays.update("2")
            await stays.settled(5)
            await eventually(lambda: _names(other, ["comes", "stays"]))
            relay.is_closed = False

            roster = await rosters.next(5)

            assert (roster.joined, roster.left) == (("comes",), ("goes",))
            assert (roster.updated, roster.resumed) == (("stays",), True)
            with pytest.raises(TimeoutError):
                await rosters.next(0.05)


async def _names(zk: aio.Zk, names: list[str]) -> bool:
    return await zk.children("/g") == names


async def test_deleted_by_hand_it_is_back_with_the_newest_data() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        async with zk.group("/g").join(b"1", name="me") as membership:
            membership.update(b"2")
            await membership.settled(5)
            first = await zk.exists("/g/me")
            await other.delete("/g/me")
            await eventually(lambda: _is_new(other, first))

            assert (await other.get("/g/me"))[0] == b"2"
        await eventually(lambda: _names(other, []))


async def _is_new(zk: aio.Zk, before: object) -> bool:
    stat = await zk.exists("/g/me")
    return stat is not None and stat.czxid != before.czxid  # type: ignore[attr-defined]


async def test_what_is_said_while_disconnected_is_there_after_the_reconnect() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        zk.group("/g").join(b"old", name="me") as membership,
    ):
        relay.is_closed = True
        relay.cut()
        await eventually(lambda: zk.state is State.SUSPENDED)
        membership.update(b"new")
        with pytest.raises(TimeoutError):
            await membership.settled(0.05)
        relay.is_closed = False
        await membership.settled(5)

        assert (await other.get("/g/me"))[0] == b"new"


async def test_whose_name_another_took_while_a_write_was_lost_does_not_believe_to_be_in() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        zk.group("/g").join(b"ours", name="me") as membership,
    ):
        relay.lose_request = lambda request: isinstance(request, SetData)
        relay.is_closed = True
        membership.update(b"newer")
        await eventually(lambda: zk.state is State.SUSPENDED)
        await other.delete("/g/me")
        async with other.group("/g").join(b"theirs", name="me"):
            relay.lose_request = lambda _: False
            relay.is_closed = False
            await eventually(lambda: zk.state is State.CONNECTED)
            with pytest.raises(TimeoutError):
                await membership.settled(0.5)

            assert (await other.get("/g/me"))[0] == b"theirs"
        await membership.settled(5)
        assert (await other.get("/g/me"))[0] == b"newer"


async def test_an_expired_member_is_back_as_soon_as_there_is_a_session() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
        zk.group("/g").join(b"1", name="me") as membership,
    ):
        old = zk.session_id
        relay.is_closed = True
        relay.cut()
        await eventually(lambda: zk.state is State.LOST)
        membership.update(b"2")
        await eventually(lambda: _names(other, []))
        relay.is_closed = False
        await membership.settled(5)

        stat = await other.exists("/g/me")
        assert stat is not None
        assert stat.ephemeralOwner == zk.session_id != old
        assert (await other.get("/g/me"))[0] == b"2"


async def test_a_former_sessions_znode_is_waited_for_and_never_taken_for_ours() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        connected(server) as former,
        contextlib.AsyncExitStack() as stack,
    ):
        await with_directory(zk)
        await former.create("/g/me", b"old", ephemeral=True)
        join = zk.group("/g").join(b"new", name="me")
        joining = asyncio.create_task(stack.enter_async_context(join))
        await eventually(lambda: "/g/me" in zk._ledger.standing)
        with pytest.raises(NameTaken, match=f"{former.session_id:#x}"):
            async with connected(server) as third, third.group("/g").join(name="me", timeout=0.1):
                pass
        assert not joining.done()
        await former.close()

        await asyncio.wait_for(joining, 5)
        data, stat = await zk.get("/g/me")
        assert (data, stat.ephemeralOwner) == (b"new", zk.session_id)


def creates(request: Request) -> bool:
    return isinstance(request, Create2) and request.flags == CreateFlag.EPHEMERAL


@pytest.mark.parametrize("what", ["create", "set", "delete"])
@pytest.mark.parametrize("is_answer", [True, False])
async def test_a_lost_reply_leaves_the_newest_data_and_in_the_end_nothing(
    what: str, is_answer: bool
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
    ):
        await with_directory(other)
        seen: list[Request] = []

        def loses(request: Request) -> bool:
            kinds = {"set": SetData, "delete": Delete}
            is_it = creates(request) if what == "create" else isinstance(request, kinds[what])
            if is_it and not seen:
                seen.append(request)
                return True
            return False

        if is_answer:
            relay.lose_answer = loses
        else:
            relay.lose_request = loses
        async with zk.group("/g").join(b"1", name="me", timeout=5) as membership:
            membership.update(b"2")
            await membership.settled(5)
            assert (await other.get("/g/me"))[0] == b"2"
        await eventually(lambda: _names(other, []))
        assert seen


async def test_cancelled_anywhere_while_joining_it_leaves_nothing() -> None:
    async with embedded() as server, connected(server) as zk:
        await with_directory(zk)
        for steps in range(40):
            task = asyncio.create_task(_member(zk, steps % 2 == 0))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await zk._ledger.settled()

        assert await zk.children("/g") == []
        await eventually(lambda: len(server._service.watches) == 0)
        assert not zk._ledger.standing


async def _member(zk: aio.Zk, is_named: bool) -> None:
    async with zk.group("/g").join(b"x", name="me" if is_named else None):
        pass


async def test_leaving_and_joining_again_by_the_same_name_at_once() -> None:
    async with embedded() as server, connected(server) as zk:
        group = zk.group("/g")
        for number in range(20):
            async with group.join(b"%d" % number, name="me", timeout=5):
                assert (await zk.get("/g/me"))[0] == b"%d" % number
                with pytest.raises(RuntimeError, match="already"):
                    async with group.join(name="me"):
                        pass


async def test_it_says_why_it_could_not_join() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
    ):
        relay.is_closed = True
        relay.cut()
        await eventually(lambda: zk.state is not State.CONNECTED)
        with pytest.raises(NotSent, match="no answer within"):
            async with zk.group("/g").join(name="me", timeout=0.1):
                pass
        with pytest.raises(ValueError, match="name="):
            async with zk.group("/g").join(name="a//b"):
                pass
        with pytest.raises(ValueError, match="begins with /"):
            zk.group("g")
        await zk.close()
        with pytest.raises(SessionClosed):
            async with zk.group("/g").join(name="me"):
                pass
