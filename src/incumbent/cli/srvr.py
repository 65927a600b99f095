"""What a ZooKeeper server says of itself: one TCP connection, the four letters `srvr`.

A standalone server needs no discount on its lease (see `lease.Lease`); an ensemble's follower
does. Rule of this file: no answer is no error; it is not known, then, and the careful numbers
hold.
"""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Times", "ask_mode", "mode_of", "times"]

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
) -> Times:
    """What was not set is seen from the servers; waits `patience` seconds until one is reached."""
    if session_timeout is not None and tick is not None:
        return Times(session_timeout, tick)
    mode = _wait_for_mode([_host(each) for each in hosts.split(",")], say, patience)
    is_alone = mode == "standalone"
    usual = EMBEDDED_SESSION if is_alone else ENSEMBLE_SESSION
    return Times(
        usual if session_timeout is None else session_timeout,
        (0.0 if is_alone else None) if tick is None else tick,
    )


def ask_mode(host: tuple[str, int], timeout: float = _PATIENCE) -> str:
    """`standalone`, `leader`, `follower`, …; "" where the server would not say.

    Raises OSError if it cannot be reached.
    """
    with socket.create_connection(host, timeout) as connection:
        connection.settimeout(timeout)
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
    hosts: list[tuple[str, int]], say: Callable[[str], None], patience: float
) -> str:
    until = time.monotonic() + patience
    said_at = -_SAY_EVERY
    pause = 0.02
    while True:
        answers = []
        for host in hosts:
            try:
                return ask_mode(host)
            except OSError as error:
                answers.append(f"{host[0]}:{host[1]}: {(error.strerror or str(error)).lower()}")
        if time.monotonic() >= until:
            return ""
        if time.monotonic() - said_at >= _SAY_EVERY:
            said_at = time.monotonic()
            say(f"waiting for ZooKeeper ({'; '.join(answers)}); nothing runs here meanwhile")
        time.sleep(pause)
        pause = min(1.0, pause * 2)


def _host(text: str) -> tuple[str, int]:
    """One of `settings.zookeeper`, which has checked it: NAME, NAME:PORT, [ADDRESS]:PORT."""
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, "2181"
    return name.removeprefix("[").removesuffix("]"), int(port)
