"""What each recipe asks of the server, counted where it arrives.

A flight is what is sent before an answer is awaited; beats (`Multi`) are not waited for here,
since the create itself proved the session.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.server import Server
from incumbent.wire import GetData


async def with_directory(server: Server, path: str) -> None:
    async with connected(server) as zk:
        await zk.create(path, container=True)


async def test_a_sessions_first_lock_costs_one_flight() -> None:
    async with embedded() as server:
        await with_directory(server, "/l")
        async with connected(server) as zk:
            asked = Asked(server)
            async with zk.lock("/l"):
                before_block = asked.names(zk.session_id)

    assert before_block == ["Create2", "GetChildren"]


@pytest.mark.parametrize("kind", ["lead", "election"])
async def test_a_leadership_costs_one_flight(kind: str) -> None:
    """Its own znode is watched from the beginning, and nobody waits for that."""
    async with embedded() as server:
        await with_directory(server, "/l")
        async with connected(server) as zk:
            asked = Asked(server)
            election = zk.election("/l", dialect="ours")
            async with zk.lead("/l") if kind == "lead" else election.lead():
                before_block = asked.names(zk.session_id)

    assert before_block[:2] == ["Create2", "GetChildren"]
    assert before_block[2:] in ([], ["GetData"])


async def test_a_lock_in_a_new_directory_costs_two() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        async with zk.lock("/a/b/l"):
            before_block = asked.names(zk.session_id)

    assert before_block == [
        *("Create2", "GetChildren"),
        *("Create", "Create", "CreateContainer", "Create2", "GetChildren"),
    ]


async def test_a_contended_lock_costs_two_and_its_handover_none() -> None:
    async with embedded() as server:
        await with_directory(server, "/l")
        async with connected(server) as one, connected(server) as two:
            asked = Asked(server)

            async def second() -> list[str]:
                async with two.lock("/l"):
                    return asked.names(two.session_id, without=("Ping", "Multi"))

            async with one.lock("/l"):
                waiting = asyncio.create_task(second())
                await eventually(lambda: asked.names(two.session_id).count("GetData") == 2)
                await eventually(lambda: "Multi" in asked.names(two.session_id))

            assert await waiting == ["Create2", "GetChildren", "GetData", "GetData"]


async def test_only_the_next_in_line_is_woken_and_only_it_and_the_holder_beat() -> None:
    async with embedded() as server:
        await with_directory(server, "/l")
        async with (
            connected(server) as one,
            connected(server) as two,
            connected(server) as three,
        ):
            asked = Asked(server)
            first = asyncio.Event()
            tasks = [asyncio.create_task(_holds(one, first))]
            await eventually(lambda: _stand(one, 1))
            tasks.append(asyncio.create_task(_holds(two, asyncio.Event())))
            await eventually(lambda: _stand(one, 2))
            tasks.append(asyncio.create_task(_holds(three, asyncio.Event())))
            await eventually(lambda: _stand(one, 3))
            await eventually(lambda: "Multi" in asked.names(two.session_id))
            assert "Multi" not in asked.names(three.session_id)
            asked.requests.clear()

            first.set()
            await tasks[0]
            await eventually(lambda: _stand(one, 2))

            assert asked.names(three.session_id) == []
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks[1:], return_exceptions=True)


async def _holds(zk: aio.Zk, until: asyncio.Event) -> None:
    async with zk.lock("/l"):
        await until.wait()


async def _stand(zk: aio.Zk, number: int) -> bool:
    return len(await zk.children("/l")) == number


async def test_releasing_and_taking_again_costs_one_flight_in_all() -> None:
    async with embedded() as server:
        await with_directory(server, "/l")
        async with connected(server) as zk:
            async with zk.lock("/l"):
                pass
            asked = Asked(server)
            async with zk.lock("/l"):
                pass
            async with zk.lock("/l"):
                sent = asked.names(zk.session_id, without=("Ping", "Multi", "GetData"))

    assert sent == ["Delete", "Create2", "GetChildren", "Delete", "Create2", "GetChildren"]


async def test_an_idle_hold_writes_nothing_but_beats() -> None:
    async with (
        embedded() as server,
        connected(server, session_timeout=0.5) as zk,
        zk.lock("/l"),
    ):
        asked = Asked(server)
        await eventually(lambda: len(asked.names(zk.session_id)) >= 6)
        kinds = set(asked.names(zk.session_id, without=("Ping", "GetData")))

    assert kinds == {"Multi"}


CROWD = 1_000


@pytest.mark.parametrize("kind", ["lock", "writers", "semaphore"])
async def test_in_a_line_of_a_thousand_a_handover_is_one_event_and_one_flight(kind: str) -> None:
    """All but the last few are znodes of one more session, so that the line is quickly there."""
    directory = "/l" if kind != "semaphore" else "/l/queue"
    async with (
        embedded() as server,
        connected(server) as others,
        relay_to(server.host, server.port) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        zks = [await stack.enter_async_context(connected(relay)) for _ in range(4)]
        await others.semaphore("/l").resize(1)
        await others.ensure(directory)
        made = [
            others.create(f"{directory}/other__lock__", ephemeral=True, sequential=True)
            for _ in range(CROWD - len(zks))
        ]
        line = sorted(each.path for each in await asyncio.gather(*made))
        leave = [asyncio.Event() for _ in zks]
        inside: list[int] = []
        tasks = []
        asked = Asked(server)
        for who, zk in enumerate(zks):
            tasks.append(asyncio.create_task(_stays(zk, kind, who, inside, leave[who])))
            await eventually(lambda who=who: _stand_in(others, directory, CROWD - 3 + who))  # type: ignore[misc]
            await eventually(lambda who=who: _watches(asked, zks[who].session_id, directory))  # type: ignore[misc]
        asked.requests.clear()
        relay.events = 0

        await asyncio.gather(*(others.delete(path) for path in line[:-1]))
        assert (relay.events, [asked.names(zk.session_id) for zk in zks]) == (0, [[]] * 4)

        await others.delete(line[-1])
        for who, zk in enumerate(zks):
            await eventually(lambda who=who: inside == [who])  # type: ignore[misc]
            own = asked.names(zk.session_id, without=("Ping", "GetData", "SetData"))
            assert 1 <= own.count("GetChildren") <= FLIGHTS[kind]
            for later in zks[who + 2 :]:
                assert asked.names(later.session_id) == []
            assert relay.events <= EVENTS[kind] * (who + 1)
            leave[who].set()
        await asyncio.gather(*tasks)


FLIGHTS = {"lock": 1, "writers": 1, "semaphore": 2}
"""Listings per handover at most, for the one that gets in: of a semaphore one when its predecessor
is inside, from then on with a watch on the directory, and one when there is room."""

EVENTS = {"lock": 2, "writers": 2, "semaphore": 4}
"""The predecessor's end, and our own znode's, which the holder watches; of a semaphore the mark
of the predecessor too, and the directory."""


async def _stays(zk: aio.Zk, kind: str, who: int, inside: list[int], until: asyncio.Event) -> None:
    guarded = {
        "lock": lambda: zk.lock("/l"),
        "writers": lambda: zk.rwlock("/l").write(),
        "semaphore": lambda: zk.semaphore("/l").acquire(),
    }[kind]()
    async with guarded:
        inside.append(who)
        await until.wait()
        inside.remove(who)


def _watches(asked: Asked, session_id: int, directory: str) -> bool:
    """Has the server been asked by this session to watch one who stands there?"""
    return any(
        session == session_id
        and isinstance(request, GetData)
        and request.path.startswith(f"{directory}/")
        for session, request in asked.requests
    )


async def _stand_in(zk: aio.Zk, directory: str, number: int) -> bool:
    return len(await zk.children(directory)) == number


async def test_a_hold_shorter_than_a_beat_costs_no_beat() -> None:
    async with embedded() as server, connected(server, session_timeout=30.0) as zk:
        async with zk.lock("/l"):
            pass
        asked = Asked(server)
        for _ in range(20):
            async with zk.lock("/l") as hold:
                hold.ensure()
        names = asked.names(zk.session_id)

    assert names.count("Create2") == 20
    assert names.count("Multi") <= 1  # a beat that was due
