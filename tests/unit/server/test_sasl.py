"""DIGEST-MD5: a client that knows the password, and many that do not."""

from __future__ import annotations

import hashlib

import pytest

from incumbent.server.sasl import REALM, SaslExchange, SaslRefused, secret_of

SECRETS = {"alice": secret_of("alice", "wonder"), "jörg": secret_of("jörg", 'a"b\\c')}
NONCE = "0123456789abcdef"


def client(
    name: str = "alice", password: str = "wonder", nonce: str = NONCE, method: str = "AUTHENTICATE"
) -> dict[str, str]:
    """What a client answers to the challenge, worked out as in RFC 2831 by hand."""
    uri = f"zookeeper/{REALM}"
    fields = {"username": name, "realm": REALM, "nonce": nonce, "cnonce": "xyz", "qop": "auth"}
    a1 = hashlib.md5(f"{name}:{REALM}:{password}".encode()).digest() + f":{nonce}:xyz".encode()
    a2 = hashlib.md5(f"{method if method != ':' else ''}:{uri}".encode()).hexdigest()
    parts = (hashlib.md5(a1).hexdigest(), nonce, "00000001", "xyz", "auth", a2)
    response = hashlib.md5(":".join(parts).encode()).hexdigest()
    return {**fields, "nc": "00000001", "digest-uri": uri, "response": response}


def packed(fields: dict[str, str]) -> bytes:
    plain = ("nc", "response", "qop")

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ",".join(f"{k}={v if k in plain else quoted(v)}" for k, v in fields.items()).encode()


def challenged() -> SaslExchange:
    exchange = SaslExchange(SECRETS, NONCE)
    challenge = exchange.step(b"")
    assert f'realm="{REALM}",nonce="{NONCE}",qop="auth"'.encode() in challenge
    return exchange


def test_who_knows_the_password_is_that_user_and_is_shown_that_we_know_it_too() -> None:
    exchange = challenged()

    answer = exchange.step(packed(client()))

    assert exchange.name == "alice"
    assert answer == b"rspauth=" + client(method=":")["response"].encode()


def test_any_name_and_any_password() -> None:
    exchange = challenged()
    exchange.step(packed(client("jörg", 'a"b\\c')))

    assert exchange.name == "jörg"


@pytest.mark.parametrize(
    "change",
    [
        {"response": "0" * 32},
        {"username": "bob"},
        {"nonce": "another"},
        {"realm": "another"},
        {"digest-uri": f"imap/{REALM}"},
        {"nc": "00000002"},
        {"qop": "auth-conf"},
        {"cnonce": ""},
        {"authzid": "bob"},
    ],
)
def test_anything_else_proves_nothing(change: dict[str, str]) -> None:
    exchange = challenged()

    with pytest.raises(SaslRefused):
        exchange.step(packed(client() | change))
    assert exchange.name is None


@pytest.mark.parametrize("token", [b"\0\xff", b"=", b"a=b,,=", b'username="alice', b"nc=1,nc=1"])
def test_garbage_is_refused(token: bytes) -> None:
    with pytest.raises(SaslRefused):
        challenged().step(token)


def test_a_challenge_is_good_for_one_answer() -> None:
    exchange = challenged()
    with pytest.raises(SaslRefused):
        exchange.step(packed(client(password="wrong")))

    with pytest.raises(SaslRefused):
        exchange.step(packed(client()))


def test_another_mechanism_is_refused() -> None:
    with pytest.raises(SaslRefused, match="DIGEST-MD5"):
        SaslExchange(SECRETS, NONCE).step(b"\0alice\0wonder")
