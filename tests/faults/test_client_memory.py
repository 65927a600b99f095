"""A client of a million requests is no larger than one of some thousands, whatever was asked."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import four_letters
from tests.e2e.served import Served

PROGRAM = """
    import asyncio, gc, os, sys
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import incumbent
    from incumbent import aio
    from incumbent.errors import NoNode
    from incumbent.wire import Check, GetData

    hosts, way, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    THREADS = 8

    def heard(event):
        pass

    def other(event):
        pass

    async def a_round(zk):
        "26 requests that leave, of every kind, and what befalls them: refused, given up, overdue, told."
        mine = [zk.get("/m"), zk.set("/m", b"x" * 50), zk.exists("/none", watcher=heard)]
        mine += [zk.children("/", watcher=heard), zk.get("/m", watcher=heard), zk.sync("/m")]
        mine += [zk.multi([Check("/m"), Check("/m")]), zk.exists("/none")]
        await asyncio.gather(*mine)
        made = await zk.create("/m/e", ephemeral=True, sequential=True)   # tells who listed
        await zk.set("/m", b"y")                                          # tells who read
        await zk.delete(made.path)
        for _ in range(4):
            try:
                await zk.get("/none")
            except NoNode:
                pass
        async with zk.watch("/m") as events:
            await zk.set("/m", b"z")
            await events.next(5)
        given_up = [zk.submit(GetData("/m")) for _ in range(5)]
        await asyncio.sleep(0)
        for each in given_up:
            each.cancel()
        overdue = [zk.submit(GetData("/m"), timeout=1e-6) for _ in range(2)]
        await asyncio.gather(*overdue, return_exceptions=True)
        await zk.exists("/none", watcher=heard)                           # once more: one and the same
        zk.unwatch("/none", other)
        await zk.exists("/none", watcher=other)

    async def asynchronous():
        async with aio.connect(hosts, tick=0, session_timeout=40, timeout=40) as zk:
            await zk.ensure("/m")
            await asyncio.gather(*(rounds(zk, number // 10) for _ in range(2)))
            yield_size()
            await asyncio.gather(*(rounds(zk, number * 4 // 10) for _ in range(2)))
            yield_size()

    async def rounds(zk, number):
        for _ in range(number // 26 + 1):
            await a_round(zk)

    def blocking():
        with (
            incumbent.connect(hosts, tick=0, session_timeout=40, timeout=40) as zk,
            ThreadPoolExecutor(THREADS) as pool,
        ):
            for thread in range(THREADS):
                zk.ensure(f"/m/{thread}")
            for part in (number // 5, number - number // 5):
                each = part // 19 // THREADS + 1
                list(pool.map(lambda thread: one_after_the_other(zk, f"/m/{thread}", each), range(THREADS)))
                yield_size()

    def one_after_the_other(zk, path, rounds):
        deep = path + "/deep" * 8
        for _ in range(rounds):
            zk.set(path, zk.get(path, watcher=heard)[0])
            made = zk.create(f"{path}/e", ephemeral=True, sequential=True)
            zk.children(path, watcher=heard)
            zk.delete(made.path)
            zk.multi([Check(path)])
            zk.ensure(deep)                                               # ten requests
            with zk.lock(f"{path}/lock"):                                 # three requests
                pass

    def yield_size():
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(pages * os.sysconf("SC_PAGE_SIZE"), len(gc.get_objects()), flush=True)

    asyncio.run(asynchronous()) if way == "asyncio" else blocking()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


@pytest.mark.parametrize("way", ["asyncio", "blocking"])
def test_memory_is_flat_over_some_thousand_requests(server: Served, way: str) -> None:
    stays_flat(server, way, 7_000 if way == "asyncio" else 1_500)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", ["asyncio", "blocking"])
def test_memory_is_flat_over_a_million_requests(server: Served, way: str) -> None:
    stays_flat(server, way, 1_000_000)


def stays_flat(server: Served, way: str, number: int) -> None:
    """After the first fifth, nothing grows any more."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), server.hosts, way, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout)
    (before, few), (after, many) = (map(int, line.split()) for line in done.stdout.splitlines())

    received = re.search(r"Received: (\d+)", four_letters(server.host, server.port, "srvr"))
    assert received is not None
    assert int(received.group(1)) >= number
    assert many - few < 500, f"{many - few} objects more"
    assert after - before < 2_000_000, f"{(after - before) / 1e6:.1f} MB more"
