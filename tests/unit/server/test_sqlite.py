"""The store on disk, when the disk is slow or refuses."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from tests.unit.server.live import connect, running
from tests.waiting import eventually

from incumbent.server import SqliteStore, StoreFailed
from incumbent.server.journal import FORMAT
from incumbent.server.store import Batch
from incumbent.server.tree import (
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    SetAcl,
    SetNode,
    Transaction,
)
from incumbent.wire import Acl, Create, Exists, GetData, Ping, SetData

READABLE = (Acl(1, "world", "anyone"),)


class Disk(SqliteStore):
    """A disk that syncs when it is let, and refuses to when it is told to."""

    def __init__(self, path: Path) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        self.is_broken = False
        super().__init__(path)

    def _sync(self, batch: Batch) -> None:
        assert self.is_free.wait(10)
        if self.is_broken:
            self._doubtful = batch[0].zxid
            raise OSError(errno.EIO, "told to fail")
        super()._sync(batch)


def made(zxid: int, path: str, acl: tuple[Acl, ...] = READABLE) -> Batch:
    return (Transaction(zxid, 1000, (CreateNode(path, b"x", 0, acl),)),)


async def test_a_slow_sync_delays_no_ping_and_no_read_elsewhere(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "db")
    async with running(disk) as server:  # type: ignore[arg-type]
        writer, reader = await connect(server), await connect(server)
        for path in ("/a", "/b"):
            await writer.call(Create(path))
        disk.is_free.clear()
        writer.send(SetData("/a", b"new"))
        await eventually(lambda: server._beside.is_committing)

        reader.send(Ping(), GetData("/b"))
        replies = [await reader.reply() for _ in range(2)]

        assert server._beside.is_committing
        assert [reply.err for reply in replies] == [0, 0]
        disk.is_free.set()
        assert (await writer.reply()).err == 0


async def test_what_could_not_be_synced_never_was(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "db")
    await disk.commit(made(1, "/kept"))
    disk.is_broken = True

    with pytest.raises(StoreFailed):
        await disk.commit(made(2, "/refused"))

    assert "/refused" not in disk.load().tree.nodes
    disk.is_broken = False
    await disk.commit(made(2, "/instead"))
    while disk.fold():
        pass
    disk.close()
    again = SqliteStore(tmp_path / "db")
    assert {"/kept", "/instead"} <= again.load().tree.nodes.keys()
    assert "/refused" not in again.load().tree.nodes
    again.close()


async def test_a_server_whose_disk_refuses_goes_on_reading(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "db")
    async with running(disk) as server:  # type: ignore[arg-type]
        client = await connect(server)
        await client.call(Create("/a"))
        session = client.session
        disk.is_broken = True
        client.send(Create("/b"))
        assert await client.ended()

        client = await connect(server, session_id=session.session_id, password=session.password)
        errors = [(await client.call(r)).err for r in (Exists("/a"), Exists("/b"), Create("/c"))]

        assert errors == [0, -101, -1]


async def test_commits_go_on_while_a_checkpoint_is_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    body = b"x" * 200_000
    checkpoints = 0
    for zxid in range(1, 101):
        checkpoints += store._checkpointing is not None
        await store.commit((Transaction(zxid, 1, (CreateNode(f"/{zxid}", body, 0),)),))
        await asyncio.sleep(0)
    await eventually(lambda: store._checkpointing is None)

    assert checkpoints
    assert (tmp_path / "db-wal").stat().st_size < 20_000_000
    store.close()
    again = SqliteStore(tmp_path / "db")
    assert len(again.load().tree.nodes) == 100 + 5
    again.close()


def test_acls_are_kept_in_the_log_and_in_the_state(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.add(made(1, "/a"))
    store.add((Transaction(2, 1, (SetAcl("/a", (Acl(31, "ip", "1.2.3.4"),), 1),)),))
    store.add(made(3, "/b"))
    store.add((Transaction(4, 1, (SetNode("/b", None, 1),)),))

    for _ in range(2):
        tree = store.load().tree
        assert tree.nodes["/a"].acl == (Acl(31, "ip", "1.2.3.4"),)
        assert tree.stat("/a").aversion == 1
        assert tree.nodes["/b"].acl == READABLE
        while store.fold():
            pass
    store.close()


@pytest.mark.parametrize("before", range(1, FORMAT))
def test_a_database_of_an_older_format_is_read_and_goes_on_as_the_newest(
    tmp_path: Path, before: int
) -> None:
    store = SqliteStore(tmp_path / "db")
    store.add(made(1, "/a"))
    store._db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (before,))
    store.close()

    again = SqliteStore(tmp_path / "db")

    assert "/a" in again.load().tree.nodes
    assert again._meta("format") == FORMAT
    again.close()


def test_an_ephemeral_that_is_gone_already_is_never_written_to_the_state(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.load()
    store.add((Transaction(1, 1, (OpenSession(7, 4000),)),))
    for zxid in range(2, 5):
        store.add((Transaction(zxid, 1, (CreateNode(f"/{zxid}", b"x", 7),)),))
    store.add((Transaction(5, 1, (DeleteNode("/3"),)),))
    store.add((Transaction(6, 1, (EndSession(7, ("/2", "/4")),)),))
    store.add(made(7, "/stays"))

    while store.fold(step=1):
        written = {path for (path,) in store._db.execute("SELECT path FROM znodes")}
        assert written <= {"/"}

    assert store.load().tree.nodes.keys() >= {"/stays"}
    store.close()


def test_an_ephemeral_made_anew_is_written_to_the_state(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.load()
    store.add((Transaction(1, 1, (OpenSession(7, 4000), CreateNode("/e", b"1", 7))),))
    store.add((Transaction(2, 1, (DeleteNode("/e"),)),))
    store.add((Transaction(3, 1, (CreateNode("/e", b"2", 7),)),))

    while store.fold(step=1):
        pass

    assert store.load().tree.nodes["/e"].data == b"2"
    store.close()


def test_the_state_never_has_a_child_without_its_parent(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    store.load()
    store.add((Transaction(1, 1, (CreateNode("/p", b"", 0), CreateNode("/p/c", b"", 0))),))
    store.fold(step=1)
    store.add((Transaction(2, 1, (SetNode("/p", b"x", 1),)),))
    store.add((Transaction(3, 1, (DeleteNode("/p/c"), DeleteNode("/p"))),))

    store.fold(step=1)

    assert "/p" not in store.load().tree.nodes
    store.close()


async def test_what_is_not_synced_is_not_folded(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "db")
    disk.load()
    await disk.commit(made(1, "/kept"))
    disk.is_free.clear()
    under_way = asyncio.ensure_future(disk.commit(made(2, "/refused")))
    await asyncio.sleep(0)  # its row is there, and waits for its sync

    while disk.fold():
        pass

    disk.is_broken = True
    disk.is_free.set()
    with pytest.raises(StoreFailed):
        await under_way
    assert "/kept" in disk.load().tree.nodes
    assert "/refused" not in disk.load().tree.nodes
    disk.close()
