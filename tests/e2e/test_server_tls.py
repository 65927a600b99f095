"""TLS: kazoo with a certificate has the certificate's name as an id; without one it stays out."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id, make_acl
from tests.apache import free_port
from tests.e2e.served import Served, certificates, refusal

NAME = "CN=web,OU=ops,O=Example\\, Inc.,C=DE"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certificates"))


def kazoo(hosts: str, files: Path, *, has_certificate: bool = True) -> KazooClient:
    return KazooClient(
        hosts,
        use_ssl=True,
        ca=str(files / "ca.pem"),
        certfile=str(files / "client.crt") if has_certificate else None,
        keyfile=str(files / "client.key") if has_certificate else None,
    )


def server(tmp_path: Path, files: Path, *more: object) -> Served:
    return Served(tmp_path, "--tls-cert", files / "server.pem", "--words", "*", *more)


def test_a_certificates_name_is_an_id(tmp_path: Path, files: Path) -> None:
    with server(tmp_path, files, "--tls-ca", files / "ca.pem") as served:
        client = kazoo(served.hosts, files)
        client.start(20)
        mine: ACL = make_acl("x509", NAME, all=True)

        client.create("/mine", b"secret", acl=[mine])
        assert client.get("/mine")[0] == b"secret"
        client.create("/auth", acl=[ACL(31, Id("auth", ""))])
        assert client.get_acls("/auth")[0] == [mine]
        client.stop()


def test_without_a_certificate_there_is_no_session(tmp_path: Path, files: Path) -> None:
    with server(tmp_path, files, "--tls-ca", files / "ca.pem") as served:
        client = kazoo(served.hosts, files, has_certificate=False)
        with pytest.raises(KazooTimeoutError):
            client.start(2)
        client.stop()
        client.close()


def test_encrypted_only_if_nobody_is_asked_for_a_certificate(tmp_path: Path, files: Path) -> None:
    with server(tmp_path, files) as served:
        client = kazoo(served.hosts, files, has_certificate=False)
        client.start(20)

        assert client.create("/x") == "/x"
        client.stop()
        assert served.stop() == 0
    assert served.output() == ""


def test_clear_and_encrypted_side_by_side(tmp_path: Path, files: Path) -> None:
    port = free_port()
    arguments = ("--tls-ca", files / "ca.pem", "--tls-listen", f"127.0.0.1:{port}")
    with server(tmp_path, files, *arguments) as served:
        clear, secure = KazooClient(served.hosts), kazoo(f"127.0.0.1:{port}", files)
        clear.start(20)
        secure.start(20)

        secure.create("/x")
        assert clear.exists("/x")
        assert f"secureClientPort={port}\n" in served.word("conf")
        context = ssl.create_default_context(cafile=str(files / "ca.pem"))
        context.load_cert_chain(files / "client.pem")
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            encrypted.sendall(b"ruok")
            assert encrypted.recv(10) == b"imok"
        secure.stop()
        clear.stop()


def test_strangers_on_the_port_disturb_nobody(tmp_path: Path, files: Path) -> None:
    """Clear text, half a handshake, nothing at all; also without uvloop."""
    (tmp_path / "uvloop.py").write_text("raise ImportError\n")
    for env in ({}, {"PYTHONPATH": str(tmp_path)}):
        with Served(tmp_path, "--tls-cert", files / "server.pem", env=env) as served:
            strangers = [socket.create_connection((served.host, served.port), 10) for _ in range(3)]
            strangers[0].sendall(b"ruok")
            strangers[1].sendall(b"\x16\x03\x01\x02\x00\x01")
            client = kazoo(served.hosts, files, has_certificate=False)
            client.start(20)

            assert client.exists("/x") is None
            client.stop()
            for stranger in strangers:
                stranger.close()
            assert served.stop() == 0
    assert "Traceback" not in served.output()


def test_what_is_no_certificate_is_said(tmp_path: Path, files: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    data = ("--data", tmp_path / "data")

    assert "see --tls-cert and --tls-key" in refusal(*data, "--tls-cert", tmp_path / "empty.pem")
    assert "cannot read" in refusal(*data, "--tls-cert", tmp_path / "none.pem")
    assert "--tls-cert" in refusal(*data, "--tls-listen", "127.0.0.1:0")
    line = refusal(*data, "--tls-cert", files / "server.pem", "--tls-ca", tmp_path / "empty.pem")
    assert "holds no certificates" in line
    line = refusal(*data, "--tls-cert", files / "server.pem", "--tls-client-auth", "need")
    assert "--tls-ca" in line
