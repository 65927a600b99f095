"""Watchers: who is called when a znode changes, once, or again and again.

Rule of this file: a server's watch and somebody who waits for it go together. A watcher for which
the server keeps no watch would wait for ever; a watch for which nobody waits would pile up there.
So each change here answers the requests that keep the two the same; an event for which nobody
waits any more is no error: it was on its way when the wait ended.

A server keeps one watch per path and connection: a one-shot read would end a lasting watch on
its path, and a recursive one hides its children's coming and going (Apache 3.8). Hence a read of
a path on which we have a lasting watch asks for none, and what a recursive watch doesn't say is
concluded from what it says. A server forgets all watches with the connection; `requests` makes
what sets them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from incumbent.client.chroot import Chroot
from incumbent.errors import NoNode
from incumbent.wire import (
    AddWatch,
    EventType,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    KeeperState,
    RemoveWatches,
    Request,
    SetWatches,
    SetWatches2,
    WatchEvent,
    WatchMode,
    WatchType,
)
from incumbent.wire.paths import parent

__all__ = ["LOOK_AGAIN", "SESSION_OVER", "Watcher", "Watches"]

Watcher: TypeAlias = Callable[[WatchEvent], object]
"""Called with the event, on the event loop. It must not block."""

SESSION_OVER = WatchEvent(EventType.NONE, KeeperState.EXPIRED, "")
"""What every watcher hears that is left when its session ends."""

LOOK_AGAIN = WatchEvent(EventType.NONE, KeeperState.CONNECTED, "")
"""What lasting watchers hear after a reconnect: nobody told them what happened in between."""

_CHUNK = 128 * 1024
"""Bytes of paths in one SetWatches, as ZooKeeper's own clients split it."""

_Table: TypeAlias = dict[str, dict[Watcher, None]]


