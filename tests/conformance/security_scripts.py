"""Scripts about who may do what, and about watches that last: for `test_frames`.

Rule of this file: order of ids is nowhere defined, so lists of ids and ACLs are written sorted.
"""

from __future__ import annotations

from tests.conformance.stage import Stage

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AddWatch,
    AuthPacket,
    Check,
    CheckWatches,
    Create,
    Create2,
    CreateContainer,
    CreateTtl,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Ping,
    Reconfig,
    RemoveWatches,
    Request,
    Sasl,
    SetAcl,
    SetData,
    SetWatches2,
    WhoAmI,
    Xid,
)

__all__ = ["SECURITY_SCRIPTS"]


def acls_that_make_no_sense(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    names = ("", "x", "a:", ":b", "a:b", "a:b:", "a:b:c", "anyone", None)
    names += (
        "1.2.3.4",
        "1.2.3",
        "1.2.3.4/8",
        "1.2.3.4/33",
        "1.2.3.4/+8",
        "1.2.3.4/",
        "::1",
        "256.1.1.1",
    )
    for scheme in ("world", "auth", "digest", "ip", "super", "sasl", "x509", "nonsense", "", None):
        for name in names:
            entry = Acl(31, scheme, name)
            a.do(Create(r + "/s", b"", [entry], 2))
            if scheme is not None:
                a.do(SetAcl(r, [*OPEN_ACL, entry]))
    a.do(GetChildren2(r))
    a.do(GetAcl(r))
    for perms in (0, 32, 63, -1, 2**31 - 1):
        a.do(Create(f"{r}/perms", b"", [Acl(perms, "world", "anyone")]))
        a.do(GetAcl(f"{r}/perms"))
        a.do(Delete(f"{r}/perms"))
    twice = Acl(1, "world", "anyone")
    a.do(Create(r + "/twice", b"", [twice, twice, Acl(2, "world", "anyone"), twice]))
    a.do(GetAcl(r + "/twice"))
    a.do(Multi([Create(r + "/m"), Create(r + "/n", b"", [Acl(1, "digest", None)])]))
    a.do(Multi([Create(r + "/m"), Create(r + "/n", b"", [Acl(1, None, "x")])]))


def order_of_errors_with_acls(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(AuthPacket(0, "digest", b"a:secret"), Xid.AUTH)
    a.do(Create(r))
    mine = [Acl(31, "auth", "")]
    a.do(Create(r + "/mine", b"data", mine))
    a.do(Create(r + "/mine/child"))
    a.do(Create(r + "/eph", b"", mine, 1))
    for request in (
        Create(r + "/mine/x", b"", []),
        Create(r + "/mine/x"),
        Create(r + "/mine/child"),
        Create(r + "/mine/.."),
        Create(r + "/mine/x", b"", OPEN_ACL, 9),
        Create(r + "/eph/x"),
        Create2(r + "/mine/s", b"", OPEN_ACL, 2),
        Delete(r + "/mine/child", 7),
        Delete(r + "/mine/nothing"),
        Delete(r + "/mine", 7),
        Delete(r + "/mine"),
        SetData(r + "/mine", b"", 7),
        SetData(r + "/mine", b""),
        GetData(r + "/mine", True),
        GetChildren(r + "/mine", True),
        GetChildren2(r + "/mine"),
        Exists(r + "/mine", True),
        GetAllChildrenNumber(r + "/mine"),
        GetAcl(r + "/mine"),
        SetAcl(r + "/mine", [], 7),
        SetAcl(r + "/mine", OPEN_ACL, 7),
        SetAcl(r + "/mine", OPEN_ACL),
        SetAcl(r + "/mine/", OPEN_ACL),
        SetAcl(r + "/mine/nothing", OPEN_ACL),
        SetAcl(r + "/mine/nothing", []),
        Multi([Check(r + "/mine", 7)]),
        Multi([Check(r + "/mine")]),
        Multi([Create(r + "/ok"), Create(r + "/mine/x"), Delete(r + "/mine/child")]),
        Multi([Create(r + "/l", b"", [Acl(1, "world", "anyone")]), Create(r + "/l/x")]),
        MultiRead([GetData(r + "/mine"), GetChildren(r + "/mine"), GetData(r)]),
    ):
        b.do(request)
    b.do(Ping(), Xid.PING)
    a.do(SetData(r + "/mine", b"new"))
    b.do(Ping(), Xid.PING)
    a.do(SetAcl(r + "/mine", [Acl(1, "world", "anyone"), *mine]))
    b.do(GetData(r + "/mine"))
    b.do(GetAcl(r + "/mine"))
    a.do(GetAcl(r + "/mine"))
    b.do(SetData(r + "/mine", b""))
    b.do(AuthPacket(0, "digest", b"a:secret"), Xid.AUTH)
    b.do(SetData(r + "/mine", b"b's"))
    b.do(GetAcl(r + "/mine"))
    a.do(Delete(r + "/mine/child"))


def events_about_what_one_may_not_read(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(AuthPacket(0, "digest", b"a:secret"), Xid.AUTH)
    a.do(Create(r))
    mine = [Acl(31, "auth", "")]
    seen = a.do(Create2(r + "/mine", b"", mine)).zxid

    def changes() -> None:
        for request in (
            SetData(r + "/mine", b"1"),
            Create(r + "/new", b"", mine),
            Create(r + "/mine/x"),
            Delete(r + "/mine/x"),
            Delete(r + "/new"),
            Multi([SetData(r + "/mine", b"2"), Create(r + "/mine/y", b"", mine)]),
            Delete(r + "/mine/y"),
        ):
            a.do(request)
            b.do(Ping(), Xid.PING)

    b.do(Exists(r + "/mine", True))
    b.do(Exists(r + "/new", True))
    b.do(GetChildren(r, True))
    changes()
    b.do(CheckWatches(r + "/mine", 3))
    b.do(AddWatch(r, 1))
    b.do(AddWatch(r + "/mine", 0))
    changes()
    b.do(SetWatches2(seen, [r + "/mine"], [r + "/mine"], [r + "/mine"], [], []), Xid.SET_WATCHES)
    b.do(AuthPacket(0, "digest", b"a:secret"), Xid.AUTH)
    changes()


def each_permission_for_itself(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for perm in (1, 2, 4, 8, 16):
        path = f"{r}/p{perm}"
        a.do(Create(path))
        a.do(Create(path + "/child"))
        a.do(SetAcl(path, [Acl(perm, "world", "anyone")]))
        for request in (
            GetData(path),
            GetChildren(path),
            GetAcl(path),
            GetAllChildrenNumber(path),
            SetData(path, b""),
            Create(path + "/new"),
            Delete(path + "/child"),
            Multi([Check(path)]),
            SetAcl(path, OPEN_ACL, 9),
            SetAcl(path, OPEN_ACL),
        ):
            a.do(request)
        a.do(Exists(path))


def versions_of_acls(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create2(r))
    a.do(SetAcl(r, OPEN_ACL, 0))
    a.do(SetAcl(r, OPEN_ACL, 0))
    a.do(SetAcl(r, OPEN_ACL, 1))
    a.do(GetAcl(r))
    a.do(Exists(r))
    a.do(SetAcl(r, OPEN_ACL, -2))
    for path in ("/zookeeper/config", "/zookeeper", "", "/", r + "/nothing"):
        a.do(GetAcl(path))
    a.do(SetAcl("/zookeeper/config", OPEN_ACL))
    a.do(SetData("/zookeeper/config", b""))
    a.do(Create("/zookeeper/config/x"))


def addresses(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for name in (
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.2/31",
        "127.0.0.0/30",
        "127.9.9.9/8",
        "1.1.1.1/0",
    ):
        a.do(Create(r + "/x", b"data", [Acl(1, "ip", name)]))
        a.do(GetData(r + "/x"))
        a.do(GetAcl(r + "/x"))
        a.do(Delete(r + "/x"))


def who_one_is(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(WhoAmI())
    a.do(Create(r + "/x", b"", [Acl(31, "auth", "")]))
    for auth in (b"user:secret", b"user:secret", b"nocolon", b"", b"a:b:c", "ü:ö".encode()):
        a.do(AuthPacket(0, "digest", auth), Xid.AUTH)
    a.do(AuthPacket(0, "ip", b"10.0.0.1"), Xid.AUTH)
    a.do(WhoAmI())
    a.do(Create(r + "/y", b"", [Acl(1, "auth", "whoever"), Acl(31, "auth", "")]))
    a.do(GetAcl(r + "/y"))
    b = stage.actor("b")
    b.do(AuthPacket(0, "digest", None), Xid.AUTH)
    b.outcome()


def counts_and_ephemerals(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    for path in ("/a", "/a/b", "/a/b/c", "/ab", "/a/b2"):
        a.do(Create(r + path))
    for path in (r, r + "/a", r + "/a/b/c", r + "/a/", r + "/no", "/zookeeper"):
        a.do(GetAllChildrenNumber(path))
    a.do(Create(r + "/e", b"", flags=1))
    a.do(Create(r + "/a/e-", b"", OPEN_ACL, 3))
    b.do(Create(r + "/other", b"", flags=1))
    for prefix in ("", " ", "/", " / ", r, r + "/e", r + "/a/", "/nothing", None):
        a.do(GetEphemerals(prefix))


def reads_together(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r, None))
    a.do(Create(r + "/a", b"1"))
    a.do(MultiRead([]))
    a.do(MultiRead([GetData(r), GetChildren(r), GetData(r + "/no"), GetChildren("x"), GetData("")]))
    a.do(MultiRead([GetData(r, True), GetChildren(r, True)]))
    a.do(SetData(r, b"no watch was set"))
    for outer, inner in ((14, MultiRead([GetData(r)])), (22, Multi([Create(r + "/z")]))):
        body = bytearray(inner.encode(5))
        body[4:8] = outer.to_bytes(4, "big")
        a.client.send(bytes(body))
        reply = a.client.reply()
        stage.write(f"{outer}: {reply.err}")
    a.do(GetChildren2(r))


def what_a_standalone_server_refuses(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    a.do(Reconfig("1", None, None, -1))
    a.do(Reconfig(None, "1", "2", 5))
    a.do(Sasl(b""))
    for flags in (0, 1, 4, 5, 6, 7):
        for ttl in (0, 1000) if flags < 5 else (-1, 0, 1000, 2**40):
            a.do(CreateTtl(r + "/t", b"", OPEN_ACL, flags, ttl))
            a.do(Multi([CreateTtl(r + "/m", b"", OPEN_ACL, flags, ttl)]))
            a.do(Delete(r + "/m"))
    for flags in (0, 1, 2, 3, 4):
        a.do(Multi([CreateContainer(r + "/c", b"", OPEN_ACL, flags)]))
    for path in (r + "/no", r + "/"):
        a.do(Check(path))
    a.do(Check(r, 7))
    a.do(GetChildren2(r))


def null_paths(stage: Stage) -> None:
    """Error codes only: of the body that Apache sends with some of them nobody takes notice."""
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    none: str = None  # type: ignore[assignment]
    requests: list[Request] = [
        *(Create(none), Create2(none), CreateContainer(none), Delete(none), SetData(none, b"")),
        *(Exists(none), GetData(none), GetChildren(none), GetChildren2(none), GetAcl(none)),
        *(SetAcl(none, OPEN_ACL), GetAllChildrenNumber(none), GetEphemerals(none), Check(none)),
        *(RemoveWatches(none), CheckWatches(none), MultiRead([GetData(none)])),
        *(Multi([Create(r + "/x"), Create(none)]), Multi([Delete(none)]), Multi([Check(none)])),
    ]
    for request in requests:
        stage.write(f"{type(request).__name__} {a.client.call(request).err}")
    a.do(GetChildren(r))


def lasting_watches(stage: Stage) -> None:
    a, b, c, r = stage.actor("a"), stage.actor("b"), stage.actor("c"), stage.root
    a.do(Create(r))
    b.do(AddWatch(r + "/x", 0))
    c.do(AddWatch(r, 1))

    def changes() -> None:
        for request in (
            Create(r + "/x"),
            SetData(r + "/x", b"1"),
            Create(r + "/x/y"),
            SetData(r + "/x/y", b"1"),
            Create(r + "/x/y/z"),
            Multi([Delete(r + "/x/y/z"), SetData(r + "/x", b"2"), Create(r + "/x/w")]),
            Delete(r + "/x/w"),
            Delete(r + "/x/y"),
            Delete(r + "/x"),
            SetData(r, b"1"),
        ):
            a.do(request)
            b.do(Ping(), Xid.PING)
            c.do(Ping(), Xid.PING)

    changes()
    changes()
    b.do(GetData(r, True))
    b.do(Exists(r + "/x", True))
    changes()
    b.do(AddWatch(r + "/x", 1))
    b.do(AddWatch(r + "/x", 0))
    c.do(AddWatch(r + "/x", 1))
    changes()
    for client in (b, c):
        for kind in (2, 2, 1, 3):
            client.do(CheckWatches(r + "/x", kind))
            client.do(RemoveWatches(r + "/x", kind))
            changes()
    c.do(GetChildren(r, True))
    changes()
    c.do(RemoveWatches(r, 1))
    changes()
    c.do(RemoveWatches(r, 2))
    changes()


def watches_looked_up(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))

    def look() -> None:
        for actor in (a, b):
            for kind in (1, 2, 3, 4, 0):
                actor.do(CheckWatches(r, kind))

    look()
    a.do(GetData(r, True))
    look()
    a.do(GetChildren(r, True))
    look()
    b.do(RemoveWatches(r, 3))
    b.do(RemoveWatches(r, 5))
    a.do(RemoveWatches(r, 1))
    look()
    a.do(RemoveWatches(r, 1))
    a.do(RemoveWatches(r, 3))
    look()
    a.do(AddWatch(r, 1))
    look()
    for path in (r + "/below", r + "/", ""):
        b.do(CheckWatches(path, 3))
        a.do(CheckWatches(path, 3))
        a.do(RemoveWatches(path, 3))
    for mode in (-1, 2, 7):
        a.do(AddWatch(r, mode))
    for path in ("", "x", r + "/", "/"):
        a.do(AddWatch(path, 1))
        a.do(AddWatch(path, 0))
        a.do(RemoveWatches(path, 3))


def lasting_watches_set_again(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    a.do(Create(r + "/p"))
    seen = a.do(Exists(r)).zxid
    a.do(SetData(r + "/p", b"1"))
    again = SetWatches2(seen, [r + "/p"], [r], [r], [r + "/p"], [r, r + "/q"])
    b.do(again, Xid.SET_WATCHES)
    for request in (
        SetData(r + "/p", b"2"),
        Create(r + "/p/c"),
        Create(r + "/q"),
        Create(r + "/q/c"),
        Delete(r + "/q/c"),
        Delete(r + "/q"),
        SetData(r, b"x"),
    ):
        a.do(request)
        b.do(Ping(), Xid.PING)
    b.do(SetWatches2(0, [], [], [], [], []), 12)


SECURITY_SCRIPTS = [
    acls_that_make_no_sense,
    order_of_errors_with_acls,
    events_about_what_one_may_not_read,
    each_permission_for_itself,
    versions_of_acls,
    addresses,
    who_one_is,
    counts_and_ephemerals,
    reads_together,
    what_a_standalone_server_refuses,
    null_paths,
    lasting_watches,
    watches_looked_up,
    lasting_watches_set_again,
]
