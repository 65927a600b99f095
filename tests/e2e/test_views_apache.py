"""Caches, groups and observers on Apache ZooKeeper: one server over a bad network, and an ensemble."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.apache import ApacheEnsemble, ApacheServer
from tests.relay import relay_to
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import IncumbentError
from incumbent.recipes.cache import Cache
from incumbent.recipes.picture import Znode


async def tree(zk: aio.Zk, path: str) -> dict[str, tuple[int, bytes]]:
    """What a plain client reads there."""
    found, paths = {}, [path]
    while paths:
        each = paths.pop()
        data, stat = await zk.get(each)
        found[each] = (stat.mzxid, data)
        paths += [f"{each}/{name}" for name in await zk.children(each)]
    return found


def shown(znodes: dict[str, Znode]) -> dict[str, tuple[int, bytes]]:
    return {path: (znode.stat.mzxid, znode.data) for path, znode in znodes.items()}


async def write(zk: aio.Zk, root: str, rng: random.Random, count: int) -> None:
    for number in range(count):
        path = f"{root}/{rng.choice('abc')}"
        if rng.random() < 0.5:
            path += f"/{rng.choice('xyz')}"
        with contextlib.suppress(IncumbentError):
            match rng.choice(["set", "create", "create", "delete", "both"]):
                case "set":
                    await zk.set(path, b"%d" % number)
                case "create":
                    await zk.create(path, b"", parents=True)
                case "delete":
                    await zk.delete(path, recursive=True)
                case "both":
                    async with zk.transaction() as t:
                        t.set(root, b"%d" % number)
                        t.set(f"{root}/pair", b"%d" % number)


def pairs_agree(cache: Cache, root: str) -> bool:
    """Two znodes that only multis change, together, are seen together."""
    one, other = cache.get(root), cache.get(f"{root}/pair")
    return one is None or other is None or one.data == other.data


async def test_a_cache_has_the_tree_through_cut_connections(apache: ApacheServer) -> None:
    root, rng = "/views/cut", random.Random(1)
    async with (
        relay_to(apache.hosts) as relay,
        aio.connect(relay.hosts, session_timeout=10, tick=0) as zk,
        aio.connect(apache.hosts, session_timeout=10, tick=0) as other,
    ):
        await other.create(f"{root}/pair", b"", parents=True)
        async with zk.cache(root) as cache:
            torn: list[object] = []
            forget = cache.listen(lambda _: None if pairs_agree(cache, root) else torn.append(1))
            for _ in range(8):
                await write(other, root, rng, 40)
                relay.cut()
                await write(other, root, rng, 10)
            await eventually(lambda: cache.is_current)
            await zk.sync(root)
            await cache.settled()

            assert shown(cache.snapshot()) == await tree(other, root)
            assert not torn
            forget()


async def test_all_of_it_goes_on_when_a_member_of_the_ensemble_is_lost(
    apache_ensemble: ApacheEnsemble,
) -> None:
    root, rng = "/views/ensemble", random.Random(2)
    async with (
        aio.connect(apache_ensemble.hosts, session_timeout=8, timeout=20) as zk,
        aio.connect(apache_ensemble.hosts, session_timeout=8, timeout=20) as other,
        zk.cache(root) as cache,
        zk.group("/views/group").join("1", name="me", timeout=10) as membership,
        other.group("/views/group").observe() as rosters,
        other.election("/views/leader").observe() as views,
        zk.lead("/views/leader", member="me", timeout=10) as leadership,
    ):
        await write(other, root, rng, 30)
        for number in apache_ensemble.followers()[:2]:
            server = apache_ensemble.servers[number]
            server.kill()
            membership.update(f"{number} was lost")
            await membership.settled(30)
            await write(other, root, rng, 10)
            server.start(wait=False)
            await eventually(lambda server=server: asyncio.to_thread(server.mode), 60)  # type: ignore[misc]
        await leadership.update("still here")
        await zk.sync(root)
        await cache.settled()

        assert shown(cache.snapshot()) == await tree(zk, root)
        await eventually(lambda: rosters.members["me"].data == membership.data, timeout=20)
        async with asyncio.timeout(20):
            async for view in views:
                if view.leader is not None and view.leader.member == b"still here":
                    break
        assert view.leader is not None
        assert view.leader.czxid == leadership.fencing_token
