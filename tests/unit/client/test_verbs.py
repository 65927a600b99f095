"""Every operation of the protocol, by its method, on our server and on Apache's."""

from __future__ import annotations

import asyncio

import pytest
from tests.relay import Relay
from tests.unit.client.scripted import client_of, scripted
from tests.unit.client.servers import relay, root

from incumbent.client import Client
from incumbent.errors import (
    BadArguments,
    BadVersion,
    IncumbentError,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
)
from incumbent.wire import (
    OPEN_ACL,
    Acl,
    Check,
    Create2,
    Delete,
    GetChildren,
    GetData,
    Id,
    Sync,
)

__all__ = ["relay", "root"]


async def test_znodes(relay: Relay, root: str) -> None:
    async with client_of(relay.hosts) as client:
        made = await client.create(root, b"1")
        assert made.path == root
        assert (await client.create(f"{root}/c", container=True)).path == f"{root}/c"
        numbered = await client.create(f"{root}/n-", ephemeral=True, sequential=True)
        assert numbered.path == f"{root}/n-0000000001"

        names, stat = await client.children_and_stat(root)
        assert names == ["c", "n-0000000001"]
        assert stat.numChildren == 2
        assert await client.descendants(root) == 2
        assert await client.ephemerals(root) == [numbered.path]
        assert await client.ephemerals(f"{root}/x") == []
        with pytest.raises(BadVersion):
            await client.set(root, b"2", 7)
        with pytest.raises(NodeExists):
            await client.create(root)


async def test_acls_and_who_one_is(relay: Relay, root: str) -> None:
    async with client_of(relay.hosts) as client, client_of(relay.hosts) as other:
        await client.create(root, b"secret")
        assert (await client.get_acl(root))[0] == list(OPEN_ACL)
        await client.add_auth("digest", b"me:mine")
        stat = await client.set_acl(root, [Acl(31, "auth", "")])

        assert stat.aversion == 1
        assert Id("digest", "me") in [
            Id(scheme, name.partition(":")[0]) for scheme, name in await client.who_am_i()
        ]
        with pytest.raises(NoAuth):
            await other.get(root)
        await other.add_auth("digest", b"me:mine")
        assert (await other.get(root))[0] == b"secret"
        with pytest.raises(BadVersion):
            await client.set_acl(root, OPEN_ACL, 0)
        await client.delete(root)


async def test_a_credential_that_was_added_is_presented_again_after_a_reconnect(
    relay: Relay, root: str
) -> None:
    async with client_of(relay.hosts, session_timeout=4.0) as client:
        await client.add_auth("digest", b"me:mine")
        await client.create(root, acl=[Acl(31, "auth", "")])
        relay.cut()

        await client.get(root)
        assert client.generation == 1
        assert client.passport.auth == (("digest", b"me:mine"),)
        await client.delete(root)


async def test_a_transaction_gives_its_results(relay: Relay, root: str) -> None:
    async with client_of(relay.hosts) as client:
        async with client.transaction() as t:
            t.create(root, b"1")
            t.set(root, b"2", 0)
            t.create(f"{root}/n-", sequential=True)
            t.check(root, 1)
            t.delete(f"{root}/n-0000000000")

        path, stat, numbered, checked, deleted = t.results
        assert (path, numbered) == (root, f"{root}/n-0000000000")
        assert stat.version == 1  # type: ignore[union-attr]
        assert (checked, deleted) == (None, None)

        with pytest.raises(NoNode) as refused:
            async with client.transaction() as t:
                t.delete(root)
                t.check(f"{root}/none")
        assert refused.value.index == 1
        assert refused.value.path == f"{root}/none"
        assert await client.exists(root)
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as t:
                t.delete(root)
                raise ZeroDivisionError
        assert await client.exists(root)
        assert await client.multi([]) == []


async def test_reads_together_are_refused_one_by_one(relay: Relay, root: str) -> None:
    async with client_of(relay.hosts) as client:
        await client.create(root, b"1")

        got, missing, names = await client.read_all(
            [GetData(root), GetData(f"{root}/none"), GetChildren(root)]
        )

        assert got.data == b"1"
        assert isinstance(missing, NoNode)
        assert missing.path == f"{root}/none"
        assert names == []


