"""Who watches which znode: watches that fire once, and watches that last.

Rule of this file: one event reaches one watcher once, however many watches of its own it matches.

Sources: Apache ZooKeeper's programmer's guide, "ZooKeeper Watches", and what a 3.8 server does.
Existence and data watches share one table there and here. A watcher has one watch for each path
and table: setting a second one replaces the first one's mode, so that an ordinary read with a
watch ends a lasting watch on the same path. A lasting watch stands in both tables and each half
can be removed without the other.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from incumbent.server.tree import Event
from incumbent.wire import EventType, WatchMode, WatchType, paths

__all__ = ["Watches"]

Watcher = TypeVar("Watcher", bound=Hashable)


class Watches(Generic[Watcher]):
    """Data watches and child watches by path. Dictionaries serve as ordered sets."""

    __slots__ = ("_child", "_data")

    def __init__(self) -> None:
        self._data: _Table[Watcher] = _Table()
        self._child: _Table[Watcher] = _Table()

    def __len__(self) -> int:
        """How many watches are set; a lasting one counts twice."""
        return sum(len(own) for t in (self._data, self._child) for own in t.paths.values())

    @property
    def is_empty(self) -> bool:
        """Nobody watches anything."""
        return not self._data.by_path and not self._child.by_path

    def add_data(self, path: str, watcher: Watcher) -> None:
        """Watch a znode's existence and data, once."""
        self._data.add(path, watcher, WatchMode.STANDARD)

    def add_child(self, path: str, watcher: Watcher) -> None:
        """Watch a znode's list of children, and its own end, once."""
        self._child.add(path, watcher, WatchMode.STANDARD)

    def add_lasting(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Watch a znode in every way, or each znode from there on down."""
        self._data.add(path, watcher, mode)
        self._child.add(path, watcher, mode)

    def has(self, path: str, watch_type: WatchType) -> bool:
        """Does anybody watch it? So Apache 3.8 answers whoever asks about its own watches."""
        return any(path in table.by_path for table in self._tables(watch_type))

    def remove(self, path: str, watcher: Watcher, watch_type: WatchType) -> bool:
        """Forget the watcher's watches of that type on the path; False if there were none."""
        removed = [table.remove(path, watcher) for table in self._tables(watch_type)]
        return any(removed)

    def fire(self, event: Event) -> list[Watcher]:
        """Who is to be told; their one-shot watches on it are gone afterwards."""
        kind, path, _acl = event
        if kind is EventType.CHILD:
            return self._child.fire(path, is_child=True)
        told = self._data.fire(path, is_child=False)
        if kind is EventType.DELETED:
            others = self._child.fire(path, is_child=False)
            if others:
                told = list(dict.fromkeys(told + others))
        return told

    def drop(self, watcher: Watcher) -> None:
        """The watcher is gone: all of its watches are."""
        self._data.drop(watcher)
        self._child.drop(watcher)

    def by_path(self) -> dict[str, list[Watcher]]:
        """Who watches each path in the data table, which is what four-letter words show."""
        return {path: list(watchers) for path, watchers in self._data.by_path.items()}

    def _tables(self, watch_type: WatchType) -> tuple[_Table[Watcher], ...]:
        if watch_type is WatchType.CHILDREN:
            return (self._child,)
        if watch_type is WatchType.DATA:
            return (self._data,)
        return (self._child, self._data)


class _Table(Generic[Watcher]):
    """Watches of one sort.

    by_path  path → watcher → mode
    paths    watcher → its paths
    """

    __slots__ = ("_lasting", "_recursive", "by_path", "paths")

    def __init__(self) -> None:
        self.by_path: dict[str, dict[Watcher, WatchMode]] = {}
        self.paths: dict[Watcher, dict[str, None]] = {}
        self._lasting = 0  # how many are not one-shot
        self._recursive = 0

    def add(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        watchers = self.by_path.setdefault(path, {})
        before = watchers.get(watcher)
        watchers[watcher] = mode
        if before is None:
            self.paths.setdefault(watcher, {})[path] = None
        if before is not mode:
            self._count(before, -1)
            self._count(mode, 1)

    def remove(self, path: str, watcher: Watcher) -> bool:
        watchers = self.by_path.get(path, {})
        mode = watchers.pop(watcher, None)
        if mode is None:
            return False
        if not watchers:
            del self.by_path[path]
        self._count(mode, -1)
        self._forget(path, watcher)
        return True

    def fire(self, path: str, *, is_child: bool) -> list[Watcher]:
        if not self._lasting:
            watchers = self.by_path.pop(path, None)
            if not watchers:
                return []
            for watcher in watchers:
                self._forget(path, watcher)
            return list(watchers)
        told: dict[Watcher, None] = {}
        for watcher, mode in list(self.by_path.get(path, {}).items()):
            if mode is WatchMode.RECURSIVE and is_child:
                continue
            told[watcher] = None
            if mode is WatchMode.STANDARD:
                self.remove(path, watcher)
        if self._recursive and not is_child:
            while path != "/":
                path = paths.parent(path)
                for watcher, mode in self.by_path.get(path, {}).items():
                    if mode is WatchMode.RECURSIVE:
                        told[watcher] = None
        return list(told)

    def drop(self, watcher: Watcher) -> None:
        for path in self.paths.pop(watcher, {}):
            watchers = self.by_path[path]
            self._count(watchers.pop(watcher), -1)
            if not watchers:
                del self.by_path[path]

    def _forget(self, path: str, watcher: Watcher) -> None:
        own = self.paths[watcher]
        del own[path]
        if not own:
            del self.paths[watcher]

    def _count(self, mode: WatchMode | None, change: int) -> None:
        if mode is WatchMode.RECURSIVE:
            self._recursive += change
            self._lasting += change
        elif mode is WatchMode.PERSISTENT:
            self._lasting += change
