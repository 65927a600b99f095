"""Random plays: what several clients may do to a server, as hypothesis strategies and a director.

Rule of this file: a step says all about itself, so that a failing play shrinks to its few steps.
Paths are relative to the play's own root; whoever acts is named by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hypothesis import strategies as st
from tests.conformance.stage import Actor, Stage

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AddWatch,
    AuthPacket,
    Check,
    CheckWatches,
    CloseSession,
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
    SetAcl,
    SetData,
    SetWatches,
    SetWatches2,
    Sync,
    WhoAmI,
    Xid,
)

__all__ = ["Reconnect", "Step", "direct", "plays"]

ACTORS = 3


@dataclass(frozen=True)
class Reconnect:
    """Drop the connection and take the session up again on another one."""


Step: TypeAlias = tuple[int, Request | Reconnect]

_ALICE = "a:Y3VKVHtA/4IVxAGV7wEBp2bJCfE="
_PATHS = ["", "/a", "/a", "/b", "/a/x", "/a/x", "/a/y", "/b/x", "/a/x/z", "/s0000000000"]
_ODD = ["/", "/..", "//", "/a/", "/a/\0", "/é", "/b/."]

path = st.one_of(*[st.sampled_from(_PATHS)] * 9, st.sampled_from(_ODD))
data = st.sampled_from([None, b"", b"x", b"yy"])
version = st.sampled_from([-1, -1, -1, -1, 0, 1, 2, -2])
flags = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 7])
watch = st.booleans()
acl = st.sampled_from(
    [
        *[OPEN_ACL] * 6,
        (Acl(31, "auth", ""),),
        (Acl(31, "auth", ""), Acl(1, "world", "anyone")),
        (Acl(31, "digest", _ALICE), Acl(1, "world", "anyone")),
        (Acl(15, "ip", "127.0.0.1/8"), Acl(16, "world", "anyone")),
        (Acl(31, "ip", "10.0.0.0/8"), Acl(23, "world", "anyone")),
        (Acl(6, "world", "anyone"), Acl(31, "auth", "")),
        (),
        (Acl(31, "digest", "nobody"),),
    ]
)
makes = st.one_of(
    st.builds(Create, path, data, acl, flags),
    st.builds(Create, path, data, acl, st.sampled_from([0, 1, 2, 3])),
    st.builds(Create2, path, data, acl, flags),
    st.builds(CreateContainer, path, data, acl, st.sampled_from([4, 4, 4, 0, 1])),
)
writes = st.one_of(
    makes,
    makes,
    st.builds(Delete, path, version),
    st.builds(Delete, path),
    st.builds(SetData, path, data, version),
)
in_multis = st.one_of(
    writes,
    writes,
    st.builds(Check, path, version),
    st.builds(CreateTtl, path, data, acl, flags, st.sampled_from([-1, 1000])),
)
reads = st.one_of(
    st.builds(Exists, path, watch),
    st.builds(GetData, path, watch),
    st.builds(GetChildren, path, watch),
    st.builds(GetChildren2, path, watch),
)
paths = st.lists(path, max_size=3)
kind = st.sampled_from([1, 2, 3])
watching = st.one_of(
    st.builds(AddWatch, path, st.sampled_from([0, 1, 1])),
    st.builds(AddWatch, path, st.sampled_from([0, 1, 1])),
    st.builds(RemoveWatches, path, kind),
    st.builds(CheckWatches, path, kind),
    st.builds(SetWatches, st.sampled_from([0, 2**62]), paths, paths, paths),
    st.builds(SetWatches2, st.sampled_from([0, 2**62]), paths, paths, paths, paths, paths),
)
others = st.one_of(
    st.builds(SetAcl, path, acl, version),
    st.builds(GetAcl, path),
    st.builds(GetAllChildrenNumber, path),
    st.builds(GetEphemerals, path),
    st.builds(Sync, path),
    st.builds(
        MultiRead, st.lists(st.one_of(st.builds(GetData, path), st.builds(GetChildren, path)))
    ),
    st.builds(AuthPacket, st.just(0), st.just("digest"), st.sampled_from([b"a:secret", b"b:x"])),
    st.just(WhoAmI()),
    st.builds(CreateTtl, path, data, acl, st.sampled_from([5, 6]), st.just(1000)),
    st.just(Reconfig("1", None, None)),
)
lives = st.sampled_from([Reconnect(), Reconnect(), CloseSession()])
step = st.tuples(
    st.integers(0, ACTORS - 1),
    st.one_of(
        writes,
        writes,
        writes,
        st.builds(Multi, st.lists(in_multis, max_size=5)),
        reads,
        reads,
        watching,
        others,
        lives,
    ),
)


def plays(length: int) -> st.SearchStrategy[list[Step]]:
    """Plays of so many steps."""
    return st.lists(step, min_size=length, max_size=length)


def direct(stage: Stage, play: Sequence[Step]) -> None:
    """Have it played. After each step everybody shows, by a ping, which events came.

    At its beginning 2 watches all that happens, and /b is 0's alone.
    """
    cast = [stage.actor(f"{number}") for number in range(ACTORS)]
    for below in ("", "/a", "/a/x"):
        cast[0].do(Create(stage.root + below))
    cast[0].do(AuthPacket(0, "digest", b"a:secret"), Xid.AUTH)
    cast[0].do(Create(stage.root + "/b", b"", [Acl(31, "auth", "")]))
    cast[2].do(AddWatch(stage.root, 1))
    for number, what in play:
        actor = cast[number]
        is_end = isinstance(what, CloseSession)
        if isinstance(what, Reconnect):
            actor.reconnect()
        else:
            actor.do(_rooted(what, stage.root), _xid(what))
        if is_end:
            actor.outcome()
            cast[number] = stage.actor(f"{number}")
        for each in cast:  # the znodes of a session go in no certain order
            _ping(each, in_order=not is_end)


def _ping(actor: Actor, *, in_order: bool) -> None:
    reply = actor.client.call(Ping(), Xid.PING)
    lines = [actor.stage.show(event) for event in actor.client.events]
    actor.client.events.clear()
    for line in lines if in_order else sorted(lines):
        actor.stage.write(f"{actor.name}: ! {line}")
    assert reply.err == 0


def _xid(request: Request) -> int | None:
    if isinstance(request, SetWatches | SetWatches2):
        return Xid.SET_WATCHES
    return Xid.AUTH if isinstance(request, AuthPacket) else None


def _rooted(request: Any, root: str) -> Any:
    """The request with the root before its paths."""
    changes: dict[str, Any] = {}
    for name in ("path", "prefix"):
        if hasattr(request, name):
            changes[name] = root + getattr(request, name)
    if isinstance(request, Multi | MultiRead):
        changes["ops"] = [_rooted(op, root) for op in request.ops]
    for name in ("data", "exist", "child", "persistent", "recursive"):
        if isinstance(request, SetWatches | SetWatches2) and hasattr(request, name):
            changes[name] = [root + path for path in getattr(request, name)]
    return replace(request, **changes)
