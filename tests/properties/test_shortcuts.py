"""A server that takes its shortcuts and one that never does say the same, byte for byte."""

from __future__ import annotations

import random
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from incumbent.server.service import Service
from incumbent.server.sessions import Peer
from incumbent.server.shortcuts import event_frame
from incumbent.server.store import MemoryStore
from incumbent.wire import (
    Acl,
    ConnectRequest,
    Create,
    Create2,
    Delete,
    EventType,
    Exists,
    GetData,
    Id,
    KeeperState,
    Ping,
    SetAcl,
    SetData,
    WatchEvent,
    frame,
    paths,
)

PATHS = ("/a", "/a/b", "/ü", "/none", "/", "", "/closed", "/a/", "//", "/zookeeper/config", None)
MADE = (
    "/a/new",
    "/a/new-",
    "/a/",
    "/new",
    "/ü/ñ",
    "/a/\ue000",
    "/short/x",
    "/a/./x",
    "/a/b",
    "/closed/x",
)
OPEN = (Acl(31, "world", "anyone"),)
ACLS = (OPEN, OPEN, OPEN, (Acl(1, "world", "anyone"),), (Acl(31, "auth", ""),), ())
DATA = (None, b"", b"x", b"y" * 300)


@dataclass
class FixedClock:
    def boottime(self) -> float:
        return 5.0

    def wall(self) -> float:
        return 1000.0


class Stage:
    """A service and two peers of it; with `observed`, no request takes a shortcut."""

    def __init__(self, *, observed: bool) -> None:
        self.service = Service(
            MemoryStore().load(),
            clock=FixedClock(),
            tick=2.0,
            rng=random.Random(1),
            log=lambda line: None,
            on_request=(lambda *_: None) if observed else None,
        )
        self.peers = [Peer(), Peer()]
        for peer in self.peers:
            peer.ids = (Id("ip", "127.0.0.1"),)
            self.service.handle(peer, ConnectRequest(0, 10_000, 0, bytes(16)).encode())
        closed = (Acl(1, "digest", "who:else"),)
        for request in (
            Create("/a"),
            Create("/a/b", None),
            Create("/ü", b"data"),
            Create("/closed", b"", closed),
            Create("/short", b"", flags=1),
        ):
            self.service.handle(self.peers[0], request.encode(1))
        self.service.tree.nodes["/ü"].version = 2**31 - 3
        self.service.tree.nodes["/ü"].creations = 2**31 - 2

    def shown(self) -> object:
        tree = self.service.tree
        return (
            [(peer.out, peer.out_bytes, peer.events, peer.is_leaving) for peer in self.peers],
            self.service.transactions,
            self.service.released() == self.peers,
            {path: tree.stat(path) for path in tree.nodes},
            {
                path: (node.data, node.owner, list(node.children))
                for path, node in tree.nodes.items()
            },
            tree.ephemerals,
            (tree.size, tree.zxid, len(self.service.watches)),
        )


def _bodies() -> st.SearchStrategy[bytes]:
    path, version = st.sampled_from(PATHS), st.sampled_from((-1, -1, 0, 1, 2, 2**31 - 1))
    made, data = st.sampled_from(PATHS + MADE * 3), st.sampled_from(DATA)
    acl, flags = st.sampled_from(ACLS), st.sampled_from((0, 0, 0, 1, 1, 2, 3, 3, 4, 5, -1))
    request = st.one_of(
        st.builds(GetData, path, st.booleans()),
        st.builds(SetData, path, data, version),
        st.builds(Create, made, data, acl, flags),
        st.builds(Create2, made, data, acl, flags),
        st.builds(Exists, path, st.booleans()),
        st.just(Ping()),
        st.builds(Delete, path, version),
        st.builds(SetAcl, path, st.just(OPEN), version),
    )
    whole = st.builds(lambda asked, xid: asked.encode(xid), request, st.integers(-9, 99))
    spoilt = st.builds(
        lambda body, at, byte, more: (
            body[: at % len(body)] + bytes([byte]) + body[at % len(body) + 1 :] + more
        ),
        whole,
        st.integers(8, 400),
        st.integers(0, 255),
        st.sampled_from((b"", b"\0", b"more")),
    )
    cut = st.builds(lambda body, size: body[:size], whole, st.integers(8, 40))
    return st.one_of(whole, whole, whole, spoilt, cut)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), _bodies()), max_size=25), st.integers(0, 25))
def test_a_shortcut_gives_what_the_long_way_gives(
    asked: list[tuple[int, bytes]], stops_writing: int
) -> None:
    quick, slow = Stage(observed=False), Stage(observed=True)
    for number, (who, body) in enumerate(asked):
        for stage in (quick, slow):
            stage.service.is_writable = number != stops_writing
            stage.service.handle(stage.peers[who], body)
        assert quick.shown() == slow.shown()


@given(
    st.one_of(
        st.text(max_size=12),
        st.text(alphabet="/.a1 ~\0\n\x7fü", max_size=12).map(lambda text: "/" + text),
    )
)
def test_a_path_found_plain_is_found_valid_the_long_way(path: str) -> None:
    at_once = paths.problem(path)
    with patch.object(paths, "_PLAIN", lambda path: None):
        assert paths.problem(path) == at_once


@given(st.sampled_from(EventType), st.text(max_size=40))
def test_an_event_is_told_in_the_same_bytes(kind: EventType, path: str) -> None:
    event = WatchEvent(kind, KeeperState.CONNECTED, path)

    assert event_frame(kind, path) == frame(event.encode())
