"""One-shot watches."""

from __future__ import annotations

from incumbent.server.tree import Event
from incumbent.server.watches import Watches
from incumbent.wire import EventType

CREATED, CHANGED = Event(EventType.CREATED, "/a"), Event(EventType.CHANGED, "/a")
DELETED, CHILD = Event(EventType.DELETED, "/a"), Event(EventType.CHILD, "/a")


def test_a_watch_fires_once() -> None:
    watches: Watches[str] = Watches()
    watches.add_data("/a", "w")

    told = [watches.fire(CHANGED), watches.fire(CHANGED)]

    assert told == [["w"], []]
    assert len(watches) == 0


def test_the_same_watch_set_twice_is_one() -> None:
    watches: Watches[str] = Watches()
    watches.add_data("/a", "w")
    watches.add_data("/a", "w")

    assert watches.fire(CREATED) == ["w"]


def test_a_deletion_reaches_data_and_child_watchers_each_once() -> None:
    watches: Watches[str] = Watches()
    watches.add_data("/a", "both")
    watches.add_child("/a", "both")
    watches.add_child("/a", "children")

    assert watches.fire(DELETED) == ["both", "children"]
    assert len(watches) == 0


def test_children_and_data_are_watched_apart() -> None:
    watches: Watches[str] = Watches()
    watches.add_data("/a", "data")
    watches.add_child("/a", "children")

    assert watches.fire(CHILD) == ["children"]
    assert watches.fire(CHANGED) == ["data"]


def test_nothing_is_left_of_a_watcher_that_went() -> None:
    watches: Watches[str] = Watches()
    for n in range(1000):
        watches.add_data(f"/{n}", "w")
        watches.add_child(f"/{n}", "w")

    watches.drop("w")

    assert len(watches) == 0
    assert watches._data == watches._child == {}
    watches.drop("w")