class Watches:
    """The watchers of one session, by kind and path, in order of registration."""

    __slots__ = (
        "_asked",
        "_child",
        "_data",
        "_exist",
        "_log",
        "_persistent",
        "_recursive",
        "_root",
    )

    def __init__(self, log: Callable[[str], None], root: Chroot) -> None:
        self._log = log
        self._root = root
        self._data: _Table = {}
        self._exist: _Table = {}
        self._child: _Table = {}
        self._persistent: _Table = {}
        self._recursive: _Table = {}
        self._asked: dict[tuple[WatchType, str], int] = {}
        """Requests under way after whose answer the server may have a watch: type, path → how many."""

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._tables for watchers in table.values())

    @property
    def _tables(self) -> tuple[_Table, ...]:
        return (self._data, self._exist, self._child, self._persistent, self._recursive)

    def asks(self, wanted: Request) -> Request:
        """A request for a watch begins its way; as it is to be sent. Ends with `answered` or
        `given_up`."""
        path = wanted.where
        key = (_type(wanted), path)
        will_last = self._lasting(path) or (WatchType.ANY, path) in self._asked
        self._asked[key] = self._asked.get(key, 0) + 1
        if isinstance(wanted, AddWatch):
            return replace(wanted, mode=WatchMode.RECURSIVE) if path in self._recursive else wanted
        return replace(wanted, watch=False) if will_last else wanted  # type: ignore[type-var]

    def given_up(self, wanted: Request) -> None:
        """It ended without an answer, or with one that we could not read."""
        key = (_type(wanted), wanted.where)
        self._asked[key] -= 1
        if not self._asked[key]:
            del self._asked[key]

    def answered(
        self,
        wanted: Request,
        sent: Request,
        value: object,
        watcher: Watcher | None,
        last_zxid: int,
    ) -> list[Request]:
        """It was answered: register. Without `watcher` nobody waits any more."""
        self.given_up(wanted)
        path = wanted.where
        table = self._table(wanted, value)
        if table is None:
            return []
        if watcher is None:
            return self._surplus(_type(wanted), path, last_zxid)
        table.setdefault(path, {})[watcher] = None
        if isinstance(sent, AddWatch):
            if path not in self._recursive or sent.mode == WatchMode.RECURSIVE:
                return []
            self._call_all(({path: self._recursive[path]},), LOOK_AGAIN)
            return [AddWatch(path, WatchMode.RECURSIVE)]
        if sent is wanted or self._lasting(path):
            return []
        return self._set(last_zxid, path)  # the lasting watch that it relied on is gone

    def remove(self, path: str, watcher: Watcher, last_zxid: int) -> list[Request]:
        """Nobody waits for this any more: forget the watcher; no error if it is not there."""
        emptied = [table for table in self._tables if _pop(table, path, watcher)]
        if any(table is self._persistent or table is self._recursive for table in emptied):
            return self._lasts_less(path, last_zxid)
        kinds = [WatchType.CHILDREN if t is self._child else WatchType.DATA for t in emptied]
        return [
            each for kind in dict.fromkeys(kinds) for each in self._surplus(kind, path, last_zxid)
        ]

    def fire(self, event: WatchEvent) -> None:
        """Call whom this event concerns, each once."""
        told = self._concerned(event)
        for watcher in told:
            self._call(watcher, event)
        above = parent(event.path) if event.path.startswith("/") and event.path != "/" else ""
        if event.type in (EventType.CREATED, EventType.DELETED) and above in self._recursive:
            coming_or_going = replace(event, type=EventType.CHILD, path=above)
            one_shot = self._child.pop(above, {})
            for watcher in one_shot | self._persistent.get(above, {}):
                self._call(watcher, coming_or_going)

    def look_again(self) -> None:
        """A server has our watches again: those that last may have missed something."""
        self._call_all((self._persistent, self._recursive), LOOK_AGAIN)

    def end(self) -> Callable[[], None]:
        """Forget all; the result tells each of them, once, that the session is over."""
        tables = tuple(dict(table) for table in self._tables)
        for table in self._tables:
            table.clear()
        return lambda: self._call_all(tables, SESSION_OVER)

    def requests(self, last_zxid: int) -> Iterator[SetWatches | SetWatches2]:
        """What sets every watch again; what changed after `last_zxid` fires the one-shot ones.

        Lasting ones go last: on their path they take the one-shot ones' place.
        """
        kinds: tuple[list[str], ...] = ([], [], [], [], [])
        tables = (*self._tables[:4], self._recursive)
        size = 0
        for kind, table in zip(kinds, tables, strict=True):
            for path in table:
                if table is self._persistent and path in self._recursive:
                    continue
                kind.append(path)
                size += len(path.encode()) + 4
                if size >= _CHUNK:
                    yield _set_watches(last_zxid, kinds)
                    for each in kinds:
                        each.clear()
                    size = 0
        if size:
            yield _set_watches(last_zxid, kinds)

    def _lasting(self, path: str) -> bool:
        return path in self._persistent or path in self._recursive

    def _table(self, request: Request, value: object) -> _Table | None:
        """Where the server has set a watch, going by its answer.

        exists on a missing znode leaves a watch for its creation; other refusals leave none.
        """
        is_refused = isinstance(value, Exception)
        if isinstance(request, Exists) and isinstance(value, NoNode):
            return self._exist
        if is_refused:
            return None
        if isinstance(request, Exists | GetData):
            return self._data
        if isinstance(request, GetChildren | GetChildren2):
            return self._child
        assert isinstance(request, AddWatch)
        return self._recursive if request.mode == WatchMode.RECURSIVE else self._persistent

    def _surplus(self, kind: WatchType, path: str, last_zxid: int) -> list[Request]:
        """What takes the server's watch away, unless somebody waits for it, or soon will."""
        if kind is WatchType.ANY:
            return self._lasts_less(path, last_zxid)
        tables = (self._child,) if kind is WatchType.CHILDREN else (self._data, self._exist)
        is_needed = any(path in table for table in tables) or self._lasting(path)
        if is_needed or (kind, path) in self._asked or (WatchType.ANY, path) in self._asked:
            return []
        return [RemoveWatches(path, kind)]

    def _lasts_less(self, path: str, last_zxid: int) -> list[Request]:
        """A lasting watcher went: the server's watch becomes what the others need."""
        if path in self._recursive or (WatchType.ANY, path) in self._asked:
            return []
        if path in self._persistent:  # what comes until then says nothing of children
            self._call_all(({path: self._persistent[path]},), LOOK_AGAIN)
            return [AddWatch(path, WatchMode.PERSISTENT)]
        return [RemoveWatches(path, WatchType.ANY), *self._set(last_zxid, path)]

    def _set(self, last_zxid: int, path: str) -> list[Request]:
        """What sets the one-shot watches on this path."""
        kinds = [[path] if path in table else [] for table in self._tables[:3]]
        return [SetWatches(last_zxid, *kinds)] if any(kinds) else []

    def _concerned(self, event: WatchEvent) -> dict[Watcher, None]:
        path = event.path
        one_shot: tuple[_Table, ...] = ()
        if event.type in (EventType.CREATED, EventType.CHANGED):
            one_shot = (self._data, self._exist)
        elif event.type is EventType.DELETED:
            one_shot = (self._data, self._exist, self._child)
        elif event.type is EventType.CHILD:
            one_shot = (self._child,)
        concerned: dict[Watcher, None] = {}
        for table in one_shot:
            concerned |= table.pop(path, {})
        concerned |= self._persistent.get(path, {})
        while self._recursive and event.type is not EventType.CHILD and path.startswith("/"):
            concerned |= self._recursive.get(path, {})
            if path == "/":
                break
            path = parent(path)
        return concerned

    def _call_all(self, tables: Sequence[_Table], event: WatchEvent) -> None:
        told: dict[Watcher, None] = {}
        for table in tables:
            for watchers in table.values():
                told |= watchers
        for watcher in told:
            self._call(watcher, event)

    def _call(self, watcher: Watcher, event: WatchEvent) -> None:
        try:
            watcher(self._root.event(event))
        except Exception as error:  # a stranger's code: it must not harm the connection
            self._log(f"a watcher failed at {event.type.name} {event.path}: {error!r}")


def _type(request: Request) -> WatchType:
    if isinstance(request, AddWatch):
        return WatchType.ANY
    is_child = isinstance(request, GetChildren | GetChildren2)
    return WatchType.CHILDREN if is_child else WatchType.DATA


def _pop(table: _Table, path: str, watcher: Watcher) -> bool:
    """Take it out; was it there, and the last one?"""
    watchers = table.get(path)
    if watchers is None or watcher not in watchers:
        return False
    del watchers[watcher]
    if watchers:
        return False
    del table[path]
    return True


def _set_watches(last_zxid: int, kinds: Sequence[Sequence[str]]) -> SetWatches | SetWatches2:
    data, exist, child, persistent, recursive = map(tuple, kinds)
    if persistent or recursive:
        return SetWatches2(last_zxid, data, exist, child, persistent, recursive)
    return SetWatches(last_zxid, data, exist, child)
