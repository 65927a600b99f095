"""A subtree as it was at one moment, brought forward to a later one.

Events say that a znode changed, not to what, so each is read again; while one answer is under way
the next event comes. Shown at once, each by itself, such answers would make up a tree that never
was: a new leader beside settings that are older than it. So what was read is kept aside until it
is, all of it, what the tree was at one moment: that of the last answer. An answer never comes
before the events of what it reveals, so that moment is known when everything is read that was told
before the answer. What one transaction changes is told event by event, and the moments between
these are none; only in a hurry are they shown (`patience`).

After a gap (a reconnect, a new session) nobody tells what happened meanwhile. Then all is read
again before anything is shown; only where a pzxid has changed are the children listed anew.

Rule of this file: pure. What is shown moves from one moment of the tree to a later one. If the tree
changes faster than it can be read, `patience` rounds in a row, then by single changes, in their
order; after as many more, each znode by itself, none older than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from incumbent.wire import EventType, Stat
from incumbent.wire.paths import name as name_of
from incumbent.wire.paths import parent

__all__ = ["Change", "Picture", "Znode"]


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as it was read. Of its Stat, what counts children (cversion, numChildren, pzxid)
    is as old as the last reading of this znode itself."""

    path: str
    data: bytes
    stat: Stat

    @property
    def name(self) -> str:
        return name_of(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What became of one znode: made (`before` is None), deleted (`after` is None), or another
    one by now. `resumed`: it happened while nobody told us, and is the net difference."""

    path: str
    before: Znode | None
    after: Znode | None
    resumed: bool = False


class Picture:
    """What is shown of the tree at and below `root`, what was read, and what must be read.

    shown        path → znode
    through      the number of the newest event up to which it is shown; `events` have come
    keeps_order  what changed first is never shown after what changed later, however long it takes
    """

    def __init__(self, root: str, *, patience: int = 8, keeps_order: bool = False) -> None:
        self.root = root
        self.shown: dict[str, Znode] = {}
        self.events = 0
        self.through = -1
        self._patience = patience
        self._keeps_order = keeps_order
        self._rounds = 0
        self._children: dict[str, dict[str, None]] = {}
        self._owed: dict[str, None] = {root: None}
        """To be read before anything is shown."""
        self._dirty: dict[str, int] = {}
        """To be read → the first event on it that no read covers, in the order of these."""
        self._reading: dict[str, Callable[[], bool]] = {}
        """Asked for → has the answer come?"""
        self._known: dict[str, Znode | None] = {}
        """Read, and not shown yet; None: it is gone."""
        self._flights: list[Callable[[], bool]] = []
        self._covered = 0
        """No read covers an event newer than this."""
        self._answered = 0
        """No answer came after an event newer than this."""
        self._complete: set[str] = set()
        """Znodes of which every child is known: listed, or made before our eyes."""
        self._unverified: dict[str, int] = {}
        """Such as were complete before a gap → their pzxid then."""
        self._resumed = False

    @property
    def is_behind(self) -> bool:
        """Is there something that was told and is not shown?"""
        return bool(self._owed or self._dirty or self._reading or self._known)

    def children(self, path: str) -> list[str]:
        """The names of the children shown, sorted."""
        return sorted(self._children.get(path, ()))

    # What happens.

    def told(self, kind: EventType, path: str) -> None:
        """An event came."""
        self.events += 1
        if kind is EventType.CREATED:  # its children will be told of
            self._complete.add(path)
        elif kind is EventType.DELETED:
            self._complete.discard(path)
        if kind is not EventType.CHANGED:
            self._unverified.pop(path, None)
        if not all(has_come() for has_come in self._flights):
            self._answered = self.events
        has_come = self._reading.get(path)
        if has_come is not None and not has_come():
            self._covered = self.events
        elif path in self._owed:
            pass
        elif kind is EventType.CREATED or self._has(path):
            self._dirty.setdefault(path, self.events)
        else:  # it was there, and we did not know of it
            self._owed[path] = None

    def gap(self) -> None:
        """Events may be missing: all is to be read again. What is being read counts for nothing."""
        for path in self._complete:
            known = self._known[path] if path in self._known else self.shown.get(path)
            if known is not None:
                self._unverified[path] = known.stat.pzxid
        self._complete.clear()
        self._owed = dict.fromkeys(
            [
                *(self.root, *self.shown, *self._known),
                *(*self._owed, *self._dirty, *self._reading),
            ]
        )
        self._reading.clear()
        self._flights.clear()
        self._dirty.clear()
        self._known.clear()
        self._rounds = 0
        self._resumed = self.through >= 0

    # What is read.

    def take(self, room: int) -> list[str]:
        """What to read next, `room` paths at most. `asked` follows, or `failed`."""
        wanted = [*self._owed, *self._dirty][:room]
        again = [path for path in self._known if path not in self._dirty]
        if not self._owed and self._rounds and len(wanted) + len(again) <= room:
            wanted += again  # they change all the time: read together they are of one moment
        for path in wanted:
            self._owed.pop(path, None)
            self._dirty.pop(path, None)
        return wanted

    def lists(self, path: str) -> bool:
        """Are the children to be read too?"""
        return path not in self._complete and path not in self._unverified

    def asked(self, paths: Iterable[str], has_come: Callable[[], bool]) -> None:
        """These are being read, at one moment; `has_come()` is true as soon as the answer is."""
        self._covered = self._answered = self.events
        self._flights.append(has_come)
        for path in paths:
            self._reading[path] = has_come

    def failed(self, paths: Iterable[str]) -> None:
        """No answer: they are still to be read."""
        for path in paths:
            self._reading.pop(path, None)
            self._owed[path] = None

    def came(self, path: str, znode: Znode | None, names: Sequence[str] | None = None) -> None:
        """What was read: the znode, or None if there is none (for us); its children if listed."""
        self._reading.pop(path, None)
        self._known[path] = znode
        verified = self._unverified.pop(path, None)
        if znode is None:
            self._complete.discard(path)
        elif names is not None:
            self._complete.add(path)
            for name in names:
                child = f"/{name}" if path == "/" else f"{path}/{name}"
                if self.lists(child) and child not in self._reading:
                    self._dirty.pop(child, None)
                    self._owed[child] = None
        elif path not in self._complete:
            if verified == znode.stat.pzxid:
                self._complete.add(path)
            else:
                self._owed[path] = None

    # What is shown.

    def show(self) -> list[Change] | None:
        """Show what is known if it is of one moment: what changed by that. None: not yet."""
        if not self._reading:
            self._flights.clear()
        if self._reading or self._owed:
            return None
        first = next(iter(self._dirty.values()), self.events + 1)
        if self._answered >= first:
            self._rounds += 1
            if not self._is_in_a_hurry(self._covered < first):
                return None
        changes = [
            Change(path=path, before=before, after=after, resumed=self._resumed)
            for path, after in self._known.items()
            if _is_other(before := self.shown.get(path), after)
        ]
        for path, znode in self._known.items():
            self._put(path, znode)
        self._known.clear()
        self._rounds = 0
        self._resumed = False
        self.through = first - 1
        gone = [change for change in changes if change.after is None]
        there = [change for change in changes if change.after is not None]
        gone.sort(key=lambda change: change.path, reverse=True)
        return gone + sorted(there, key=lambda change: change.path)

    def _is_in_a_hurry(self, is_in_order: bool) -> bool:
        """May it be shown, though it is of no moment?"""
        return self._rounds >= self._patience and (
            is_in_order or (not self._keeps_order and self._rounds >= 2 * self._patience)
        )

    def _has(self, path: str) -> bool:
        return any(path in each for each in (self.shown, self._known, self._dirty, self._reading))

    def _put(self, path: str, znode: Znode | None) -> None:
        if znode is not None:
            self.shown[path] = znode
            if path != "/":
                self._children.setdefault(parent(path), {})[znode.name] = None
        elif self.shown.pop(path, None) is not None and path != "/":
            siblings = self._children[parent(path)]
            del siblings[name_of(path)]
            if not siblings:
                del self._children[parent(path)]


def _is_other(before: Znode | None, after: Znode | None) -> bool:
    if before is None or after is None:
        return before is not after
    return (before.stat.czxid, before.stat.mzxid) != (after.stat.czxid, after.stat.mzxid)
