"""Leader election: the first in the queue leads, the rest wait for the one ahead.

Rule of this file: leadership is believed only until its lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from incumbent.errors import Deposed
from incumbent.recipes.hold import Held, Hold
from incumbent.recipes.lock import acquire
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["lead"]


@asynccontextmanager
async def lead(
    queue: Queue,
    member: str | bytes = b"",
    *,
    timeout: float | None = None,
    grace: float | None = None,
    on_change: Callable[[Place], None] | None = None,
) -> AsyncIterator[Hold]:
    """Wait until we lead; cancel the block if we are deposed.

    `on_change` is called each time we begin to wait for somebody: `place.watching` is their
    znode's name, `place.name` ours. `LockTimeout` if `timeout` seconds were not enough.
    """
    queue.ledger.refuse_nested(queue.path, asyncio.current_task())
    leadership = await acquire(
        queue, member, error=Deposed, timeout=timeout, grace=grace, on_change=on_change
    )
    async with Held(leadership):
        yield leadership
