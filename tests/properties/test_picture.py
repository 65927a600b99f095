"""A picture of a tree under random changes, reads and gaps, against the list of all its moments."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from incumbent.recipes.picture import Change, Picture, Znode
from incumbent.wire import EventType, Stat
from incumbent.wire.paths import parent

PATHS = ["/r", "/r/a", "/r/b", "/r/a/x", "/r/a/y", "/r/b/x"]


class World:
    """A tree that changes, and a client of it: events and answers come in the server's order."""

    def __init__(self, patience: int = 10_000) -> None:
        self.zxid = 0
        self.tree: dict[str, Znode] = {}
        self.moments: list[dict[str, tuple[int, int]]] = [{}]
        self.picture = Picture("/r", patience=patience)
        self.wire: list[tuple[EventType, str] | list[str]] = []  # on its way to the client
        self.asked: list[str] = []
        self.has_come = True
        self.answer: dict[str, tuple[Znode | None, list[str] | None]] = {}
        self.at = 0
        self.copy: dict[str, Znode] = {}

    def transact(self, changes: list[tuple[str, bool]]) -> None:
        """All of it at one moment, told event by event."""
        self.zxid += 1
        for path, deletes in changes:
            self.change(path, deletes)
        self.moments.append(self.seen(self.tree))

    def change(self, path: str, deletes: bool) -> None:
        above = parent(path)
        if path in self.tree and deletes:
            if self.names(path):
                return
            del self.tree[path]
            kind = EventType.DELETED
        elif path in self.tree:
            self.put(path, self.tree[path].stat.czxid, self.tree[path].stat.pzxid)
            kind = EventType.CHANGED
        elif above in self.tree or path == "/r":
            self.put(path, self.zxid, self.zxid)
            kind = EventType.CREATED
        else:
            return
        if kind is not EventType.CHANGED and above in self.tree:
            old = self.tree[above]
            self.tree[above] = Znode(above, b"", old.stat._replace(pzxid=self.zxid))
        self.wire.append((kind, path))

    def put(self, path: str, czxid: int, pzxid: int) -> None:
        stat = Stat(czxid, self.zxid, 0, 0, 0, 0, 0, 0, 0, 0, pzxid)
        self.tree[path] = Znode(path, b"", stat)

    def names(self, path: str) -> list[str]:
        return [each[len(path) + 1 :] for each in self.tree if parent(each) == path != each]

    @staticmethod
    def seen(tree: dict[str, Znode]) -> dict[str, tuple[int, int]]:
        return {path: (z.stat.czxid, z.stat.mzxid) for path, z in tree.items()}

    def ask(self, room: int) -> None:
        """If nothing is under way: ask for what is wanted."""
        if not self.has_come or self.answer:
            return
        if paths := self.picture.take(room):
            listed = [path for path in paths if self.picture.lists(path)]
            self.asked, self.has_come = paths, False
            self.picture.asked(paths, lambda: self.has_come)
            self.listed = listed
            self.is_read = False

    def read(self) -> None:
        """The server answers what was asked, at this moment."""
        if self.has_come or self.is_read:
            return
        self.is_read = True
        self.reply = {
            path: (self.tree.get(path), self.names(path) if path in self.listed else None)
            for path in self.asked
        }
        self.wire.append(self.asked)

    def deliver(self, count: int) -> None:
        """What comes next reaches the client."""
        for _ in range(min(count, len(self.wire))):
            first = self.wire.pop(0)
            if isinstance(first, list):
                self.has_come, self.answer = True, self.reply
            else:
                self.picture.told(*first)

    def take_in(self) -> None:
        """The client looks at an answer that has come."""
        for path, (znode, names) in self.answer.items():
            self.picture.came(path, znode, names)
        self.answer = {}
        self.judge(self.picture.show())

    def gap(self, lost: bool) -> None:
        """The connection drops: events that were on their way are lost, and the answer."""
        if lost:
            self.wire.clear()
        else:
            self.wire = [each for each in self.wire if not isinstance(each, list)]
        self.answer, self.has_come = {}, True
        self.picture.gap()

    def judge(self, changes: list[Change] | None) -> None:
        for change in changes or ():
            assert self.copy.get(change.path) == change.before or self.seen(
                {"": self.copy[change.path]}
            ) == self.seen({"": change.before})  # type: ignore[dict-item]
            if change.after is None:
                del self.copy[change.path]
            else:
                self.copy[change.path] = change.after
        shown = self.seen(self.picture.shown)
        if changes is not None:
            assert self.seen(self.copy) == shown
        assert shown in self.moments[self.at :], "no moment of the tree, or an older one"
        self.at = self.moments.index(shown, self.at)

    def rest(self) -> None:
        for _ in range(20):
            self.deliver(len(self.wire))
            self.take_in()
            self.ask(100)
            self.read()
        assert self.seen(self.picture.shown) == self.seen(self.tree)
        assert not self.picture.is_behind
        for path in PATHS:
            assert self.picture.children(path) == sorted(self.names(path))


def live(world: World, rng: random.Random, steps: int) -> None:
    for _ in range(steps):
        match rng.choice(["change", "change", "ask", "read", "deliver", "take in", "gap"]):
            case "change":
                for _ in range(rng.choice([1, 1, 4])):
                    count = rng.choice([1, 1, 3])
                    world.transact([(p, rng.random() < 0.3) for p in rng.sample(PATHS, count)])
            case "ask":
                world.ask(rng.choice([2, 100]))
            case "read":
                world.read()
            case "deliver":
                world.deliver(rng.choice([1, 2, 100]))
            case "take in":
                world.take_in()
            case "gap" if rng.random() < 0.2:
                world.gap(rng.random() < 0.5)
    world.rest()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_it_shows_nothing_but_moments_of_the_tree_each_later_than_the_one_before(
    seed: int, steps: int
) -> None:
    live(World(), random.Random(seed), steps)


def test_even_in_a_hurry_what_was_there_unknown_to_us_is_read_before_anything_is_shown() -> None:
    world = World(patience=1)
    for path in ("/r", "/r/a"):
        world.transact([(path, False)])
    world.wire.clear()  # before our watch
    world.ask(1)
    world.transact([("/r/a", False)])
    world.read()
    world.transact([("/r/a", True)])
    world.transact([("/r/a", False)])
    world.deliver(9)
    world.take_in()

    assert world.picture.shown == {}
    world.rest()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_more_lives() -> None:
    for seed in range(200_000):
        live(World(), random.Random(seed), 80)


@pytest.mark.parametrize(
    ("keeps_order", "is_hot", "is_shown"),
    [(False, True, True), (True, True, False), (False, False, True), (True, False, True)],
)
def test_a_tree_that_changes_faster_than_it_can_be_read_is_shown_in_a_hurry(
    keeps_order: bool, is_hot: bool, is_shown: bool
) -> None:
    """In each flight another znode is made, and then, if it is hot, one just being read changes."""
    world = World()
    world.picture = Picture("/r", patience=3, keeps_order=keeps_order)
    for path in PATHS:
        world.transact([(path, False)])
    world.rest()
    shown = world.picture.through

    for number in range(8):
        world.transact([("/r/a", False)])
        world.deliver(9)
        world.ask(100)
        world.transact([(f"/r/n{number}", False)])
        if is_hot:
            world.transact([("/r/a", False)])
        world.read()
        world.deliver(9)
        for path, (znode, names) in world.answer.items():
            world.picture.came(path, znode, names)
        world.answer = {}
        world.picture.show()

    assert (world.picture.through > shown) is is_shown
