"""One-shot watchers: who is called when a znode changes, once.

Rule of this file: a watcher is called at most once per registration, and an event for which
nobody waits any more is no error: it was on its way when the wait ended.

A server forgets watches with the connection; `requests` makes what sets them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from incumbent.errors import NoNode
from incumbent.wire import (
    EventType,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    KeeperState,
    Request,
    SetWatches,
    WatchEvent,
)

__all__ = ["SESSION_OVER", "Watcher", "Watches"]

Watcher: TypeAlias = Callable[[WatchEvent], None]
"""Called with the event, on the event loop. It must not block."""

SESSION_OVER = WatchEvent(EventType.NONE, KeeperState.EXPIRED, "")
"""What every watcher hears that is left when its session ends."""

_CHUNK = 128 * 1024
"""Bytes of paths in one SetWatches, as ZooKeeper's own clients split it."""

_Table: TypeAlias = dict[str, dict[Watcher, None]]


class Watches:
    """The watchers of one session, by kind and path, in order of registration."""

    __slots__ = ("_child", "_data", "_exist", "_log")

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._data: _Table = {}
        self._exist: _Table = {}
        self._child: _Table = {}

    def __len__(self) -> int:
        tables = (self._data, self._exist, self._child)
        return sum(len(watchers) for table in tables for watchers in table.values())

    def answered(self, request: Request, value: object, watcher: Watcher) -> None:
        """A read that asked for a watch was answered: register, if the server did.

        exists on a missing znode leaves a watch for its creation; other refusals leave none.
        """
        refusal = value if isinstance(value, Exception) else None
        if isinstance(request, Exists):
            if refusal is None:
                self._add(self._data, request.path, watcher)
            elif isinstance(refusal, NoNode):
                self._add(self._exist, request.path, watcher)
        elif isinstance(request, GetData):
            if refusal is None:
                self._add(self._data, request.path, watcher)
        elif isinstance(request, GetChildren | GetChildren2) and refusal is None:
            self._add(self._child, request.path, watcher)

    def remove(self, path: str, watcher: Watcher) -> None:
        """Forget it, in every kind; no error if it is not there."""
        for table in (self._data, self._exist, self._child):
            watchers = table.get(path)
            if watchers is not None:
                watchers.pop(watcher, None)
                if not watchers:
                    del table[path]

    def fire(self, event: WatchEvent) -> None:
        """Call whom this event concerns, each once."""
        for watcher in self._take(event):
            self._call(watcher, event)

    def end(self) -> Callable[[], None]:
        """Forget all; the result tells each of them, once, that the session is over."""
        left: dict[Watcher, None] = {}
        for table in (self._data, self._exist, self._child):
            for watchers in table.values():
                left |= watchers
            table.clear()

        def tell() -> None:
            for watcher in left:
                self._call(watcher, SESSION_OVER)

        return tell

    def requests(self, last_zxid: int) -> Iterator[SetWatches]:
        """What sets every watch again; what changed after `last_zxid` fires at once."""
        kinds: tuple[list[str], list[str], list[str]] = ([], [], [])
        size = 0
        for kind, table in zip(kinds, (self._data, self._exist, self._child), strict=True):
            for path in table:
                kind.append(path)
                size += len(path.encode()) + 4
                if size >= _CHUNK:
                    yield SetWatches(last_zxid, *map(tuple, kinds))
                    for each in kinds:
                        each.clear()
                    size = 0
        if size:
            yield SetWatches(last_zxid, *map(tuple, kinds))

    def _add(self, table: _Table, path: str, watcher: Watcher) -> None:
        table.setdefault(path, {})[watcher] = None

    def _take(self, event: WatchEvent) -> dict[Watcher, None]:
        tables: tuple[_Table, ...] = ()
        if event.type in (EventType.CREATED, EventType.CHANGED):
            tables = (self._data, self._exist)
        elif event.type is EventType.DELETED:
            tables = (self._data, self._exist, self._child)
        elif event.type is EventType.CHILD:
            tables = (self._child,)
        taken: dict[Watcher, None] = {}
        for table in tables:
            taken |= table.pop(event.path, {})
        return taken

    def _call(self, watcher: Watcher, event: WatchEvent) -> None:
        try:
            watcher(event)
        except Exception as error:  # a stranger's code: it must not harm the connection
            self._log(f"a watcher failed at {event.type.name} {event.path}: {error!r}")
