"""Who stands in a directory, read once for all of one client's recipes that ask at the same time.

A thousand contenders of one process that come at once need one listing, not a thousand: a listing
that is read after the last one's create was read after everybody's. The newest request serves all
who asked in the same turn of the loop; those before it are taken back, which costs nothing since
what a turn submits leaves at its end.

Rule of this file: whoever asks gets a listing that is read after all that it had submitted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from incumbent.client import Client
from incumbent.client.calls import Call
from incumbent.recipes.dialects import Contender, Dialect
from incumbent.wire import GetChildren

__all__ = ["Listings"]


class Listings:
    """The listings that one client's recipes ask for, and what is made of the newest one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[str, _Asked] = {}  # in this turn of the loop
        self._ranked: tuple[Sequence[str], Dialect, tuple[Contender, ...]] | None = None

    def ask(self, directory: str, told: Callable[[Any], None]) -> None:
        """`told` is called with the children of `directory`, or the error (see `Client.ask`)."""
        asked = self._asked.get(directory)
        if asked is None:
            asked = self._asked[directory] = _Asked()
            asyncio.get_running_loop().call_soon(self._asked.pop, directory)
        asked.waiting.append(told)
        before = asked.newest
        asked.newest = self._client.ask(GetChildren(directory), asked.answered)
        if before is not None:
            before.cancel()

    def rank(self, dialect: Dialect, path: str, children: Sequence[str]) -> tuple[Contender, ...]:
        """See `Dialect.rank`. A listing that many have got is ranked once."""
        ranked = self._ranked
        if ranked is None or ranked[0] is not children or ranked[1] != dialect:
            self._ranked = ranked = (children, dialect, dialect.rank(path, children))
        return ranked[2]


class _Asked:
    """A listing under way, and who waits for it."""

    __slots__ = ("newest", "waiting")

    def __init__(self) -> None:
        self.newest: Call | None = None
        self.waiting: list[Callable[[Any], None]] = []

    def answered(self, answer: Any) -> None:
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(answer)
