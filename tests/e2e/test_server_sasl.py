"""SASL DIGEST-MD5 with kazoo: the user's name is an id, a wrong password gets no session."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.security import make_acl
from tests.e2e.served import Served, refusal


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("# who may come\nalice:wonder:land\nbob:b\n")
    path.chmod(0o600)
    return path


def kazoo(served: Served, name: str, password: str) -> KazooClient:
    options = {"mechanism": "DIGEST-MD5", "username": name, "password": password}
    return KazooClient(served.hosts, sasl_options=options)


def test_a_users_znodes_are_theirs(tmp_path: Path, users: Path) -> None:
    with Served(tmp_path, "--sasl-users", users) as served:
        alice, bob = kazoo(served, "alice", "wonder:land"), kazoo(served, "bob", "b")
        alice.start(20)
        bob.start(20)

        alice.create("/hers", b"secret", acl=[make_acl("sasl", "alice", all=True)])
        assert alice.get("/hers")[0] == b"secret"
        with pytest.raises(NoAuthError):
            bob.get("/hers")
        alice.stop()
        bob.stop()


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "b")])
def test_who_proves_nothing_gets_no_further(
    tmp_path: Path, users: Path, name: str, password: str
) -> None:
    with Served(tmp_path, "--sasl-users", users, "--words", "*") as served:
        client = kazoo(served, name, password)
        with pytest.raises(AuthFailedError):
            client.start(20)
            client.get("/")
        client.stop()
        client.close()

        assert f"SASL of '{name}': no such user, or another password" in served.output()
        assert "zk_auth_failed_count\t0\n" not in served.word("mntr")


def test_a_file_of_passwords_is_the_owners_alone(tmp_path: Path, users: Path) -> None:
    data = ("--data", tmp_path / "data", "--sasl-users", users)
    users.chmod(0o640)
    assert f"chmod 600 {users}" in refusal(*data)
    users.chmod(0o600)
    users.write_text("alice\n")
    assert "line 1 is not NAME:PASSWORD" in refusal(*data)
    users.write_text("alice:a\nalice:b\n")
    assert "line 2 names 'alice' a second time" in refusal(*data)
    users.unlink()
    assert "cannot read" in refusal(*data)
