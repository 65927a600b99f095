"""What cannot be done is said at once, by every recipe, and nothing is asked for again and again.

Rule of this file: a recipe that is missing in `STEPS` fails the first test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

import incumbent
from incumbent import aio
from incumbent.errors import (
    IncumbentError,
    LockLost,
    NoAuth,
    NoChildrenForEphemerals,
    NoNode,
    TooLarge,
)
from incumbent.wire import Acl, AclPerm

Step = Callable[[aio.Zk, str], Awaitable[object]]

MOST = 40
"""Requests that it may take to see that something cannot be done."""


async def _in(guarded: Any) -> None:
    async with guarded:
        pass


async def _claimed(zk: aio.Zk, path: str) -> None:
    async with zk.work(path) as work, work.claim("item"):
        pass


async def _put(zk: aio.Zk, path: str) -> None:
    async with zk.work_queue(path) as queue:
        await queue.put(b"x")


STEPS: dict[str, Step] = {
    "lead": lambda zk, path: _in(zk.lead(f"{path}/a/b")),
    "lock": lambda zk, path: _in(zk.lock(f"{path}/a/b")),
    "try_lock": lambda zk, path: _in(zk.try_lock(f"{path}/a/b")),
    "rwlock": lambda zk, path: _in(zk.rwlock(f"{path}/a/b").read()),
    "multilock": lambda zk, path: _in(zk.multilock([f"{path}/a/b", f"{path}/a/c"]).acquire()),
    "semaphore": lambda zk, path: _in(zk.semaphore(f"{path}/a/b", size=2).acquire()),
    "election": lambda zk, path: _in(zk.election(f"{path}/a/b").lead()),
    "double_barrier": lambda zk, path: zk.double_barrier(f"{path}/a/b", 2).enter(),
    "barrier": lambda zk, path: zk.barrier(f"{path}/a/b").create(),
    "queue": lambda zk, path: zk.queue(f"{path}/a/b").put(b"x"),
    "counter": lambda zk, path: zk.counter(f"{path}/a/b").add(1),
    "value": lambda zk, path: zk.value(f"{path}/a/b").set(b"x"),
    "group": lambda zk, path: _in(zk.group(f"{path}/a/b").join(b"x", name="n")),
    "multilock, the other first": lambda zk, path: _in(
        zk.multilock(["/open/c", f"{path}/a/b"]).acquire()
    ),
    "multilock, the other last": lambda zk, path: _in(
        zk.multilock([f"{path}/a/b", "/open/c"]).acquire()
    ),
    "work": lambda zk, path: _claimed(zk, f"{path}/a/b"),
    "work_queue": lambda zk, path: _put(zk, f"{path}/a/b"),
    "epoch": lambda zk, path: _in(zk.lock("/elsewhere", epoch_path=f"{path}/a/b")),
}


def test_every_recipe_is_tried() -> None:
    makers = set(STEPS)
    others = {"cache", "revoke", "contenders"}
    public = {name for name in vars(aio.Zk) if not name.startswith("_")}
    session = {
        "state",
        "session_id",
        "close",
        "detach",
        "unwatch",
        "on_state",
        "submit",
        "add_auth",
        "listen",
        "watch",
    }
    unknown = public - makers - others - session
    assert not unknown, f"tried here, or named as no recipe: {unknown}"


@pytest.mark.parametrize("recipe", STEPS)
async def test_a_directory_that_nobody_may_make_is_the_servers_refusal(recipe: str) -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.ensure("/open")
        await zk.create("/closed", acl=[Acl(AclPerm.READ, "world", "anyone")])
        await _refused(server, zk, STEPS[recipe], "/closed", NoAuth)


@pytest.mark.parametrize("recipe", STEPS)
async def test_a_directory_below_an_ephemeral_is_the_servers_refusal(recipe: str) -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.ensure("/open")
        await zk.create("/ephemeral", ephemeral=True)
        await _refused(server, zk, STEPS[recipe], "/ephemeral", NoChildrenForEphemerals)


@pytest.mark.parametrize("recipe", STEPS)
async def test_without_the_clients_root_nothing_can_be_made_and_that_is_said(recipe: str) -> None:
    async with embedded() as server, aio.connect(f"127.0.0.1:{server.port}/none") as zk:
        error = await _refused(server, zk, STEPS[recipe], "", NoNode)
        assert "/none, this client's root" in str(error)


@pytest.mark.parametrize("recipe", ["barrier", "value", "counter", "lock", "group"])
async def test_the_same_for_what_stands_right_below_the_root(recipe: str) -> None:
    steps: dict[str, Callable[[aio.Zk], Awaitable[object]]] = {
        "barrier": lambda zk: zk.barrier("/b").create(),
        "value": lambda zk: zk.value("/b").set(b"x"),
        "counter": lambda zk: zk.counter("/b").add(1),
        "lock": lambda zk: _in(zk.lock("/b")),
        "group": lambda zk: _in(zk.group("/b").join()),
    }
    async with embedded() as server, aio.connect(f"127.0.0.1:{server.port}/none") as zk:
        with pytest.raises(NoNode, match="/none, this client's root"):
            await steps[recipe](zk)


async def test_a_member_that_cannot_be_made_again_waits_until_it_can() -> None:
    log: list[str] = []
    async with (
        embedded() as server,
        connected(server) as admin,
        connected(server, log=log.append) as zk,
    ):
        await admin.create("/app/g", parents=True)
        async with zk.group("/app/g").join(b"x", name="n"):
            asked = Asked(server)
            await admin.delete("/app", recursive=True)
            await admin.create("/app", acl=[Acl(AclPerm.READ, "world", "anyone")])
            await eventually(lambda: any("cannot be made again" in line for line in log))
            await asyncio.sleep(0.3)
            assert len(asked.requests) < MOST
            await admin.delete("/app")
            await admin.create("/app/g", parents=True)
            await eventually(lambda: _stands(admin, "/app/g/n"))


async def _stands(zk: aio.Zk, path: str) -> bool:
    return await zk.exists(path) is not None


async def test_a_work_queue_puts_nothing_that_could_not_be_claimed() -> None:
    async with embedded() as server, connected(server) as zk, zk.work_queue("/q") as queue:
        with pytest.raises(TooLarge):
            await queue.put(b"x" * 300_000)
        await queue.put(b"x" * 200_000)
        claim = await queue.take(1)
        assert claim is not None
        async with claim:
            assert len(claim.payload) == 200_000


async def _refused(
    server: Any, zk: aio.Zk, step: Step, path: str, kind: type[IncumbentError]
) -> IncumbentError:
    asked = Asked(server)
    async with asyncio.timeout(5):
        with pytest.raises(kind) as caught:
            await step(zk, path)
    assert len(asked.requests) < MOST
    return caught.value


LARGE = "x" * 2_000_000

WITH_DATA: dict[str, Callable[[aio.Zk, Any], Awaitable[object]]] = {
    "lead": lambda zk, data: _in(zk.lead("/a", member=data)),
    "lock": lambda zk, data: _in(zk.lock("/a", member=data)),
    "try_lock": lambda zk, data: _in(zk.try_lock("/a", member=data)),
    "rwlock": lambda zk, data: _in(zk.rwlock("/a").write(data)),
    "multilock": lambda zk, data: _in(zk.multilock(["/a", "/b"]).acquire(data)),
    "semaphore": lambda zk, data: _in(zk.semaphore("/a", size=1).acquire(data)),
    "barrier": lambda zk, data: zk.barrier("/a").create(data),
    "queue": lambda zk, data: zk.queue("/a").put(data),
    "value": lambda zk, data: zk.value("/a").set(data),
    "group": lambda zk, data: _in(zk.group("/a").join(data)),
}


@pytest.mark.parametrize("recipe", WITH_DATA)
async def test_more_data_than_a_server_takes_is_refused_at_once(recipe: str) -> None:
    async with embedded() as server, connected(server) as zk, asyncio.timeout(5):
        with pytest.raises(TooLarge, match="send less at once"):
            await WITH_DATA[recipe](zk, LARGE)


@pytest.mark.parametrize("recipe", WITH_DATA)
async def test_what_is_neither_text_nor_bytes_is_refused_at_once(recipe: str) -> None:
    async with embedded() as server, connected(server) as zk, asyncio.timeout(5):
        with pytest.raises(TypeError, match="neither text nor bytes"):
            await WITH_DATA[recipe](zk, 5)


async def test_data_that_is_too_large_leaves_what_was_there() -> None:
    async with embedded() as server, connected(server) as zk, asyncio.timeout(5):
        async with zk.lock("/a", member="before") as hold:
            with pytest.raises(TooLarge):
                await hold.update(LARGE)
            assert (await zk.get(f"/a/{hold.name}"))[0] == b"before"
        async with zk.group("/g").join("before", name="n") as member:
            with pytest.raises(TooLarge):
                member.update(LARGE)
            await member.settled()
            assert (await zk.get("/g/n"))[0] == b"before"


async def test_a_counter_takes_whole_numbers_only() -> None:
    async with embedded() as server, connected(server) as zk:
        counter = zk.counter("/n")
        for number in (1.5, float("nan"), True, "1", None):
            with pytest.raises(TypeError, match="whole number"):
                await counter.add(number)  # type: ignore[arg-type]
        assert await counter.add(2) == 2


async def test_a_version_that_nobody_read_writes_over_nothing() -> None:
    async with embedded() as server, connected(server) as zk:
        value = zk.value("/v")
        await value.set(b"1")
        with pytest.raises(ValueError, match="version=-1"):
            await value.compare_and_set(b"2", -1)
        assert (await value.get()).data == b"1"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("session_timeout", 0.0),
        ("session_timeout", -1.0),
        ("session_timeout", float("nan")),
        ("request_timeout", 0.0),
        ("tick", -1.0),
        ("tick", float("nan")),
    ],
)
async def test_times_that_are_none_are_refused_by_name(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"{name}="):
        await aio.connect("127.0.0.1:1", **{name: wrong})  # type: ignore[arg-type]


async def test_a_client_is_used_on_the_loop_that_connected_it() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create("/a")

        async def elsewhere() -> None:
            for step in (
                zk.get("/a"),
                _in(zk.lock("/l")),
                _in(zk.group("/g").join()),
                _in(zk.cache("/a")),
                _in(zk.value("/a").follow()),
                zk.close(),
            ):
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    await step
            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                zk.detach()

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await zk.exists("/a")


async def test_closing_ones_own_client_is_named_as_what_ended_a_hold() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        with pytest.raises(IncumbentError, match="closed"):
            async with zk.lock("/a"):
                await eventually(
                    lambda: "GetData" in asked.names(zk.session_id)
                )  # a lock that lasts
                await zk.close()
                await asyncio.sleep(5)


async def test_nor_one_of_an_asyncio_block() -> None:
    async with embedded() as server, connected(server) as zk, zk.lock("/a") as hold:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            for _ in range(2):
                try:
                    hold.ensure()
                except LockLost as error:
                    os.write(writing, str(error).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read().count(b"forked") == 2
        os.waitpid(child, 0)  # noqa: ASYNC222
        hold.ensure()


async def test_a_forked_child_has_none_of_its_parents_holds() -> None:
    async with embedded() as server:

        def blocking() -> tuple[bytes, float]:
            with (
                incumbent.connect(f"{server.host}:{server.port}", session_timeout=2.0) as zk,
                zk.lock("/a") as hold,
            ):
                reading, writing = os.pipe()
                if not (child := os.fork()):
                    try:
                        hold.ensure()
                        said = b"it is held"
                    except LockLost as error:
                        said = str(error).encode()
                    os.write(writing, b"%.1f %s" % (hold.remaining(), said))
                    os._exit(0)
                os.waitpid(child, 0)
                os.close(writing)
                with os.fdopen(reading, "rb") as pipe:
                    said = pipe.read()
                hold.ensure()
                return said, hold.remaining()

        said, remaining = await asyncio.to_thread(blocking)
        assert said.startswith(b"0.0 ")
        assert b"forked" in said
        assert remaining > 0
