"""The library on Apache ZooKeeper: one server, and an ensemble that loses members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.apache import ApacheEnsemble, ApacheServer
from tests.waiting import eventually

from incumbent import aio
from incumbent.clock import SYSTEM
from incumbent.errors import Deposed, LockTimeout, NoNode


@asynccontextmanager
async def session(hosts: str, **more: float) -> AsyncIterator[aio.Zk]:
    settings = {"session_timeout": 5.0, "timeout": 15.0} | more
    async with aio.connect(hosts, **settings) as zk:  # type: ignore[arg-type]
        yield zk


@pytest.mark.parametrize("tick", [None, 0.5, 0.0])
async def test_locks_exclude_each_other(apache: ApacheServer, tick: float | None) -> None:
    path = f"/library/lock-{tick}"
    async with session(apache.hosts, tick=tick) as one, session(apache.hosts, tick=tick) as two:  # type: ignore[arg-type]
        async with one.lock(path, timeout=10) as hold:
            hold.ensure()
            with pytest.raises(LockTimeout):
                async with two.lock(path, timeout=0.2):
                    pass
            waiting = asyncio.create_task(_token(two, path))
            await eventually(lambda: _stand(one, path, 2))
            async with hold.transaction() as t:
                t.create(f"/library/made-{tick}")
        assert await asyncio.wait_for(waiting, 10) > hold.fencing_token


async def _token(zk: aio.Zk, path: str) -> int:
    async with zk.lock(path) as hold:
        hold.ensure()
        return hold.fencing_token


async def _stand(zk: aio.Zk, path: str, number: int) -> bool:
    try:
        return len(await zk.children(path)) == number
    except NoNode:
        return False


async def test_an_operator_who_deletes_the_leader_deposes_it(apache: ApacheServer) -> None:
    async with session(apache.hosts) as one, session(apache.hosts) as two:
        with pytest.raises(Deposed, match="deleted by somebody"):
            async with one.lead("/library/deposed", timeout=10) as leadership:
                await two.delete(f"/library/deposed/{leadership.name}")
                await asyncio.sleep(10)


@pytest.mark.parametrize("tick", [None, 0.5])
async def test_an_ensemble_member_lost_ends_no_hold(
    apache_ensemble: ApacheEnsemble, tick: float | None
) -> None:
    async with (
        session(apache_ensemble.hosts, session_timeout=9.0, tick=tick) as zk,  # type: ignore[arg-type]
        zk.lock(f"/library/rolling-{tick}", timeout=10, grace=0.5) as hold,
    ):
        for number in apache_ensemble.followers()[:2]:
            server = apache_ensemble.servers[number]
            before = hold.valid_until
            server.kill()
            await eventually(lambda before=before: hold.valid_until > before, 10)  # type: ignore[misc]
            hold.ensure()
            server.start(wait=False)
            await eventually(lambda server=server: asyncio.to_thread(server.mode), 60)  # type: ignore[misc]


async def test_without_a_quorum_a_leader_steps_down_in_time_and_no_later(
    apache_ensemble: ApacheEnsemble,
) -> None:
    async with session(apache_ensemble.hosts, session_timeout=4.0, tick=0.5) as zk:
        path = "/library/no-quorum"
        with pytest.raises(Deposed):
            async with zk.lead(path, timeout=10, grace=0.5) as leadership:
                for server in apache_ensemble.servers:
                    server.freeze()
                try:
                    await asyncio.sleep(20)
                finally:
                    assert SYSTEM.boottime() < leadership.valid_until
        for server in apache_ensemble.servers:
            server.thaw()
        async with zk.lead(path, timeout=30) as leadership:
            leadership.ensure()
