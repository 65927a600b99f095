"""A lock: the first in the queue has it, the rest wait for the one ahead.

Rule of this file: whatever ends the waiting (time, cancellation, an error), our znode goes too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from incumbent.errors import HoldLost, LockLost, LockTimeout, NoNode, SessionExpired
from incumbent.recipes.hold import Hold, Scope
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["acquire", "lock", "try_acquire", "try_lock"]


@asynccontextmanager
async def lock(
    queue: Queue,
    member: str | bytes = b"",
    *,
    timeout: float | None = None,
    grace: float | None = None,
) -> AsyncIterator[Hold]:
    """Wait until we have it; cancel the block if it is lost. `LockTimeout` after `timeout` s."""
    queue.ledger.refuse_nested(queue.path, asyncio.current_task())
    hold = await acquire(queue, member, error=LockLost, timeout=timeout, grace=grace)
    try:
        async with Scope(hold):
            yield hold
    finally:
        hold.release()


@asynccontextmanager
async def try_lock(
    queue: Queue, member: str | bytes = b"", *, grace: float | None = None
) -> AsyncIterator[Hold | None]:
    """The lock if nobody has it, else None, at once: with one read and no write."""
    hold = await try_acquire(queue, member, error=LockLost, grace=grace)
    if hold is None:
        yield None
        return
    try:
        async with Scope(hold):
            yield hold
    finally:
        hold.release()


async def acquire(
    queue: Queue,
    member: str | bytes = b"",
    *,
    error: type[HoldLost] = LockLost,
    timeout: float | None = None,
    grace: float | None = None,
    on_change: Callable[[Place], None] | None = None,
) -> Hold:
    """A hold, begun, that the caller must `release`; `lock` and `lead` are made of it.

    Stands again in the next session if this one ends while waiting. `timeout`: seconds for all
    of it, then `LockTimeout` naming those ahead; 0 tries once.
    """
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout={timeout}: seconds, 0 to try once, None to wait for ever")
    if timeout == 0:
        hold = await try_acquire(queue, member, error=error, grace=grace)
        if hold is None:
            raise LockTimeout(queue.path, 0, [c.name for c in await queue.contenders()])
        return hold
    ahead: list[str] = []
    try:
        async with asyncio.timeout(timeout):
            pause = Pause()
            while True:
                hold = await _stand(queue, _bytes(member), error, grace, on_change, ahead)
                if hold is not None:
                    return hold
                await pause.take()
    except TimeoutError:
        assert timeout is not None
        raise LockTimeout(queue.path, timeout, ahead) from None


async def try_acquire(
    queue: Queue,
    member: str | bytes = b"",
    *,
    error: type[HoldLost] = LockLost,
    grace: float | None = None,
) -> Hold | None:
    """A hold, begun, if nobody stands there; else None, and nothing of ours is left there."""
    if await queue.contenders():
        return None
    place = await queue.enter(_bytes(member))
    try:
        if not place.ahead():
            hold = Hold(place, grace=grace, error=error)
            await hold.begin()
            return hold
    except BaseException:
        place.release()
        raise
    place.release()
    return None


async def _stand(
    queue: Queue,
    member: bytes,
    error: type[HoldLost],
    grace: float | None,
    on_change: Callable[[Place], None] | None,
    ahead: list[str],
) -> Hold | None:
    """Once, from our create to a hold; None if the session ended or our znode was deleted."""
    try:
        place = await queue.enter(member)
    except SessionExpired:
        return None
    try:
        await place.first(on_change)
        hold = Hold(place, grace=grace, error=error)
        await hold.begin()
        return hold
    except BaseException as cause:
        ahead[:] = place.ahead()
        place.release()
        if isinstance(cause, SessionExpired) or (isinstance(cause, NoNode) and place.gone.is_set()):
            return None
        raise


def _bytes(member: str | bytes) -> bytes:
    return member.encode() if isinstance(member, str) else member
