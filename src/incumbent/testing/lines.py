"""All lines of a server, and the black holes over them.

Rule of this file: a lane is shut if and only if some hole covers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Literal, TypeAlias

from incumbent.testing.line import Line
from incumbent.testing.mishaps import Mishaps

__all__ = ["BlackHole", "Direction", "Lines"]

Direction: TypeAlias = Literal["in", "out", "both"]
"""As the server sees it: `in` is what clients send, `out` what they are sent."""


class BlackHole:
    """Where nothing comes out of; a context manager that heals it at the end."""

    def __init__(
        self, session_id: int | None, direction: Direction, heal: Callable[[BlackHole], None]
    ) -> None:
        assert direction in ("in", "out", "both"), f"{direction!r} is no direction"
        self.session_id = session_id
        self.direction = direction
        self._heal = heal

    def __enter__(self) -> BlackHole:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.heal()

    def heal(self) -> None:
        """What was sent meanwhile arrives now."""
        self._heal(self)


class Lines:
    """The connections that are open now. Used in the server's thread only."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self._open: dict[Line, None] = {}
        self._holes: dict[BlackHole, None] = {}

    def line(self, connection: asyncio.Protocol) -> Line:
        """A new one, in front of a server's connection; it falls into the holes that there are."""
        line = Line(connection, self._mishaps, self._open)
        self._shut(line)
        return line

    def cut(self, session_id: int | None) -> int:
        """Break a session's connection, or all; how many."""
        lines = [line for line in self._open if session_id in (None, line.session_id)]
        for line in lines:
            line.cut()
        return len(lines)

    async def end(self) -> None:
        """Break all, and return once their sockets are closed. No hole is left."""
        for line in list(self._open):
            line.cut()
            await line.gone.wait()
        self._holes.clear()

    def add(self, hole: BlackHole) -> None:
        self._holes[hole] = None
        self._shut_all()

    def remove(self, hole: BlackHole) -> None:
        self._holes.pop(hole, None)
        self._shut_all()

    def _shut_all(self) -> None:
        for line in list(self._open):
            self._shut(line)
            line.inward.go_on()
            line.outward.go_on()

    def _shut(self, line: Line) -> None:
        holes = [hole for hole in self._holes if hole.session_id in (None, line.session_id)]
        line.inward.is_shut = any(hole.direction != "out" for hole in holes)
        line.outward.is_shut = any(hole.direction != "in" for hole in holes)
