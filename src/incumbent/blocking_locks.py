"""Locks of other kinds for blocking code: twins of those in `incumbent.recipes`.

Rule of this file: none of its own; each is a `Guarded` around what `blocking` makes of a hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from incumbent.blocking import Hold, twin_of
from incumbent.blocking_blocks import Guarded, Wait
from incumbent.portal import Portal
from incumbent.recipes import lock as locks
from incumbent.recipes import multilock as multilocks
from incumbent.recipes import rwlock as rwlocks
from incumbent.recipes import semaphore as semaphores
from incumbent.recipes.queue import Queue

__all__ = ["MultiLock", "ReadWriteLock", "Semaphore"]


@twin_of(rwlocks.ReadWriteLock)
class ReadWriteLock:
    """The twin of `incumbent.recipes.rwlock.ReadWriteLock`."""

    def __init__(self, portal: Portal, rwlock: rwlocks.ReadWriteLock) -> None:
        self._portal = portal
        self.queue = rwlock.queue

    @property
    def path(self) -> str:
        return self.queue.path

    def read(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        return self._wait(member, timeout, grace, on_lost, is_reader=True)

    def write(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        return self._wait(member, timeout, grace, on_lost, is_reader=False)

    def try_read(
        self,
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold | None]:
        return self._try(member, grace, on_lost, is_reader=True)

    def try_write(
        self,
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold | None]:
        return self._try(member, grace, on_lost, is_reader=False)

    def _wait(
        self,
        member: str | bytes,
        timeout: float | None,
        grace: float | None,
        on_lost: Callable[[Hold], None] | None,
        *,
        is_reader: bool,
    ) -> Guarded[Hold]:
        begin = partial(
            locks.acquire, self.queue, member, timeout=timeout, grace=grace, is_reader=is_reader
        )
        return Guarded(self._portal, Wait(begin, self.queue), on_lost)

    def _try(
        self,
        member: str | bytes,
        grace: float | None,
        on_lost: Callable[[Hold], None] | None,
        *,
        is_reader: bool,
    ) -> Guarded[Hold | None]:
        begin = partial(locks.try_acquire, self.queue, member, grace=grace, is_reader=is_reader)
        return Guarded(self._portal, Wait(begin), on_lost)


class _Taken:
    """What a semaphore's twin and a multilock's have in common."""

    def __init__(
        self, portal: Portal, recipe: semaphores.Semaphore | multilocks.MultiLock, *queues: Queue
    ) -> None:
        self._portal = portal
        self._recipe = recipe
        self._queues = queues

    @property
    def path(self) -> str:
        return self._recipe.path

    def acquire(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        begin = partial(self._recipe.take, member, timeout=timeout, grace=grace)
        return Guarded(self._portal, Wait(begin, *self._queues), on_lost)

    def try_acquire(
        self,
        member: str | bytes = b"",
        *,
        grace: float | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold | None]:
        begin = partial(self._recipe.try_take, member, grace=grace)
        return Guarded(self._portal, Wait(begin), on_lost)


@twin_of(semaphores.Semaphore)
class Semaphore(_Taken):
    """The twin of `incumbent.recipes.semaphore.Semaphore`."""

    def __init__(self, portal: Portal, semaphore: semaphores.Semaphore) -> None:
        super().__init__(portal, semaphore)
        self._semaphore = semaphore
        self.queue = semaphore.queue

    def size(self) -> int:
        return self._portal.run(self._semaphore.size)

    def resize(self, size: int) -> None:
        self._portal.run(lambda: self._semaphore.resize(size))


@twin_of(multilocks.MultiLock)
class MultiLock(_Taken):
    """The twin of `incumbent.recipes.multilock.MultiLock`."""

    def __init__(self, portal: Portal, multilock: multilocks.MultiLock) -> None:
        super().__init__(portal, multilock, *multilock.queues)
