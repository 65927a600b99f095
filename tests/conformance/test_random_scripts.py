"""Scripts that nobody thought of: the same random requests on both servers, line by line."""

from __future__ import annotations

import random
from difflib import unified_diff

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.stage import Actor, Stage

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Create2,
    CreateContainer,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    Multi,
    MultiOp,
    Ping,
    Request,
    SetData,
    SetWatches,
    Sync,
    Xid,
)

NAMES = ("a", "b", "n0000000002", "..", "")


def random_path(rng: random.Random, root: str) -> str:
    return "/".join(
        [root, *rng.choices(NAMES, (8, 8, 2, 1, 1), k=rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    )


def random_write(rng: random.Random, root: str) -> MultiOp:
    path = random_path(rng, root)
    data = rng.choice((None, b"", b"x", b"yy"))
    version = rng.choice((-1, -1, -1, 0, 1, 2))
    flags = rng.choice((0, 0, 0, 0, 1, 2, 2, 3, 4))
    acl: tuple[Acl, ...] = rng.choice((OPEN_ACL,) * 9 + ((),))
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
    match rng.randrange(14):
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
    while isinstance(write := random_write(rng, root), Check):
        pass
    return write


def play(stage: Stage, seed: int) -> None:
    """Two sessions take turns; after each request the other one shows its events by a ping."""
    rng = random.Random(seed)
    actors = [stage.actor("a"), stage.actor("b")]
    actors[0].do(Create(stage.root))
    for _ in range(80):
        who = rng.randrange(2)
        request = random_request(rng, stage.root)
        actors[who].do(request, Xid.SET_WATCHES if isinstance(request, SetWatches) else None)
        _show_events(actors[1 - who])


def _show_events(actor: Actor) -> None:
    actor.do(Ping(), Xid.PING)


@pytest.mark.parametrize("seed", range(25))
def test_both_servers_play_a_random_script_alike(
    seed: int, ours: EmbeddedServer, apache: ApacheServer
) -> None:
    scripts = []
    for server in (apache, ours):
        with Stage(server.host, server.port, f"/random{seed}") as stage:
            play(stage, seed)
        scripts.append(stage.script())

    differences = list(unified_diff(*scripts, "Apache", "ours", n=2, lineterm=""))

    assert not differences, "\n".join(differences)
