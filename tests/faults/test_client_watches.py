"""Watches that last and watches that fire once, over a bad network."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.apache import four_letters
from tests.relay import Relay
from tests.unit.client.scripted import client_of, reached, scripted
from tests.unit.client.servers import direct, relay, root
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import Client, State
from incumbent.errors import FateUnknown, NotSent, SessionClosed, SessionExpired
from incumbent.wire import (
    EventType,
    GetData,
    SetWatches,
    SetWatches2,
    WatchEvent,
)

__all__ = ["relay", "root"]

S = 4.0


async def watched(relay: Relay) -> str:
    """All watches of a server, by path."""
    return await asyncio.to_thread(four_letters, *relay._target, "wchp")


@asynccontextmanager
async def pair(relay: Relay) -> AsyncIterator[tuple[Client, Client]]:
    """A client over the relay, and one that is not."""
    other = await direct(relay)
    try:
        async with client_of(relay.hosts, session_timeout=S) as client:
            yield client, other
    finally:
        await other.close()


async def again(client: Client, relay: Relay) -> None:
    """The connection breaks; there is another."""
    relay.cut()
    await reached(client, State.SUSPENDED)
    await reached(client, State.CONNECTED)
    await client.sync("/")


def seen(events: list[WatchEvent]) -> list[tuple[EventType, str]]:
    return [(event.type, event.path) for event in events]


async def test_a_lasting_watch_tells_all_in_order(relay: Relay, root: str) -> None:
    async with pair(relay) as (client, other), client.watch(root) as events:
        await other.create(root)
        await other.set(root, b"1")
        await other.create(f"{root}/a")
        await other.delete(f"{root}/a")
        await other.delete(root)

        heard = [await events.next(5) for _ in range(5)]
        kinds = [EventType.CREATED, EventType.CHANGED, EventType.CHILD, EventType.CHILD]
        assert seen(heard) == [(kind, root) for kind in (*kinds, EventType.DELETED)]
        with pytest.raises(TimeoutError):
            await events.next(0.05)


async def test_a_watch_outlives_its_znode(relay: Relay, root: str) -> None:
    async with pair(relay) as (client, other):
        await other.create(root)
        async with client.watch(root) as events:
            views = [await client.children(root)]
            await other.delete(root)
            await other.create(root)
            await other.create(f"{root}/x")
            for _ in range(3):
                assert (await events.next(5)).path == root
            views.append(await client.children(root))

        assert views == [[], ["x"]]


async def test_a_thousand_changes_and_deletions_replay_to_the_true_state(
    relay: Relay, root: str
) -> None:
    async with pair(relay) as (client, other):
        await other.create(root)
        async with client.watch(root, recursive=True) as events:
            for start in range(0, 1000, 100):
                flight = []
                for i in range(start, start + 100):
                    path = f"{root}/{i % 10}"
                    flight += [other.create(path), other.set(path, b"1"), other.delete(path)]
                await asyncio.gather(*flight)
            await other.create(f"{root}/end")
            there: list[str] = []
            while (event := await events.next(10)).path != f"{root}/end":
                if event.type is EventType.CREATED:
                    there.append(event.path)
                elif event.type is EventType.DELETED:
                    there.remove(event.path)
                else:
                    assert event.path in there

        assert there == []


async def test_a_view_kept_by_a_watch_is_true_after_all_that_happened(
    relay: Relay, root: str
) -> None:
    """Who looks again when told to sees what is so, whatever broke meanwhile"""
    async with pair(relay) as (client, other):
        await other.create(root)
        view: list[str] = []

        async def look() -> None:
            while True:
                with contextlib.suppress(NotSent, FateUnknown):
                    view[:] = await client.children(root)
                    return

        async def keep() -> None:
            async with client.watch(root) as events:
                await look()
                async for _ in events:
                    await look()

        keeping = asyncio.ensure_future(keep())
        for i in range(120):
            await other.create(f"{root}/{i:03}")
            if i % 3:
                await other.delete(f"{root}/{i - 1:03}") if i % 3 == 2 else None
            if i % 10 == 0:
                relay.cut()
            await asyncio.sleep(0.005)
        truth = await other.children(root)

        await eventually(lambda: view == truth)
        assert client.generation == 1
        keeping.cancel()
        await asyncio.wait([keeping])


async def test_a_recursive_watch_tells_of_all_below(relay: Relay, root: str) -> None:
    async with pair(relay) as (client, other), client.watch(root, recursive=True) as events:
        await other.create(root)
        await other.create(f"{root}/a")
        await other.set(f"{root}/a", b"1")
        await other.delete(f"{root}/a")

        heard = [await events.next(5) for _ in range(4)]
        assert seen(heard) == [
            (EventType.CREATED, root),
            (EventType.CREATED, f"{root}/a"),
            (EventType.CHANGED, f"{root}/a"),
            (EventType.DELETED, f"{root}/a"),
        ]


async def test_a_lasting_watch_is_set_again_and_says_that_something_may_be_missing(
    relay: Relay, root: str
) -> None:
    async with (
        pair(relay) as (client, other),
        client.watch(root) as events,
        client.watch(f"{root}/r", recursive=True) as below,
    ):
        await other.ensure(root)
        assert (await events.next(5)).type is EventType.CREATED

        await again(client, relay)
        assert (await events.next(5)).type is EventType.NONE
        assert (await below.next(5)).type is EventType.NONE
        await other.create(f"{root}/r")
        assert seen([await events.next(5), await below.next(5)]) == [
            (EventType.CHILD, root),
            (EventType.CREATED, f"{root}/r"),
        ]


@pytest.mark.parametrize("lasts_first", [True, False])
@pytest.mark.parametrize("recursive", [True, False])
async def test_a_one_shot_watch_and_a_lasting_one_on_a_path_leave_each_other_alone(
    relay: Relay, root: str, recursive: bool, lasts_first: bool
) -> None:
    async with pair(relay) as (client, other):
        await client.create(root)
        once: list[WatchEvent] = []
        lasting: list[WatchEvent] = []

        async def ask() -> None:
            await client.get(root, watcher=once.append)
            await client.children(root, watcher=once.append)

        if not lasts_first:
            await ask()
        async with client.watching(root, lasting.append, recursive=recursive):
            if lasts_first:
                await ask()
            await other.create(f"{root}/a")
            await other.set(root, b"1")
            await other.set(root, b"2")
            await other.delete(f"{root}/a")
            await eventually(lambda: len(lasting) == 4)
            assert seen(once) == [(EventType.CHILD, root), (EventType.CHANGED, root)]

            once.clear()
            await ask()
        await client.sync(root)
        await other.set(root, b"3")
        await other.create(f"{root}/b")
        await eventually(lambda: len(once) == 2)
        assert len(lasting) == 4
    assert root not in await watched(relay)


async def test_two_lasting_watches_of_one_path_are_taken_off_one_by_one(
    relay: Relay, root: str
) -> None:
    async with pair(relay) as (client, other), client.watch(root) as events:
        async with client.watch(root, recursive=True) as below:
            await other.create(root)
            await other.create(f"{root}/a")
            assert [(await below.next(5)).path for _ in range(2)] == [root, f"{root}/a"]
            heard = [await events.next(5) for _ in range(2)]
            assert seen(heard) == [(EventType.CREATED, root), (EventType.CHILD, root)]
        assert (await events.next(5)).type is EventType.NONE
        await client.children(root)  # who looks again misses nothing from then on
        await other.create(f"{root}/b")
        assert seen([await events.next(5)]) == [(EventType.CHILD, root)]


async def test_ten_thousand_timed_out_waits_leave_no_watch_on_either_side(
    relay: Relay, root: str
) -> None:
    async with pair(relay) as (client, _):
        await client.create(root)

        async def wait(i: int) -> None:
            def watcher(event: WatchEvent) -> None: ...

            kind = i % 4
            path = root if kind else f"{root}/{i % 500}"
            if kind == 3:
                asked = client.submit(GetData(path, watch=True), watcher=watcher)
                await asyncio.sleep(0)
                asked.cancel()  # given up before the answer
                return
            ask = (client.exists, client.get, client.children)[kind]
            await ask(path, watcher=watcher)
            client.unwatch(path, watcher)

        for _ in range(20):
            await asyncio.gather(*(wait(i) for i in range(500)))
        await client.sync(root)

        assert len(client._watches) == 0
        assert client._watches._asked == {}
        assert root not in await watched(relay)


async def test_a_thousand_streams_opened_and_closed_leave_no_watch_and_no_reference(
    relay: Relay, root: str
) -> None:
    async with pair(relay) as (client, _):
        kept: weakref.WeakSet[Callable[[WatchEvent], None]] = weakref.WeakSet()

        async def open_and_close(i: int) -> None:
            def heard(event: WatchEvent) -> None: ...

            kept.add(heard)
            path, recursive = f"{root}/{i % 7}", i % 2 == 0
            async with client.watch(path, recursive=recursive):
                pass
            async with client.watching(path, heard, recursive=recursive):
                pass

        for start in range(0, 1000, 50):
            await asyncio.gather(*map(open_and_close, range(start, start + 50)))
        entering = [asyncio.ensure_future(client.watch(root).__aenter__()) for _ in range(100)]
        await asyncio.sleep(0)
        for each in entering:
            each.cancel()
        await asyncio.wait(entering)
        await client.sync("/")

        assert len(client._watches) == 0
        assert root not in await watched(relay)
        gc.collect()
        assert len(kept) == 0


async def test_five_thousand_watches_are_set_again_in_few_requests_and_nothing_is_read() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(scripted())
        client = await stack.enter_async_context(client_of(server, session_timeout=30.0))
        heard: list[WatchEvent] = []
        paths = [f"/service/members/group-{i % 50:04}/member-{i:06}" for i in range(4990)]
        await asyncio.gather(*(client.get(path, watcher=heard.append) for path in paths))
        for i in range(10):
            lasting = client.watching(f"/last/{i}", heard.append, recursive=bool(i % 2))
            await stack.enter_async_context(lasting)

        server.peer.reset()
        await client.sync("/")

        after = [s.request for s in server.seen if s.connection == 2]
        sets = [r for r in after if isinstance(r, SetWatches | SetWatches2)]
        assert len(after) == len(sets) + 1 <= 10
        assert [path for r in sets for path in r.data] == paths
        assert isinstance(sets[-1], SetWatches2)
        assert len(sets[-1].persistent) == len(sets[-1].recursive) == 5
        assert [event.type for event in heard] == [EventType.NONE]  # lasting ones: look again


async def test_a_stream_ends_with_the_session_and_with_the_client() -> None:
    async with scripted() as server, client_of(server) as client:
        async with client.watch("/a") as events:
            server.on_hello = server.refuse
            server.peer.reset()
            with pytest.raises(SessionExpired):
                async for _ in events:
                    pass
        await reached(client, State.CONNECTED)
        async with client.watch("/a") as events:
            await client.close()
            with pytest.raises(SessionClosed):
                await events.next(5)


async def test_a_stream_that_nobody_reads_is_bounded_and_says_so() -> None:
    async with scripted() as server, client_of(server) as client, client.watch("/a") as events:
        for _ in range(10_001):
            server.peer.event(WatchEvent(EventType.CHANGED, 3, "/a"))  # type: ignore[arg-type]
        await client.sync("/")

        assert (await events.next(5)).type is EventType.NONE


async def test_events_come_with_the_clients_own_paths(relay: Relay, root: str) -> None:
    async with (
        pair(relay) as (plain, other),
        client_of(relay.hosts, chroot=root) as client,
    ):
        await plain.create(root)
        once: list[WatchEvent] = []
        async with client.watch("/", recursive=True) as events:
            await client.exists("/a", watcher=once.append)
            await client.children("/", watcher=once.append)
            await other.create(f"{root}/a")
            await other.set(root, b"1")

            assert [(await events.next(5)).path for _ in range(2)] == ["/a", "/"]
            assert seen(once) == [(EventType.CREATED, "/a"), (EventType.CHILD, "/")]
    assert root not in await watched(relay)


async def test_callbacks_are_called_in_order_and_may_call_anything(relay: Relay, root: str) -> None:
    other = await direct(relay)
    async with aio.connect(relay.hosts, session_timeout=S, tick=0.0) as zk:
        told: list[object] = []

        async def changed(event: WatchEvent) -> None:
            if event.type is EventType.NONE:
                told.append(event.type)
                return
            if event.type is EventType.CHANGED:
                told.append((await zk.get(root))[0])
                await asyncio.sleep(0.01)
                raise ZeroDivisionError
            told.append(event.type)

        async with zk.listen(root, changed):
            await other.create(root)
            await other.set(root, b"1")
            await eventually(lambda: b"1" in told)
            await other.delete(root)
            await eventually(lambda: len(told) == 3)
            assert told == [EventType.CREATED, b"1", EventType.DELETED]
        await zk.exists(root, watcher=changed)
        await other.create(root)
        await eventually(lambda: len(told) == 4)
    await other.close()


async def test_a_state_listener_may_wait_and_call_the_client_without_harm() -> None:
    async with (
        scripted() as server,
        aio.connect(server.hosts, session_timeout=2.0, tick=0.0) as zk,
    ):
        told: list[State] = []

        async def listener(state: State) -> None:
            if state is State.CONNECTED:
                await zk.create("/from-listener")
            await asyncio.sleep(0.05)
            told.append(state)

        zk.on_state(listener)
        server.peer.reset()
        await eventually(lambda: told == [State.SUSPENDED, State.CONNECTED])
