"""A log folded bit by bit, in any places, and loaded at any time, gives the tree that was served."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_shortcuts import OPEN, FixedClock

from incumbent.server import SqliteStore
from incumbent.server.service import Service
from incumbent.server.sessions import Peer
from incumbent.server.store import Batch
from incumbent.server.tree import Tree
from incumbent.wire import (
    Acl,
    CloseSession,
    ConnectRequest,
    Create,
    Delete,
    Id,
    Multi,
    Request,
    SetAcl,
    SetData,
)

_PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x")
_CLOSED = (Acl(31, "ip", "127.0.0.1"),)


def _requests() -> st.SearchStrategy[Request]:
    path = st.sampled_from(_PATHS)
    data = st.sampled_from((None, b"", b"some"))
    one = st.one_of(
        st.builds(Create, path, data, st.sampled_from((OPEN, _CLOSED)), st.sampled_from((0, 1))),
        st.builds(Create, path, data, st.just(OPEN), st.sampled_from((0, 1, 1, 3))),
        st.builds(SetData, path, data),
        st.builds(Delete, path),
    )
    return st.one_of(
        one,
        one,
        one,
        st.builds(SetAcl, path, st.sampled_from((OPEN, _CLOSED))),
        st.builds(lambda asked: Multi(tuple(asked)), st.lists(one, max_size=3)),
        st.just(CloseSession()),
    )


_Step = tuple[str, int, Request]


class Disk(SqliteStore):
    """Nobody pulls the plug here."""

    def _sync(self, batch: Batch) -> None:
        self._durable = batch[-1].zxid


class Stage:
    """A service over a database on disk, and two clients."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "db"
        self._open()

    def _open(self) -> None:
        self.store = Disk(self.path)
        self.service = Service(
            self.store.load(),
            clock=FixedClock(),
            tick=2.0,
            rng=random.Random(1),
            log=lambda line: None,
        )
        self.peers = [Peer(), Peer()]

    def ask(self, who: int, request: Request) -> None:
        if self.peers[who].is_leaving or not self.peers[who].is_connected:
            self.peers[who] = Peer()
            self.peers[who].ids = (Id("ip", "127.0.0.1"),)
            self.service.handle(self.peers[who], ConnectRequest(0, 10_000, 0, bytes(16)).encode())
        self.service.handle(self.peers[who], request.encode(1))
        batch = self.service.take()
        if batch:
            self.store.add(batch)

    def load_again(self) -> None:
        served = shown(self.service.tree)
        self.store.close()
        self._open()
        assert shown(self.service.tree) == served


def shown(tree: Tree) -> object:
    return (
        tree.zxid,
        tree.size,
        tree.sessions,
        {owner: set(owned) for owner, owned in tree.ephemerals.items()},
        {
            path: (node.data, node.acl, node.owner, tree.stat(path))
            for path, node in tree.nodes.items()
        },
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("", "", "", "fold", "fold all", "load")),
            st.integers(0, 1),
            _requests(),
        ),
        max_size=40,
    )
)
def test_a_folded_log_gives_the_tree_that_was_served(steps: list[_Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        for then, who, request in steps:
            stage.ask(who, request)
            if then == "fold":
                stage.store.fold(step=1)
            elif then == "fold all":
                while stage.store.fold(step=1):
                    pass
            elif then == "load":
                stage.load_again()
        stage.load_again()
        stage.store.close()
