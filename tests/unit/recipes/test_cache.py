"""A cache on the embedded server: what it shows, tells and asks."""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.errors import NoAuth, SessionClosed
from incumbent.recipes.cache import Cache
from incumbent.recipes.picture import Change
from incumbent.wire import Acl, MultiRead


async def test_a_directory_is_loaded_in_two_flights_and_read_without_requests() -> None:
    async with embedded() as server, connected(server) as zk:
        for name in ("a", "b", "c"):
            await zk.create(f"/app/{name}", name.encode(), parents=True)
        asked = Asked(server)

        async with zk.cache("/app") as cache:
            assert asked.names(zk.session_id) == ["AddWatch", "MultiRead", "MultiRead"]
            assert cache.children() == ["a", "b", "c"]
            znode = cache.get("/app/b")
            assert znode is not None
            assert (znode.name, znode.data) == ("b", b"b")
            assert cache.get("/app/d") is None
            assert list(cache.snapshot()) == ["/app", "/app/a", "/app/b", "/app/c"]
            assert asked.names(zk.session_id) == ["AddWatch", "MultiRead", "MultiRead"]


async def test_many_changes_at_once_cost_one_request() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        await zk.create("/app/x", parents=True)
        async with zk.cache("/app") as cache:
            asked = Asked(server)
            async with other.transaction() as t:
                for number in range(20):
                    t.create(f"/app/x/{number}", b"")
                t.set("/app", b"all there")
            await eventually(lambda: len(cache.children("/app/x")) == 20)

            assert asked.names(zk.session_id) == ["MultiRead"]


async def test_what_we_wrote_is_shown_once_it_has_settled() -> None:
    async with embedded() as server, connected(server) as zk, zk.cache("/app") as cache:
        for number in range(50):
            await zk.create(f"/app/{number}", b"%d" % number, parents=True)
            await cache.settled()

            znode = cache.get(f"/app/{number}")
            assert znode is not None
            assert znode.data == b"%d" % number


async def test_changes_begin_with_what_is_there_and_replay_to_the_true_state() -> None:
    async with embedded() as server, connected(server) as zk, connected(server) as other:
        await zk.create("/app/old", parents=True)
        async with zk.cache("/app") as cache, cache.changes() as changes:
            replayed: dict[str, bytes] = {}

            async def replay() -> None:
                async for change in changes:
                    if change.after is None:
                        del replayed[change.path]
                    else:
                        replayed[change.path] = change.after.data

            task = asyncio.create_task(replay())
            for number in range(300):
                await asyncio.gather(
                    other.create("/app/x"),
                    other.set("/app/x", b"%d" % number),
                    other.delete("/app/x"),
                )
            await other.set("/app/old", b"last")
            await eventually(lambda: replayed.get("/app/old") == b"last")
            task.cancel()

            assert replayed == {"/app": b"", "/app/old": b"last"}


async def test_a_reader_that_is_late_gets_the_net_difference() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/app/x", b"0", parents=True)
        async with zk.cache("/app") as cache, cache.changes() as changes:
            first = [await changes.next(1), await changes.next(1)]
            await zk.set("/app/x", b"1")
            await zk.set("/app/x", b"2")
            await zk.create("/app/comes-and-goes")
            await cache.settled()
            await zk.delete("/app/comes-and-goes")
            await cache.settled()

            change = await changes.next(1)
            assert [each.path for each in first] == ["/app", "/app/x"]
            assert change.before == first[1].after
            assert change.after is not None
            assert change.after.data == b"2"
            assert not change.resumed
            with pytest.raises(TimeoutError):
                await changes.next(0.05)


async def test_what_happened_while_away_is_told_as_resumed() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
    ):
        for name in ("goes", "changes", "stays", "goes/too"):
            await other.create(f"/app/{name}", parents=True)
        async with zk.cache("/app") as cache, cache.changes() as changes:
            for _ in range(5):
                await changes.next(1)
            relay.is_closed = True
            relay.cut()
            await eventually(lambda: zk.state is State.SUSPENDED)
            assert not cache.is_current
            await other.delete("/app/goes", recursive=True)
            await other.set("/app/changes", b"1")
            await other.create("/app/comes/too", parents=True)
            relay.is_closed = False

            told: list[Change] = []
            while len(told) < 5:
                told.append(await changes.next(5))

            assert all(change.resumed for change in told)
            assert [(c.path, c.after is not None) for c in told] == [
                ("/app/goes/too", False),
                ("/app/goes", False),
                ("/app/changes", True),
                ("/app/comes", True),
                ("/app/comes/too", True),
            ]
            assert cache.is_current


async def test_it_goes_on_in_the_next_session() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        connected(server) as other,
    ):
        await other.create("/app/x", b"0", parents=True)
        async with zk.cache("/app") as cache, cache.changes() as changes:
            await changes.next(1)
            await changes.next(1)
            old = zk.session_id
            relay.is_closed = True
            relay.cut()
            await eventually(lambda: zk.state is State.LOST)
            relay.is_closed = False
            await eventually(lambda: zk.session_id != old and zk.state is State.CONNECTED)
            await other.set("/app/x", b"1")

            change = await changes.next(5)
            assert change.path == "/app/x"
            assert change.after is not None
            assert change.after.data == b"1"


