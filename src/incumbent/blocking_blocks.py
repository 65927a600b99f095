"""What a block of blocking code is left by, however it ends.

The znode of a hold that was lost stays until the block ends or the session is gone. `on_change` is
called in the thread that waits.

Rule of this file: a KeyboardInterrupt, wherever it strikes, leaves nothing held once it is handled.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from incumbent.blocking import Hold
from incumbent.errors import HoldLost, SessionError
from incumbent.portal import Inbox, Portal
from incumbent.recipes import hold as holds
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["Entered", "Guarded", "Wait", "Within", "last_resort"]

T = TypeVar("T")
HoldT = TypeVar("HoldT", bound="Hold | None")


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
    hold.lost._happened()
    if on_lost is not None:
        threading.Thread(target=on_lost, args=(hold,), name="incumbent-lost", daemon=True).start()
