"""Waiting in tests: for the thing itself, with a deadline, never for an amount of time.

Rule of this file: a wait that fails says what it waited for and for how long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["TimedOut", "eventually", "wait_until"]

T = TypeVar("T")

_STEP = 0.005  # seconds between two looks at the condition; grows to ten times this


class TimedOut(AssertionError):
    """What was waited for did not come within its deadline."""


def wait_until(condition: Callable[[], T], timeout: float = 10.0, what: str = "") -> T:
    """Call `condition` until its result is true; return that result.

    `timeout` is in seconds. `what` completes the sentence "waited 10 s for …". An exception of
    `condition` ends the wait at once, so that a broken condition does not look like a slow one.
    """
    deadline = time.monotonic() + timeout
    step = _STEP
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise TimedOut(_sentence(condition, timeout, what, result))
        time.sleep(step)
        step = min(step * 1.5, _STEP * 10)


async def eventually(
    condition: Callable[[], T | Awaitable[T]], timeout: float = 10.0, what: str = ""
) -> T:
    """The same inside an event loop; `condition` may be a plain function or return an awaitable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    step = _STEP
    while True:
        got = condition()
        result: T = await got if isinstance(got, Awaitable) else got
        if result:
            return result
        if loop.time() >= deadline:
            raise TimedOut(_sentence(condition, timeout, what, result))
        await asyncio.sleep(step)
        step = min(step * 1.5, _STEP * 10)


def _sentence(condition: object, timeout: float, what: str, last: object) -> str:
    name = what or getattr(condition, "__name__", repr(condition))
    return f"waited {timeout:g} s for {name}; the last look gave {last!r}"
