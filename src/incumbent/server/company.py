"""Who shares the next commit: whoever wrote in the last two mostly writes again at once.

Clients that wait for each answer would fall into two groups, one of them being served while the
other's writes are synced, and each would pay for a commit of its own. (Measured, eight clients
with one request under way each: a quarter more sets in a second, a third more of nine reads and
a write, and each answered sooner.)

Rule of this file: nobody waits for long, and nobody for somebody who has stopped. It is right
after a commit only, for less than that commit took, and for a few looks at the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable

from incumbent.clock import Clock
from incumbent.server.sessions import Peer

__all__ = ["Company"]

_LOOKS = 8
"""Turns of the event loop, each some microseconds, by which a turn is put off at most."""


class Company:
    """The writers of the last two commits."""

    __slots__ = ("_before", "_clock", "_last", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: tuple[Peer, ...] = ()
        self._last: tuple[Peer, ...] = ()
        self._until = 0.0

    def committed(self, writers: Iterable[Peer], lasted: float) -> None:
        """What they wrote is durable now, which took so many seconds."""
        self._before, self._last = self._last, tuple(writers)
        self._until = self._clock.boottime() + lasted

    async def gather(self, ready: Container[Peer]) -> None:
        """Return once nobody is expected beside those who are there."""
        for _ in range(_LOOKS):
            if self._clock.boottime() >= self._until or self._is_complete(ready):
                return
            await asyncio.sleep(0)

    def _is_complete(self, ready: Container[Peer]) -> bool:
        return all(each in ready for each in self._last + self._before)
