"""Standing until one gets in: in a total time, anew in each session, and then or else gone.

Rule of this file: whatever ends the waiting leaves no znode, and says who was ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from incumbent.errors import LockTimeout, NoNode, SessionExpired
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place

__all__ = ["PlaceLost", "given_up_on_error", "wait"]


async def wait(
    path: str, stand: Callable[[list[str]], Awaitable[Hold]], timeout: float | None
) -> Hold:
    """`stand(ahead)`, again in the next session, or when our znode was deleted, until it returns.

    `timeout`: seconds for all of it, then `LockTimeout` naming whom it left in `ahead`.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout={timeout}: seconds, 0 to try once, None to wait for ever")
    ahead: list[str] = []
    pause = Pause()
    try:
        async with contextlib.nullcontext() if timeout is None else asyncio.timeout(timeout):
            while True:
                with contextlib.suppress(SessionExpired, PlaceLost):
                    return await stand(ahead)
                await pause.take()
    except TimeoutError:
        assert timeout is not None
        raise LockTimeout(path, timeout, ahead) from None


class PlaceLost(Exception):
    """Our znode was deleted by somebody while we waited."""


@contextlib.contextmanager
def given_up_on_error(place: Place, ahead: list[str] | None = None) -> Iterator[None]:
    """Whatever ends the block but its normal end gives the place up. `ahead`: who is noted."""
    try:
        yield
    except BaseException as error:
        if ahead is not None:
            ahead[:] = place.ahead()
        place.release()
        if isinstance(error, NoNode) and place.gone.is_set():
            raise PlaceLost from error
        raise
