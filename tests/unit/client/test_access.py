"""Coming in: certificates, credentials that don't leak, servers that only serve reads, forks."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.apache import ApacheEnsemble, ApacheServer
from tests.e2e.served import Served, certificates
from tests.relay import relay_to
from tests.unit.client.scripted import Peer, client_of, reached, scripted
from tests.waiting import eventually

from incumbent import aio
from incumbent.client import Client, State
from incumbent.client.handshake import Access, Handshake
from incumbent.client.hosts import Host, split_chroot
from incumbent.client.tls import context
from incumbent.clock import SYSTEM
from incumbent.errors import (
    AnswerTooLarge,
    AuthFailed,
    ConnectTimeout,
    NoAuth,
    ReadOnlyServer,
    SessionClosed,
    SpecError,
)
from incumbent.wire import (
    Acl,
    ConnectRequest,
    ConnectResponse,
    Create2,
    GetData,
    Id,
    Request,
)
from incumbent.wire.jute import INT
from incumbent.wire.sasl import DigestMd5, SaslFailed

# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Served]:
    """A server that speaks TLS and wants a certificate."""
    arguments = ("--tls-cert", files / "server.pem", "--tls-ca", files / "ca.pem")
    with Served(tmp_path_factory.mktemp("secure"), *arguments) as served:
        yield served


def ours(files: Path) -> ssl.SSLContext:
    return context(ca=files / "ca.pem", certificate=files / "client.pem")


async def test_a_client_shows_its_certificate(secure: Served, files: Path) -> None:
    async with client_of(secure.hosts, tls=ours(files)) as client:
        assert "x509" in [each.scheme for each in await client.who_am_i()]


async def test_by_name_the_certificate_must_show_that_name(
    secure: Served, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def here(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", ("127.0.0.1", secure.port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", here)
    async with client_of(f"localhost:{secure.port}", tls=ours(files)) as client:
        assert client.state is State.CONNECTED
    with pytest.raises(ConnectTimeout, match=r"not valid for 'zk\.example'"):
        await Client(f"zk.example:{secure.port}", tls=ours(files)).connect(0.5)


async def test_a_server_nobody_vouches_for_and_a_client_without_certificate_dont_meet(
    secure: Served, files: Path
) -> None:
    with pytest.raises(ConnectTimeout, match="verify failed"):
        await Client(secure.hosts, tls=context()).connect(0.5)
    with pytest.raises(ConnectTimeout):
        await Client(secure.hosts, tls=context(ca=files / "ca.pem")).connect(0.5)
    with pytest.raises(ConnectTimeout):
        await Client(secure.hosts).connect(0.5)


async def test_large_answers_and_reconnects_by_tls(secure: Served, files: Path) -> None:
    async with (
        relay_to(secure.hosts) as relay,
        client_of(relay.hosts, tls=ours(files), session_timeout=8.0) as client,
    ):
        await client.ensure("/many")
        names = [f"{'x' * 50}-{i:05}" for i in range(10_000)]
        sent = [client.submit(Create2(f"/many/{name}"), timeout=60) for name in names]
        await asyncio.gather(*sent)
        assert await client.children("/many") == names
        relay.cut()
        assert await client.children("/many") == names
        assert client.generation == 1


# -- credentials ----------------------------------------------------------------------------------


def test_a_digest_does_not_leave_this_machine_in_clear_text() -> None:
    def refused(host: str, access: Access, scheme: str = "digest") -> bool:
        handshake = Handshake(None, SYSTEM, random.Random(1), 1000, access)  # type: ignore[arg-type]
        try:
            handshake.refuse_clear_text(scheme, Host(host, 1), 0)
        except AuthFailed as error:
            assert "insecure=True" in str(error)
            return True
        return False

    assert refused("192.0.2.1", Access())
    assert refused("2001:db8::1", Access())
    assert not refused("127.0.0.9", Access())
    assert not refused("::1", Access())
    assert not refused("192.0.2.1", Access(is_insecure=True))
    assert not refused("192.0.2.1", Access(tls=context()))
    assert not refused("192.0.2.1", Access(), "sasl")


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / "users"
    path.write_text('alice:wonder:land\nb"ob:b\\"b\n')
    path.chmod(0o600)
    with Served(tmp_path, "--sasl-users", path) as served:
        yield served


async def test_sasl_proves_a_users_name_on_every_connection(users: Served) -> None:
    alice, bob = b"alice:wonder:land", b'b"ob:b\\"b'
    async with (
        relay_to(users.hosts) as relay,
        client_of(relay.hosts, auth=[("sasl", alice)], session_timeout=4.0) as client,
        client_of(users.hosts, auth=[("sasl", bob)]) as other,
    ):
        assert Id("sasl", "alice") in await client.who_am_i()
        assert Id("sasl", 'b"ob') in await other.who_am_i()
        await client.create("/hers", b"1", acl=[Acl(31, "sasl", "alice")])
        with pytest.raises(NoAuth):
            await other.get("/hers")
        relay.cut()
        assert (await client.get("/hers"))[0] == b"1"


async def test_a_wrong_password_is_auth_failed_at_once(users: Served) -> None:
    client = Client(users.hosts, auth=[("sasl", b"alice:wrong")])
    with pytest.raises(AuthFailed):
        await client.connect(5)


class Breaking(asyncio.Protocol):
    """Passes a ConnectRequest on, and its answer back; ends at the next request."""

    def __init__(self, port: int) -> None:
        self.times = 0
        self._port = port
        self._requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        self._requests = 0

    def data_received(self, data: bytes) -> None:
        self._requests += 1
        if self._requests > 1:
            self.times += 1
            self._transport.close()
            return
        with socket.create_connection(("127.0.0.1", self._port), 5) as line:
            line.sendall(data)
            self._transport.write(line.recv(4096))


async def test_a_connection_that_breaks_within_sasl_is_followed_by_another_try(
    users: Served,
) -> None:
    breaking = Breaking(users.port)
    listening = await asyncio.get_running_loop().create_server(lambda: breaking, "127.0.0.1")
    hosts = f"127.0.0.1:{listening.sockets[0].getsockname()[1]},{users.hosts}"
    for seed in range(6):
        async with client_of(
            hosts, auth=[("sasl", b"alice:wonder:land")], rng=random.Random(seed)
        ) as client:
            assert Id("sasl", "alice") in await client.who_am_i()
    assert breaking.times
    listening.close()


def test_the_rfcs_example_and_a_server_that_knows_no_password() -> None:
    exchange = DigestMd5("alice", b"secret", "00ff")
    challenge = b'realm="r",nonce="n",qop="auth,auth-int",charset=utf-8,algorithm=md5-sess'
    assert b'username="alice",realm="r",nonce="n"' in exchange.respond(challenge)
    for answer in (b"", b"rspauth=" + b"0" * 32, b"rspauth"):
        with pytest.raises(SaslFailed, match="did not prove"):
            exchange.verify(answer)
    with pytest.raises(SaslFailed, match="no nonce"):
        exchange.respond(b"negotiate")


async def test_a_server_without_sasl_is_auth_failed() -> None:
    async with scripted() as server:
        with pytest.raises(AuthFailed, match="no users for SASL"):
            await Client(server.hosts, auth=[("sasl", b"a:b")]).connect(2)


async def test_a_refused_further_credential_is_typed_and_not_presented_again() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on_request = lambda peer, xid, request: (
            xid == -4 and peer.refuse(xid, -115) is None and peer.close() is None
        )
        with pytest.raises(AuthFailed):
            await client.add_auth("digest", b"a:b")
        await client.get("/a")
        assert client.passport.auth == ()
        assert client.generation == 1


# -- servers for reading only ---------------------------------------------------------------------


def read_only(hello: ConnectRequest) -> ConnectResponse | None:
    """As Apache's do: only for those who ask, and only new sessions."""
    if not hello.read_only or hello.session_id:
        raise ConnectionError
    return ConnectResponse(hello.timeout_ms, 7, bytes(16), read_only=True)


