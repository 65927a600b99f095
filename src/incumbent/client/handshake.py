"""How a connection and a session find each other: attach, authenticate, or close what is old.

Rule of this file: every attach of a session, by any process, asks for the timeout that was asked
for first. A grant counts from the moment it is read, whatever becomes of the connection. An
exchange of credentials belongs to one connection: when it breaks, the next one begins anew.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
from dataclasses import dataclass, field
from typing import Any

from incumbent.client.calls import Call
from incumbent.client.connection import Connection, ConnectionFailed, Link, Xids
from incumbent.client.hosts import Host
from incumbent.client.kerberos import Kerberos
from incumbent.clock import Clock
from incumbent.errors import AuthFailed
from incumbent.lease import Lease, Numbers
from incumbent.wire import (
    AuthPacket,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Request,
    Sasl,
    Xid,
)
from incumbent.wire.sasl import DigestMd5, Exchange, SaslFailed

__all__ = ["SASL_SCHEMES", "Access", "Handshake", "Identity"]

SASL_SCHEMES = ("sasl", "gssapi")
"""Credentials that are exchanges, and come first on a connection."""


@dataclass(slots=True)
class Identity:
    """One session as servers know it. id 0: not made yet.

    is_read_only  made by a server that is cut off from its ensemble; only that one knows it
    """

    lease: Lease
    id: int = 0
    password: bytes = field(default=bytes(16), repr=False)
    last_zxid: int = 0
    is_read_only: bool = False

    @property
    def numbers(self) -> Numbers:
        return Numbers.of(self.lease.timeout, tick=self.lease.tick)

    def adopt(self, response: ConnectResponse) -> None:
        """A server granted it. Raises `ConnectionFailed` if it granted another one."""
        if self.id and (response.read_only or self.id != response.session_id):
            raise ConnectionFailed(f"it granted another session, {response.session_id:#x}")
        self.id, self.password = response.session_id, response.password
        self.is_read_only = bool(response.read_only)
        self.lease.granted(response.timeout_ms / 1000)


@dataclass(slots=True, kw_only=True)
class Access:
    """How to come in.

    auth         (scheme, credential) pairs, presented on every connection; the scheme `sasl`
                 with `name:password` is SASL DIGEST-MD5, `gssapi` with a principal, or with
                 nothing, is Kerberos
    tls          None for clear text; who checks certificates, and shows which, is the context's
    is_insecure  a digest credential may go in clear text beyond this machine
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    tls: ssl.SSLContext | None = None
    is_insecure: bool = False


class Handshake:
    """Makes connections for one client. All of its methods raise `ConnectionFailed` or OSError."""

    def __init__(
        self, link: Link, clock: Clock, rng: random.Random, timeout_ms: int, access: Access
    ) -> None:
        self.timeout_ms = timeout_ms
        self.access = access
        self.xids = Xids()
        self.host: Host | None = None
        """Whom the newest session was attached to."""
        self._link = link
        self._clock = clock
        self._rng = rng

    async def reach(
        self,
        host: Host,
        identity: Identity,
        last_zxid: int,
        *,
        read_only: bool = False,
        last_word: Call | None = None,
    ) -> tuple[Connection, ConnectResponse]:
        """A connection to this address and the answer to its ConnectRequest."""
        connection = Connection(
            self._link,
            ConnectRequest(last_zxid, self.timeout_ms, identity.id, identity.password, read_only),
            clock=self._clock,
            silence=identity.numbers.silence,
            xids=self.xids,
            last_word=last_word,
        )
        tls = self.access.tls
        secure: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": host.called}
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, host.name, host.port, **secure)
            return connection, await connection.response
        except BaseException:
            connection.drop("given up")
            raise

    async def authenticate(self, connection: Connection, host: Host, session_id: int) -> None:
        """Present every credential. Raises `AuthFailed`, which leaves the session alone."""
        self.host = host
        for scheme, credential in self.access.auth:
            self.refuse_clear_text(scheme, host, session_id)
            if scheme in SASL_SCHEMES:
                exchange = self._exchange(scheme, credential, host)
                await self._sasl(connection, exchange, session_id)
                continue
            value = await self.ask(connection, AuthPacket(0, scheme, credential), Xid.AUTH)
            if isinstance(value, Exception):
                raise AuthFailed(session_id, f"a credential of scheme {scheme} was refused")

    def refuse_clear_text(self, scheme: str, host: Host, session_id: int) -> None:
        """A digest credential is the password itself. Raises `AuthFailed`."""
        if scheme != "digest" or self.access.tls is not None or self.access.is_insecure:
            return
        if not ipaddress.ip_address(host.name).is_loopback:
            why = (
                f"a digest credential would go to {host} in clear text; use TLS, SASL, or say "
                "insecure=True"
            )
            raise AuthFailed(session_id, why)

    async def close_old(self, host: Host, identity: Identity) -> None:
        """See to it that this session is over: attach to it and close it, if it still lives.

        Both leave in one write. An attach whose answer is lost would let it live on at the server
        each time anew, for as long as answers are lost.
        """
        closing, closed = _own(CloseSession())  # it will read nothing: any zxid will do
        connection, response = await self.reach(host, identity, 0, last_word=closing)
        try:
            if response.timeout_ms > 0:
                await closed
        finally:
            connection.drop("its session is closed")

    async def find_writable(self, host: Host, identity: Identity) -> Identity:
        """Have this blank session made by a server that serves writes; attach to it afterwards."""
        connection, response = await self.reach(host, identity, 0)
        connection.drop("found")
        if response.timeout_ms <= 0 or response.read_only:
            raise ConnectionFailed("it serves reads only")
        identity.adopt(response)
        return identity

    async def ask(self, connection: Connection, request: Request, xid: Xid | None = None) -> Any:
        """The answer's value, or the `Refused`, on a connection that is not up."""
        if not connection.is_open:
            raise ConnectionFailed("the server closed the connection")
        call, answer = _own(request)
        connection.send([call], xid)
        return await answer

    def _exchange(self, scheme: str, credential: bytes, host: Host) -> Exchange:
        if scheme == "gssapi":
            return Kerberos(host.called, credential.decode())
        name, _, password = credential.partition(b":")
        return DigestMd5(name.decode(), password, f"{self._rng.getrandbits(128):032x}")

    async def _sasl(self, connection: Connection, exchange: Exchange, session_id: int) -> None:
        challenge = b""
        try:
            while (token := await exchange.step(challenge)) is not None:
                answer = await self.ask(connection, Sasl(token))
                if isinstance(answer, Exception):
                    raise SaslFailed("the server refused a SASL credential")
                challenge = answer or b""
        except SaslFailed as error:
            raise AuthFailed(session_id, str(error)) from None


def _own(request: Request) -> tuple[Call, asyncio.Future[Any]]:
    """A request of the client's own, and its answer's value or the `Refused`."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def hand_over(call: Call, value: object) -> None:
        if not answer.done():
            answer.set_result(value)

    return Call(request, request.encode(0), answer, then=hand_over), answer
