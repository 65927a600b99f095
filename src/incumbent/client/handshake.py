"""How a connection and a session find each other: attach, authenticate, or close what is old.

Rule of this file: every attach of a session, by any process, asks for the timeout that was asked
for first. A grant counts from the moment it is read, whatever becomes of the connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from incumbent.client.calls import Call
from incumbent.client.connection import Connection, ConnectionFailed, Link, Xids
from incumbent.client.hosts import Host
from incumbent.clock import Clock
from incumbent.errors import AuthFailed
from incumbent.lease import Lease, Numbers
from incumbent.wire import AuthPacket, CloseSession, ConnectRequest, ConnectResponse, Request, Xid

__all__ = ["Handshake", "Identity"]


@dataclass(slots=True)
class Identity:
    """One session as servers know it. id 0: not made yet."""

    lease: Lease
    id: int = 0
    password: bytes = field(default=bytes(16), repr=False)
    last_zxid: int = 0

    @property
    def numbers(self) -> Numbers:
        return Numbers.of(self.lease.timeout, tick=self.lease.tick)

    def adopt(self, response: ConnectResponse) -> None:
        """A server granted it. Raises `ConnectionFailed` if it granted another one."""
        if self.id not in (0, response.session_id):
            raise ConnectionFailed(f"it granted another session, {response.session_id:#x}")
        self.id, self.password = response.session_id, response.password
        self.lease.granted(response.timeout_ms / 1000)


class Handshake:
    """Makes connections for one client. All of its methods raise `ConnectionFailed` or OSError."""

    def __init__(
        self, link: Link, clock: Clock, timeout_ms: int, auth: tuple[tuple[str, bytes], ...]
    ) -> None:
        self.timeout_ms = timeout_ms
        self.auth = auth
        self.xids = Xids()
        self._link = link
        self._clock = clock

    async def reach(
        self, host: Host, identity: Identity, last_zxid: int
    ) -> tuple[Connection, ConnectResponse]:
        """A connection to this address and the answer to its ConnectRequest."""
        connection = Connection(
            self._link,
            ConnectRequest(last_zxid, self.timeout_ms, identity.id, identity.password),
            clock=self._clock,
            silence=identity.numbers.silence,
            xids=self.xids,
        )
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, host.name, host.port)
            return connection, await connection.response
        except BaseException:
            connection.drop("given up")
            raise

    async def authenticate(self, connection: Connection, session_id: int) -> None:
        """Present every credential. Raises `AuthFailed`, which leaves the session alone."""
        for scheme, credential in self.auth:
            value = await self._ask(connection, AuthPacket(0, scheme, credential), Xid.AUTH)
            if isinstance(value, Exception):
                raise AuthFailed(session_id, f"a credential of scheme {scheme} was refused")

    async def close_old(self, host: Host, identity: Identity) -> None:
        """See to it that this session is over: attach to it and close it, if it still lives."""
        connection, response = await self.reach(host, identity, 0)  # it will read nothing
        try:
            if response.timeout_ms > 0:
                await self._ask(connection, CloseSession())
        finally:
            connection.drop("its session is closed")

    async def _ask(self, connection: Connection, request: Request, xid: Xid | None = None) -> Any:
        """The answer's value, or the `Refused`, on a connection that is not up."""
        if not connection.is_open:
            raise ConnectionFailed("the server closed the connection")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.send([Call(request, request.encode(0), future, then=_hand_over)], xid)
        return await future


def _hand_over(call: Call, value: object) -> None:
    if not call.future.done():
        call.future.set_result(value)
