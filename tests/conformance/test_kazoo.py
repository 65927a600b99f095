"""kazoo's verbs and recipes do the same on both servers."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from difflib import unified_diff

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer
from tests.waiting import wait_until


class Notes:
    """What was seen, line by line; ids and times are left out."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._zxids: dict[int, int] = {}

    def __call__(self, *things: object) -> None:
        shown = " ".join(self._show(thing) for thing in things)
        self.lines.append(re.sub(r"[0-9a-f]{32}", "<id>", shown))

    def attempt(self, call: Callable[[], object]) -> None:
        try:
            self(call())
        except KazooException as error:
            self("raised", type(error).__name__)

    def _show(self, thing: object) -> str:
        if isinstance(thing, ZnodeStat):
            kept = (thing.version, thing.cversion, thing.dataLength, thing.numChildren)
            return f"stat{kept} {'ephemeral' if thing.ephemeralOwner else ''}"
        if isinstance(thing, tuple):
            return f"({', '.join(self._show(item) for item in thing)})"
        if isinstance(thing, list):
            return f"[{', '.join(sorted(self._show(item) for item in thing))}]"
        if isinstance(thing, BaseException):
            return type(thing).__name__
        return repr(thing)


@contextlib.contextmanager
def client(hosts: str) -> Iterator[KazooClient]:
    zk = KazooClient(hosts, timeout=10)
    zk.start(timeout=10)
    try:
        yield zk
    finally:
        zk.stop()
        zk.close()


def verbs(hosts: str, note: Notes) -> None:
    with client(hosts) as zk:
        note.attempt(lambda: zk.create("/k", b"one"))
        note.attempt(lambda: zk.create("/k", b"one"))
        note.attempt(lambda: zk.create("/k/a/b", b"x"))
        note.attempt(lambda: zk.create("/k/a/b", b"x", makepath=True))
        note.attempt(lambda: zk.create("/k/s-", b"", sequence=True, include_data=True))
        note.attempt(lambda: zk.create("/k/e-", b"", sequence=True, ephemeral=True))
        note.attempt(lambda: zk.get("/k"))
        note.attempt(lambda: zk.set("/k", b"two", version=0))
        note.attempt(lambda: zk.set("/k", b"two", version=0))
        note.attempt(lambda: zk.exists("/k"))
        note.attempt(lambda: zk.exists("/k/none"))
        note.attempt(lambda: zk.get_children("/k"))
        note.attempt(lambda: zk.get_children("/k", include_data=True))
        note.attempt(lambda: zk.ensure_path("/k/x/y/z"))
        note.attempt(lambda: zk.sync("/k"))
        note.attempt(lambda: zk.delete("/k"))
        note.attempt(lambda: zk.delete("/k/x/y/z", version=3))
        t = zk.transaction()
        t.create("/k/t", b"1")
        t.set_data("/k/t", b"2")
        t.check("/k/t", 1)
        t.delete("/k/a/b")
        note(*t.commit())
        t = zk.transaction()
        t.create("/k/t2", b"1")
        t.check("/k/t", 7)
        t.delete("/k/t")
        note(*t.commit())
        zk.add_auth("digest", "user:password")
        note.attempt(lambda: zk.delete("/k", recursive=True))
        note.attempt(lambda: zk.exists("/k"))


def watches(hosts: str, note: Notes) -> None:
    with client(hosts) as zk, client(hosts) as other:
        seen: list[object] = []

        def saw(event: WatchedEvent) -> None:
            seen.append((event.type, event.state, event.path))

        zk.create("/w")
        zk.exists("/w/x", watch=saw)
        zk.get_children("/w", watch=saw)
        other.create("/w/x", b"1")
        wait_until(lambda: len(seen) == 2, what="two events")
        zk.get("/w/x", watch=saw)
        other.set("/w/x", b"2")
        wait_until(lambda: len(seen) == 3, what="a third event")
        data: list[bytes | None] = []
        names: list[list[str]] = []
        zk.DataWatch("/w/x", lambda value, stat: data.append(value))
        zk.ChildrenWatch("/w", lambda children: names.append(sorted(children)))
        other.set("/w/x", b"3")
        wait_until(lambda: data[-1:] == [b"3"], what="the data watch")
        other.delete("/w/x")
        wait_until(lambda: data[-1:] == [None] and names[-1:] == [[]], what="the end")
        note(seen)
        note(data)
        note(names)
        other.delete("/w")


