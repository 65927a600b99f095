"""Settings that are off or low by default, set alike on both servers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path

import pytest
from tests.apache import ApacheServer
from tests.conformance.raw import Closed, RawClient
from tests.conformance.stage import Actor, Stage
from tests.unit.server.live import connect, running
from tests.waiting import eventually, wait_until

from incumbent.server import MemoryStore, Policy
from incumbent.testing import EmbeddedServer
from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AuthPacket,
    Create,
    CreateContainer,
    CreateTtl,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetAcl,
    SetData,
    Stat,
    WhoAmI,
    Xid,
)

pytestmark = pytest.mark.apache

SUPER = "super:" + base64.b64encode(hashlib.sha1(b"super:secret").digest()).decode()
POLICY = Policy(super_digest=SUPER, ttl_znodes=True, connections_per_address=6)


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ApacheServer, EmbeddedServer]]:
    directory = tmp_path_factory.mktemp("settings")
    properties = {
        "zookeeper.extendedTypesEnabled": "true",
        "znode.container.checkIntervalMs": "100",
        "zookeeper.DigestAuthenticationProvider.superDigest": SUPER,
    }
    settings = {"maxClientCnxns": 6}
    with (
        ApacheServer(directory, properties=properties, settings=settings) as apache,
        EmbeddedServer(policy=POLICY) as ours,
    ):
        yield apache, ours


def times_to_live(stage: Stage) -> None:
    a, r = stage.actor("a"), stage.root
    a.do(Create(r))
    for flags in (0, 1, 2, 3, 4, 5, 6, 7):
        for ttl_ms in (-1, 0, 1_000_000, 2**40 - 1, 2**40):
            if ttl_ms < 0 and flags < 5:
                continue  # here Apache's server comes to its end
            a.do(CreateTtl(f"{r}/t{flags}", b"x", OPEN_ACL, flags, ttl_ms))
            a.do(Multi([CreateTtl(f"{r}/m{flags}", b"x", OPEN_ACL, flags, ttl_ms)]))
        a.do(Create(f"{r}/c{flags}", b"", OPEN_ACL, flags))
        a.do(Multi([Create(f"{r}/d{flags}", b"", OPEN_ACL, flags)]))
    a.do(Create(r + "/t5/child"))
    a.do(Exists(r + "/t5"))
    a.do(Create(r + "/t5/e", b"", OPEN_ACL, 1))
    a.do(Delete(r + "/t5"))
    a.do(GetChildren(r))


def the_super_user(stage: Stage) -> None:
    a, b, r = stage.actor("a"), stage.actor("b"), stage.root
    a.do(Create(r))
    nobody = [Acl(31, "digest", "nobody:x")]
    a.do(Create(r + "/shut", b"data", nobody))
    b.do(GetData(r + "/shut"))
    b.do(AuthPacket(0, "digest", b"super:wrong"), Xid.AUTH)
    b.do(GetAcl(r + "/shut"))
    b.do(AuthPacket(0, "digest", b"super:secret"), Xid.AUTH)
    b.do(WhoAmI())
    for request in (
        GetData(r + "/shut"),
        SetData(r + "/shut", b"super's"),
        GetAcl(r + "/shut"),
        Create(r + "/shut/x"),
        Delete(r + "/shut/x"),
        SetAcl(r + "/shut", [Acl(31, "super", "")]),
        SetAcl(r + "/shut", [Acl(31, "auth", "")]),
        GetAcl(r + "/shut"),
        Exists("/zookeeper/config"),
        SetAcl("/zookeeper/config", OPEN_ACL, 7),
        Create("/zookeeper/config"),
        Delete("/zookeeper/config"),
    ):
        b.do(request)
    a.do(GetData(r + "/shut"))


def one_connection_too_many(stage: Stage) -> None:
    clients = []
    for _ in range(6):
        client = stage.client()
        client.connect()
        clients.append(client)
    for _ in range(2):
        try:
            stage.client().connect()
        except (Closed, ConnectionError):
            stage.write("closed")
        else:
            stage.write("let in")
    Actor(stage, "first", clients[0]).do(Create(stage.root))


@pytest.mark.parametrize(
    "script",
    [times_to_live, the_super_user, one_connection_too_many],
    ids=lambda script: script.__name__,
)
@pytest.mark.apache
def test_both_servers_answer_the_same(
    script: Callable[[Stage], None], pair: tuple[ApacheServer, EmbeddedServer]
) -> None:
    scripts = []
    for server in pair:
        stage = Stage(server.host, server.port, f"/{script.__name__}")
        try:
            script(stage)
        finally:
            stage.leave()
        scripts.append(stage.script())

    differences = list(unified_diff(*scripts, "Apache", "ours", n=1, lineterm=""))

    assert not differences, "\n".join(differences)


MORTAL: list[Request] = [
    CreateTtl("/short", b"", OPEN_ACL, 5, 50),
    CreateTtl("/long", b"", OPEN_ACL, 5, 1_000_000),
    CreateTtl("/parent", b"", OPEN_ACL, 5, 50),
    Create("/parent/x"),
    CreateTtl("/s-", b"", OPEN_ACL, 6, 50),
    Create("/flag4", b"", OPEN_ACL, 4),
    Create("/flag4/x"),
    Delete("/flag4/x"),
    Multi([Create("/inmulti4", b"", OPEN_ACL, 4), Create("/inmulti4/x")]),
    Delete("/inmulti4/x"),
    CreateContainer("/container", b"", OPEN_ACL, 0),
    Create("/container/x"),
    Delete("/container/x"),
]
LEFT = {"zookeeper", "long", "parent", "flag4"}


async def test_what_has_outlived_its_time_is_deleted_alike(tmp_path: Path) -> None:
    """A container made by a plain create with its flag is none, on Apache; inside a multi it is."""
    properties = {
        "znode.container.checkIntervalMs": "100",
        "zookeeper.extendedTypesEnabled": "true",
    }
    with (
        ApacheServer(tmp_path, properties=properties) as apache,
        RawClient.connected(apache.host, apache.port) as client,
    ):
        for step in MORTAL:
            assert client.call(step).err == 0
        wait_until(lambda: set(client.call(GetChildren("/")).value) == LEFT)
        stat: Stat = client.call(Exists("/long")).value
        assert stat.ephemeralOwner == 0
    async with running(MemoryStore(), reap_every=0.05, policy=POLICY) as server:
        ours = await connect(server)
        for step in MORTAL:
            assert (await ours.call(step)).err == 0
        assert server._service is not None
        tree = server._service.tree
        await eventually(lambda: set(tree.nodes["/"].children) == LEFT)
        assert tree.stat("/long").ephemeralOwner == 0
