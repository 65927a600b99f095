"""A server inside the test's own loop, and a log of what it was asked.

Rule of this file: the log is the server's, so that round trips are counted where they arrive.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from incumbent import aio
from incumbent.server.server import Server
from incumbent.server.store import MemoryStore
from incumbent.wire import Request

__all__ = ["Asked", "connected", "embedded"]


class Asked:
    """The requests of each session, in the order in which they came."""

    def __init__(self, server: Server) -> None:
        self.requests: list[tuple[int, Request]] = []
        server.on_request = lambda session_id, request: self.requests.append((session_id, request))

    def names(self, session_id: int, *, without: tuple[str, ...] = ("Ping",)) -> list[str]:
        """The kinds of request that this session sent, beats and pings left out."""
        return [
            type(request).__name__
            for session, request in self.requests
            if session == session_id and type(request).__name__ not in without
        ]


@asynccontextmanager
async def embedded(*, tick: float = 0.1, reap_every: float = 60.0) -> AsyncIterator[Server]:
    server = Server(MemoryStore(), tick=tick, rng=random.Random(1), reap_every=reap_every)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def connected(server: Any, **more: Any) -> aio.Connecting:
    """A session of 2 s with the embedded server, or with whatever has `hosts`."""
    hosts = server.hosts if hasattr(server, "hosts") else f"{server.host}:{server.port}"
    settings: dict[str, Any] = {"session_timeout": 2.0, "tick": 0.0, "timeout": 5.0}
    return aio.connect(hosts, **(settings | more))