def locks(hosts: str, note: Notes) -> None:
    with client(hosts) as a, client(hosts) as b:
        first, second = a.Lock("/locks/l", "first"), b.Lock("/locks/l", "second")
        note(first.acquire(timeout=5))
        note(second.acquire(blocking=False))
        waiting = threading.Thread(target=lambda: note("second", second.acquire(timeout=10)))
        waiting.start()
        wait_until(lambda: len(a.get_children("/locks/l")) == 2, what="two contenders")
        note(first.contenders())
        first.release()
        waiting.join(10)
        note([name[-10:] for name in a.get_children("/locks/l")])
        second.release()
        reader, writer = a.ReadLock("/locks/rw"), b.WriteLock("/locks/rw")
        with reader:
            note(writer.acquire(blocking=False))
        with writer:
            note("writing", [name[-10:] for name in a.get_children("/locks/rw")])
        semaphore = a.Semaphore("/locks/sem", max_leases=2)
        note(semaphore.acquire(timeout=5), semaphore.release())
        a.delete("/locks", recursive=True)


def elections(hosts: str, note: Notes) -> None:
    with client(hosts) as a, client(hosts) as b:
        one, two = a.Election("/elect", "one"), b.Election("/elect", "two")
        is_leading, may_end = threading.Event(), threading.Event()

        def lead_first() -> None:
            note("one leads")
            is_leading.set()
            may_end.wait(10)

        threads = [threading.Thread(target=one.run, args=(lead_first,))]
        threads[0].start()
        assert is_leading.wait(10)
        threads.append(threading.Thread(target=two.run, args=(lambda: note("two leads"),)))
        threads[1].start()
        wait_until(lambda: len(a.get_children("/elect")) == 2, what="two candidates")
        note(one.contenders())
        may_end.set()
        for thread in threads:
            thread.join(10)
        note([name[-10:] for name in a.get_children("/elect")])
        a.delete("/elect", recursive=True)


def other_recipes(hosts: str, note: Notes) -> None:
    with client(hosts) as a, client(hosts) as b:
        counter = a.Counter("/r/counter")
        counter += 3
        counter -= 1
        note(counter.value)
        party = a.Party("/r/party", "me")
        party.join()
        note(list(b.Party("/r/party")))
        party.leave()
        queue = a.Queue("/r/queue")
        queue.put(b"1")
        queue.put(b"2", priority=10)
        note(len(queue), b.Queue("/r/queue").get(), b.Queue("/r/queue").get())
        locking = a.LockingQueue("/r/lockingqueue")
        locking.put_all([b"x", b"y"])
        note(locking.get(timeout=5), locking.consume())
        barrier = a.Barrier("/r/barrier")
        barrier.create()
        note(b.Barrier("/r/barrier").wait(timeout=0.1), barrier.remove())
        note(b.Barrier("/r/barrier").wait(timeout=5))
        a.delete("/r", recursive=True)


def a_session_ends(hosts: str, note: Notes) -> None:
    with client(hosts) as watcher:
        watcher.create("/s")
        with client(hosts) as mortal:
            mortal.create("/s/e", b"", ephemeral=True)
            note(watcher.get_children("/s"))
            gone = threading.Event()
            watcher.exists("/s/e", watch=lambda event: gone.set())
        note(gone.wait(10), watcher.get_children("/s"))
        watcher.delete("/s")


@pytest.mark.parametrize(
    "play",
    [verbs, watches, locks, elections, other_recipes, a_session_ends],
    ids=lambda play: play.__name__,
)
def test_kazoo_sees_no_difference(
    play: Callable[[str, Notes], None], apache: ApacheServer, ours: EmbeddedServer
) -> None:
    expected, got = Notes(), Notes()

    play(apache.hosts, expected)
    play(ours.hosts, got)

    differences = list(unified_diff(expected.lines, got.lines, "Apache", "ours", lineterm=""))
    assert not differences, "\n".join(differences)
