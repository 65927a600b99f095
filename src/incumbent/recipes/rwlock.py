"""A lock that many may read under at a time, or one write under: fair, in order of arrival.

Readers and writers stand in one queue. A writer waits for all before it, a reader for the writers
before it; so nobody overtakes, and neither side starves. A reader with one writer before it gets
in by that writer's deletion alone, as the next one of a lock does: all readers behind a writer
are next in line.

Rule of this file: nothing of its own; what a reader waits for is told by its place.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from incumbent.recipes.hold import Hold
from incumbent.recipes.lock import lock, try_lock
from incumbent.recipes.queue import Queue

__all__ = ["ReadWriteLock"]


class ReadWriteLock:
    """The read-write lock at a queue's path.

    The arguments are those of `zk.lock`. Not reentrant, and a reader cannot become a writer: it
    would wait for itself, and raises RuntimeError at once. A reader's hold has a fencing token with
    an `epoch_path` only.
    """

    def __init__(self, queue: Queue) -> None:
        if queue.dialect is not None and not queue.dialect.has_readers:
            raise ValueError(
                f"the {queue.dialect} dialect has no readers: use ours (kazoo's) or curator-rw"
            )
        self.queue = queue

    @property
    def path(self) -> str:
        return self.queue.path

    def read(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until no writer is before us; others may read meanwhile."""
        return lock(self.queue, member, timeout=timeout, grace=grace, is_reader=True)

    def write(
        self,
        member: str | bytes = b"",
        *,
        timeout: float | None = None,
        grace: float | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until nobody is before us."""
        return lock(self.queue, member, timeout=timeout, grace=grace)

    def try_read(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> AbstractAsyncContextManager[Hold | None]:
        """A reader's hold if no writer has it or waits for it, else None, at once."""
        return try_lock(self.queue, member, grace=grace, is_reader=True)

    def try_write(
        self, member: str | bytes = b"", *, grace: float | None = None
    ) -> AbstractAsyncContextManager[Hold | None]:
        """The writer's hold if nobody has it or waits for it, else None, at once."""
        return try_lock(self.queue, member, grace=grace)
