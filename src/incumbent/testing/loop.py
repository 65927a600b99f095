"""An event loop whose time is virtual and whose order of things comes from a seed.

One loop carries many *domains*, each standing for one process with a loop of its own. Within a
domain callbacks run in the order they were scheduled, as asyncio's own code relies on; which
domain goes next is drawn from the seed, one callback at a time. When no domain has anything
ready, time jumps to the next timer.

Rule of this file: nothing that happens depends on real time, on a thread, on a hash or on an
address in memory. The private parts of asyncio that this needs are named here and nowhere else.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, NoReturn
from weakref import WeakValueDictionary

__all__ = ["Domain", "NothingLeft", "SimFuture", "SimLoop", "SimTask", "Timebase", "TooLong"]

_GRID = 1e6
"""Timers fire on whole microseconds, rounded up: time always moves when somebody waits."""

_SPIN = 200_000
"""So many callbacks without time moving are taken for a loop that never waits."""


class NothingLeft(RuntimeError):
    """Nothing is ready and no timer is set, yet what was awaited has not happened."""


class TooLong(RuntimeError):
    """The run passed its limit of virtual time, or spun without time moving."""


class Timebase:
    """How a host's own seconds relate to the world's.

    `rate` is its seconds per world second, `offset` its reading at world time 0, `lost` the
    world seconds for which this clock stood still (CLOCK_MONOTONIC does in suspend).
    """

    __slots__ = ("lost", "offset", "rate")

    def __init__(self, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.rate = rate
        self.offset = offset
        self.lost = 0.0

    def local(self, world: float) -> float:
        return (world - self.lost) * self.rate + self.offset

    def world(self, local: float) -> float:
        return (local - self.offset) / self.rate + self.lost


class Domain:
    """What runs as one process: its queue of ready callbacks, and whether it may run at all."""

    __slots__ = ("dead", "frozen", "home", "listed", "name", "ready", "timebase")

    def __init__(
        self, name: str, timebase: Timebase | None = None, home: object | None = None
    ) -> None:
        self.name = name
        self.timebase = timebase or Timebase()
        self.home = home  # the network stack of its host; None for what stands outside
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen = False
        self.dead = False
        self.listed = False  # stands in the loop's list of runnable domains

    def __repr__(self) -> str:
        state = "dead" if self.dead else "frozen" if self.frozen else "live"
        return f"<Domain {self.name} {state}>"

    @staticmethod
    def current() -> Domain | None:
        """The domain of the code that asks; None outside of any."""
        return _DOMAIN.get()


_DOMAIN: ContextVar[Domain | None] = ContextVar("domain", default=None)


class _Unwind(BaseException):
    """Thrown into the coroutines of the dead, since `close()` does not reach through `anext`."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash is a number counted by its loop, so that sets of tasks have an order.

    The number is taken in `__new__`, because `Task.__init__` already puts the task into a set.
    """

    number: int
    domain: Domain
    context: Context

    def __new__(cls, coro: Any, *, loop: SimLoop, context: Context, **_: Any) -> SimTask:
        self = super().__new__(cls)
        self.number = next(loop.numbers)
        self.domain = context.get(_DOMAIN, None) or loop.outside
        self.context = context
        loop.made[self.number] = self
        return self

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is a number counted by its loop."""

    number: int
    domain: Domain

    def __new__(cls, *, loop: SimLoop) -> SimFuture:
        self = super().__new__(cls)
        self.number = next(loop.numbers)
        self.domain = _DOMAIN.get() or loop.outside
        return self

    def __hash__(self) -> int:
        return self.number


