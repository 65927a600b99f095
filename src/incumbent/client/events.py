"""What a lasting watch tells, as a stream.

    async with client.watch("/app", recursive=True) as events:
        async for event in events:
            ...

Rule of this file: nothing is left out silently. Where events may be missing, after a reconnect or
because nobody took them, the stream says so with an event of type NONE: look at the znodes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from incumbent.client.watches import LOOK_AGAIN
from incumbent.errors import SessionError
from incumbent.wire import KeeperState, WatchEvent

__all__ = ["MAX_EVENTS", "Events"]

MAX_EVENTS = 10_000
"""Events that wait for someone to take them; one more, and they become a single NONE."""


class Events:
    """The events of one watch, in order. For one reader at a time."""

    __slots__ = ("_error", "_events", "_is_over", "_waiting")

    def __init__(self, error: Callable[[], SessionError]) -> None:
        """`error`: what a reader is told when the session is over."""
        self._error = error
        self._events: deque[WatchEvent] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._is_over = False

    def put(self, event: WatchEvent) -> None:
        """From the connection."""
        if event.state is KeeperState.EXPIRED:
            self._is_over = True
        else:
            if len(self._events) >= MAX_EVENTS:
                self._events.clear()
                event = LOOK_AGAIN
            self._events.append(event)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self, timeout: float | None = None) -> WatchEvent:
        """The next event. Raises TimeoutError after `timeout` seconds without one, and
        `SessionExpired` or `SessionClosed` when there will be none any more."""
        async with asyncio.timeout(timeout):
            while not self._events:
                if self._is_over:
                    raise self._error()
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
        return self._events.popleft()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> WatchEvent:
        return await self.next()
