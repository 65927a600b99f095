"""One thread beside the event loop, for what a disk may make slow.

Rule of this file: one thing at a time, in the order in which it was asked for.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

__all__ = ["Worker"]

_Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Worker:
    """A thread that is started when first needed."""

    __slots__ = ("_jobs", "_thread")

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """What `job` returns or raises, in that thread. It is carried out even if nobody waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="store", daemon=True)
            self._thread.start()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, done))
        return done

    def stop(self) -> None:
        """Return when all that was asked for is done."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            act, done = job
            try:
                result, error = act(), None
            except BaseException as raised:
                result, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                done.get_loop().call_soon_threadsafe(_settle, done, result, error)
            del job, act, done, result, error


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