async def test_a_read_only_server_is_a_state_of_its_own_until_one_that_writes_is_found() -> None:
    async with scripted() as reads, scripted() as writes:
        reads.on_hello = read_only
        reads.on_request = lambda peer, xid, request: (
            isinstance(request, Create2) and peer.refuse(xid, -119) is None
        )
        writes.stop()
        states: list[State] = []
        hosts = f"{reads.hosts},{writes.hosts}"
        async with client_of(hosts, read_only=True) as client:
            client.watch_state(states.append)
            assert client.state is State.READ_ONLY
            await client.get("/a")
            with pytest.raises(ReadOnlyServer):
                await client.create("/a")
            assert client.lease.valid_until < 0  # it proves nothing

            await writes.start()
            await reached(client, State.CONNECTED)
            await client.create("/a")

            assert states == [State.LOST, State.CONNECTED]
            assert client.session_id == 1
            assert [hello.read_only for hello in writes.hellos] == [False, False]


async def test_a_session_refused_by_a_bare_header_is_in_the_report() -> None:
    async with scripted() as server:

        def refuse(hello: ConnectRequest) -> ConnectResponse | None:
            server.peer.refuse(0, -119)
            return None

        server.on_hello = refuse
        with pytest.raises(ConnectTimeout, match="code -119"):
            await Client(server.hosts).connect(0.3)


