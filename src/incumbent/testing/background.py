"""An event loop in a thread of its own, that can be made to stand still.

Rule of this file: whoever waits for the thread waits with a deadline.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Background"]

T = TypeVar("T")

_DEADLINE = 30.0  # seconds; for what the thread does at once unless something is broken


class Background:
    """The loop and its thread, from construction to `end`. Used from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._going_on = threading.Event()
        self._going_on.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def post(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin it there, and don't wait."""
        if not self._going_on.is_set():
            work.close()
            raise AssertionError("the server is stalled: resume it first")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result."""
        return self.post(work).result(_DEADLINE)

    def stall(self) -> None:
        """Return once the loop stands still; it does until `resume`."""
        self._going_on.clear()
        standing = threading.Event()

        def stand() -> None:
            standing.set()
            self._going_on.wait()

        self._loop.call_soon_threadsafe(stand)
        if not standing.wait(_DEADLINE):
            raise TimeoutError("the server's thread is busy with something else")

    def resume(self) -> None:
        self._going_on.set()

    def end(self) -> None:
        """The thread has ended and the loop is closed; what ran there should have ended before."""
        self.resume()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE)
        self._loop.close()
