"""What lies below a path with limits is counted beside the limits, as Apache ZooKeeper 3.8 counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from incumbent.server import SqliteStore
from incumbent.server.tree import (
    Change,
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    SetNode,
    Transaction,
    Tree,
)

LIMITS, STATS = "/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/zookeeper_stats"


def begun() -> Tree:
    """With /a, which has limits, and /a/b in it: two znodes of four bytes."""
    tree = Tree()
    do(tree, CreateNode("/a", b"123", 0), CreateNode("/a/b", b"4", 0))
    do(tree, CreateNode("/zookeeper/quota/a", b"", 0))
    do(tree, CreateNode(LIMITS, b"count=3,bytes=10", 0), CreateNode(STATS, b"", 0))
    return tree


def do(tree: Tree, *changes: Change) -> None:
    tree.apply(Transaction(tree.zxid + 1, 1000, changes))


def stats(tree: Tree) -> bytes | None:
    return tree.nodes[STATS].data


def test_what_is_there_is_counted_when_the_statistics_are_made() -> None:
    assert stats(begun()) == b"count=2,bytes=4"


CHANGES: dict[str, tuple[tuple[Change, ...], bytes]] = {
    "a znode": ((CreateNode("/a/c", b"12", 0),), b"count=3,bytes=6"),
    "a deep one": ((CreateNode("/a/b/c", None, 0),), b"count=3,bytes=4"),
    "one beside": ((CreateNode("/ab", b"12", 0),), b"count=2,bytes=4"),
    "a deletion": ((DeleteNode("/a/b"),), b"count=1,bytes=3"),
    "more data": ((SetNode("/a/b", b"12345", 1),), b"count=2,bytes=8"),
    "no data": ((SetNode("/a", None, 1),), b"count=2,bytes=1"),
    "a session's end": (
        (
            OpenSession(7, 4000),
            CreateNode("/a/e", b"12", 7),
            CreateNode("/a/f", b"3", 0),
            EndSession(7, ("/a/e",)),
        ),
        b"count=3,bytes=5",
    ),
    "limits deeper down": (
        (
            CreateNode("/zookeeper/quota/a/b", b"", 0),
            CreateNode("/zookeeper/quota/a/b/zookeeper_limits", b"", 0),
            CreateNode("/a/b/c", b"12", 0),
        ),
        b"count=2,bytes=4",
    ),
    "no limits any more": ((DeleteNode(LIMITS), CreateNode("/a/c", b"", 0)), b"count=2,bytes=4"),
    "hard limits": (
        (
            SetNode(STATS, b"count=5,bytes=6=;countHardLimit=9;byteHardLimit=8", 1),
            CreateNode("/a/c", b"1", 0),
        ),
        b"count=6,bytes=7=;byteHardLimit=8;countHardLimit=9",
    ),
    "nonsense": ((SetNode(STATS, b"count=x\xff", 1), DeleteNode("/a/b")), b"count=-1,bytes=-1"),
    "no statistics": (
        (DeleteNode(STATS), CreateNode("/a/c", b"", 0), CreateNode(STATS, b"", 0)),
        b"count=3,bytes=4",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_counted(what: str) -> None:
    changes, counted = CHANGES[what]
    tree = begun()

    do(tree, *changes)

    assert stats(tree) == counted
    assert tree.size == sum(
        len(path) + len(node.data or b"") for path, node in tree.nodes.items() if path
    )


def test_counting_shows_in_the_data_only() -> None:
    tree = begun()
    before = tree.stat(STATS)

    do(tree, CreateNode("/a/c", bytes(100), 0))

    assert tree.stat(STATS)._replace(dataLength=before.dataLength) == before
    assert stats(tree) == b"count=3,bytes=104"


def test_limits_of_the_whole_tree_are_no_limits() -> None:
    tree = Tree()

    do(tree, CreateNode("/zookeeper/quota/zookeeper_limits", b"", 0))
    do(tree, CreateNode("/zookeeper/quota/zookeeper_stats", b"", 0))
    do(tree, CreateNode("/a", b"", 0))

    assert tree.nodes["/zookeeper/quota/zookeeper_stats"].data == b""


def _all(store: SqliteStore) -> None:
    while store.fold(step=1):
        pass


@pytest.mark.parametrize("fold", [lambda store: None, SqliteStore.fold, _all])
def test_a_start_counts_anew(tmp_path: Path, fold: Callable[[SqliteStore], object]) -> None:
    store = SqliteStore(tmp_path / "db")
    tree = store.load().tree
    limited: tuple[Change, ...] = (
        CreateNode("/a", b"123", 0),
        CreateNode("/zookeeper/quota/a", b"", 0),
        CreateNode(LIMITS, b"", 0),
        CreateNode(STATS, b"", 0),
    )
    for changes in (limited, (CreateNode("/a/b", b"4", 0),), (SetNode("/a", b"", 1),)):
        do(tree, *changes)
        store.add((Transaction(tree.zxid, 1000, changes),))

    fold(store)

    loaded = store.load().tree
    assert stats(loaded) == stats(tree) == b"count=2,bytes=1"
    do(loaded, DeleteNode("/a/b"))
    assert stats(loaded) == b"count=1,bytes=0"
    store.close()
