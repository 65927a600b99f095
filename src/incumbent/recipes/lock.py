"""A lock: the first in the queue has it, the rest wait for the one ahead.

A reader's is the same with fewer ahead: only writers keep it out (`rwlock`).

Rule of this file: whatever ends the waiting (time, cancellation, an error), our znode goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from incumbent.errors import HoldLost, LockLost, LockTimeout, NoNode
from incumbent.recipes.content import as_bytes
from incumbent.recipes.hold import Held, Hold, tried
from incumbent.recipes.place import REVOKE, Place, join
from incumbent.recipes.queue import Queue
from incumbent.recipes.standing import given_up_on_error, wait

__all__ = ["acquire", "lock", "revoke", "try_acquire", "try_lock"]


@asynccontextmanager
async def lock(
    queue: Queue,
    member: str | bytes = b"",
    *,
    timeout: float | None = None,
    grace: float | None = None,
    is_reader: bool = False,
    reentrant: bool = False,
) -> AsyncIterator[Hold]:
    """Wait until we have it; cancel the block if it is lost. `LockTimeout` after `timeout` s.

    `reentrant`: inside a block of the same task that has it, it is the same hold once more, and
    nothing is asked of the server; the outermost block ends it.
    """
    task = asyncio.current_task()
    held = queue.ledger.holders.get((queue.path, task))
    if reentrant and held is not None and not held.is_shared:
        held.ensure()
        yield held
        return
    queue.ledger.refuse_nested(queue.path, task)
    async with Held(
        await acquire(queue, member, timeout=timeout, grace=grace, is_reader=is_reader)
    ) as hold:
        yield hold


def try_lock(
    queue: Queue,
    member: str | bytes = b"",
    *,
    grace: float | None = None,
    is_reader: bool = False,
) -> AbstractAsyncContextManager[Hold | None]:
    """The lock if nobody has it, else None, at once: with one read and no write."""
    return tried(lambda: try_acquire(queue, member, grace=grace, is_reader=is_reader))


async def acquire(
    queue: Queue,
    member: str | bytes = b"",
    *,
    error: type[HoldLost] = LockLost,
    timeout: float | None = None,
    grace: float | None = None,
    is_reader: bool = False,
    on_change: Callable[[Place], None] | None = None,
) -> Hold:
    """A hold, begun, that the caller must `release`; `lock` and `lead` are made of it.

    Stands again in the next session if this one ends while waiting. `timeout`: seconds for all
    of it, then `LockTimeout` naming those ahead; 0 tries once.
    """
    if timeout == 0:
        hold = await try_acquire(queue, member, error=error, grace=grace, is_reader=is_reader)
        if hold is None:
            raise LockTimeout(queue.path, 0, await _in_the_way(queue, is_reader))
        return hold

    async def stand(ahead: list[str]) -> Hold:
        place = await queue.enter(as_bytes(member), is_reader=is_reader)
        with given_up_on_error(place, ahead):
            await place.first(on_change)
            hold = Hold(place, grace=grace, error=error)
            await hold.begin()
            return hold

    return await wait(queue.path, stand, timeout)


async def try_acquire(
    queue: Queue,
    member: str | bytes = b"",
    *,
    error: type[HoldLost] = LockLost,
    grace: float | None = None,
    is_reader: bool = False,
) -> Hold | None:
    """A hold, begun, if nobody is in the way; else None, and nothing of ours is left there."""
    if await _in_the_way(queue, is_reader):
        return None
    place = await queue.enter(as_bytes(member), is_reader=is_reader)
    with given_up_on_error(place):
        if not place.ahead():
            hold = Hold(place, grace=grace, error=error)
            await hold.begin()
            return hold
    place.release()
    return None


async def revoke(queue: Queue) -> str | None:
    """Ask whoever is first to give way; their znode's name, None if nobody stands there.

    They are told (`hold.asked`), no more: nothing is taken from them. Their znode's data is
    replaced, as Curator's `Revoker` does it.
    """
    while True:
        standing = await queue.contenders()
        if not standing:
            return None
        with contextlib.suppress(NoNode):
            await queue.client.set(join(queue.path, standing[0].name), REVOKE)
            return standing[0].name


async def _in_the_way(queue: Queue, is_reader: bool) -> list[str]:
    standing = await queue.contenders()
    return [c.name for c in standing if c.keeps_out(a_reader=is_reader)]
