"""The guardian gives up: breadcrumbs and session are gone at once, not after a timeout."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.children import ends_with_us
from tests.e2e.served import Served, certificates
from tests.programs.guardian_under_test import guardian

from incumbent.client import Client
from incumbent.credentials import Credentials
from incumbent.guardian.closer import close_session
from incumbent.wire import Acl, AclPerm


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The embedded server's address."""
    argv = [sys.executable, "-m", "incumbent.server", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*argv, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, preexec_fn=ends_with_us()
    )
    assert process.stdout is not None
    yield process.stdout.readline().decode().split()[-1]
    process.terminate()
    process.wait(10)


async def a_session(server: str) -> dict[str, Any]:
    """A session with an ephemeral and a breadcrumb, its holder gone; its passport."""
    client = Client(server, session_timeout=30.0)
    await client.connect(10)
    await client.create("/e", ephemeral=True)
    await client.create("/crumb")
    return client.detach().to_json()


async def left(server: str) -> list[str]:
    client = Client(server)
    await client.connect(10)
    names = await client.children("/")
    await client.close()
    return [name for name in names if name != "zookeeper"]


async def test_it_deletes_breadcrumbs_and_closes_the_session(server: str) -> None:
    passport = await a_session(server)

    close_session(passport, server, ["/crumb", "/not-there"])

    assert await left(server) == []


async def test_a_host_that_is_dead_or_mute_is_passed_over(server: str) -> None:
    passport = await a_session(server)
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        port = mute.getsockname()[1]

        close_session(passport, f"127.0.0.1:1,127.0.0.1:{port},{server}", ["/crumb"])

    assert await left(server) == []


async def test_a_session_that_is_gone_already_is_no_error(server: str) -> None:
    passport = await a_session(server)
    close_session(passport, server, [])

    close_session(passport, server, [])

    assert await left(server) == ["crumb"]


def test_without_a_server_it_gives_up_in_time() -> None:
    passport = {"session_id": 1, "password": "", "timeout_ms": 1, "last_zxid": 0, "auth": []}
    before = time.monotonic()

    with pytest.raises(ConnectionRefusedError):
        close_session(passport, "127.0.0.1:1", [], limit=0.5)

    assert time.monotonic() - before < 5


async def test_a_released_program_leaves_neither_breadcrumb_nor_session(
    server: str, tmp_path: Path
) -> None:
    passport = await a_session(server)
    with guardian(tmp_path, policy="release") as g:
        agent = g.accept()
        agent.hello()
        agent.session(server, **passport)
        agent.lease(20)
        g.run(agent, g.nasty("ignores-stop", breadcrumb="/crumb"))

        os.kill(agent.pid, signal.SIGKILL)

        assert g.process.wait(20) == 1
        assert g.all_dead()
    assert await left(server) == []


async def test_it_shows_the_credentials_of_its_agent(server: str) -> None:
    client = Client(server, session_timeout=30.0, auth=(("digest", b"agents:secret"),))
    await client.connect(10)
    closed = [Acl(AclPerm.ALL, "auth", "")]
    await client.create("/guarded", acl=closed)
    await client.create("/guarded/crumb", acl=closed)

    close_session(client.detach().to_json(), server, ["/guarded/crumb"])

    owner = Client(server, auth=(("digest", b"agents:secret"),))
    await owner.connect(10)
    assert await owner.children("/guarded") == []
    await owner.close()


@pytest.mark.parametrize("client_auth", ["none", "need"])
def test_it_speaks_tls_and_sasl_where_its_agent_does(tmp_path: Path, client_auth: str) -> None:
    files = certificates(tmp_path)
    users = tmp_path / "users"
    users.write_text("agents:secret\n")
    users.chmod(0o600)
    more = ("--tls-ca", files / "ca.pem", "--tls-client-auth", client_auth, "--sasl-users", users)
    own = str(files / "client.pem") if client_auth == "need" else None
    credentials = Credentials(
        auth=(("sasl", b"agents:secret"),), tls_ca=str(files / "ca.pem"), tls_cert=own
    )

    async def story(hosts: str) -> None:
        client = Client(hosts, session_timeout=30.0, **credentials.for_client())
        await client.connect(10)
        closed = [Acl(AclPerm.ALL, "sasl", "agents")]
        await client.create("/guarded", acl=closed)
        await client.create("/guarded/crumb", acl=closed)
        passport = client.detach().to_json()

        close_session(passport, hosts, ["/guarded/crumb"], credentials.to_json())

        owner = Client(hosts, **credentials.for_client())
        await owner.connect(10)
        assert await owner.children("/guarded") == []
        await owner.close()

    with Served(tmp_path, "--tls-cert", files / "server.pem", *more) as served:
        asyncio.run(story(served.hosts))
