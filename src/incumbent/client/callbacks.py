"""Strangers' functions, called one after the other, away from the connection.

Rule of this file: what a callback does, waits for, or raises harms neither the connection nor
the callbacks after it, except that they wait for their turn.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from incumbent.client.watches import Watcher
from incumbent.wire import WatchEvent

__all__ = ["Callback", "Callbacks", "Turn"]

Callback: TypeAlias = Callable[[WatchEvent], Awaitable[object] | object]
"""A function or coroutine function for events. It may call anything, and wait."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A function that is called when its turn comes, as one thing with the function itself: asked
    for twice on one path it is one watcher, and whoever has the function can take it off.

    `put`: puts a function and its argument in a line.
    """

    put: Callable[[Callable[[Any], Any], Any], object]
    function: Callable[[Any], Any]

    def __call__(self, argument: Any) -> None:
        self.put(self.function, argument)

    def __hash__(self) -> int:
        try:
            return hash(self.function)
        except TypeError:  # equal to some, and of no use in a dict: as good as any other
            return hash(self.put)


class Callbacks:
    """A line of calls; a task works it off and ends when it is empty."""

    __slots__ = ("_calls", "_log", "_task")

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._calls: deque[tuple[Callable[..., Any], Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Call `function(argument)` when all that was put before has returned."""
        self._calls.append((function, argument))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def watcher(self, callback: Callback) -> Watcher:
        """A watcher that puts each event in the line."""
        return Turn(self.put, callback)

    async def _work(self) -> None:
        try:
            while self._calls:
                function, argument = self._calls.popleft()
                try:
                    result = function(argument)
                    if inspect.isawaitable(result):
                        await result
                except Exception as error:
                    self._log(f"a callback failed at {argument}: {error!r}")
        finally:
            self._task = None
