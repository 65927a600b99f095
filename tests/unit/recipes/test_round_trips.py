"""What each recipe asks of the server, counted where it arrives.

A flight is what is sent before an answer is awaited; beats (`Multi`) are not waited for here,
since the create itself proved the session.
"""

from __future__ import annotations

import asyncio

from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.server import Server


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
