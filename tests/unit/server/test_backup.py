"""A copy is everything as of one zxid, whatever is committed and folded around it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from incumbent.server.copying import END, build, pack_piece, pieces, unpack_pieces
from incumbent.server.sqlite import SqliteStore
from incumbent.server.tree import CreateNode, OpenSession, Transaction, Tree


def create(zxid: int, size: int = 10) -> Transaction:
    return Transaction(zxid, zxid, (CreateNode(f"/n{zxid:05d}", b"x" * size, 0),))


def shown(tree: Tree) -> tuple[object, ...]:
    nodes = {
        path: (node.data, node.czxid, node.pzxid, node.creations)
        for path, node in tree.nodes.items()
    }
    return tree.zxid, dict(tree.sessions), nodes


def loaded(path: Path) -> tuple[Tree, bytes]:
    store = SqliteStore(path)
    try:
        found = store.load()
        return found.tree, found.secret
    finally:
        store.close()


def test_a_copy_is_the_same_database(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.add((Transaction(1, 1, (OpenSession(7, 4000),)),))
    for zxid in range(2, 400):
        store.add((create(zxid, 1000),))
    store.fold()  # some are in the state, some in the log
    with store.copying() as copy:
        build(tmp_path / "b.db", copy)
    expected = store.load()
    store.close()

    tree, secret = loaded(tmp_path / "b.db")

    assert (shown(tree), secret) == (shown(expected.tree), expected.secret)
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600


async def test_commits_go_on_meanwhile_and_folding_waits(tmp_path: Path) -> None:
    """After each piece something is committed; the copy ends at some zxid and has all up to it."""
    store = SqliteStore(tmp_path / "a.db")
    zxid = 0
    for _ in range(400):
        zxid += 1
        await store.commit((create(zxid, 4000),))
    taken = []
    with store.copying() as copy:
        for piece in copy:
            taken.append(piece)
            if len(taken) < 60:
                zxid += 1
                await store.commit((create(zxid, 4000),))
                await asyncio.sleep(0.001)  # folding would be due
    build(tmp_path / "b.db", taken)
    store.close()

    tree, _ = loaded(tmp_path / "b.db")

    assert 400 < tree.zxid <= zxid
    assert sorted(path for path in tree.nodes if path.startswith("/n")) == [
        f"/n{one:05d}" for one in range(1, tree.zxid + 1)
    ]
    assert tree.nodes["/"].creations == tree.zxid


def test_bytes_in_any_portions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.add((create(1), create(2, 100_000)))
    with store.copying() as copy:
        expected = list(copy)
    store.close()
    data = b"".join(map(pack_piece, expected))

    for size in (1, 7, 4096, len(data)):
        portions = [data[at : at + size] for at in range(0, len(data), size)]
        assert list(unpack_pieces(portions)) == expected
    assert expected[-1] == END


def test_a_copy_without_an_end_leaves_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.add((create(1),))
    with store.copying() as copy:
        torn = list(copy)[:-1]
    store.close()

    with pytest.raises(ValueError, match="ends in the middle"):
        build(tmp_path / "b.db", torn)
    assert not (tmp_path / "b.db").exists()


def test_bytes_that_are_no_copy(tmp_path: Path) -> None:
    whole = pack_piece(("t", [(1, "x", b"y")]))

    for body in (b"\0\0\0\2s\0", whole.replace(b"s", b"?"), b"\0\0\0\0"):
        with pytest.raises(ValueError):
            build(tmp_path / "b.db", unpack_pieces([body]))


def test_pieces_are_small_whatever_the_rows(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db")
    database.execute("CREATE TABLE log (zxid INTEGER PRIMARY KEY, body BLOB)")
    database.executemany("INSERT INTO log VALUES (?, ?)", [(i, b"x" * 50_000) for i in range(20)])

    rows = [rows for table, rows in pieces(database) if table and len(rows[0]) == 2]

    assert max(len(some) for some in rows) == 3
    assert sum(map(len, rows)) == 20


def test_what_is_not_durable_yet_is_in_no_copy(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db")
    database.execute("CREATE TABLE log (zxid INTEGER PRIMARY KEY, body BLOB)")
    database.executemany("INSERT INTO log VALUES (?, ?)", [(i, b"x") for i in range(1, 9)])

    rows = [rows for table, rows in pieces(database, lambda: 5) if table and len(rows[0]) == 2]

    assert [zxid for some in rows for zxid, _ in some] == [1, 2, 3, 4, 5]