async def test_a_deep_znode_is_made_in_one_flight_whatever_was_there(
    relay: Relay, root: str
) -> None:
    async with client_of(relay.hosts) as client:
        made = await client.create(f"{root}/a/b/c", b"1", parents=True)
        assert made.path == f"{root}/a/b/c"
        assert (await client.get(f"{root}/a/b"))[0] == b""
        await client.create(f"{root}/a/x", parents=True)
        with pytest.raises(NodeExists):
            await client.create(f"{root}/a/b/c", parents=True)
        numbered = await client.create(f"{root}/q/n-", parents=True, sequential=True)
        assert numbered.path == f"{root}/q/n-0000000000"

        with pytest.raises(NotEmpty):
            await client.delete(root)
        await client.delete(root, recursive=True)
        assert await client.exists(root) is None
        with pytest.raises(NoNode):
            await client.delete(root, recursive=True)


async def test_making_a_deep_znode_is_one_write() -> None:
    async with scripted() as server, client_of(server) as client:
        await client.create("/a/b/c", parents=True)

        assert [r.path for r in server.requests(Create2)] == ["/a", "/a/b", "/a/b/c"]


async def test_deleting_a_tree_takes_a_flight_per_level_and_outlives_newcomers(
    relay: Relay, root: str
) -> None:
    async with client_of(relay.hosts) as client, client_of(relay.hosts) as other:
        await client.ensure(root)
        await asyncio.gather(
            *(client.create(f"{root}/{i}/{j}", parents=True) for i in range(5) for j in range(20))
        )
        going = asyncio.ensure_future(client.delete(root, recursive=True))
        for i in range(3):
            try:
                await other.create(f"{root}/late-{i}")
            except IncumbentError:
                break
        await going

        assert await client.exists(root) is None or (await client.descendants(root)) < 20


async def test_a_chroot_is_the_clients_root_in_requests_answers_and_errors(
    relay: Relay, root: str
) -> None:
    async with (
        client_of(relay.hosts) as plain,
        client_of(relay.hosts, chroot=f"{root}/own") as client,
    ):
        await client.ensure("/")
        assert await plain.exists(f"{root}/own")
        made = await client.create("/a", b"1", ephemeral=True)
        assert made.path == "/a"
        assert (await plain.get(f"{root}/own/a"))[0] == b"1"
        assert await client.children("/") == ["a"]
        assert await client.ephemerals() == ["/a"]
        assert (await client.create("/q/n-", parents=True, sequential=True)).path == (
            "/q/n-0000000000"
        )
        assert await client.multi([Create2("/m"), Check("/m"), Delete("/m")]) == ["/m", None, None]
        assert await client.submit(Sync("/a")) == "/a"
        assert (await client.read_all([GetData("/a")]))[0].data == b"1"
        for failing in (client.get("/none"), client.multi([Delete("/none")])):
            with pytest.raises(NoNode) as refused:
                await failing
            assert refused.value.path == "/none"
        with pytest.raises(BadArguments):
            await client.get("a")
        assert b"version" in await client.config() or relay
        with client.beat("/a"):
            await client.sync("/")
        await client.delete("/", recursive=True)
        assert await plain.exists(f"{root}/own") is None


async def test_time_to_live_is_for_servers_that_have_it(relay: Relay, root: str) -> None:
    """Only where extended types are on; others say so, typed."""
    async with client_of(relay.hosts) as client:
        try:
            made = await client.create(root, ttl=60.0)
        except Refused as error:
            assert error.code == -6
        else:
            assert made.stat.ephemeralOwner != 0


async def test_looking_for_a_watch_and_reconfiguring_are_answered(relay: Relay, root: str) -> None:
    async with client_of(relay.hosts) as client:
        await client.create(root)
        assert not await client.has_watch(root)
        await client.submit(GetData(root, watch=True))
        assert await client.has_watch(root)
        assert await client.remove_watches(root)
        assert not await client.remove_watches(root)
        with pytest.raises(Refused) as refused:
            await client.reconfig(members="server.1=127.0.0.1:1:2:participant;3")
        assert refused.value.code in (-123, -6)


def test_a_client_is_what_it_says() -> None:
    assert Client("a:1", chroot="/x").root.path == "/x"