async def test_without_being_asked_for_a_read_only_server_is_none() -> None:
    async with scripted() as server:
        server.on_hello = read_only
        with pytest.raises(ConnectTimeout):
            await Client(server.hosts).connect(0.3)


async def test_a_read_only_session_ends_with_its_connection() -> None:
    async with scripted() as server:
        server.on_hello = read_only
        async with client_of(server, read_only=True) as client:
            states: list[State] = []
            client.watch_state(states.append)
            server.peers[0].reset()
            await eventually(lambda: states == [State.LOST, State.READ_ONLY])
            assert client.generation == 2


# -- forks ----------------------------------------------------------------------------------------


def in_a_child(check: object) -> int:
    """The exit code of a forked child that calls `check`."""
    assert callable(check)
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def test_in_a_forked_child_every_call_is_a_typed_error_and_the_parent_is_unharmed() -> None:
    async with scripted() as server, aio.connect(server.hosts, session_timeout=2, tick=0) as zk:
        await zk.create("/a", ephemeral=True)
        session_id = zk.session_id

        def child() -> None:
            async def use() -> None:
                for call in (zk.get("/a"), zk.create("/b"), zk.client.connect(1)):
                    try:
                        await call
                    except SessionClosed as error:
                        assert "forked" in str(error)
                    else:
                        raise AssertionError("it was sent")
                await zk.close()

            asyncio._set_running_loop(None)
            asyncio.run(use())

        assert in_a_child(child) == 0
        await zk.get("/a")
        assert zk.session_id == session_id
        assert len(server.peers) == 1


# -- what is too large ----------------------------------------------------------------------------


async def test_an_answer_too_large_to_keep_passes_by_and_the_connection_goes_on() -> None:
    def large(peer: Peer, xid: int, request: Request) -> bool:
        if isinstance(request, GetData) and request.path == "/large":
            size = bytearray()
            INT.write(size, 70_000_000)
            peer.transport.write(size)
            for _ in range(70):
                peer.transport.write(bytes(1_000_000))
            return True
        return False

    async with scripted() as server, client_of(server, session_timeout=10.0) as client:
        server.on_request = large
        ahead = client.submit(GetData("/a"))
        asked = client.submit(GetData("/large"), timeout=30.0)
        behind = client.submit(GetData("/b"), timeout=30.0)

        with pytest.raises(AnswerTooLarge, match="get_data /large: an answer of 70000000 bytes"):
            await asked
        await ahead
        await behind
        assert len(server.peers) == 1


def test_hosts_with_a_chroot() -> None:
    assert split_chroot("a:1,b:2/x/y") == ("a:1,b:2", "/x/y")
    assert split_chroot("a:1/") == ("a:1", "")
    with pytest.raises(SpecError, match="chroot"):
        split_chroot("a:1/x//y")


# -- Apache's servers -----------------------------------------------------------------------------

JAAS = """\
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_alice="wonder-land";
};
"""


@pytest.mark.apache
async def test_apache_takes_our_sasl_and_proves_itself(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text(JAAS)
    properties = {
        "java.security.auth.login.config": str(tmp_path / "jaas"),
        "zookeeper.authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with ApacheServer(tmp_path / "apache", properties=properties) as apache:
        async with client_of(
            apache.hosts, auth=[("sasl", b"alice:wonder-land")], session_timeout=8.0
        ) as client:
            assert Id("sasl", "alice") in await client.who_am_i()
        with pytest.raises(AuthFailed):
            await Client(apache.hosts, auth=[("sasl", b"alice:wrong")]).connect(10)


@pytest.mark.apache
async def test_a_server_cut_off_from_its_ensemble_is_read_only_until_it_is_not(
    tmp_path: Path,
) -> None:
    properties = {"readonlymode.enabled": "true"}
    local = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
    with ApacheEnsemble(tmp_path, tick_time=500, settings=local, properties=properties) as ensemble:
        for i in (1, 2):
            ensemble.kill(i)
        client = Client(ensemble.hosts, session_timeout=8.0, read_only=True)
        await client.connect(40)
        async with asyncio.timeout(40):  # it may be let in before the server knows of the loss
            await reached(client, State.READ_ONLY)
        assert "zookeeper" in await client.children("/")
        with pytest.raises(ReadOnlyServer):
            await client.create("/a")

        ensemble.restart(1, wait=False)
        async with asyncio.timeout(40):
            await reached(client, State.CONNECTED)
        await client.create("/a", ephemeral=True)
        stat = await client.exists("/a")
        assert stat is not None
        assert stat.ephemeralOwner == client.session_id
        await client.close()
