"""Scripts that nobody thought of: the same random requests on both servers, line by line."""

from __future__ import annotations

import random
from collections.abc import Sequence
from difflib import unified_diff

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
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
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Multi,
    MultiOp,
    MultiRead,
    Ping,
    RemoveWatches,
    Request,
    SetAcl,
    SetData,
    SetWatches,
    SetWatches2,
    Sync,
    Xid,
)

NAMES = ("a", "b", "n0000000002", "..", "")


MINE = (Acl(31, "auth", ""),)
ACLS: Sequence[Sequence[Acl]] = (
    *(OPEN_ACL,) * 12,
    (),
    *(MINE,) * 2,
    (*MINE, Acl(1, "world", "anyone")),
    (Acl(15, "ip", "127.0.0.1/8"), Acl(16, "world", "anyone")),
    (Acl(6, "world", "anyone"), Acl(17, "digest", "a:Y3VKVHtA/4IVxAGV7wEBp2bJCfE=")),
)


def random_path(rng: random.Random, root: str) -> str:
    return "/".join(
        [root, *rng.choices(NAMES, (8, 8, 2, 1, 1), k=rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    )


def random_write(rng: random.Random, root: str) -> MultiOp:
    path = random_path(rng, root)
    data = rng.choice((None, b"", b"x", b"yy"))
    version = rng.choice((-1, -1, -1, 0, 1, 2))
    flags = rng.choice((0, 0, 0, 0, 1, 2, 2, 3, 4))
    acl = rng.choice(ACLS)
    match rng.randrange(10):
        case 0 | 1 | 2:
            return Create(path, data, acl, flags)
        case 3:
            return Create2(path, data, acl, flags)
        case 4:
            return CreateContainer(path, data, acl, 4)
        case 5 | 6:
            return Delete(path, version)
        case 7 | 8:
            return SetData(path, data, version)
    return Check(path, version)


def random_request(rng: random.Random, root: str) -> Request:
    path, watch = random_path(rng, root), rng.random() < 0.5
    match rng.randrange(22):
        case 0 | 1:
            return Exists(path, watch)
        case 2 | 3:
            return GetData(path, watch)
        case 4:
            return GetChildren(path, watch)
        case 5:
            return GetChildren2(path, watch)
        case 6:
            return Sync(path)
        case 7 | 8 | 9:
            return Multi([random_write(rng, root) for _ in range(rng.randrange(5))])
        case 10:
            lists = [[random_path(rng, root) for _ in range(rng.randrange(3))] for _ in range(3)]
            return SetWatches(0, *lists)
        case 11:
            lists = [[random_path(rng, root) for _ in range(rng.randrange(2))] for _ in range(5)]
            return SetWatches2(rng.choice((0, 2**62)), *lists)
        case 12:
            return AddWatch(path, rng.randrange(2))
        case 13:
            kind = rng.choice((RemoveWatches, CheckWatches))
            return kind(path, rng.choice((1, 2, 3)))
        case 14:
            return SetAcl(path, rng.choice(ACLS), rng.choice((-1, -1, 0, 1)))
        case 15:
            return GetAcl(path)
        case 16:
            return rng.choice((GetAllChildrenNumber, GetEphemerals))(path)
        case 17:
            kinds = (GetData, GetChildren)
            return MultiRead([rng.choice(kinds)(random_path(rng, root)) for _ in range(3)])
        case 18:
            return AuthPacket(0, "digest", rng.choice((b"a:secret", b"b:x")))
    while isinstance(write := random_write(rng, root), Check):
        pass
    return write


def play(stage: Stage, seed: int) -> None:
    """Three sessions take turns; after each request the others show their events by a ping."""
    rng = random.Random(seed)
    actors = [stage.actor("a"), stage.actor("b"), stage.actor("c")]
    actors[0].do(Create(stage.root))
    for _ in range(80):
        actor = rng.choice(actors)
        if rng.random() < 0.05:
            actor.reconnect()
        request = random_request(rng, stage.root)
        xid = {SetWatches: Xid.SET_WATCHES, SetWatches2: Xid.SET_WATCHES, AuthPacket: Xid.AUTH}
        actor.do(request, xid.get(type(request)))
        for other in actors:
            if other is not actor:
                other.do(Ping(), Xid.PING)


@pytest.mark.parametrize("seed", range(25))
def test_both_servers_play_a_random_script_alike(
    seed: int, ours: EmbeddedServer, apache: ApacheServer
) -> None:
    scripts = []
    for server in (apache, ours):
        stage = Stage(server.host, server.port, f"/random{seed}")
        try:
            play(stage, seed)
        finally:
            stage.leave()
        scripts.append(stage.script())

    differences = list(unified_diff(*scripts, "Apache", "ours", n=2, lineterm=""))

    assert not differences, "\n".join(differences)
