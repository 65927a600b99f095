"""The order of a queue's items, kept up to date by what a watch tells.

Rule of this file: pure. The last word about a name counts: an event that came after a listing
was asked for stands above that listing, since it is either newer or says the same.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from incumbent.wire import EventType, WatchEvent

__all__ = ["MOST_LOSSES", "Item", "Line", "number_of", "stem_of"]

_NAME = re.compile(r"item-([0-9]{3})-[0-9a-f]{16}-([0-9]{10})")
MOST_LOSSES = 4
"""Lost races that count: then one of the first 16 is tried, so that many takers spread out."""

_SLACK = 64
"""Names that are gone and kept, beyond as many as are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item as it was put. `version` is its znode's, for a transaction that deletes it."""

    path: str
    data: bytes
    priority: int
    version: int

    @property
    def name(self) -> str:
        return self.path[self.path.rindex("/") + 1 :]


def stem_of(priority: int, nonce: str) -> str:
    """An item's name without its number."""
    if not isinstance(priority, int) or not 0 <= priority <= 999:
        raise ValueError(f"priority={priority!r}: a whole number from 0, which goes first, to 999")
    return f"item-{priority:03d}-{nonce}-"


def number_of(path: str) -> int:
    """The number that the server gave; out of range once its counter has gone round."""
    return int(path[-10:])


class Line:
    """The names of the items at `path`, first one first. Other children are passed over."""

    def __init__(self, path: str) -> None:
        self._prefix = path if path == "/" else f"{path}/"
        self._names: set[str] = set()
        self._heap: list[tuple[int, int, str]] = []
        self._said: dict[str, bool] | None = None
        """While a listing is under way: is it there, by the last event about it?"""

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def begin(self) -> None:
        """A listing is asked for."""
        self._said = {}

    def listed(self, names: Iterable[str]) -> None:
        """It is here."""
        said, self._said = self._said or {}, None
        self._names.clear()
        self._heap.clear()
        for name in names:
            if said.get(name, True):
                self._add(name)
        for name, is_there in said.items():
            if is_there:
                self._add(name)

    def heard(self, event: WatchEvent) -> bool:
        """Take an event into account; False if a new listing is needed."""
        if event.type is EventType.NONE:
            return False
        name = event.path.removeprefix(self._prefix)
        if event.path.startswith(self._prefix) and _NAME.fullmatch(name):
            is_there = event.type is not EventType.DELETED
            (self._add if is_there else self.remove)(name)
            if self._said is not None:
                self._said[name] = is_there
        return True

    def remove(self, name: str) -> None:
        self._names.discard(name)
        if len(self._heap) > 2 * len(self._names) + _SLACK:  # others take, and we only listen
            self._heap = [entry for entry in self._heap if entry[2] in self._names]
            heapq.heapify(self._heap)

    def choose(
        self, losses: int, draw: Callable[[int], int], *, prefer: str = "", without: str = ""
    ) -> str | None:
        """Which one to try: the first; who lost races to others, one of the first few.

        `draw(n)` gives a number from 0 to n - 1.
        """
        wide = 1 << losses
        first = [name for name in self._first(wide + 1) if name != without][:wide]
        if prefer in first:
            return prefer
        return None if not first else first[draw(len(first)) if len(first) > 1 else 0]

    def item(self, name: str, data: bytes, version: int) -> Item:
        match = _NAME.fullmatch(name)
        assert match is not None
        path = self._prefix + name
        return Item(path=path, data=data, priority=int(match[1]), version=version)

    def _add(self, name: str) -> None:
        match = _NAME.fullmatch(name)
        if match is not None and name not in self._names:
            self._names.add(name)
            heapq.heappush(self._heap, (int(match[1]), int(match[2]), name))

    def _first(self, number: int) -> list[str]:
        taken: list[tuple[int, int, str]] = []
        while self._heap and len(taken) < number:
            entry = heapq.heappop(self._heap)
            if entry[2] in self._names and entry not in taken:
                taken.append(entry)
        for entry in taken:
            heapq.heappush(self._heap, entry)
        return [name for _, _, name in taken]