async def test_a_large_tree_is_looked_at_again_in_ten_requests_after_a_reconnect() -> None:
    async with (
        embedded(tick=3.0) as server,
        relay_to(server.host, server.port) as relay,
        connected(relay, session_timeout=60.0) as zk,
        connected(server) as other,
    ):
        await other.ensure("/app")
        for start in range(0, 5000, 500):
            async with other.transaction() as t:
                for number in range(start, start + 500):
                    t.create(f"/app/{number:05}", b"data of some length")
        async with zk.cache("/app") as cache:
            assert len(cache.children()) == 5000
            asked = Asked(server)
            relay.cut()
            await eventually(
                lambda: "MultiRead" in asked.names(zk.session_id) and cache.is_current, timeout=30
            )

            names = asked.names(zk.session_id, without=("Ping", "Multi"))
            since_reconnect = names[::-1].index("SetWatches2") + 1  # a busy machine may need two
            assert since_reconnect <= 10


async def test_answers_too_large_to_be_taken_are_asked_for_in_parts() -> None:
    async with embedded() as server, connected(server) as zk:
        for number in range(4):
            await zk.create(f"/app/{number}", bytes(400_000), parents=True)

        async with zk.cache("/app") as cache:
            assert len(cache.children()) == 4


async def test_what_may_not_be_read_is_left_out_and_the_path_itself_is_an_error() -> None:
    nobody = [Acl(31, "ip", "10.9.9.9")]
    async with embedded() as server, connected(server) as zk:
        await zk.create("/app/open", parents=True)
        await zk.create("/app/closed", acl=nobody)
        async with zk.cache("/app") as cache:
            assert list(cache.snapshot()) == ["/app", "/app/open"]
        with pytest.raises(NoAuth):
            async with zk.cache("/app/closed"):
                pass


async def test_a_path_that_comes_later_is_shown_then() -> None:
    async with embedded() as server, connected(server) as zk, zk.cache("/later") as cache:
        assert cache.get() is None
        await zk.create("/later/x", parents=True)
        await cache.settled()
        assert cache.children() == ["x"]
        await zk.delete("/later", recursive=True)
        await cache.settled()
        assert cache.snapshot() == {}


async def test_the_whole_tree_is_shown_without_the_servers_own_part() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/x")
        async with zk.cache("/") as cache:
            assert cache.children("/") == ["x"]
            await zk.create("/y")
            await cache.settled()
            assert list(cache.snapshot()) == ["/", "/x", "/y"]


async def test_below_a_root_of_the_clients_own_paths_are_its_own() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/deep/app/x", parents=True)
        async with (
            aio.connect(f"{server.host}:{server.port}/deep") as below,
            below.cache("/app") as cache,
        ):
            await zk.create("/deep/app/y")
            await eventually(lambda: cache.children() == ["x", "y"])


async def test_after_the_end_every_look_says_so() -> None:
    async with embedded() as server, connected(server) as zk:
        async with zk.cache("/app") as cache, cache.changes() as changes:
            waiting = asyncio.create_task(changes.next())
            await asyncio.sleep(0)
            await zk.close()
            with pytest.raises(SessionClosed):
                await waiting
        with pytest.raises(SessionClosed):
            cache.get()


async def test_a_thousand_caches_leave_no_watch_behind() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.ensure("/app")
        for _ in range(1000):
            async with zk.cache("/app"):
                pass

        await eventually(lambda: len(server._service.watches) == 0)
        assert len(zk.client._watches) == 0


async def test_two_caches_and_a_watch_on_one_path_do_not_disturb_each_other() -> None:
    async with embedded() as server, connected(server) as zk, zk.cache("/app") as one:
        async with zk.cache("/app"), zk.watch("/app"):
            pass
        await zk.create("/app/x", parents=True)
        await one.settled()

        assert one.children() == ["x"]


async def test_cancelled_anywhere_while_loading_it_leaves_nothing() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/app/x", parents=True)
        for steps in range(40):
            task = asyncio.create_task(_enter(Cache(zk.client, "/app", log=print)))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        await eventually(lambda: len(server._service.watches) == 0)
        assert len(zk.client._watches) == 0


async def _enter(cache: Cache) -> None:
    async with cache:
        pass


async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
    ):
        await zk.create("/app/x", parents=True)
        for number in range(1, 6):
            seen = 0

            def lose(request: object, number: int = number) -> bool:
                nonlocal seen
                seen += isinstance(request, MultiRead)
                return isinstance(request, MultiRead) and seen == number

            relay.lose_answer = lose
            async with asyncio.timeout(5), zk.cache("/app") as cache:
                assert cache.children() == ["x"]
                await zk.set("/app/x", b"%d" % number)
                await eventually(lambda: cache.get("/app/x").data == b"%d" % number)  # noqa: B023


async def test_a_listener_that_fails_harms_nobody() -> None:
    said: list[str] = []
    async with (
        embedded() as server,
        connected(server, log=said.append) as zk,
        zk.cache("/app") as cache,
    ):
        forget = cache.listen(lambda changes: 1 / 0)
        await zk.create("/app/x", parents=True)
        await cache.settled()
        forget()

        assert cache.children() == ["x"]
        assert any("a listener of its cache failed" in line for line in said)


async def test_it_is_not_current_from_a_lost_connection_until_all_was_looked_at_again() -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as zk,
        zk.cache("/app") as cache,
    ):
        said: dict[State, bool] = {}
        forget = zk.client.watch_state(lambda state: said.setdefault(state, cache.is_current))
        relay.cut()
        await eventually(lambda: State.CONNECTED in said and cache.is_current)
        forget()

        assert said == {State.SUSPENDED: False, State.CONNECTED: False}
