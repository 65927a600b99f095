"""Whoever waits hears of a change, and the server keeps no watch for nobody, whatever happens.

The client's bookkeeping and the server's, joined by two queues that a seed empties, drops and
fills: reads given up before and after their answer, lasting watches laid over one-shot ones and
taken away again, connections that break at any moment.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from incumbent.client.chroot import Chroot
from incumbent.client.watches import Watches
from incumbent.errors import NoNode
from incumbent.server.tree import Event
from incumbent.server.watches import Watches as ServersWatches
from incumbent.wire import (
    AddWatch,
    EventType,
    Exists,
    GetChildren,
    GetData,
    KeeperState,
    RemoveWatches,
    Request,
    SetWatches,
    SetWatches2,
    WatchEvent,
    WatchMode,
    WatchType,
    paths,
)

PATHS = ("/a", "/a/b", "/a/b/c", "/d")
FAILED = (21889, 88870)
"""Seeds that once did."""
EDITS = (EventType.CREATED, EventType.CHANGED, EventType.DELETED)


class Server:
    """Znodes by the numbers that watches are about, and one client's watches."""

    def __init__(self) -> None:
        self.zxid = 1
        self.changed_at = {"/": 1}
        self.children_at = {"/": 1}
        self.watches: ServersWatches[int] = ServersWatches()

    def look(self, kind: type[Request], path: str) -> int | None:
        """What such a read shows: a number that changes with it, None if it is not there."""
        table = self.children_at if kind is GetChildren else self.changed_at
        return table.get(path)

    def change(self, kind: EventType, path: str) -> list[Event]:
        """Do it if it can be done; the events."""
        is_there, above = path in self.changed_at, paths.parent(path)
        has_children = any(paths.parent(p) == path for p in self.changed_at if p != "/")
        if kind is EventType.CREATED and (is_there or above not in self.changed_at):
            return []
        if kind is not EventType.CREATED and not is_there:
            return []
        if kind is EventType.DELETED and has_children:
            return []
        self.zxid += 1
        if kind is EventType.CHANGED:
            self.changed_at[path] = self.zxid
            return [Event(kind, path)]
        if kind is EventType.CREATED:
            self.changed_at[path] = self.children_at[path] = self.zxid
        else:
            del self.changed_at[path], self.children_at[path]
        self.children_at[above] = self.zxid
        return [Event(kind, path), Event(EventType.CHILD, above)]

    def carry_out(self, request: Request) -> tuple[list[Event], object]:
        """The events that go before the answer, and the answer."""
        match request:
            case Exists() | GetData() | GetChildren():
                seen = self.look(type(request), request.path)
                if request.watch and isinstance(request, GetChildren) and seen:
                    self.watches.add_child(request.path, 1)
                elif request.watch and (seen or isinstance(request, Exists)):
                    self.watches.add_data(request.path, 1)
                return [], NoNode(request.path) if seen is None else seen
            case AddWatch():
                self.watches.add_lasting(request.path, 1, WatchMode(request.mode))
            case RemoveWatches():
                self.watches.remove(request.path, 1, WatchType(request.type))
            case SetWatches() | SetWatches2():
                return self._set_again(request), 0
        return [], 0

    def _set_again(self, request: SetWatches | SetWatches2) -> list[Event]:
        events, since = [], request.relative_zxid
        for path in request.data:
            at = self.changed_at.get(path)
            if at is None or at > since:
                events.append(Event(EventType.CHANGED if at else EventType.DELETED, path))
            else:
                self.watches.add_data(path, 1)
        for path in request.exist:
            if path in self.changed_at:
                events.append(Event(EventType.CREATED, path))
            else:
                self.watches.add_data(path, 1)
        for path in request.child:
            at = self.children_at.get(path)
            if at is None or at > since:
                events.append(Event(EventType.CHILD if at else EventType.DELETED, path))
            else:
                self.watches.add_child(path, 1)
        if isinstance(request, SetWatches2):
            for path in request.persistent:
                self.watches.add_lasting(path, 1, WatchMode.PERSISTENT)
            for path in request.recursive:
                self.watches.add_lasting(path, 1, WatchMode.RECURSIVE)
        return events


