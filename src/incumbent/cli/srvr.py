"""What a ZooKeeper server says of itself: one TCP connection, the four letters `srvr`.

A standalone server needs no discount on its lease (see `lease.Lease`); an ensemble's follower
does. Rule of this file: no answer is no error; it is not known, then, and the careful numbers
hold.
"""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from incumbent.credentials import Credentials
from incumbent.errors import SpecError, SpecErrors

if TYPE_CHECKING:
    import ssl

__all__ = ["Times", "ask_mode", "host_of", "mode_of", "refuse_clear_text", "times"]

EMBEDDED_SESSION = 10.0
ENSEMBLE_SESSION = 30.0
_PATIENCE = 1.0
_SAY_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Times:
    """In seconds. `tick` 0: standalone, no follower; None: unknown."""

    session_timeout: float
    tick: float | None


def times(
    hosts: str,
    session_timeout: float | None,
    tick: float | None,
    say: Callable[[str], None],
    *,
    patience: float = math.inf,
    tls: ssl.SSLContext | None = None,
) -> Times:
    """What was not set is seen from the servers; waits `patience` seconds until one is reached."""
    if session_timeout is not None and tick is not None:
        return Times(session_timeout, tick)
    mode = _wait_for_mode([host_of(each) for each in hosts.split(",")], say, patience, tls)
    is_alone = mode == "standalone"
    usual = EMBEDDED_SESSION if is_alone else ENSEMBLE_SESSION
    return Times(
        usual if session_timeout is None else session_timeout,
        (0.0 if is_alone else None) if tick is None else tick,
    )


def refuse_clear_text(hosts: str, credentials: Credentials) -> None:
    """A digest is the password itself. Raises `SpecErrors` before it would go anywhere; names
    that nobody knows now are looked at again by the client.
    """
    has_digest = any(scheme == "digest" for scheme, _ in credentials.auth)
    if not has_digest or credentials.has_tls or credentials.insecure:
        return
    for host in hosts.split(","):
        try:
            found = socket.getaddrinfo(*host_of(host), type=socket.SOCK_STREAM)
        except OSError:
            continue
        for *_, address in found:
            if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
                text = (
                    f"{credentials.shown} would go to {host} in clear text, its password too: "
                    "say who the server must be with `tls_ca`, or accept it with `insecure`"
                )
                raise SpecErrors([SpecError("auth", 0, "", text)])


def ask_mode(
    host: tuple[str, int], timeout: float = _PATIENCE, tls: ssl.SSLContext | None = None
) -> str:
    """`standalone`, `leader`, `follower`, …; "" where the server would not say.

    Raises OSError if it cannot be reached.
    """
    with socket.create_connection(host, timeout) as plain:
        plain.settimeout(timeout)
        connection = tls.wrap_socket(plain, server_hostname=host[0]) if tls else plain
        said = b""
        try:
            connection.sendall(b"srvr")
            while len(said) < 65536 and (part := connection.recv(4096)):
                said += part
        except OSError:
            return mode_of(said)
    return mode_of(said)


def mode_of(said: bytes) -> str:
    """The mode in a server's answer to `srvr`."""
    match = re.search(rb"^Mode: (\S+)", said, re.MULTILINE)
    return match[1].decode() if match else ""


def _wait_for_mode(
    hosts: list[tuple[str, int]],
    say: Callable[[str], None],
    patience: float,
    tls: ssl.SSLContext | None,
) -> str:
    until = time.monotonic() + patience
    said_at = -_SAY_EVERY
    pause = 0.02
    while True:
        answers = []
        for host in hosts:
            try:
                return ask_mode(host, tls=tls)
            except OSError as error:
                answers.append(f"{host[0]}:{host[1]}: {(error.strerror or str(error)).lower()}")
        if time.monotonic() >= until:
            return ""
        if time.monotonic() - said_at >= _SAY_EVERY:
            said_at = time.monotonic()
            say(f"waiting for ZooKeeper ({'; '.join(answers)}); nothing runs here meanwhile")
        time.sleep(pause)
        pause = min(1.0, pause * 2)


def host_of(text: str) -> tuple[str, int]:
    """One of `settings.zookeeper`, which has checked it: NAME, NAME:PORT, [ADDRESS]:PORT."""
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, "2181"
    return name.removeprefix("[").removesuffix("]"), int(port)
