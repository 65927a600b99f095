"""SASL DIGEST-MD5, the server's side, as Apache ZooKeeper's clients and kazoo speak it.

Rule of this file: pure. The nonce is an argument; a wrong name and a wrong password look alike.

    client → (nothing)                            server → challenge: realm, nonce, qop, algorithm
    client → name, nonce, cnonce, response        server → rspauth, and the client is that name

Source: RFC 2831. The realm and the host part of the digest-uri are `zk-sasl-md5` whatever the
server is called, in Java and in kazoo alike. Only qop `auth` is offered: who wants privacy uses
TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

__all__ = ["REALM", "SaslExchange", "SaslRefused", "secret_of"]

REALM = "zk-sasl-md5"
_URI = f"zookeeper/{REALM}"

_FIELD = re.compile(rb'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)', re.S)
_QUOTED = re.compile(rb"\\(.)", re.S)


class SaslRefused(Exception):
    """The client proved nothing; the sentence is for the operator."""


def secret_of(name: str, password: str) -> bytes:
    """What is kept of a user instead of the password."""
    return _md5(f"{name}:{REALM}:{password}".encode())


class SaslExchange:
    """One connection's exchange.

    secrets  by user name, from `secret_of`
    nonce    never used before, at least 64 bits that nobody can guess

    `name` is the user's, once proven.
    """

    __slots__ = ("_is_challenged", "_nonce", "_secrets", "name")

    def __init__(self, secrets: Mapping[str, bytes], nonce: str) -> None:
        self.name: str | None = None
        self._secrets = secrets
        self._nonce = nonce.encode()
        self._is_challenged = False

    def step(self, token: bytes) -> bytes:
        """The answer to a client's token. Raises `SaslRefused`; then the exchange is over."""
        if self.name is not None:
            raise SaslRefused("a client went on with SASL after it had proven its name")
        if not self._is_challenged:
            if token:
                raise SaslRefused("a client began SASL with a token; only DIGEST-MD5 is spoken")
            self._is_challenged = True
            return b'realm="%b",nonce="%b",qop="auth",charset=utf-8,algorithm=md5-sess' % (
                REALM.encode(),
                self._nonce,
            )
        self._is_challenged = False  # a nonce is good for one answer
        return self._verify(_fields(token))

    def _verify(self, given: dict[str, bytes]) -> bytes:
        name = given.get("username", b"").decode(errors="replace")
        expected = {
            "realm": REALM.encode(),
            "nonce": self._nonce,
            "nc": b"00000001",
            "qop": b"auth",
            "digest-uri": _URI.encode(),
        }
        for key, value in expected.items():
            if given.get(key, value if key == "qop" else b"") != value:
                raise SaslRefused(f"SASL of {name!r}: its {key} is not {value.decode()!r}")
        cnonce, response = given.get("cnonce", b""), given.get("response", b"")
        if given.get("authzid", given.get("username")) != given.get("username"):
            raise SaslRefused(f"SASL of {name!r}: it wants to act for somebody else")
        secret = self._secrets.get(name)
        proof = self._response(secret or b"nobody", cnonce, given, b"AUTHENTICATE:")
        if not hmac.compare_digest(proof, response) or secret is None or not cnonce:
            raise SaslRefused(f"SASL of {name!r}: no such user, or another password")
        self.name = name
        return b"rspauth=" + self._response(secret, cnonce, given, b":")

    def _response(
        self, secret: bytes, cnonce: bytes, given: dict[str, bytes], method: bytes
    ) -> bytes:
        a1 = b":".join((secret, self._nonce, cnonce))
        if "authzid" in given:
            a1 += b":" + given["authzid"]
        a2 = method + given["digest-uri"]
        parts = (_hex(a1), self._nonce, given["nc"], cnonce, b"auth", _hex(a2))
        return _hex(b":".join(parts))


def _fields(token: bytes) -> dict[str, bytes]:
    """`key=value` and `key="value"`, separated by commas."""
    fields: dict[str, bytes] = {}
    at = 0
    while at < len(token):
        found = _FIELD.match(token, at)
        if found is None or found.end() == at:
            raise SaslRefused("a client answered the SASL challenge with something unreadable")
        key = found[1].decode().lower()
        if key in fields:
            raise SaslRefused(f"a client's SASL answer has two {key}")
        fields[key] = found[3] if found[2] is None else _QUOTED.sub(rb"\1", found[2])
        at = found.end()
    return fields


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
