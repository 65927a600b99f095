"""Questions of operators to a running server: asked at any time, answered with a turn.

Rule of this file: an answer is worked out at the beginning of a turn and told when that turn's
transactions are durable, as any reply. If they never are, the question is answered anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from incumbent.server.report import Report

__all__ = ["Questions"]

_Question: TypeAlias = "Callable[[Report], str]"


class Questions:
    """What was asked and is not answered, and what is answered and not told."""

    __slots__ = ("_answered", "_asked")

    def __init__(self) -> None:
        self._asked: list[tuple[_Question, asyncio.Future[str]]] = []
        self._answered: list[tuple[_Question, asyncio.Future[str], str]] = []

    def ask(self, question: _Question) -> asyncio.Future[str]:
        """The future raises `ConnectionError` if nobody can answer."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked.append((question, told))
        return told

    def answer(self, make_report: Callable[[], Report]) -> None:
        """The turn begins."""
        for question, told in self._asked:
            self._answered.append((question, told, question(make_report())))
        self._asked.clear()

    def tell(self) -> None:
        """The turn is durable."""
        for _, told, text in self._answered:
            if not told.done():
                told.set_result(text)
        self._answered.clear()

    def put_back(self) -> None:
        """The turn never happened."""
        self._asked = [(question, told) for question, told, _ in self._answered] + self._asked
        self._answered.clear()

    def refuse(self, why: str) -> None:
        """Nobody can answer."""
        self.put_back()
        for _, told in self._asked:
            if not told.done():
                told.set_exception(ConnectionError(why))
        self._asked.clear()
