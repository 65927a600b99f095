"""One log as it grows: a file of this machine, or what another node shows of its own.

Both have the same verbs: `batch` waits for lines, `finish` says that no more will come there.

Rule of this file: a node is shown proofs, never a password nor its hash; and nothing is read in clear text
from another machine, unless somebody has said `insecure`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from incumbent.agent.log_words import Ask, line, object_of, proof
from incumbent.agent.tail import Tail
from incumbent.agent.tree import NodeFacts
from incumbent.cli.local import LOOK_EVERY
from incumbent.credentials import Credentials, digest_id, tls_context
from incumbent.errors import IncumbentError
from incumbent.guardian.logwriter import stamped
from incumbent.log_service import is_loopback, split_address

__all__ = ["CannotRead", "FileLog", "Log", "NodeLog", "read_from"]

_CONNECT = 10.0
_SILENCE = 20.0
"""Seconds without a word, after which a node is taken for gone; it says something every 3 s."""
_LARGEST = 64 * 1024 * 1024
_LAST_LOOKS = 5


class CannotRead(IncumbentError):
    """A log cannot be read, now or at all. A whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class Log(Protocol):
    """`place`: behind what was given, for `Ask.after`."""

    @property
    def place(self) -> tuple[int, int]: ...

    async def batch(self) -> list[str] | None:
        """The next lines; [] from time to time while there are none; None: there will be none.
        Raises `CannotRead`."""

    async def finish(self) -> None:
        """Its program has ended: give what there is, then None."""

    def close(self) -> None: ...


class FileLog:
    """Of this machine. `since`: when the epoch that is asked for began, wall time."""

    def __init__(self, path: Path, ask: Ask, since: float = 0.0) -> None:
        self._tail = Tail(path)
        self._is_finishing = not ask.follow
        self._looks = 0 if ask.follow else _LAST_LOOKS
        if not ask.follow:
            self._tail.end_here()
        if ask.after != (0, 0):
            self._tail.begin_after(ask.after)
        elif since:
            self._tail.begin_at_time(stamped(since))
        else:
            self._tail.begin_at_last(ask.lines)

    @property
    def place(self) -> tuple[int, int]:
        return self._tail.place

    async def batch(self) -> list[str] | None:
        while not (lines := self._tail.batch()):
            if self._is_finishing and self._looks >= _LAST_LOOKS:
                return None
            self._looks += 1
            await asyncio.sleep(LOOK_EVERY)
        return lines

    async def finish(self) -> None:
        self._is_finishing, self._looks = True, 0

    def close(self) -> None:
        self._tail.close()


class NodeLog:
    """Of another node, over a connection: `read_from`."""

    def __init__(
        self, facts: NodeFacts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._place = (0, 0)
        self._node = facts.node
        self._url = facts.logs
        self._reader = reader
        self._writer = writer

    @property
    def place(self) -> tuple[int, int]:
        return self._place

    async def ask(self, ask: Ask, ids: Iterable[str]) -> None:
        """Prove that we know these digests' secrets, and ask. Raises `CannotRead`."""
        hello = await self._hear()
        if hello.get("node") != self._node:
            raise CannotRead(
                f"{self._node} is said to show its logs where {hello.get('node')} does"
            )
        nonce = str(hello.get("nonce"))
        proofs = [
            (f"digest:{each.rpartition(':')[0]}", proof(each, nonce, self._node, self._url))
            for each in ids
        ]
        await self._say(replace(ask, proofs=proofs).to_line())

    async def batch(self) -> list[str] | None:
        said = await self._hear()
        if "error" in said:
            raise CannotRead(f"{self._node}: {said['error']}")
        if "end" in said:
            return None
        lines = said.get("lines", [])
        try:
            if "place" in said:
                known, offset = said["place"]
                self._place = (int(known), int(offset))
        except (TypeError, ValueError, OverflowError):
            raise self._strange() from None
        if not isinstance(lines, list):
            raise self._strange()
        return [str(each) for each in lines]

    async def finish(self) -> None:
        await self._say(line({"end": True}))

    def close(self) -> None:
        self._writer.transport.abort()

    async def _hear(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_SILENCE):
                raw = await self._reader.readline()
            if not raw:
                raise CannotRead(f"{self._node} has ended the connection")
            if not raw.endswith(b"\n"):
                raise CannotRead(f"{self._node} has ended the connection amid a line")
            return object_of(raw)
        except TimeoutError:
            raise CannotRead(f"{self._node} has said nothing for {_SILENCE:g} s") from None
        except OSError as error:
            raise CannotRead(f"{self._node} cannot be read: {_why(error)}") from None
        except ValueError:
            raise self._strange() from None

    def _strange(self) -> CannotRead:
        return CannotRead(
            f"what answers for {self._node} at {self._url} shows no log as we know them: is it an "
            f"agent, and of this version? `listen` in [logs] of {self._node} says where it is"
        )

    async def _say(self, said: bytes) -> None:
        with suppress(OSError):  # the next look tells
            self._writer.write(said)
            await self._writer.drain()


async def read_from(facts: NodeFacts, ask: Ask, credentials: Credentials) -> NodeLog:
    """What this node shows of a log. Raises `CannotRead`, `SpecErrors`."""
    scheme, _, address = facts.logs.partition("://")
    place = split_address(address)
    if scheme not in ("tls", "tcp") or place is None:
        raise CannotRead(f"{facts.node} shows its logs at {facts.logs!r}, which is no address")
    host, port = place
    if scheme == "tcp" and not is_loopback(host) and not credentials.insecure:
        raise CannotRead(
            f"{facts.node} shows its logs at {address} in clear text: give it a certificate "
            "(`tls_cert` in its [logs]), or accept it with `insecure`"
        )
    tls = (credentials.tls() or tls_context()) if scheme == "tls" else None
    try:
        async with asyncio.timeout(_CONNECT):
            streams = await asyncio.open_connection(host, port, ssl=tls, limit=_LARGEST)
    except ssl.SSLCertVerificationError as error:
        raise CannotRead(
            f"{facts.node} at {address} is not known to be itself: {error.verify_message}; the "
            "setting `tls_ca` names who signed its certificate"
        ) from None
    except (OSError, ValueError) as error:
        raise CannotRead(f"{facts.node} cannot be reached at {address}: {_why(error)}") from None
    log = NodeLog(facts, *streams)
    ids = [digest_id(each) for kind, each in credentials.auth if kind == "digest"]
    try:
        await log.ask(ask, ids)
    except BaseException:
        log.close()
        raise
    return log


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT:g} s"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).replace("_", " ").lower()
    number = getattr(error, "errno", None)
    return (os.strerror(number) if number else str(error)).lower()
