"""Ending a session without its agent: a forked child, blocking sockets, a time limit.

When every tree is proven dead and no agent is there to do it, the breadcrumbs are deleted
and the session is closed, so that a successor need not wait for it to expire. Being a fork
it has the passport already; nothing is passed by argv, environment or file. If no server
can be reached in time, the session simply expires.

Rule of this file: it is only ever called after the proof; it cannot make anything unsafe.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from incumbent import wire
from incumbent.credentials import Credentials
from incumbent.errors import WireError
from incumbent.guardian import kernel
from incumbent.wire.jute import Reader
from incumbent.wire.sasl import DigestMd5, SaslFailed

__all__ = ["TIME_LIMIT", "close_session", "spawn_closer"]

TIME_LIMIT = 5.0
"""Seconds that a closer may take."""
_PAUSE = 0.1  # seconds between two rounds over the hosts
_SESSION_EXPIRED = -112
_SASL_STEPS = 2


def spawn_closer(
    passport: Mapping[str, Any],
    hosts: str,
    breadcrumbs: Sequence[str],
    credentials: Mapping[str, Any] | None = None,
) -> int:
    """Fork it; its pid. It exits with 0 when the session is closed or was gone already."""
    pid = os.fork()
    if pid == 0:
        _be_closer(passport, hosts, breadcrumbs, credentials)
    return pid


def _be_closer(
    passport: Mapping[str, Any],
    hosts: str,
    breadcrumbs: Sequence[str],
    credentials: Mapping[str, Any] | None,
) -> NoReturn:
    code = 1
    try:
        kernel.reset_signals()
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signo, signal.SIG_IGN)
        kernel.close_all_but({2})
        close_session(passport, hosts, breadcrumbs, credentials)
        code = 0
    except BaseException as error:
        os.write(2, f"guardian: the session was not closed: {error}\n".encode())
    finally:
        os._exit(code)


def close_session(
    passport: Mapping[str, Any],
    hosts: str,
    breadcrumbs: Sequence[str],
    credentials: Mapping[str, Any] | None = None,
    *,
    limit: float = TIME_LIMIT,
) -> None:
    """Re-attach, delete `breadcrumbs`, close. Tries every host, again and again.

    `passport` and `credentials` are the JSON forms. Raises the last host's OSError or WireError
    after `limit` seconds.
    """
    give_up_at = time.monotonic() + limit
    tls = Credentials.from_json(credentials).tls() if credentials else None
    failure: Exception = OSError(f"{hosts!r} names no server")
    while True:
        for address in _addresses(hosts):
            share = max((give_up_at - time.monotonic()) / 2, 0.05)  # one that hangs is not all
            try:
                with socket.create_connection(address, share) as plain:
                    name = address[0]
                    connection = tls.wrap_socket(plain, server_hostname=name) if tls else plain
                    _close_on(connection, passport, breadcrumbs, time.monotonic() + share)
                    return
            except (OSError, WireError) as error:
                failure = error
        if time.monotonic() + _PAUSE >= give_up_at:
            raise failure
        time.sleep(_PAUSE)


def _addresses(hosts: str) -> list[tuple[str, int]]:
    found = []
    for part in hosts.split(","):
        name, colon, port = part.strip().rpartition(":")
        if not colon or (name.count(":") > 1 and not name.endswith("]")):  # no port
            name, port = part.strip(), "2181"
        found.append((name.strip("[]"), int(port)))
    return found


def _close_on(
    connection: socket.socket,
    passport: Mapping[str, Any],
    breadcrumbs: Sequence[str],
    give_up_at: float,
) -> None:
    talk = _Talk(connection, give_up_at)
    hello = wire.ConnectRequest(
        0,  # it reads nothing, so that a server which lags behind will do
        passport["timeout_ms"],
        passport["session_id"],
        bytes.fromhex(passport["password"]),
    )
    talk.send(hello.encode())
    if wire.ConnectResponse.decode(talk.receive()).session_id == 0:
        return  # expired: it is gone already
    for scheme, hexed in passport["auth"]:
        if scheme == "sasl":
            _sasl(talk, bytes.fromhex(hexed))
        elif scheme != "gssapi":  # whose tickets are the agent's: the session is closed without
            packet = wire.AuthPacket(0, scheme, bytes.fromhex(hexed))
            talk.send(packet.encode(wire.Xid.AUTH))
    requests: list[wire.Request] = [wire.Delete(path) for path in breadcrumbs]
    last = _SASL_STEPS
    for request in [*requests, wire.CloseSession()]:
        last += 1
        talk.send(request.encode(last))
    while True:
        header = wire.ReplyHeader.read(Reader(talk.receive()))
        if header.xid == last or header.err == _SESSION_EXPIRED:
            return


def _sasl(talk: _Talk, credential: bytes) -> None:
    """DIGEST-MD5. Refused is no reason to stay: the session can be closed without it."""
    name, _, password = credential.partition(b":")
    exchange = DigestMd5(name.decode(), password, f"{random.SystemRandom().getrandbits(128):032x}")
    token = b""
    with suppress(SaslFailed):
        for xid in range(1, _SASL_STEPS + 1):
            talk.send(wire.Sasl(token).encode(xid))
            reader = Reader(talk.receive())
            if wire.ReplyHeader.read(reader).err:
                return
            challenge = wire.Sasl(b"").decode_answer(reader) or b""
            if xid < _SASL_STEPS:
                token = exchange.respond(challenge)


class _Talk:
    """Frames over a blocking socket, until a deadline."""

    def __init__(self, connection: socket.socket, give_up_at: float) -> None:
        self._connection = connection
        self._give_up_at = give_up_at
        self._decoder = wire.FrameDecoder(wire.MAX_FRAME)
        self._frames: list[bytes] = []

    def send(self, body: bytes) -> None:
        self._hurry()
        self._connection.sendall(wire.frame(body))

    def receive(self) -> bytes:
        while not self._frames:
            self._hurry()
            data = self._connection.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def _hurry(self) -> None:
        left = self._give_up_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit is over")
        self._connection.settimeout(left)
