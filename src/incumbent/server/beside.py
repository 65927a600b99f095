"""Who is served while a commit is under way, or a large decision, once it takes long.

Rule of this file: nothing is decided here. A connection's requests are taken in their order, and
the first that has to wait stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from incumbent.clock import Clock
from incumbent.server.connection import Connection
from incumbent.server.glance import Glance
from incumbent.server.service import Service
from incumbent.server.store import Batch
from incumbent.server.traffic import Traffic

__all__ = ["Beside"]

_PATIENCE = 0.02
"""Seconds that a commit may take before others are served beside it; a good disk needs a
hundredth of that, and then nobody reads two states within one flight of requests."""

_STALL = 0.25
"""Seconds from which on a commit is a stall of the server, for which no session ends."""


class Beside:
    """Serves those of `ready`, connections with something in their queue, that need not wait."""

    __slots__ = (
        "_batch",
        "_clock",
        "_glance",
        "_ready",
        "_service",
        "_since",
        "_timer",
        "_traffic",
    )

    def __init__(self, ready: Mapping[Connection, None], traffic: Traffic, clock: Clock) -> None:
        self._ready = ready
        self._traffic = traffic
        self._clock = clock
        self._service: Service | None = None  # whose batch is being committed
        self._batch: Batch = ()
        self._since = 0.0
        self._glance: Glance | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_committing(self) -> bool:
        return self._service is not None

    @property
    def is_stalled(self) -> bool:
        """The commit takes so long that clients who lost their connections wait to be let in."""
        return self.is_committing and self.lasted > _STALL

    @property
    def lasted(self) -> float:
        """Seconds since the last commit began."""
        return self._clock.boottime() - self._since

    @contextmanager
    def committing(self, service: Service, batch: Batch) -> Iterator[None]:
        """While the context lasts the batch is decided and not durable."""
        self._service, self._batch, self._since = service, batch, self._clock.boottime()
        if self._ready:
            self._wait()
        try:
            yield
        finally:
            self._service = self._glance = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    @contextmanager
    def deciding(self, service: Service, batch: Batch) -> Iterator[None]:
        """While the context lasts the batch is being decided, which takes long."""
        self._service, self._batch, self._since = service, batch, self._clock.boottime()
        self._begin()
        try:
            yield
        finally:
            self._service = self._glance = None

    def arrived(self, connection: Connection) -> None:
        """It has something in its queue now."""
        if self._glance is not None:
            self._serve(self._glance, connection)
        elif self._service is not None and self._timer is None:
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._begin)

    def _begin(self) -> None:
        if self._service is not None:
            self._glance = Glance(self._service, self._batch)
            for connection in list(self._ready):
                self._serve(self._glance, connection)

    def _serve(self, glance: Glance, connection: Connection) -> None:
        answers: list[bytes] = []
        while connection.is_servable:
            body = connection.queue[0]
            answer = None if body is None else glance.answer(connection, body)
            if answer is None:
                break
            connection.take()
            answers.append(answer)
        if answers:
            connection.account.sent += len(answers)
            self._traffic.sent += len(answers)
            connection.send(b"".join(answers))
