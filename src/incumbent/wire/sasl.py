"""SASL DIGEST-MD5, the client's side, as Apache ZooKeeper's servers and ours speak it.

Rule of this file: pure; the client's nonce is an argument. The server proves that it knows the
password too, or is not believed.

Source: RFC 2831. The digest-uri is `zookeeper/zk-sasl-md5` whatever the server is called, in Java
and in kazoo alike; the realm is the one that the server names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Protocol

__all__ = ["DigestMd5", "Exchange", "SaslFailed"]

_URI = b"zookeeper/zk-sasl-md5"

_FIELD = re.compile(rb'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)', re.S)


class SaslFailed(Exception):
    """The exchange cannot succeed; the sentence says why."""


class Exchange(Protocol):
    """One mechanism's side of an exchange of tokens, on one connection."""

    async def step(self, challenge: bytes) -> bytes | None:
        """The next token for the server, whose latest this is: b"" before the first and where it
        had nothing to say. None: it is over, each has proven itself. Raises `SaslFailed`."""


class DigestMd5:
    """One exchange: a challenge, our response, the server's proof."""

    __slots__ = ("_asked", "_cnonce", "_name", "_password", "_proof")

    def __init__(self, name: str, password: bytes, cnonce: str) -> None:
        """`cnonce`: never used before."""
        self._name = name.encode()
        self._password = password
        self._cnonce = cnonce.encode()
        self._proof = b""
        self._asked = False

    async def step(self, challenge: bytes) -> bytes | None:
        """See `Exchange`. Raises `SaslFailed`."""
        if not self._asked:
            self._asked = True
            return b""
        if not self._proof:
            if not challenge:
                why = "the server has no users for SASL, or does not speak DIGEST-MD5"
                raise SaslFailed(why)
            return self.respond(challenge)
        self.verify(challenge)
        return None

    def respond(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge. Raises `SaslFailed`."""
        fields = _fields(challenge)
        nonce, realm = fields.get("nonce", b""), fields.get("realm", b"")
        if not nonce:
            raise SaslFailed("the server's SASL challenge has no nonce: it is not DIGEST-MD5")
        if b"auth" not in fields.get("qop", b"auth").split(b","):
            raise SaslFailed("the server wants a layer of SASL's own; use TLS")
        secret = _md5(b":".join((self._name, realm, self._password)))
        session = _hex(b":".join((secret, nonce, self._cnonce)))

        def proof(method: bytes) -> bytes:
            request = _hex(method + b":" + _URI)
            return _hex(b":".join((session, nonce, b"00000001", self._cnonce, b"auth", request)))

        self._proof = proof(b"")
        return (
            b'charset=utf-8,username="%b",realm="%b",nonce="%b",nc=00000001,cnonce="%b",'
            b'digest-uri="%b",maxbuf=65536,response=%b,qop=auth'
        ) % (
            _quoted(self._name),
            _quoted(realm),
            _quoted(nonce),
            self._cnonce,
            _URI,
            proof(b"AUTHENTICATE"),
        )

    def verify(self, answer: bytes) -> None:
        """The server's last token. Raises `SaslFailed` unless it knows the password."""
        given = _fields(answer).get("rspauth", b"")
        if not self._proof or not hmac.compare_digest(given, self._proof):
            raise SaslFailed("the server did not prove that it knows the password")


def _fields(token: bytes) -> dict[str, bytes]:
    """`key=value` and `key="value"`, separated by commas; what is no such thing ends it."""
    fields: dict[str, bytes] = {}
    at = 0
    while (found := _FIELD.match(token, at)) is not None and found.end() > at:
        value = found[3] if found[2] is None else re.sub(rb"\\(.)", rb"\1", found[2], flags=re.S)
        fields.setdefault(found[1].decode().lower(), value)
        at = found.end()
    return fields


def _quoted(value: bytes) -> bytes:
    return re.sub(rb'(["\\])', rb"\\\1", value)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
