"""Holds, transactions and events for blocking code: twins of their asynchronous originals.

Nothing interrupts a block whose hold was lost: `hold.lost` is set, `on_lost=` is called in a
thread of its own, `ensure()` raises, and leaving the block raises (see `blocking_blocks`).

Rule of this file: whoever is interrupted while waiting keeps nobody else waiting; so nothing that
the loop calls takes a lock which a caller's thread could hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from incumbent.client import events as streams
from incumbent.client import transaction as transactions
from incumbent.client.callbacks import Turn
from incumbent.errors import IncumbentError
from incumbent.portal import Portal
from incumbent.recipes import hold as holds
from incumbent.wire import MultiResult, WatchEvent

__all__ = ["Asked", "Caller", "Events", "Hold", "Lost", "Transaction", "twin_of"]

T = TypeVar("T")
KindT = TypeVar("KindT", bound=type)
HoldT = TypeVar("HoldT", bound="Hold | None")


class Lost:
    """Set when a hold is over; `error` then says why. For any thread.

    It is no `threading.Event`: a thread that is interrupted in the `wait` of one may keep its lock
    for ever, and who sets it here is the loop of all clients.
    """

    def __init__(self, hold: holds.Guarding) -> None:
        self._hold = hold
        self._is_set = False
        self._waiting: dict[queue.SimpleQueue[None], None] = {}

    @property
    def error(self) -> IncumbentError | None:
        return self._hold.lost.error

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """True once it has happened; False after `timeout` seconds without."""
        told: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting[told] = None
        try:
            if not self._is_set:
                with contextlib.suppress(queue.Empty):
                    told.get(timeout=None if timeout is None else max(timeout, 0.0))
            return self._is_set
        finally:
            self._waiting.pop(told, None)

    def _happened(self) -> None:
        """On the loop. May be called twice."""
        self._is_set = True
        for told in list(self._waiting):
            told.put(None)


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
