"""The tree against a dumb model, and every way of keeping it gives it back."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.tree_model import Model, Refusal
from tests.unit.server.desk import Desk

from incumbent.server.journal import pack_transactions, unpack_transactions
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import MemoryStore
from incumbent.server.tree import Transaction, Tree
from incumbent.wire import (
    OPEN_ACL,
    Check,
    CloseSession,
    Create,
    CreateContainer,
    Delete,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    OpError,
    SetData,
)

PATHS = [
    f"/{a}{b}{c}" for a in ("a", "b") for b in ("", "/a", "/b") for c in ("", "/n") if b or not c
]
path = st.sampled_from(PATHS)
data = st.sampled_from([None, b"", b"x", b"longer"])
version = st.sampled_from([-1, -1, -1, 0, 1, 2])
writes = st.one_of(
    st.builds(Create, path, data, st.just(OPEN_ACL), st.integers(0, 3)),
    st.builds(Create, path, data, st.just(OPEN_ACL), st.integers(0, 3)),
    st.builds(Delete, path, version),
    st.builds(SetData, path, data, version),
)
multi_ops = st.one_of(writes, st.builds(Check, path, version))
requests = st.one_of(
    writes, writes, st.builds(Multi, st.lists(multi_ops, max_size=5)), st.just(CloseSession())
)
steps = st.lists(st.tuples(st.integers(0, 1), requests), max_size=40)


def play(desk: Desk, model: Model, plan: list[tuple[int, Any]]) -> None:
    """The same requests to both, answers compared."""
    peers = [desk.peer(), desk.peer()]
    for who, request in plan:
        session = peers[who].session_id
        match request:
            case CloseSession():
                model.end(session)
                desk.call(peers[who], request)
                peers[who] = desk.peer()
            case Multi():
                expected = model.multi(session, request)
                err, results = desk.call(peers[who], request)
                got = [r.code if isinstance(r, OpError) else 0 for r in results]
                assert (err, got) == (0, expected)
            case _:
                try:
                    made, expected_err = model.one(session, request), 0
                except Refusal as refusal:
                    made, expected_err = "", refusal.code
                err, value = desk.call(peers[who], request)
                assert err == expected_err
                if isinstance(request, Create) and not err:
                    assert value == made


@given(steps)
def test_the_tree_does_what_the_model_does(plan: list[tuple[int, Any]]) -> None:
    desk, model = Desk(), Model()

    play(desk, model, plan)

    reader = desk.peer()
    system = [p for p in desk.service.tree.nodes if p.startswith("/zookeeper")]
    assert {p for p in desk.service.tree.nodes if p} - set(system) == set(model.nodes)
    for where, node in model.nodes.items():
        if where == "/":
            continue
        _, answer = desk.call(reader, GetData(where))
        stat = answer.stat
        children = model.children(where)
        assert answer.data == node["data"]
        assert (stat.version, stat.ephemeralOwner) == (node["version"], node["owner"])
        assert (stat.numChildren, stat.cversion) == (
            len(children),
            2 * node["made"] - len(children),
        )
        assert sorted(desk.call(reader, GetChildren(where))[1]) == sorted(children)


@given(steps)
def test_the_journal_gives_the_tree_back(plan: list[tuple[int, Any]]) -> None:
    """The release gate rests on it: what is on disk is what was shown."""
    desk = Desk()
    play(desk, Model(), plan)

    replayed = Tree()
    for transaction in unpack_transactions(pack_transactions(desk.journal)):
        replayed.apply(transaction)

    assert same(replayed, desk.service.tree)
    assert [t.zxid for t in desk.journal] == list(range(1, len(desk.journal) + 1))


@settings(max_examples=30, deadline=None)
@given(steps, st.lists(st.booleans(), max_size=50))
def test_folding_at_any_time_changes_nothing(
    plan: list[tuple[int, Any]], folds: list[bool]
) -> None:
    desk = Desk()
    play(desk, Model(), plan)
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "db")
        for index, transaction in enumerate(desk.journal):
            asyncio.run(store.commit((transaction,)))
            if index < len(folds) and folds[index]:
                store.fold()
        store.close()

        reopened = SqliteStore(Path(directory) / "db")

        assert same(reopened.load().tree, desk.service.tree)
        while reopened.fold():
            pass
        assert same(reopened.load().tree, desk.service.tree)
        reopened.close()


@given(steps)
def test_the_memory_store_gives_the_tree_back(plan: list[tuple[int, Any]]) -> None:
    desk, store = Desk(), MemoryStore()
    play(desk, Model(), plan)

    for transaction in desk.journal:
        asyncio.run(store.commit((transaction,)))

    assert same(store.load().tree, desk.service.tree)


@given(steps)
def test_a_watch_on_everything_sees_each_change_once(plan: list[tuple[int, Any]]) -> None:
    desk = Desk()
    watcher, actor = desk.peer(), desk.peer()
    for _, request in plan:
        if isinstance(request, CloseSession):
            continue
        for p in PATHS:
            desk.send(watcher, Exists(p, True))
        desk.frames(watcher)
        before = {p: modified(desk, p) for p in PATHS}

        desk.call(actor, request)

        told = [e.path for e in desk.events(watcher) if e.type is not EventType.CHILD]
        changed = {p for p in PATHS if modified(desk, p) != before[p]}
        assert len(told) == len(set(told))
        assert changed <= set(told)
        desk.service.watches.drop(watcher)


def modified(desk: Desk, where: str) -> int | None:
    node = desk.service.tree.nodes.get(where)
    return None if node is None else node.mzxid


@given(st.lists(st.sampled_from(["make", "fill", "empty", "drop"]), max_size=20))
def test_containers_are_known_as_long_as_they_are_there(plan: list[str]) -> None:
    desk = Desk()
    peer = desk.peer()
    for step in plan:
        match step:
            case "make":
                desk.call(peer, CreateContainer("/c"))
            case "fill":
                desk.call(peer, Create("/c/x"))
            case "empty":
                desk.call(peer, Delete("/c/x"))
            case "drop":
                desk.call(peer, Delete("/c"))
        assert list(desk.service.tree.containers) == [
            p for p in ("/c",) if p in desk.service.tree.nodes
        ]


def same(one: Tree, other: Tree) -> bool:
    """Equal in everything that a client or a later transaction could tell apart."""
    assert (one.zxid, one.size) == (other.zxid, other.size)
    assert one.sessions == other.sessions
    assert {s: set(p) for s, p in one.ephemerals.items()} == {
        s: set(p) for s, p in other.ephemerals.items()
    }
    assert set(one.containers) == set(other.containers)
    assert set(one.mortals) == set(other.mortals)
    assert one.nodes.keys() == other.nodes.keys()
    for where, node in one.nodes.items():
        twin = other.nodes[where]
        assert (where, one.stat(where), node.data) == (where, other.stat(where), twin.data)
        assert (node.creations, node.acl) == (twin.creations, twin.acl)
        assert set(node.children) == set(twin.children)
    return True


def test_a_transaction_survives_the_way_to_bytes_and_back() -> None:
    empty = Transaction(1, 2, ())

    assert unpack_transactions(pack_transactions([empty, empty])) == [empty, empty]
    assert unpack_transactions(b"") == []
