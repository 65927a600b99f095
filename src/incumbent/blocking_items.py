"""Queues, barriers, counters and values for blocking code: twins of those in `incumbent.recipes`.

Rule of this file: an interruption loses nothing: what came all the same is put back.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from incumbent.blocking import twin_of
from incumbent.blocking_blocks import Within, last_resort
from incumbent.portal import Portal
from incumbent.recipes import barrier as barriers
from incumbent.recipes import counter as counters
from incumbent.recipes import double_barrier as double_barriers
from incumbent.recipes import items as queues
from incumbent.recipes import value as values
from incumbent.recipes.items import Item
from incumbent.recipes.value import Versioned

__all__ = ["Barrier", "Counter", "DoubleBarrier", "Following", "ItemQueue", "Items", "Value"]


@twin_of(queues.ItemQueue)
class ItemQueue:
    """The twin of `incumbent.recipes.items.ItemQueue`."""

    def __init__(self, portal: Portal, queue: queues.ItemQueue) -> None:
        self._portal = portal
        self._queue = queue
        self.path = queue.path

    def put(self, data: str | bytes, *, priority: int = 100) -> str:
        return self._portal.run(lambda: self._queue.put(data, priority=priority))

    def take(self, timeout: float | None = None) -> Item | None:
        return self._portal.run(lambda: self._queue.take(timeout), undo=self._put_back)

    def peek(self, timeout: float | None = 0) -> Item | None:
        return self._portal.run(lambda: self._queue.peek(timeout))

    def size(self) -> int:
        return self._portal.run(self._queue.size)

    @contextlib.contextmanager
    def items(self) -> Iterator[Items]:
        with Within(self._portal, self._queue.items()) as items:
            yield Items(self._portal, items, self._put_back)

    async def _put_back(self, item: Item | None) -> None:
        if item is not None:
            await self._queue.put_back(item)


@twin_of(queues.Items)
class Items:
    """The twin of `incumbent.recipes.items.Items`."""

    def __init__(
        self,
        portal: Portal,
        items: queues.Items,
        put_back: Callable[[Item | None], Coroutine[Any, Any, None]],
    ) -> None:
        self._portal = portal
        self._items = items
        self._put_back = put_back

    def take(self, timeout: float | None = None) -> Item | None:
        return self._portal.run(lambda: self._items.take(timeout), undo=self._put_back)

    def peek(self, timeout: float | None = None) -> Item | None:
        return self._portal.run(lambda: self._items.peek(timeout))

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Item:
        item = self.take()
        assert item is not None
        return item


@twin_of(barriers.Barrier)
class Barrier:
    """The twin of `incumbent.recipes.barrier.Barrier`."""

    def __init__(self, portal: Portal, barrier: barriers.Barrier) -> None:
        self._portal = portal
        self._barrier = barrier
        self.path = barrier.path

    def create(self, data: str | bytes = b"") -> bool:
        return self._portal.run(lambda: self._barrier.create(data))

    def remove(self) -> bool:
        return self._portal.run(self._barrier.remove)

    def wait(self, timeout: float | None = None) -> bool:
        return self._portal.run(lambda: self._barrier.wait(timeout))


@twin_of(double_barriers.DoubleBarrier)
class DoubleBarrier:
    """The twin of `incumbent.recipes.double_barrier.DoubleBarrier`."""

    def __init__(self, portal: Portal, barrier: double_barriers.DoubleBarrier) -> None:
        self._portal = portal
        self._barrier = barrier
        self.path = barrier.path
        self.count = barrier.count
        self.timeout = barrier.timeout
        self._last_resort: weakref.finalize[..., object] | None = None

    def enter(self) -> None:
        self._portal.run(self._barrier.enter, undo=partial(_abandon, self._barrier))

    def leave(self) -> None:
        self._portal.run(self._barrier.leave)

    def abandon(self) -> None:
        self._portal.post(self._barrier.abandon)

    def __enter__(self) -> Self:
        self._last_resort = last_resort(self, partial(self._portal.post, self._barrier.abandon))
        try:
            self.enter()
        except BaseException as error:
            if not isinstance(error, Exception):  # an interruption, maybe just behind the entry
                self.abandon()
            self._last_resort.detach()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.leave()
            else:
                self.abandon()
        except BaseException:
            self.abandon()
            raise
        finally:
            if self._last_resort is not None:
                self._last_resort.detach()


async def _abandon(barrier: double_barriers.DoubleBarrier, _: None = None) -> None:
    barrier.abandon()


@twin_of(counters.Counter)
class Counter:
    """The twin of `incumbent.recipes.counter.Counter`."""

    def __init__(self, portal: Portal, counter: counters.Counter) -> None:
        self._portal = portal
        self._counter = counter
        self.path = counter.path

    def get(self) -> int:
        return self._portal.run(self._counter.get)

    def add(self, number: int = 1) -> int:
        return self._portal.run(lambda: self._counter.add(number))


@twin_of(values.Value)
class Value:
    """The twin of `incumbent.recipes.value.Value`. `change` is called on the loop: no waiting."""

    def __init__(self, portal: Portal, value: values.Value) -> None:
        self._portal = portal
        self._value = value
        self.path = value.path

    def get(self) -> Versioned:
        return self._portal.run(self._value.get)

    def set(self, data: str | bytes) -> int:
        return self._portal.run(lambda: self._value.set(data))

    def compare_and_set(self, data: str | bytes, version: int | None) -> int:
        return self._portal.run(lambda: self._value.compare_and_set(data, version))

    def update(self, change: Callable[[bytes], str | bytes]) -> bytes:
        return self._portal.run(lambda: self._value.update(change))

    @contextlib.contextmanager
    def follow(self) -> Iterator[Following]:
        with Within(self._portal, self._value.follow()) as following:
            yield Following(self._portal, following)


@twin_of(values.Following)
class Following:
    """The twin of `incumbent.recipes.value.Following`."""

    def __init__(self, portal: Portal, following: values.Following) -> None:
        self._portal = portal
        self._following = following

    @property
    def now(self) -> Versioned:
        return self._following.now

    def __iter__(self) -> Following:
        return self

    def __next__(self) -> Versioned:
        return self._portal.run(self._following.__anext__)