def _task_factory(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    context: Context | None = None,
    **more: Any,
) -> SimTask:
    assert isinstance(loop, SimLoop)
    task = SimTask(coro, loop=loop, context=context or copy_context(), **more)
    if task.domain.dead:
        loop.stillborn.append(task)
    return task


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time, many domains, an order drawn from `rng`.

    `time()` is the monotonic clock of whoever asks (its domain's timebase), `now` the world's.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.set_debug(False)
        self.set_task_factory(_task_factory)
        self.now = 0.0
        self.limit = math.inf
        self.numbers: Iterator[int] = count(1)
        self.outside = Domain("world")
        self.handled = 0  # callbacks run so far
        self.made: WeakValueDictionary[int, SimTask] = WeakValueDictionary()  # by their numbers
        self.stillborn: list[SimTask] = []  # made by the dead: they never run
        self._rng = rng
        self._runnable: list[Domain] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Domain]] = []
        self._sequence = count()
        self._cancelled_timers = 0
        self._stopping: bool

    # -- time and scheduling -------------------------------------------------------------------

    def time(self) -> float:
        domain = _DOMAIN.get()
        return self.now if domain is None else domain.timebase.local(self.now)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(context.get(_DOMAIN, None) or self.outside, handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if delay > 0:  # however little: a clock that rounds must still get there
            delay = max(delay, 1 / _GRID)
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        domain = context.get(_DOMAIN, None) or self.outside
        at = domain.timebase.world(when)
        # Never early: whole microseconds, rounded up. What is already due keeps the present.
        if at > self.now:
            at = max(math.ceil(at * _GRID) / _GRID, at)
        at = max(at, self.now)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if domain.dead:
            handle._cancelled = True
        else:
            handle._scheduled = True  # type: ignore[attr-defined]
            heapq.heappush(self._timers, (at, next(self._sequence), handle, domain))
        return handle

    def _enqueue(self, domain: Domain, handle: asyncio.Handle) -> None:
        if domain.dead:
            handle._cancelled = True
            return
        domain.ready.append(handle)
        if not domain.listed and not domain.frozen:
            domain.listed = True
            self._runnable.append(domain)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 512 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [t for t in self._timers if not t[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Run what is ready; then move to the next timer. Called in a loop by `run_forever`."""
        runnable, draw = self._runnable, self._rng.random
        spin = 0
        while runnable:
            index = int(draw() * len(runnable)) if len(runnable) > 1 else 0
            domain = runnable[index]
            if domain.ready and not domain.frozen:
                handle = domain.ready.popleft()
                if not handle._cancelled:
                    self.handled += 1
                    handle._run()
                    if self._stopping:
                        return
                    spin += 1
                    if spin > _SPIN:
                        raise TooLong(
                            f"{spin} callbacks at {self.now:.6f} s, and time stands still"
                        )
            else:  # the list keeps its order by the same moves in every run of a seed
                domain.listed = False
                runnable[index] = runnable[-1]
                runnable.pop()
        if not self._stopping:
            self._advance()

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            self._cancelled_timers -= 1
            heapq.heappop(timers)
        if not timers:
            raise NothingLeft(
                f"at {self.now:.6f} s nothing is left that could happen{self._waiting()}"
            )
        at = timers[0][0]
        if at > self.limit:
            raise TooLong(f"the limit of {self.limit:g} virtual seconds is passed{self._waiting()}")
        self.now = max(self.now, at)
        while timers and timers[0][0] <= at:
            _, _, handle, domain = heapq.heappop(timers)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle.cancelled():
                self._cancelled_timers -= 1
            else:
                self._enqueue(domain, handle)

    def _waiting(self) -> str:
        tasks = self.tasks()
        names = ", ".join(
            f"{t.domain.name} in {getattr(t.get_coro(), '__qualname__', t)}" for t in tasks[:8]
        )
        return f"; waiting: {names}" + (" …" if len(tasks) > 8 else "") if tasks else ""

    # -- domains -------------------------------------------------------------------------------

    def enter(self, domain: Domain) -> Context:
        """A context whose code belongs to `domain`."""
        context = copy_context()
        context.run(_DOMAIN.set, domain)
        return context

    def tasks(self, domain: Domain | None = None) -> list[SimTask]:
        """Tasks that are not done, in the order they were made."""
        return [
            task
            for _, task in sorted(self.made.items())
            if not task.done() and (domain is None or task.domain is domain)
        ]

    def freeze(self, domain: Domain) -> None:
        """No callback of the domain runs until `thaw`; its timers come due meanwhile."""
        domain.frozen = True

    def thaw(self, domain: Domain) -> None:
        domain.frozen = False
        if domain.ready and not domain.listed and not domain.dead:
            domain.listed = True
            self._runnable.append(domain)

    def kill(self, domain: Domain) -> list[SimTask]:
        """The domain never runs again. Returns its unfinished tasks, which the caller keeps:
        a coroutine that is collected would run its `finally` blocks.
        """
        tasks = self.tasks(domain)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        domain.dead = True
        domain.ready.clear()
        kept = [t for t in self._timers if t[3] is not domain]
        if len(kept) != len(self._timers):
            self._timers = kept
            heapq.heapify(self._timers)
        return tasks

    def lay_to_rest(self, tasks: list[SimTask]) -> None:
        """Unwind killed tasks, in order, when nothing runs any more.

        What their `finally` blocks call finds its loop, and has no effect: its domain is dead.
        """
        asyncio._set_running_loop(self)
        try:
            for task in tasks:
                task.context.run(_unwind, task.get_coro())
            while self.stillborn:
                task = self.stillborn.pop()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.context.run(_unwind, task.get_coro())
        finally:
            asyncio._set_running_loop(None)

    def park(self, timebase: Timebase) -> list[tuple[float, int, asyncio.TimerHandle, Domain]]:
        """Take out the timers on this timebase: its monotonic clock stands still (suspend)."""
        parked = [t for t in self._timers if t[3].timebase is timebase]
        self._timers = [t for t in self._timers if t[3].timebase is not timebase]
        heapq.heapify(self._timers)
        return parked

    def unpark(
        self, parked: list[tuple[float, int, asyncio.TimerHandle, Domain]], stood_still: float
    ) -> None:
        """Put parked timers back, `stood_still` world seconds later than they were."""
        for at, sequence, handle, domain in parked:
            if not domain.dead:
                heapq.heappush(self._timers, (at + stood_still, sequence, handle, domain))

    # -- what there is no more of --------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("there are no threads in the simulated world")

    def _process_events(self, event_list: object) -> None: ...

    def _write_to_self(self) -> None: ...


def _unwind(coroutine: Any) -> None:
    try:
        for _ in range(100):  # a `finally` that awaits gets it again
            coroutine.throw(_Unwind())
        coroutine.close()
    except BaseException as error:
        del error  # the dead have no say
