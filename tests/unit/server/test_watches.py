"""One-shot watches."""

from __future__ import annotations

from incumbent.server.tree import Event
from incumbent.server.watches import Watches
from incumbent.wire import EventType, WatchMode, WatchType

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
    for table in (watches._data, watches._child):
        assert table.by_path == table.paths == {}
    watches.drop("w")


def test_a_lasting_watch_fires_again_and_an_ordinary_one_in_its_place_ends_it() -> None:
    watches: Watches[str] = Watches()
    watches.add_lasting("/a", "w", WatchMode.PERSISTENT)

    told = [watches.fire(CHANGED), watches.fire(CHILD), watches.fire(DELETED)]
    watches.add_data("/a", "w")
    told += [watches.fire(CHANGED), watches.fire(CHANGED), watches.fire(CHILD)]

    assert told == [["w"], ["w"], ["w"], ["w"], [], ["w"]]


def test_a_recursive_watch_sees_all_below_but_no_lists_of_children() -> None:
    watches: Watches[str] = Watches()
    watches.add_lasting("/", "root", WatchMode.RECURSIVE)
    watches.add_lasting("/a", "a", WatchMode.RECURSIVE)

    deep = Event(EventType.CREATED, "/a/b/c")
    beside = Event(EventType.CREATED, "/ab")

    assert sorted(watches.fire(deep)) == ["a", "root"]
    assert watches.fire(beside) == ["root"]
    assert watches.fire(CHILD) == []
    assert watches.fire(DELETED) == ["a", "root"]


def test_nothing_is_left_of_lasting_watches_either() -> None:
    watches: Watches[str] = Watches()
    watches.add_lasting("/a", "w", WatchMode.RECURSIVE)
    watches.add_lasting("/b", "w", WatchMode.PERSISTENT)
    watches.add_lasting("/b", "x", WatchMode.RECURSIVE)

    watches.drop("w")
    removed = [watches.remove("/b", "x", kind) for kind in map(WatchType, (1, 1, 2, 3))]

    assert removed == [True, False, True, False]
    for table in (watches._data, watches._child):
        assert table.by_path == table.paths == {}
        assert (table._lasting, table._recursive) == (0, 0)
