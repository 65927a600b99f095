"""The asyncio face: connecting, closing, and the verbs."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from tests.apache import free_port
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import State
from incumbent.errors import (
    BadVersion,
    ConnectTimeout,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionClosed,
)
from incumbent.wire import Check, Create2, WatchEvent


async def test_connect_may_be_awaited_or_entered() -> None:
    async with embedded() as server:
        zk = await connected(server)
        assert zk.state is State.CONNECTED
        await zk.close()
        assert zk.state is State.CLOSED
        async with connected(server) as zk:
            assert zk.session_id != 0
        assert zk.state is State.CLOSED


async def test_a_connect_in_vain_lists_each_address_and_what_it_answered() -> None:
    one, two = free_port(), free_port()

    with pytest.raises(ConnectTimeout) as caught:
        await aio.connect(f"127.0.0.1:{one},127.0.0.1:{two}", timeout=0.3)

    assert {address for address, _ in caught.value.report} == {
        f"127.0.0.1:{one}",
        f"127.0.0.1:{two}",
    }


async def test_a_cancelled_connect_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await aio.connect(f"127.0.0.1:{free_port()}", timeout=10)

    assert asyncio.all_tasks() == before


async def test_the_verbs() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.ensure("/a/b")
        made = await zk.create("/a/b/n_", b"1", ephemeral=True, sequential=True)
        assert made.path == "/a/b/n_0000000000"
        assert made.stat.ephemeralOwner == zk.session_id
        data, stat = await zk.get(made.path)
        assert (data, stat.version) == (b"1", 0)
        assert (await zk.set(made.path, b"2", 0)).version == 1
        assert await zk.children("/a/b") == ["n_0000000000"]
        assert await zk.exists("/nothing") is None
        with pytest.raises(NodeExists):
            await zk.create("/a/b")
        with pytest.raises(BadVersion):
            await zk.set(made.path, b"3", 0)
        with pytest.raises(NotEmpty):
            await zk.delete("/a/b")
        with pytest.raises(NoNode) as caught:
            await zk.multi([Create2("/a/c"), Check("/nothing")])
        assert caught.value.index == 1
        assert await zk.exists("/a/c") is None
        await zk.sync("/a")
        await zk.delete(made.path)


async def test_a_wrong_path_or_dialect_is_refused_before_anything_is_sent() -> None:
    async with embedded() as server, connected(server) as zk:
        for path in ("", "locks", "/locks/", "/a//b", "/a/../b"):
            with pytest.raises(ValueError, match=r"path|name"):
                zk.lock(path)
        with pytest.raises(ValueError, match="plain:node_"):
            zk.lead("/e", dialect="curator")


async def test_whoever_waits_when_the_client_is_closed_is_told() -> None:
    async with (
        embedded() as server,
        connected(server) as zk,
        zk.election("/e").observe() as views,
    ):
        assert (await anext(views)).leader is None
        waiting = asyncio.create_task(anext(views))
        await asyncio.sleep(0)

        await zk.close()

        with pytest.raises(SessionClosed):
            await asyncio.wait_for(waiting, 1)


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    program = (
        "import sys, incumbent\n"
        "assert not [m for m in sys.modules if m.startswith('incumbent.')]\n"
        "assert 'asyncio' not in sys.modules\n"
        "assert callable(incumbent.connect)\n"
        "try: incumbent.nothing\n"
        "except AttributeError as e: print(e)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "nothing" in done.stdout, done.stderr


async def test_recipes_stand_below_the_chroot() -> None:
    async with embedded() as server:
        hosts = f"{server.host}:{server.port}"
        async with (
            aio.connect(f"{hosts}/own", session_timeout=2.0, tick=0.0) as zk,
            aio.connect(hosts, session_timeout=2.0, tick=0.0) as plain,
        ):
            await zk.ensure("/")
            async with zk.lock("/lock", timeout=5) as hold:
                async with hold.transaction() as t:
                    t.create("/made")
                assert t.results == ["/made"]
                assert len(await plain.children("/own/lock")) == 1
                async with zk.try_lock("/lock") as second:
                    assert second is None
                for _ in range(3):  # beats
                    before = hold.valid_until
                    await eventually(lambda before=before: hold.valid_until > before)
                hold.ensure()
                assert await plain.exists("/own/made")
            assert (await zk.election("/lock").view()).leader is None


async def test_one_watcher_asked_for_again_and_again_is_one_and_can_be_taken_off() -> None:
    async with embedded() as server, connected(server) as zk:
        heard: list[str] = []

        async def watcher(event: WatchEvent) -> None:
            heard.append(event.path)

        for _ in range(100):
            await zk.exists("/a", watcher=watcher)
            await zk.exists("/b", watcher=watcher)
        assert len(zk.client._watches) == 2
        zk.unwatch("/b", watcher)
        zk.unwatch("/b", watcher)  # no error if it is not there
        await zk.create("/b")
        await zk.create("/a")
        await eventually(lambda: heard)

        assert not await zk.has_watch("/b")
        assert heard == ["/a"]


async def test_one_callback_that_listens_twice_hears_twice_and_each_block_ends_by_itself() -> None:
    async with embedded() as server, connected(server) as zk:
        heard: list[str] = []

        def callback(event: WatchEvent) -> None:
            heard.append(event.path)

        async with zk.listen("/a", callback):
            async with zk.listen("/a", callback):
                await zk.create("/a")
                await eventually(lambda: len(heard) == 2)
            await zk.set("/a", b"")
            await eventually(lambda: len(heard) == 3)
