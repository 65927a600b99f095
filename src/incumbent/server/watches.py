"""Who watches which znode: one-shot watches, as ZooKeeper has always had them.

Rule of this file: a watch that fired is gone, and one event reaches one watcher once, however
many watches of its own it matches.

Source: Apache ZooKeeper's programmer's guide, "ZooKeeper Watches". Existence and data watches
share one table there and here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from incumbent.server.tree import Event
from incumbent.wire import EventType

__all__ = ["Watches"]

Watcher = TypeVar("Watcher", bound=Hashable)


class Watches(Generic[Watcher]):
    """Data watches and child watches by path. Dictionaries serve as ordered sets."""

    __slots__ = ("_by_watcher", "_child", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[Watcher, None]] = {}
        self._child: dict[str, dict[Watcher, None]] = {}
        self._by_watcher: dict[Watcher, dict[tuple[bool, str], None]] = {}

    def __len__(self) -> int:
        """How many watches are set."""
        return sum(len(own) for own in self._by_watcher.values())

    def add_data(self, path: str, watcher: Watcher) -> None:
        """Watch a znode's existence and data."""
        self._data.setdefault(path, {})[watcher] = None
        self._by_watcher.setdefault(watcher, {})[False, path] = None

    def add_child(self, path: str, watcher: Watcher) -> None:
        """Watch a znode's list of children, and its own end."""
        self._child.setdefault(path, {})[watcher] = None
        self._by_watcher.setdefault(watcher, {})[True, path] = None

    def fire(self, event: Event) -> list[Watcher]:
        """Who is to be told; their watches on it are gone afterwards."""
        told: dict[Watcher, None] = {}
        if event.type is not EventType.CHILD:
            told |= self._data.pop(event.path, {})
            for watcher in told:
                self._forget(watcher, False, event.path)
        if event.type in (EventType.CHILD, EventType.DELETED):
            listeners = self._child.pop(event.path, {})
            for watcher in listeners:
                self._forget(watcher, True, event.path)
            told |= listeners
        return list(told)

    def drop(self, watcher: Watcher) -> None:
        """The watcher is gone: all of its watches are."""
        for is_child, path in self._by_watcher.pop(watcher, {}):
            table = self._child if is_child else self._data
            del table[path][watcher]
            if not table[path]:
                del table[path]

    def _forget(self, watcher: Watcher, is_child: bool, path: str) -> None:
        own = self._by_watcher[watcher]
        del own[is_child, path]
        if not own:
            del self._by_watcher[watcher]
