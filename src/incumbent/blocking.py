"""Locks and leaderships for blocking code: twins of those in `incumbent.recipes`.

Nothing interrupts a block whose hold was lost: `hold.lost` is set, `on_lost=` is called in a
thread of its own, `ensure()` raises, and leaving the block raises. The znode stays until the
block ends or the session is gone. `on_change` is called in the thread that waits.

Rule of this file: a KeyboardInterrupt, wherever it strikes, leaves nothing held once it is handled.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from incumbent.client import events as streams
from incumbent.client import transaction as transactions
from incumbent.client.callbacks import Turn
from incumbent.errors import HoldLost, IncumbentError, SessionError
from incumbent.portal import Inbox, Portal
from incumbent.recipes import hold as holds
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.wire import MultiResult, WatchEvent

__all__ = [
    "Asked",
    "Caller",
    "Entered",
    "Events",
    "Guarded",
    "Hold",
    "Lost",
    "Transaction",
    "Wait",
    "Within",
    "last_resort",
    "twin_of",
]

T = TypeVar("T")
KindT = TypeVar("KindT", bound=type)
HoldT = TypeVar("HoldT", bound="Hold | None")


class Lost:
    """Set when a hold is over; `error` then says why. For any thread."""

    def __init__(self, hold: holds.Guarding) -> None:
        self._hold = hold
        self._event = threading.Event()

    @property
    def error(self) -> IncumbentError | None:
        return self._hold.lost.error

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """True once it has happened; False after `timeout` seconds without."""
        return self._event.wait(timeout)


class Asked:
    """Set when somebody asks us to give way. For any thread."""

    def __init__(self, portal: Portal, hold: holds.Hold) -> None:
        self._portal = portal
        self._hold = hold

    def is_set(self) -> bool:
        return self._hold.asked.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """True once it has happened; False after `timeout` seconds without."""

        async def wait() -> bool:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._hold.asked.wait()
            return self._hold.asked.is_set()

        return self._portal.run(wait)


_NO_CANCEL = """

        In blocking code nothing interrupts a block: where this speaks of its cancellation, `on_lost` is
        called in another thread, `ensure()` raises from then on, and so does the end of the block.
        """


def twin_of(original: Any) -> Callable[[KindT], KindT]:
    """A class decorator: a member without a docstring has that of its namesake in `original`,
    and is told what cancellation means here."""

    def speaks(twin: KindT) -> KindT:
        for name, member in vars(twin).items():
            if name.startswith("_") or getattr(member, "__doc__", "") is not None:
                continue
            if says := getattr(getattr(original, name, None), "__doc__", None):
                member.__doc__ = says if "cancel" not in says else says.rstrip() + _NO_CANCEL
        return twin

    return speaks


@twin_of(holds.Hold)
class Hold:
    """A lock or a leadership; the twin of `incumbent.recipes.hold.Hold`, for any thread."""

    def __init__(self, portal: Portal, hold: holds.Hold) -> None:
        self._portal = portal
        self._hold = hold
        self.path = hold.path
        self.name = hold.name
        self.is_shared = hold.is_shared
        self.lost = Lost(hold)
        self.asked = Asked(portal, hold)

    @property
    def fencing_token(self) -> int:
        return self._hold.fencing_token

    @property
    def valid_until(self) -> float:
        return self._hold.valid_until

    @property
    def overrun(self) -> float:
        return self._hold.overrun

    def remaining(self) -> float:
        return self._hold.remaining()

    def ensure(self) -> None:
        if error := self._hold.why_not():
            self._portal.post(self._hold.look)
            raise error

    def update(self, member: str | bytes) -> None:
        self._portal.run(lambda: self._hold.update(member))

    def transaction(self) -> Transaction:
        return Transaction(self._portal, self._hold.transaction())


@twin_of(transactions.Transaction)
class Transaction:
    """The twin of `incumbent.client.Transaction`."""

    def __init__(self, portal: Portal, transaction: transactions.Transaction) -> None:
        self._portal = portal
        self._transaction = transaction
        self.check = transaction.check
        self.create = transaction.create
        self.set = transaction.set
        self.delete = transaction.delete

    @property
    def results(self) -> Sequence[MultiResult]:
        return self._transaction.results

    def commit(self) -> Sequence[MultiResult]:
        return self._portal.run(self._transaction.commit)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()


@twin_of(streams.Events)
class Events:
    """The twin of `incumbent.client.Events`."""

    def __init__(self, portal: Portal, events: streams.Events) -> None:
        self._portal = portal
        self._events = events

    def next(self, timeout: float | None = None) -> WatchEvent:
        return self._portal.run(lambda: self._events.next(timeout))

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> WatchEvent:
        return self.next()


class Caller:
    """Calls strangers' functions in order, in a thread that ends when there is none left."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._calls: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_working = False

    def later(self, function: Callable[[T], object]) -> Callable[[T], None]:
        """For the loop: a function that has this one called in its turn."""
        return Turn(self._put, function)

    def _put(self, function: Callable[[Any], object], argument: object) -> None:
        with self._lock:
            self._calls.append((function, argument))
            if self._is_working:
                return
            self._is_working = True
        threading.Thread(target=self._work, name="incumbent-callbacks", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_working = False
                    return
                function, argument = self._calls.popleft()
            try:
                function(argument)
            except Exception as error:
                self._log(f"a callback failed at {argument}: {error!r}")


class Within(Generic[T]):
    """An asynchronous context manager around blocking code.

    Should an interruption come before the first step of `__exit__`, it is left when this object
    is gone. A generator's block that is closed is left as well, but not waited for: the collector
    may close it, in any thread.
    """

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._entry = _Entry(manager)
        self._last_resort = last_resort(self, partial(portal.carry_out, self._entry.leave))

    def __enter__(self) -> T:
        try:
            return self._portal.run(self._entry.enter)
        except BaseException:
            self.leave()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:
            self._last_resort()
        else:
            self.leave()

    def leave(self) -> None:
        """May be called twice."""
        self._portal.finish(self._entry.leave)
        self._last_resort.detach()


class _Entry(Generic[T]):
    """Entered, and what is to be left; on the loop.

    There the manager dies as well: asyncio hears of its generator by a weak reference, in whose
    callback an interruption of our thread would be swallowed.
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager: AbstractAsyncContextManager[T] | None = manager
        self._is_in = self._is_over = False

    async def enter(self) -> T:
        assert self._manager is not None, "entered once"
        try:
            entered = await self._manager.__aenter__()
        except BaseException:
            self._manager = None
            raise
        self._is_in = True
        if self._is_over:
            await self.leave()
        return entered

    async def leave(self) -> None:
        """May be called twice, and while it is being entered."""
        self._is_over = True
        if self._is_in and self._manager is not None:
            manager, self._manager = self._manager, None
            await manager.__aexit__(None, None, None)


class Entered(Generic[T]):
    """A twin that is the `with` of its asynchronous original, and gives itself to the block."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._manager = manager
        self._entries: list[Within[T]] = []

    def __enter__(self) -> Self:
        entry = Within(self._portal, self._manager)
        try:
            entry.__enter__()
            self._entries.append(entry)
        except BaseException:  # an interruption may come just behind the entry
            entry.leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._entries:
            self._entries.pop().__exit__(kind, error, traceback)


def last_resort(block: object, give_back: Callable[[], object]) -> weakref.finalize[..., object]:
    """Have it given back when nobody has `block` any more: no `__exit__` will do it. `give_back`
    must not wait: it is called by whoever lets go of `block` last, which may be the collector."""
    resort = weakref.finalize(block, give_back)
    resort.atexit = False  # the session is closed then
    return resort


class Wait:
    """What to wait for. On the loop `got` is the hold as soon as there is one."""

    def __init__(
        self,
        begin: Callable[..., Coroutine[Any, Any, holds.Hold | None]],
        *queues: Queue,
        on_change: Callable[[Place], None] | None = None,
        reentrant: bool = False,
    ) -> None:
        """`begin` acquires. `queues`: a thread that waits there inside its own block would wait
        for ever; none where that is no matter, as for one that only tries."""
        self.got: holds.Hold | None = None
        self.inbox: Inbox = queue.SimpleQueue()
        self._begin = begin if on_change is None else partial(begin, on_change=self._tell)
        self._queues = queues
        self._on_change = on_change
        self._reentrant = reentrant
        self._is_over = False

    async def acquire(self) -> holds.Hold | None:
        self.got = got = await self._begin()
        if self._is_over and got is not None:
            got.release()
        return got

    def outer(self, thread: int) -> Guarded[Any] | None:
        """The thread's own block which it may enter again; raises where it would wait for itself."""
        for each in self._queues:
            held = each.ledger.holders.get((each.path, thread))
            if held is not None and held.block is not None:
                block = held.block()
                if block is None:
                    held.disown()  # it is on its way out
                elif self._reentrant and not held.is_shared:
                    if error := held.why_not():
                        raise error
                    assert isinstance(block, Guarded)
                    return block
            each.ledger.refuse_nested(each.path, thread)
        return None

    async def give_up(self) -> None:
        """May be called twice, and while it is waited for."""
        self._is_over = True
        if self.got is not None:
            self.got.release()

    def let_go(self, portal: Portal) -> None:
        """As `give_up`, from any thread and without waiting: the block is over."""
        if self.got is not None:
            self.got.disown()
        portal.carry_out(self.give_up)

    def _tell(self, place: Place) -> None:
        on_change = self._on_change
        assert on_change is not None
        self.inbox.put(lambda: on_change(place))


class Guarded(Generic[HoldT]):
    """`with` around what a hold guards. Enter it once, with `with`: when this object is gone,
    so is the hold, for an interruption may come before the first step of `__exit__`.

    A generator's block that is closed ends as well, but that is not waited for (see `Within`).
    """

    def __init__(self, portal: Portal, wait: Wait, on_lost: Callable[[Hold], None] | None) -> None:
        self._portal = portal
        self._wait = wait
        self._on_lost = on_lost
        self._joined: list[Guarded[Any]] = []
        """Blocks of this thread that this one is only a part of; they last as long as it does."""

    def __enter__(self) -> HoldT:
        thread = threading.get_ident()
        if (outer := self._wait.outer(thread)) is not None:
            self._joined.append(outer)
            return Hold(self._portal, outer._wait.got)  # type: ignore[return-value, arg-type]
        self._last_resort = last_resort(self, partial(self._wait.let_go, self._portal))
        try:
            got = self._portal.run(self._wait.acquire, inbox=self._wait.inbox)
            hold = None if got is None else Hold(self._portal, got)
            if got is not None and hold is not None:
                got.belongs_to(thread, weakref.ref(self))
                self._portal.post(partial(got.lost.listen, partial(_lost, hold, self._on_lost)))
                self._begin()
            else:
                self._last_resort.detach()
        except BaseException:
            self._portal.finish(self._wait.give_up)
            self._last_resort.detach()
            raise
        return hold  # type: ignore[return-value]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._joined:
            self._joined.pop()
            return
        hold = self._wait.got
        if hold is None:
            return
        if kind is GeneratorExit:
            self._last_resort()
            return
        try:
            self._portal.run(self._end)
        except BaseException:
            self._portal.finish(self._wait.give_up)
            raise
        self._last_resort.detach()
        lost = hold.lost.error
        if lost is None or error is lost:
            return
        if error is None or isinstance(error, SessionError | HoldLost):
            raise lost from error

    def _begin(self) -> None:
        """It is held; what is raised here takes it back."""

    async def _end(self) -> None:
        assert self._wait.got is not None
        self._wait.got.look()
        self._wait.got.release()


def _lost(hold: Hold, on_lost: Callable[[Hold], None] | None) -> None:
    hold.lost._event.set()
    if on_lost is not None:
        threading.Thread(target=on_lost, args=(hold,), name="incumbent-lost", daemon=True).start()
