"""The one thread that runs the event loop of every blocking client in the process.

Rule of this file: a call that is interrupted leaves nothing running: what was begun is cancelled
and awaited before the interruption goes on; what gives something back is done all the same.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from incumbent.errors import SessionClosed

__all__ = ["Inbox", "Portal", "portal"]

T = TypeVar("T")

Inbox: TypeAlias = "queue.SimpleQueue[Callable[[], None] | None]"
"""What a waiting thread is asked to call; None ends the wait."""

_GOODBYE = 1.0  # seconds that open sessions get to close in when the program ends


class Portal:
    """The loop's thread, and how other threads have something done there."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.at_exit: dict[Callable[[], Coroutine[Any, Any, None]], None] = {}
        self._carried_out: set[asyncio.Task[object]] = set()
        self._is_over = False
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="incumbent", daemon=True
        )
        self._thread.start()
        atexit.register(self._goodbye)

    @property
    def is_elsewhere(self) -> bool:
        """It belongs to the process that this one was forked from."""
        return os.getpid() != self.pid

    def check(self) -> None:
        """Raises where a blocking call could only hang."""
        if self.is_elsewhere:
            raise SessionClosed(0, "made before this process was forked; connect again here")
        if self._is_over:
            raise SessionClosed(0, "the program is ending, its sessions are closed")
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("a blocking call from the event loop's thread would wait for itself")

    def post(self, function: Callable[[], object]) -> None:
        """Have it called on the loop, and don't wait."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: the program is ending
            return

    def finish(self, begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """As `run`, for what gives something back and may be called twice: interrupted, it is
        done all the same."""
        try:
            self.run(begin)
        except BaseException:
            self.carry_out(begin)
            raise

    def carry_out(self, begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have `begin()` run to its end on the loop, and don't wait. A forked child has no loop:
        there nothing happens to what is its parent's."""
        if not self.is_elsewhere:
            self.post(partial(self._start, begin))

    def _start(self, begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
        task = self._loop.create_task(begin())
        self._carried_out.add(task)  # a loop alone does not keep a task alive
        task.add_done_callback(self._carried_out.discard)

    def run(
        self,
        begin: Callable[[], Coroutine[Any, Any, T]],
        *,
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
        inbox: Inbox | None = None,
    ) -> T:
        """The result of `begin()`, which runs on the loop.

        `undo` is given a result that came although the wait for it was interrupted. `inbox`:
        where `begin` puts what it wants called in this thread meanwhile.
        """
        self.check()
        calls = queue.SimpleQueue() if inbox is None else inbox
        running: list[asyncio.Task[T]] = []
        ended: list[_Outcome[T]] = []

        def start() -> None:
            running.append(self._loop.create_task(begin()))
            running[0].add_done_callback(end)

        def end(task: asyncio.Task[T]) -> None:
            """Here dies the task: asyncio hears of it by a weak reference, in whose callback an
            interruption of our thread would be swallowed."""
            running.clear()
            ended.append(_Outcome(task))
            calls.put(None)

        def stop() -> None:
            if running:
                running[0].cancel()
            else:  # not begun, or its None was taken just when the interruption came
                calls.put(None)

        try:
            self._wait(calls, start, stop)
        except BaseException:
            if undo is not None and ended and ended[0].error is None:
                self.finish(partial(undo, ended[0].get()))
            raise
        return ended[0].get()

    def ask(self, begin: Callable[[], Coroutine[Any, Any, T]], flush: Callable[[], object]) -> T:
        """As `run`, in half the time, for what needs no task: that waits for answers only.

        `flush` is called after each step: nothing more will be asked in this turn.
        """
        self.check()
        calls: Inbox = queue.SimpleQueue()
        errand = _Errand(begin, flush, calls)
        self._wait(calls, errand.step, errand.stop)
        return errand.result()

    def _wait(self, calls: Inbox, start: Callable[[], None], stop: Callable[[], None]) -> None:
        """Have it started on the loop, and call what comes until None does; so too after `stop`."""
        try:
            self.post(start)
            while (call := calls.get()) is not None:
                call()
        except BaseException:
            self.post(stop)
            while calls.get() is not None:
                pass
            raise

    def _goodbye(self) -> None:
        if self.is_elsewhere:
            return

        async def close_all() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    for close in list(self.at_exit):
                        await close()

        with contextlib.suppress(Exception):
            self.run(close_all)
        self._is_over = True
        self.post(self._loop.stop)
        self._thread.join(_GOODBYE)


class _Errand(Generic[T]):
    """A coroutine that is stepped by the loop without a task around it.

    A task costs two more turns of the loop, a fifth of what a request to a near server takes.
    Without one there is nothing that `asyncio.timeout` or a TaskGroup could cancel: such
    coroutines are for `run`.
    """

    def __init__(
        self,
        begin: Callable[[], Coroutine[Any, Any, T]],
        flush: Callable[[], object],
        told: Inbox,
    ) -> None:
        self._begin = begin
        self._flush = flush
        self._told = told
        self._coroutine: Coroutine[Any, Any, T] | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._is_over = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def step(self, _: object = None) -> None:
        """On the loop: on to the next answer, or to the end."""
        if self._is_over:
            return
        try:
            if self._coroutine is None:
                self._coroutine = self._begin()
            self._awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self._result = stop.value
            self._end()
        except BaseException as error:
            self._error = error
            self._end()
        else:
            if self._awaited is None:  # a turn of the loop is all that it waits for
                asyncio.get_running_loop().call_soon(self.step)
            else:
                self._awaited.add_done_callback(self.step)
            self._flush()

    def stop(self) -> None:
        """On the loop: cancel what it waits for; it ends by that."""
        if self._awaited is not None and not self._is_over:
            self._awaited.cancel()
        else:  # not begun, or its None was taken just when the interruption came
            self._end()

    def result(self) -> T:
        """What came of it."""
        if isinstance(self._error, asyncio.CancelledError):
            raise SessionClosed(0, "closed while waiting")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _end(self) -> None:
        self._is_over = True
        self._told.put(None)


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed: a request costs a third less of a core."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_event_loop()


class _Outcome(Generic[T]):
    """What came of a task, without the task."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.error: BaseException | None = None
        self._result: T | None = None
        if task.cancelled():
            self.error = SessionClosed(0, "closed while waiting")
        elif (error := task.exception()) is not None:
            self.error = error
        else:
            self._result = task.result()

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]


_lock = threading.Lock()
_made: list[Portal] = []


def _anew() -> None:
    """In a forked child: whoever held the lock is not here to give it back."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)


def portal() -> Portal:
    """The process's one portal; a forked child gets its own."""
    with _lock:
        if not _made or _made[-1].is_elsewhere:
            _made.append(Portal())
        return _made[-1]
