"""Something that happens at most once.

Rule of this file: never undone, and the first cause stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from incumbent.errors import IncumbentError

__all__ = ["Latch"]


class Latch:
    """Something that happens at most once, with its cause; never undone."""

    __slots__ = ("_listeners", "error")

    def __init__(self) -> None:
        self.error: IncumbentError | None = None
        self._listeners: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self.error is not None

    def set(self, error: IncumbentError) -> None:
        """The first cause stays. Listeners are called here and now, in their order."""
        if self.error is None:
            self.error = error
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when it happens, at once if it has; returns how to take that back."""
        if self.is_set():
            listener()
            return lambda: None
        self._listeners.append(listener)

        def forget() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return forget

    async def wait(self) -> None:
        """Return once it has happened."""
        happened = asyncio.Event()
        forget = self.listen(happened.set)
        try:
            await happened.wait()
        finally:
            forget()
