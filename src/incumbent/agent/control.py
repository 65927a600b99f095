"""The agent's control socket: what only this machine can tell, for `status` on it.

Rule of this file: it answers questions and takes no orders; orders are znodes. The socket is
made with mode 0600. One JSON line in, one JSON line out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incumbent.lease import Numbers
from incumbent.unix_socket import socket_name

if TYPE_CHECKING:
    from incumbent.agent.agent import Agent

__all__ = ["ControlSocket", "answer"]


def answer(agent: Agent, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to {"ask": "status"}: this node's seats, and the time to its fence."""
    if question.get("ask") != "status":
        return {"error": f"unknown question {question.get('ask')!r}; ask for status"}
    client, term = agent.client, agent.term
    now = agent.clock.boottime()
    seats = {}
    for name, seat in sorted((term.seats if term is not None else {}).items()):
        instance = agent.instances.get(name)
        seats[name] = {
            "state": seat.word.state,
            "reason": seat.word.reason,
            "epoch": instance.epoch if instance is not None else 0,
            "pid": instance.main if instance is not None else 0,
            "containment": instance.containment if instance is not None else "",
            "log": agent.host.log_path(name),
            "began": agent.custody.begun(name, instance.epoch) if instance is not None else 0.0,
        }
    lease = None
    if client is not None and client.session_id and client.lease.valid_until > 0:
        hard = Numbers.of(client.timeout, tick=agent.settings.tick).hard
        lease = max(0.0, client.lease.valid_until - hard - now)
    return {
        "node": agent.settings.node,
        "zookeeper": agent.settings.hosts,
        "in_the_way": term.admission.why if term is not None else "",
        "session": f"{client.session_id:#x}" if client is not None else "",
        "connection": client.state.name if client is not None else "CONNECTING",
        "time_to_fence": lease,
        "guardian": agent.custody.guardian_pid,
        "generation": agent.custody.generation,
        "seats": seats,
    }


class ControlSocket:
    """Listens at `path` until closed."""

    def __init__(self, agent: Agent, path: Path) -> None:
        self._agent = agent
        self._path = path
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def open(self) -> None:
        """Raises OSError where the socket cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        before = os.umask(0o177)
        try:
            loop = asyncio.get_running_loop()
            listening = socket.socket(socket.AF_UNIX)
            try:
                with socket_name(self._path) as name:
                    listening.bind(name)
            except OSError:
                listening.close()
                raise
            self._server = await loop.create_unix_server(
                lambda: _Asker(self._agent), sock=listening
            )
            self._inode = self._path.stat().st_ino
        finally:
            os.umask(before)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == self._inode:  # not a next agent's by now
                    self._path.unlink()


class _Asker(asyncio.Protocol):
    """One connection: a line in, a line out, closed."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._line = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._line += data
        if b"\n" not in self._line and len(self._line) < 4096:
            return
        try:
            question = json.loads(self._line)
            said = answer(self._agent, question if isinstance(question, dict) else {})
        except ValueError:
            said = {"error": "expected one JSON object on a line"}
        self._transport.write(json.dumps(said).encode() + b"\n")
        self._transport.close()
