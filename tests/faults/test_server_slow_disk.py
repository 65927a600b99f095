"""A disk whose syncs take 200 ms, and one that holds very many znodes: who waits, and how long."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.e2e.served import Served
from tests.unit.server.live import Client, connect, running

from incumbent.server import Batch, SqliteStore
from incumbent.server.directory import DATABASE
from incumbent.server.tree import CreateNode, Transaction
from incumbent.wire import Create, GetData, Ping, SetData


class SlowDisk(SqliteStore):
    seconds = 0.0

    def _sync(self, batch: Batch) -> None:
        time.sleep(self.seconds)  # in the store's thread, as a disk's would be
        super()._sync(batch)


async def writes(client: Client) -> None:
    while True:
        assert (await client.call(SetData("/busy", b"x"))).err == 0


async def test_commits_of_200_ms_delay_pings_and_reads_elsewhere_by_less_than_50(
    tmp_path: Path,
) -> None:
    store = SlowDisk(tmp_path / "db")
    async with running(store, tick=0.5) as server:  # type: ignore[arg-type]
        clients = [await connect(server) for _ in range(3)]
        asker, silent = await connect(server), await connect(server, 1000)
        for path in ("/apart", "/busy"):
            assert (await asker.call(Create(path))).err == 0
        store.seconds = 0.2
        writing = [asyncio.create_task(writes(client)) for client in clients]
        took: list[float] = []

        for _ in range(100):
            for request in (Ping(), GetData("/apart")):
                at = time.monotonic()
                assert (await asker.call(request)).err == 0
                took.append(time.monotonic() - at)
            assert (await silent.call(Ping())).err == 0  # its session of 1 s ends by no stall
            await asyncio.sleep(0.02)

        for task in writing:
            task.cancel()
        took.sort()
        assert took[len(took) * 9 // 10] < 0.05
        assert took[-1] < 0.15, "it waited for a commit"


def seconds_of_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("number", "seconds"),
    [(100_000, 2), pytest.param(1_000_000, 10, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
def test_so_many_znodes_are_served_within_so_many_seconds_of_the_start(
    tmp_path: Path, number: int, seconds: float
) -> None:
    served = Served(tmp_path)
    served.data.mkdir()
    store = SqliteStore(served.data / DATABASE)
    group = 10_000
    for first in range(0, number, group):
        store.add(
            tuple(
                Transaction(1 + n, 1000, (CreateNode(f"/{n:08d}", b"x" * 100, 0),))
                for n in range(first, first + group)
            )
        )
    while store.fold(4 * 1024 * 1024):
        pass
    store.close()

    with served:
        used = seconds_of_cpu(served.pid)  # of which a start consists, on a machine that is idle

        assert f"Node count: {number + 5}" in served.word("srvr")
    assert used < seconds
