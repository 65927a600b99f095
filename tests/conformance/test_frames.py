"""The same frames, played on the embedded server and on Apache ZooKeeper, get the same answers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from difflib import unified_diff

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.security_scripts import SECURITY_SCRIPTS
from tests.conformance.stage import Actor, Stage

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AuthPacket,
    Check,
    CloseSession,
    Create,
    Create2,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    Multi,
    Ping,
    SetData,
    SetWatches,
    Sync,
    Xid,
)

Script = Callable[[Stage], None]


def creates_that_are_refused(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(Create(r + "/eph", b"", flags=1))
    for path in (r, r + "/no/x", r + "/p/../x", r + "/../x", r + "/", r + "//x", r + "/.", "x", ""):
        for flags in (0, 1, 2, 3, 4, 5, 6, 7, -1):
            a.do(Create(path, b"d", OPEN_ACL, flags))
    for path in ("/", "//", "/zookeeper", "/zookeeper/config/x", r + "/a\0b", r + "/é", r + "/😀"):
        a.do(Create(path))
    for path in (r + "/x", r + "/no/x", r + "/eph/x", r):
        for acl in ([], [Acl(31, "world", "nobody")], [Acl(31, "nonsense", "x")]):
            a.do(Create(path, b"", acl))
    for path in (r + "/eph/x", r + "/eph/..", r + "/eph/x/y", r + "/eph/"):
        for flags in (0, 1, 2, 3, 4):
            a.do(Create2(path, b"", OPEN_ACL, flags))
    for flags in (0, 1, 2, 3, 4, 5, 6, 7):
        a.do(CreateContainer(r + "/cont", b"", OPEN_ACL, flags))
        a.do(Delete(r + "/cont"))
    a.do(GetChildren2(r))


def characters_in_paths(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for code in (0, 1, 0x1F, 0x20, 0x7E, 0x7F, 0x9F, 0xA0, 0xE000, 0xF8FF, 0xF900, 0xFFEF, 0xFFF0):
        a.do(Create(f"{r}/x{chr(code)}y"))
        a.do(Exists(f"{r}/x{chr(code)}y"))
    for code in (0xFFFD, 0xFFFF, 0x10000, 0x1F600):
        a.do(Create(f"{r}/x{chr(code)}y"))


def deletes_and_sets_that_are_refused(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(Create(r + "/p"))
    a.do(Create(r + "/p/c"))
    for path in ("/", "", "x", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        for version in (-1, 0, 7):
            a.do(Delete(path, version))
    for path in (r + "/p", r + "/p/", r + "/no", r + "/no/x", r + "/p/c", r + "//p", r + "/p/./c"):
        for version in (7, -2, -1):
            a.do(Delete(path, version))
    for path in (r, r + "/", r + "/no", "", "x", "/zookeeper/config", r + "//x", r + "/\0"):
        for version in (7, -2, -1, 0):
            a.do(SetData(path, b"new", version))
            a.do(Multi([Check(path, version)]))
    a.do(GetChildren2(r))


def stats_of_parent_and_child(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create2(r, b"12345"))
    for n in range(3):
        a.do(Create2(f"{r}/c{n}", b"x" * n))
        a.do(GetData(r))
    a.do(SetData(r + "/c1", b"abc"))
    a.do(SetData(r + "/c1", b"", 1))
    a.do(GetData(r + "/c1"))
    a.do(Exists(r))
    a.do(Delete(r + "/c1", 2))
    a.do(Exists(r))
    a.do(SetData(r, b"r"))
    a.do(Delete(r + "/c0"))
    a.do(Create2(r + "/c0"))
    a.do(GetChildren2(r))
    a.do(GetChildren(r))
    a.do(Exists(r + "/c0"))


def sequence_suffixes(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for _ in range(3):
        a.do(Create(r + "/n", b"", OPEN_ACL, 2))
    a.do(Delete(r + "/n0000000001"))
    a.do(Create(r + "/n", b"", OPEN_ACL, 2))
    a.do(Create(r + "/plain"))
    a.do(Create(r + "/", b"", OPEN_ACL, 2))
    a.do(Create2(r + "/e-", b"", OPEN_ACL, 3))
    a.do(Create(r + "/n0000000008"))
    a.do(Create(r + "/n", b"", OPEN_ACL, 2))
    a.do(Create(r + "/n", b"", OPEN_ACL, 2))
    a.do(Create(r + "/n0000000010", b"", OPEN_ACL, 0))
    a.do(Multi([Create(r + "/m", b"", OPEN_ACL, 2), Create(r + "/m", b"", OPEN_ACL, 3)]))
    a.do(Multi([Create(r + "/m", b"", OPEN_ACL, 2), Delete(r + "/nothing")]))
    a.do(Create(r + "/m", b"", OPEN_ACL, 2))
    a.do(GetChildren2(r))


def ephemerals(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    b.do(Create2(r + "/e", b"", OPEN_ACL, 1))
    a.do(GetData(r + "/e", True))
    a.do(GetChildren(r, True))
    a.do(Create(r + "/e/x"))
    b.do(Create(r + "/e2", b"", OPEN_ACL, 1))
    a.event()
    b.do(GetData(r + "/e2", True))
    a.do(GetChildren(r, True))
    b.do(Delete(r + "/e2"))
    a.event()
    a.do(GetChildren(r, True))
    b.do(Exists(r + "/e", True))
    b.do(CloseSession())
    b.outcome()
    a.event()
    a.event()
    a.do(GetChildren2(r))


def multis(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(Multi([]))
    a.do(Multi([Create(r + "/a", b"1"), Create(r + "/a/b", b"22"), SetData(r + "/a", b"3", 0)]))
    a.do(Multi([SetData(r + "/a", b"x"), SetData(r + "/a", b"y"), Check(r + "/a", 3)]))
    a.do(Multi([SetData(r + "/a", b"x"), Create(r + "/a/c"), SetData(r + "/a", b"y", 4)]))
    a.do(Multi([Create2(r + "/c2"), CreateContainer(r + "/cc"), Create(r + "/c4", b"", flags=4)]))
    a.do(Multi([Delete(r + "/a/b"), Delete(r + "/a/c"), Delete(r + "/a")]))
    a.do(Multi([Delete(r + "/c2"), Create(r + "/c2", b"again"), Check(r + "/c2", 0)]))
    a.do(Multi([Create(r + "/z"), Delete(r + "/z"), Create(r + "/z"), SetData(r + "/z", None)]))
    for bad in (
        Create(r + "/z"),
        Create(r + "/no/z"),
        Delete(r + "/no"),
        Delete(r),
        SetData(r + "/z", b"", 9),
        Check(r + "/z", 9),
        Check(r + "/no"),
        Create(r + "/t", b"", OPEN_ACL, 6),
        Create(r + "/t", b"", []),
        Create(r + "//"),
    ):
        a.do(Multi([Create(r + "/t"), Delete(r + "/z"), bad, Create(r + "/u"), Delete(r + "/no")]))
        a.do(Multi([bad]))
    a.do(GetChildren2(r))
    a.do(GetData(r + "/z"))
    a.do(GetData(r + "/cc"))
    a.do(GetData(r + "/c4"))


def watches_fire_once(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    b.do(Exists(r + "/x", True))
    b.do(GetData(r + "/x", True))
    b.do(GetChildren(r + "/x", True))
    b.do(GetChildren2(r, True))
    a.do(Create(r + "/x", b"1"))
    b.event()
    b.event()
    b.do(GetData(r + "/x", True))
    a.do(SetData(r + "/x", b"2"))
    a.do(SetData(r + "/x", b"3"))
    b.event()
    b.do(Ping(), Xid.PING)
    b.do(GetData(r + "/x", True))
    b.do(Exists(r + "/x", True))
    b.do(GetChildren(r + "/x", True))
    b.do(GetChildren(r, True))
    a.do(Delete(r + "/x"))
    b.event()
    b.event()
    b.do(Ping(), Xid.PING)
    b.do(GetChildren(r, True))
    a.do(SetData(r, b"not a change of children"))
    b.do(Ping(), Xid.PING)
    b.do(GetData("", True))
    b.do(Exists("", False))
    b.do(GetChildren("", False))


def events_come_before_the_reply(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(GetData(r, True))
    a.do(SetData(r, b"1"))
    a.do(GetChildren(r, True))
    a.do(Exists(r + "/x", True))
    a.do(Create(r + "/x"))
    a.do(GetData(r + "/x", True))
    a.do(GetChildren(r + "/x", True))
    a.do(GetChildren(r, True))
    a.do(Delete(r + "/x"))
    a.do(GetChildren(r, True))
    a.do(GetData(r, True))
    a.do(Exists(r + "/y", True))
    a.do(Multi([SetData(r, b""), Create(r + "/y"), SetData(r + "/y", b""), Delete(r + "/nothing")]))
    a.do(Multi([SetData(r, b""), Create(r + "/y"), SetData(r + "/y", b""), Delete(r + "/y")]))


def watches_set_again(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    a.do(Create(r + "/same"))
    a.do(Create(r + "/changed"))
    a.do(Create(r + "/gone"))
    a.do(Create(r + "/parent"))
    seen = a.do(Sync(r)).zxid
    a.do(SetData(r + "/changed", b"1"))
    a.do(Delete(r + "/gone"))
    a.do(Create(r + "/new"))
    a.do(Create(r + "/parent/child"))
    data = [r + "/same", r + "/changed", r + "/gone"]
    exist = [r + "/new", r + "/never"]
    child = [r + "/same", r + "/parent", r + "/gone"]
    b.do(SetWatches(seen, data, exist, child), Xid.SET_WATCHES)
    a.do(SetData(r + "/same", b"2"))
    b.event()
    a.do(Create(r + "/same/x"))
    b.event()
    a.do(Create(r + "/never"))
    b.event()
    a.do(Delete(r + "/never"))
    b.do(Ping(), Xid.PING)
    b.do(SetWatches(0, [r, r + "/no"], [], []), 77)
    b.do(SetWatches(0, [], [], []), Xid.SET_WATCHES)


def null_is_not_empty(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create2(r, None))
    a.do(GetData(r))
    a.do(SetData(r, b""))
    a.do(GetData(r))
    a.do(SetData(r, None))
    a.do(GetData(r))


def requests_without_effect(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(Sync(r + "/nothing"))
    a.do(Sync(""))
    a.do(Ping(), Xid.PING)
    a.raw(Ping().encode(1234))
    a.do(AuthPacket(0, "digest", b"user:secret"), Xid.AUTH)
    a.do(GetData(r))


def reads_of_strange_paths(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for path in ("x", r + "/", r + "//", r + "/.", r + "/..", "//", r + "/a\0b"):
        a.do(Exists(path))
        a.do(GetData(path))
        a.do(GetChildren(path))
        a.do(GetChildren2(path))


def the_system_znodes(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for path in ("/zookeeper/config", "/zookeeper/quota"):
        a.do(Exists(path))
        a.do(GetChildren2(path))


def an_unknown_scheme_of_auth(stage: Stage) -> None:
    a = stage.actor("a")
    a.do(Create(stage.root))
    a.do(AuthPacket(0, "nonsense", b"x"), Xid.AUTH)
    a.outcome()


def an_unknown_operation(stage: Stage) -> None:
    a = stage.actor("a")
    a.do(Create(stage.root))
    a.raw(struct.pack(">ii", 9, 4711))


def truncated_bodies(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for request in (Create(r + "/x"), SetData(r, b"data"), GetData(r), Multi([Check(r)])):
        whole = request.encode(5)
        for cut in (9, len(whole) // 2, len(whole) - 1):
            a.raw(whole[:cut])
    a.raw(Create(r + "/x").encode(5) + b"more")
    a.do(Exists(r + "/x"))


def an_oversized_frame(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    a.client.socket.sendall(struct.pack(">i", 1_048_576))
    a.outcome()
    b.client.socket.sendall(struct.pack(">i", -5))
    b.outcome()


def the_largest_frame(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    overhead = len(SetData(r, b"").encode(1))
    data = b"x" * (1_048_575 - overhead)
    a.do(SetData(r, data))
    reply = a.client.call(GetData(r))
    stage.write(f"{len(reply.value.data) == len(data)} {reply.value.stat.dataLength}")
    a.do(SetData(r, b""))


def handshakes(stage: Stage) -> None:
    with_flag, without = stage.client(), stage.client()
    for client, flag in ((with_flag, False), (without, None), (stage.client(), True)):
        answer = client.connect(read_only=flag)
        size = len(answer.encode())
        stage.write(f"{size} {len(answer.password)} {answer.timeout_ms} {answer.read_only}")
    for timeout_ms in (4000, 39_999, 40_000, 10_000_000):
        stage.write(str(stage.client().connect(timeout_ms=timeout_ms).timeout_ms))
    owner = stage.client()
    mine = owner.connect(timeout_ms=8000)
    for session_id, password in (
        (mine.session_id ^ 1 << 20, mine.password),
        (12345, bytes(16)),
        (12345, b""),
    ):
        stranger = stage.client()
        answer = stranger.connect(session_id=session_id, password=password)
        stage.write(f"{answer} {stranger.is_closed()}")
    again = stage.client()
    answer = again.connect(session_id=mine.session_id, password=mine.password, timeout_ms=6000)
    stage.write(f"{answer.session_id == mine.session_id} {answer.password == mine.password}")
    stage.write(f"{answer.timeout_ms} {owner.is_closed()}")
    actor = Actor(stage, "again", again)
    actor.do(Create(stage.root))
    ahead = stage.client()
    ahead.send(struct.pack(">iqiqi", 0, 2**62, 8000, 0, 16) + bytes(17))
    stage.write(f"a client that has seen more: {ahead.is_closed()}")


def moved_sessions_keep_ephemerals_and_lose_watches(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    b.do(Create(r + "/e", b"", OPEN_ACL, 1))
    b.do(GetData(r, True))
    mine = b.client.session
    assert mine is not None
    moved = stage.client()
    moved.connect(session_id=mine.session_id, password=mine.password)
    b.outcome()
    a.do(SetData(r, b"1"))
    c = Actor(stage, "moved", moved)
    c.do(Exists(r + "/e"))
    c.do(Ping(), Xid.PING)
    moved.close()
    last = stage.client()
    answer = last.connect(session_id=mine.session_id, password=mine.password)
    stage.write(str(answer.session_id == mine.session_id))
    d = Actor(stage, "last", last)
    d.do(CloseSession())
    d.outcome()
    a.do(GetChildren(r))
    late = stage.client().connect(session_id=mine.session_id, password=mine.password)
    stage.write(str(late))


def a_flight_is_answered_in_order(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    requests = [
        Create2(r + "/n-", b"", OPEN_ACL, 3),
        GetChildren(r),
        GetData(r + "/no"),
        Multi([Check(r + "/n-0000000000"), SetData(r, b"1")]),
        GetData(r),
        Delete(r + "/n-0000000000"),
        Exists(r + "/n-0000000000", True),
        Create(r + "/n-0000000000"),
        GetChildren2(r),
    ]
    for reply in a.client.flight(requests):
        stage.write(f"{reply.xid} {reply.err} {stage.show(reply.value)}")
        for event in a.client.events:
            stage.write(f"before it: {stage.show(event)}")
        a.client.events.clear()


SCRIPTS: list[Script] = [
    creates_that_are_refused,
    characters_in_paths,
    deletes_and_sets_that_are_refused,
    stats_of_parent_and_child,
    sequence_suffixes,
    ephemerals,
    multis,
    watches_fire_once,
    events_come_before_the_reply,
    watches_set_again,
    null_is_not_empty,
    requests_without_effect,
    reads_of_strange_paths,
    the_system_znodes,
    an_unknown_scheme_of_auth,
    an_unknown_operation,
    truncated_bodies,
    an_oversized_frame,
    the_largest_frame,
    handshakes,
    moved_sessions_keep_ephemerals_and_lose_watches,
    a_flight_is_answered_in_order,
    *SECURITY_SCRIPTS,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_answer_the_same(
    script: Script, ours: EmbeddedServer, apache: ApacheServer
) -> None:
    scripts = []
    for server in (apache, ours):
        with Stage(server.host, server.port, f"/{script.__name__}") as stage:
            script(stage)
        scripts.append(stage.script())

    differences = list(unified_diff(*scripts, "Apache", "ours", n=1, lineterm=""))

    assert not differences, "\n".join(differences)
