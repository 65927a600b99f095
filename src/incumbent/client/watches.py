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

_Key: TypeAlias = tuple[str, str]
"""A kind of watch and a path."""

_REMOVED_AS = {"data": WatchType.DATA, "child": WatchType.CHILDREN}
"""The one-shot kinds."""


class Watches:
    """The watchers of one session, by kind and path, in order of registration."""

    __slots__ = (
        "_asked",
        "_bared",
        "_child",
        "_data",
        "_exist",
        "_log",
        "_owed",
        "_persistent",
        "_recursive",
        "_root",
        "_since",
        "_twice",
    )

    def __init__(self, log: Callable[[str], None], root: Chroot) -> None:
        self._log = log
        self._root = root
        self._data: _Table = {}
        self._exist: _Table = {}
        self._child: _Table = {}
        self._persistent: _Table = {}
        self._recursive: _Table = {}
        self._since: list[int] = []
        """What was last seen when each AddWatch and SetWatches of our own was sent that is under
        way, oldest first: what happened since may not have been told."""
        self._asked: dict[_Key, int] = {}
        """Requests under way after whose answer the server may have a watch: how many."""
        self._owed: dict[_Key, None] = {}
        """Watches to be taken off as soon as nobody asks for the same any more."""
        self._bared: dict[str, bool] = {}
        """Paths of reads under way without the lasting watch that they relied on; True: their own
        went with it too."""
        self._twice: frozenset[str] = frozenset()
        """Paths set again at the last reconnect for two kinds of waiters: who saw the znode, and
        who saw that there is none. One event tells both, and leaves a watch for the latter."""

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._tables for watchers in table.values())

    @property
    def _tables(self) -> tuple[_Table, ...]:
        return (self._data, self._exist, self._child, self._persistent, self._recursive)

    def asks(self, wanted: Request) -> Request:
        """A request for a watch begins its way; as it is to be sent. Ends with `answered` or
        `given_up`."""
        mode, key = self._mode(wanted.where), _key(wanted)
        self._asked[key] = self._asked.get(key, 0) + 1
        if mode is None:
            return wanted
        if isinstance(wanted, AddWatch):
            return replace(wanted, mode=max(mode, wanted.mode))
        return replace(wanted, watch=False)  # type: ignore[type-var]

    def given_up(self, wanted: Request) -> None:
        """It ended without an answer, or with one that we could not read."""
        key, path = _key(wanted), wanted.where
        self._asked[key] -= 1
        if not self._asked[key]:
            del self._asked[key]
            if not any((kind, path) in self._asked for kind in _REMOVED_AS):
                self._bared.pop(path, None)

    def answered(
        self,
        wanted: Request,
        sent: Request,
        value: object,
        watcher: Watcher | None,
        last_zxid: int,
    ) -> list[Request]:
        """It was answered: register. Without `watcher` nobody waits any more."""
        path = wanted.where
        bared = self._bared.get(path)
        self.given_up(wanted)
        table = self._table(wanted, value)
        if table is not None and watcher is not None:
            table.setdefault(path, {})[watcher] = None
        mode = self._mode(path)
        if isinstance(sent, AddWatch):
            if table is None or mode == sent.mode:
                return []
            return self._lasts_less(path, last_zxid)
        if table is None or watcher is None:
            key = _key(wanted)
            return self._surplus(key) if table is not None or key in self._owed else []
        if bared or (sent is not wanted and (bared is not None or mode is None)):
            return self._set(last_zxid, path)  # the lasting watch that it relied on is gone
        return []

    def set_again(self, request: SetWatches | SetWatches2) -> list[Request]:
        """One of `requests` was carried out, what it told has come."""
        self._since.pop(0)
        twice = [path for path in request.exist if path in self._twice]
        return [each for path in twice for each in self._surplus(("data", path))]

    def carried_out(self, request: Request) -> list[Request]:
        """One of the requests that were asked for here was carried out."""
        if isinstance(request, AddWatch):  # the watch before it may have told too little
            path = request.path
            tables = [{path: t.get(path, {})} for t in (self._persistent, self._recursive)]
            self._call_all(tables, LOOK_AGAIN)
            self._tell_of_children(path, {})
        if isinstance(request, AddWatch | SetWatches):
            self._since.pop(0)
        if not isinstance(request, SetWatches):
            return []
        # Whoever waited may have heard meanwhile what an older watch told; and what a child's
        # waiter is told of a deletion, everybody hears.
        data, exist, child = request.data, request.exist, request.child
        kinds = (("data", data), ("data", exist), ("child", child), ("data", child))
        keys = dict.fromkeys((kind, path) for kind, listed in kinds for path in listed)
        return [each for key in keys for each in self._surplus(key)]

    def remove(self, path: str, watcher: Watcher, last_zxid: int) -> list[Request]:
        """Nobody waits for this any more: forget the watcher; no error if it is not there."""
        emptied = [table for table in self._tables if _pop(table, path, watcher)]
        if any(table is self._persistent or table is self._recursive for table in emptied):
            return self._lasts_less(path, last_zxid)
        kinds = ["child" if table is self._child else "data" for table in emptied]
        return [each for kind in dict.fromkeys(kinds) for each in self._surplus((kind, path))]

    def fire(self, event: WatchEvent) -> None:
        """Call whom this event concerns, each once."""
        told = self._concerned(event)
        for watcher in told:
            self._call(watcher, event)
        above = parent(event.path) if event.path.startswith("/") and event.path != "/" else ""
        is_about_a_child = event.type in (EventType.CREATED, EventType.DELETED)
        if is_about_a_child and self._mode(above) is WatchMode.RECURSIVE:
            self._tell_of_children(above, self._persistent.get(above, {}))

    def look_again(self) -> None:
        """A server has our watches again: those that last may have missed something."""
        self._call_all((self._persistent, self._recursive), LOOK_AGAIN)

    def end(self) -> Callable[[], None]:
        """Forget all; the result tells each of them, once, that the session is over."""
        self._since.clear()
        tables = tuple(dict(table) for table in self._tables)
        for table in self._tables:
            table.clear()
        return lambda: self._call_all(tables, SESSION_OVER)

    def requests(self, last_zxid: int) -> Iterator[SetWatches | SetWatches2]:
        """What sets every watch again; what changed after `last_zxid` fires the one-shot ones.

        Lasting ones go last: on their path they take the one-shot ones' place. Where an earlier
        SetWatches was cut off, what it would have told is told now.
        """
        for sort, path in self._asked:
            if sort in _REMOVED_AS and not (path in self._persistent or path in self._recursive):
                self._bared.setdefault(path, False)
        last_zxid = min([last_zxid, *self._since])
        self._since.clear()
        self._twice = frozenset(self._exist.keys() & (self._data.keys() | self._child.keys()))
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
                    self._since.append(last_zxid)
                    yield _set_watches(last_zxid, kinds)
                    for each in kinds:
                        each.clear()
                    size = 0
        if size:
            self._since.append(last_zxid)
            yield _set_watches(last_zxid, kinds)

    def _mode(self, path: str) -> WatchMode | None:
        """How lasting the server's watch has to be, counting those that are asked for."""
        if path in self._recursive or ("recursive", path) in self._asked:
            return WatchMode.RECURSIVE
        if path in self._persistent or ("persistent", path) in self._asked:
            return WatchMode.PERSISTENT
        return None

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

    def _surplus(self, key: _Key) -> list[Request]:
        """What takes a one-shot watch off, unless somebody waits for it, or may soon."""
        kind, path = key
        self._owed.pop(key, None)
        tables = (self._child,) if kind == "child" else (self._data, self._exist)
        if any(path in table for table in tables) or self._mode(path) is not None:
            return []
        if key in self._asked:
            self._owed[key] = None
            return []
        return [RemoveWatches(path, _REMOVED_AS[kind])]

    def _lasts_less(self, path: str, last_zxid: int) -> list[Request]:
        """The server's lasting watch is not what is needed, or is needed no more."""
        mode = self._mode(path)
        if mode is not None:
            self._since.append(last_zxid)
            return [AddWatch(path, mode)]
        if any((kind, path) in self._asked for kind in _REMOVED_AS):
            self._bared[path] = True
        return [RemoveWatches(path, WatchType.ANY), *self._set(last_zxid, path)]

    def _set(self, last_zxid: int, path: str) -> list[Request]:
        """What sets the one-shot watches on this path, and leaves a lasting one in place."""
        kinds = [[path] if path in table else [] for table in self._tables[:3]]
        mode = self._mode(path)
        if not any(kinds):
            return []
        requests = [
            SetWatches(last_zxid, *kinds),
            *([] if mode is None else [AddWatch(path, mode)]),
        ]
        self._since += [last_zxid] * len(requests)
        return requests

    def _tell_of_children(self, path: str, others: dict[Watcher, None]) -> None:
        """A child may have come or gone, and no CHILD says it."""
        event = WatchEvent(EventType.CHILD, KeeperState.CONNECTED, path)
        for watcher in self._child.pop(path, {}) | others:
            self._call(watcher, event)

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


def _key(request: Request) -> _Key:
    if isinstance(request, AddWatch):
        is_recursive = request.mode == WatchMode.RECURSIVE
        return ("recursive" if is_recursive else "persistent", request.path)
    is_child = isinstance(request, GetChildren | GetChildren2)
    return ("child" if is_child else "data", request.where)


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