class Waiting:
    """A watcher, and what it knows. `must_look`: it was told that this may not be so any more."""

    def __init__(self, wanted: Request) -> None:
        self.wanted = wanted
        self.is_registered = False
        self.is_given_up = False
        self.must_look = False
        self.seen: int | None = None

    def __call__(self, event: WatchEvent) -> None:
        self.must_look = True
        if not isinstance(self.wanted, AddWatch):
            assert self.is_registered, "called before the answer or twice"
            self.is_registered = False


class Play:
    """One seed's story."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.server = Server()
        self.watches = Watches(self._failed, Chroot(""))
        self.last_zxid = 1
        self.to_server: deque[tuple[Request, Request, Waiting | None]] = deque()
        self.to_client: deque[tuple[Any, ...]] = deque()
        self.waiting: list[Waiting] = []

    def _failed(self, line: str) -> None:
        raise AssertionError(line)

    def step(self) -> None:
        acts: list[Callable[[], None]] = [
            *[self.ask] * 3,
            *[self.serve, self.hear] * 4,
            *[self.change] * 3,
            self.give_up,
            self.give_up,
        ]
        self.draw.choice(acts)()
        if self.draw.random() < 0.03:
            self.reconnect()

    def ask(self) -> None:
        path = self.draw.choice(PATHS)
        wanted: Request
        if self.draw.random() < 0.3:
            wanted = AddWatch(path, self.draw.choice((WatchMode.PERSISTENT, WatchMode.RECURSIVE)))
        else:
            wanted = self.draw.choice((Exists, GetData, GetChildren))(path, True)
        waiting = Waiting(wanted)
        self.waiting.append(waiting)
        self.to_server.append((wanted, self.watches.asks(wanted), waiting))

    def give_up(self) -> None:
        if self.waiting:
            waiting = self.waiting.pop(self.draw.randrange(len(self.waiting)))
            waiting.is_given_up = True
            path = waiting.wanted.where
            self.send(self.watches.remove(path, waiting, self.last_zxid))

    def send(self, requests: list[Request]) -> None:
        self.to_server += [(request, request, None) for request in requests]

    def change(self) -> None:
        self.tell(self.server.change(self.draw.choice(EDITS), self.draw.choice(PATHS)))

    def tell(self, events: list[Event]) -> None:
        for event in events:
            if self.server.watches.fire(event):
                told = WatchEvent(event.type, KeeperState.CONNECTED, event.path)
                self.to_client.append(("event", told))

    def serve(self) -> None:
        if self.to_server:
            wanted, sent, waiting = self.to_server.popleft()
            events, answer = self.server.carry_out(sent)
            self.to_client += [
                ("event", WatchEvent(event.type, KeeperState.CONNECTED, event.path))
                for event in events
            ]
            self.to_client.append(("answer", wanted, sent, waiting, answer, self.server.zxid))

    def hear(self) -> None:
        if not self.to_client:
            return
        kind, *rest = self.to_client.popleft()
        if kind == "event":
            self.watches.fire(rest[0])
            return
        wanted, sent, waiting, answer, zxid = rest
        self.last_zxid = max(self.last_zxid, zxid)
        if waiting is not None:
            there = None if waiting.is_given_up else waiting
            is_watched = not isinstance(answer, NoNode) or isinstance(wanted, Exists)
            waiting.is_registered = is_watched
            waiting.must_look = isinstance(wanted, AddWatch) or not is_watched
            waiting.seen = None if isinstance(answer, NoNode) else answer
            self.send(self.watches.answered(wanted, sent, answer, there, self.last_zxid))
        elif isinstance(sent, SetWatches | SetWatches2) and wanted is not sent:
            self.send(self.watches.set_again(sent))
            self.watches.look_again()
        else:
            self.send(self.watches.carried_out(sent))

    def reconnect(self) -> None:
        """What was under way is lost; requests of callers are asked again, after the watches."""
        again = [entry for entry in self._unanswered() if entry[2] is not None]
        for wanted, _, waiting in list(again):
            if waiting is not None and waiting.is_given_up:
                self.watches.given_up(wanted)
        self.to_client.clear()
        self.server.watches.drop(1)
        first = [
            (SetWatches(0, (), (), ()), r, None) for r in self.watches.requests(self.last_zxid)
        ]
        self.to_server = deque([*first, *(e for e in again if e[2] and not e[2].is_given_up)])

    def _unanswered(self) -> list[tuple[Request, Request, Waiting | None]]:
        sent = [(e[1], e[2], e[3]) for e in self.to_client if e[0] == "answer"]
        return [*sent, *self.to_server]

    def settle(self) -> None:
        while self.to_server or self.to_client:
            self.serve()
            self.hear()

    def check(self) -> None:
        """At rest: everybody knows what is so, and both ends keep the same watches."""
        needed: dict[WatchType, set[str]] = {WatchType.DATA: set(), WatchType.CHILDREN: set()}
        for waiting in self.waiting:
            wanted = waiting.wanted
            if isinstance(wanted, AddWatch):
                for each in needed.values():
                    each.add(wanted.path)
            elif waiting.is_registered:
                seen = self.server.look(type(wanted), wanted.where)
                assert seen == waiting.seen, f"{wanted} missed a change"
                is_child = isinstance(wanted, GetChildren)
                needed[WatchType.CHILDREN if is_child else WatchType.DATA].add(wanted.where)
        lasting = {w.wanted.where for w in self.waiting if isinstance(w.wanted, AddWatch)}
        for kind, table in (
            (WatchType.DATA, self.server.watches._data),
            (WatchType.CHILDREN, self.server.watches._child),
        ):
            kept = set(table.by_path)
            assert kept - lasting <= needed[kind], f"watches for nobody: {kept - needed[kind]}"
            assert needed[kind] <= kept | lasting
        for path in lasting:
            modes = [w.wanted.mode for w in self.waiting if self._lasts(w, path)]
            mode = WatchMode.RECURSIVE if WatchMode.RECURSIVE in modes else WatchMode.PERSISTENT
            assert self.server.watches._data.by_path[path][1] == mode

    def _lasts(self, waiting: Waiting, path: str) -> bool:
        return isinstance(waiting.wanted, AddWatch) and waiting.wanted.path == path


@pytest.mark.parametrize("block", range(10))
def test_nobody_misses_a_change_and_no_watch_is_kept_for_nobody(block: int) -> None:
    for seed in [*range(block * 100, block * 100 + 100), *FAILED[block : block + 1]]:
        play = Play(seed)
        for _ in range(8):
            for _ in range(play.draw.randrange(5, 60)):
                play.step()
            play.settle()
            try:
                play.check()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
        play.reconnect()
        play.settle()
        play.check()
        while play.waiting:
            play.give_up()
        play.settle()
        assert len(play.watches) == len(play.server.watches) == 0, seed
        assert play.watches._asked == {}, seed


@pytest.mark.parametrize("block", range(10))
def test_a_lasting_watcher_hears_of_every_change_or_is_told_to_look(block: int) -> None:
    """What it read at its last event, or at none since, is what is so."""
    for seed in range(block * 100, block * 100 + 100):
        play = Play(seed + 1_000_000)
        for _ in range(play.draw.randrange(5, 80)):
            play.step()
        play.settle()
        lasting = [w for w in play.waiting if isinstance(w.wanted, AddWatch)]
        for waiting in lasting:
            waiting.must_look = False
        path = play.draw.choice(PATHS)
        for _ in range(play.draw.randrange(5, 40)):
            if play.draw.random() < 0.5:
                play.change()
            play.step()
        before = {w: w.must_look for w in lasting if w in play.waiting}
        play.settle()
        events = play.server.change(EventType.CHANGED, path)
        for waiting in before:
            waiting.must_look = False
        play.tell(events)
        play.settle()
        for waiting in before:
            wanted = waiting.wanted
            assert isinstance(wanted, AddWatch)
            sees = path == wanted.path or (
                wanted.mode == WatchMode.RECURSIVE and path.startswith(f"{wanted.path}/")
            )
            assert waiting.must_look == (sees and bool(events)), (seed, wanted, path)
