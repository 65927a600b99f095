"""The blocking client: one thread for all, interruptions that leave nothing, the same names."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interrupting import interrupt
from tests.waiting import wait_until

import incumbent
from incumbent import (
    aio,
    blocking,
    blocking_items,
    blocking_locks,
    blocking_views,
    blocking_work,
    client,
    sync,
)
from incumbent.client import State, events
from incumbent.errors import (
    ConnectTimeout,
    Deposed,
    LockLost,
    LockTimeout,
    Refused,
    SessionClosed,
)
from incumbent.recipes import (
    barrier,
    cache,
    counter,
    double_barrier,
    election,
    group,
    hold,
    items,
    membership,
    multilock,
    rwlock,
    semaphore,
    value,
)
from incumbent.server import MemoryStore, Server
from incumbent.wire import Acl, Check, EventType, GetData, WatchEvent
from incumbent.work import claim, work
from incumbent.work import queue as work_queue


class Background:
    """An embedded server on a loop of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = self.run(self._start())
        self.hosts = f"{self.server.host}:{self.server.port}"

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    async def _start(self) -> Server:
        server = Server(MemoryStore(), tick=0.1, rng=random.Random(1))
        await server.start()
        return server

    def stop(self) -> None:
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    server = Background()
    yield server
    server.stop()


@contextmanager
def session(background: Background, **more: Any) -> Iterator[sync.Zk]:
    with incumbent.connect(
        background.hosts, session_timeout=2.0, tick=0.0, timeout=5.0, **more
    ) as zk:
        yield zk


HOLD_INSIDE = {
    *("begin", "belongs_to", "block", "disown", "end", "is_over", "look", "release", "why_not"),
}
CLAIM_INSIDE = {"begin", "begun", "belongs_to", "end", "is_believed", "is_busy", "is_session_over"}
CLAIM_INSIDE |= {"lease", "leave", "look", "session_id", "why_not", "znode"}

PAIRS = [
    (aio.Zk, sync.Zk, {"client", "contenders", "root", "submit"}),
    (events.Events, blocking.Events, {"put"}),
    (hold.Hold, blocking.Hold, HOLD_INSIDE),
    (client.Transaction, blocking.Transaction, set()),
    (rwlock.ReadWriteLock, blocking_locks.ReadWriteLock, set()),
    (
        multilock.MultiLock,
        blocking_locks.MultiLock,
        {"queues", "refuse_nested", "take", "try_take"},
    ),
    (semaphore.Semaphore, blocking_locks.Semaphore, {"take", "try_take"}),
    (
        items.ItemQueue,
        blocking_items.ItemQueue,
        {"client", "known", "ledger", "likely", "put_back", "rng"},
    ),
    (items.Items, blocking_items.Items, {"forget", "looks_ahead"}),
    (barrier.Barrier, blocking_items.Barrier, {"client"}),
    (double_barrier.DoubleBarrier, blocking_items.DoubleBarrier, set()),
    (counter.Counter, blocking_items.Counter, {"client", "initial"}),
    (value.Value, blocking_items.Value, {"client", "default"}),
    (value.Following, blocking_items.Following, {"begun", "heard", "keep"}),
    (election.Election, blocking_views.Election, set()),
    (group.Group, blocking_views.Group, set()),
    (group.Rosters, blocking_views.Rosters, set()),
    (membership.Membership, blocking_views.Membership, {"joined", "leave", "leaving"}),
    (claim.Claim, blocking_work.Claim, CLAIM_INSIDE),
    (work.Work, blocking_work.Work, {"leave", "take"}),
    (work_queue.WorkQueue, blocking_work.WorkQueue, {"leave"}),
    (cache.Cache, blocking_views.Cache, {"listen"}),
    (cache.Changes, blocking_views.Changes, set()),
]


def public(kind: type) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    source = inspect.getsource(kind.__init__)
    return names | {
        part.split("self.")[1].split(":")[0].split(" ")[0].strip()
        for part in source.splitlines()
        if part.strip().startswith("self.") and not part.strip().startswith("self._")
    }


@pytest.mark.parametrize(("ours", "twin", "only_asyncio"), PAIRS)
def test_the_twins_have_the_same_names(ours: type, twin: type, only_asyncio: set[str]) -> None:
    assert public(ours) - only_asyncio == public(twin)


@pytest.mark.parametrize(("ours", "twin", "only_asyncio"), PAIRS)
def test_the_twins_take_the_same_arguments(ours: type, twin: type, only_asyncio: set[str]) -> None:
    for name in sorted(public(ours) - only_asyncio):
        one, two = getattr(ours, name, None), getattr(twin, name, None)
        if callable(one) and callable(two):
            theirs = dict(inspect.signature(two).parameters)
            theirs.pop("on_lost", None)  # asyncio cancels the block instead
            assert list(inspect.signature(one).parameters) == list(theirs), name


@pytest.mark.parametrize(("ours", "twin", "only_asyncio"), PAIRS)
def test_the_twins_say_what_theirs_say(ours: type, twin: type, only_asyncio: set[str]) -> None:
    """`help()` of the blocking library is no empty list of names."""
    for name, member in vars(twin).items():
        if not name.startswith("_") and getattr(ours, name, None).__doc__:
            assert member.__doc__, f"{twin.__name__}.{name} has no docstring"


def test_connect_takes_the_same_arguments() -> None:
    only_asyncio = {"clock"}
    theirs = list(inspect.signature(incumbent.connect).parameters)

    assert [p for p in inspect.signature(aio.connect).parameters if p not in only_asyncio] == theirs


def test_verbs_and_a_lock(background: Background) -> None:
    with session(background) as zk:
        zk.ensure("/verbs")
        made = zk.create("/verbs/a", b"1")
        assert zk.get(made.path)[0] == b"1"
        assert zk.set("/verbs/a", b"2").version == 1
        assert zk.children("/verbs") == ["a"]
        zk.sync("/verbs")
        zk.delete("/verbs/a")
        assert zk.exists("/verbs/a") is None

        with zk.lock("/verbs/lock", member="me") as hold:
            hold.ensure()
            assert 0 < hold.remaining() <= 2
            assert hold.fencing_token > made.stat.czxid
            with hold.transaction() as t:
                t.create("/verbs/b")
            assert t.results == ["/verbs/b"]
            assert not hold.lost.is_set()
        with pytest.raises(LockLost, match="given back"):
            hold.ensure()
        wait_until(lambda: zk.children("/verbs/lock") == [])


@pytest.mark.parametrize("where", ["this thread", "a watcher", "a listener of states"])
def test_every_operation_has_its_blocking_twin_and_any_callback_may_call_it(
    background: Background, where: str
) -> None:
    outcome: Future[None] = Future()

    def use(_: object = None) -> None:
        try:
            use_all(zk)
            outcome.set_result(None)
        except BaseException as error:
            outcome.set_exception(error)

    with session(background) as zk:
        if where == "this thread":
            use()
        elif where == "a watcher":
            zk.exists("/every", watcher=use)
            zk.create("/every")
        else:
            zk.on_state(lambda state: use() if state is State.CONNECTED else None)
            zk._portal.post(lambda: zk._zk.client._connection.drop("a test"))  # type: ignore[union-attr]
        outcome.result(20)


def use_all(zk: sync.Zk) -> None:
    zk.create("/every/a", b"1", parents=True)
    zk.create("/every/e", ephemeral=True)
    assert zk.children_and_stat("/every")[1].numChildren == 2
    assert zk.descendants("/every") == 2
    assert zk.ephemerals("/every") == ["/every/e"]
    zk.add_auth("digest", b"me:mine")
    zk.set_acl("/every/a", [Acl(31, "auth", "")])
    assert zk.get_acl("/every/a")[0][0].scheme == "digest"
    assert any(each.scheme == "digest" for each in zk.who_am_i())
    assert zk.read_all([GetData("/every/a")])[0].data == b"1"
    assert zk.multi([Check("/every/a")]) == [None]
    with zk.transaction() as t:
        t.create("/every/t-", sequential=True)
    assert t.results == ["/every/t-0000000002"]
    assert not zk.has_watch("/every/a")
    assert not zk.remove_watches("/every/a")
    with pytest.raises(Refused):
        zk.reconfig(members="x")
    zk.config()
    zk.delete("/every", recursive=True)
    assert zk.exists("/every") is None


def test_a_session_is_handed_over(background: Background) -> None:
    zk = incumbent.connect(background.hosts, session_timeout=2.0, tick=0.0, timeout=5.0)
    zk.create("/handed", ephemeral=True)
    passport = zk.detach()
    with pytest.raises(SessionClosed):
        zk.get("/handed")
    with session(background, resume=passport) as heir:
        assert heir.session_id == passport.session_id
        stat = heir.exists("/handed")
        assert stat is not None
        assert stat.ephemeralOwner == passport.session_id


def test_a_stream_of_events(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        with zk.watch("/stream", recursive=True) as events:
            other.create("/stream")
            other.create("/stream/a")
            assert [events.next(5).path, next(events).path] == ["/stream", "/stream/a"]
            with pytest.raises(TimeoutError):
                events.next(0.01)
        other.delete("/stream", recursive=True)


def test_a_watcher_asked_for_twice_is_one_and_can_be_taken_off(background: Background) -> None:
    with session(background) as zk:
        heard: list[WatchEvent] = []
        for _ in range(3):
            zk.exists("/twice", watcher=heard.append)
            zk.exists("/never", watcher=heard.append)
        zk.unwatch("/never", heard.append)
        zk.create("/never")
        zk.create("/twice")
        wait_until(lambda: len(heard) == 1)
        zk.delete("/never")
        zk.delete("/twice")

        assert [event.path for event in heard] == ["/twice"]


def test_callbacks_block_call_anything_and_keep_their_order(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        told: list[tuple[EventType, str]] = []
        gate = threading.Event()

        def changed(event: WatchEvent) -> None:
            gate.wait(5)
            zk.exists("/callbacks")  # would hang on the thread of the connection
            told.append((event.type, threading.current_thread().name))
            raise ZeroDivisionError

        with zk.listen("/callbacks", changed):
            zk.exists("/callbacks", watcher=changed)
            other.create("/callbacks")
            other.set("/callbacks", b"1")
            assert zk.get("/callbacks")[0] == b"1"  # nothing waits for a callback
            gate.set()
            wait_until(lambda: len(told) == 3)
        kinds = [EventType.CREATED, EventType.CREATED, EventType.CHANGED]
        assert [kind for kind, _ in told] == kinds
        assert {name for _, name in told} == {"incumbent-callbacks"}
        wait_until(lambda: "incumbent-callbacks" not in [t.name for t in threading.enumerate()])


def test_a_state_listener_may_create_znodes_and_block(background: Background) -> None:
    told: list[State] = []
    with session(background) as zk:

        def listener(state: State) -> None:
            told.append(state)
            if state is State.CONNECTED:
                zk.create("/by-listener", ephemeral=True)

        forget = zk.on_state(listener)
        zk._portal.post(lambda: zk._zk.client._connection.drop("a test"))  # type: ignore[union-attr]
        wait_until(lambda: told == [State.SUSPENDED, State.CONNECTED])
        wait_until(lambda: zk.exists("/by-listener"))
        forget()
        zk.sync("/")
    assert told == [State.SUSPENDED, State.CONNECTED]


def test_a_hundred_failed_starts_leave_one_thread(background: Background) -> None:
    with session(background):
        before = threading.active_count()
        files = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(100):
            with pytest.raises(ConnectTimeout):
                incumbent.connect("127.0.0.1:1", timeout=0.01)
        assert threading.active_count() <= before
        assert len(list(Path("/proc/self/fd").iterdir())) <= files


def test_one_thread_serves_every_client(background: Background) -> None:
    before = threading.active_count()
    with session(background), session(background), session(background):
        assert threading.active_count() <= before + 1


def test_a_second_one_waits_and_gets_it(background: Background) -> None:
    with session(background) as one, session(background) as two:
        got: list[int] = []

        def second() -> None:
            with two.lock("/second") as hold:
                got.append(hold.fencing_token)

        with one.lock("/second") as hold:
            thread = threading.Thread(target=second)
            thread.start()
            wait_until(lambda: len(one.children("/second")) == 2)
            assert not got
            with pytest.raises(RuntimeError, match="reentrant"):
                one.lock("/second", timeout=0.05).__enter__()
            with pytest.raises(LockTimeout):
                two.lock("/second", timeout=0.05).__enter__()
            with one.try_lock("/second") as none:
                assert none is None
        thread.join(5)
        assert got[0] > hold.fencing_token


def test_a_reentrant_lock_and_one_that_is_asked_for(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        with zk.lock("/re", reentrant=True) as hold:
            with zk.lock("/re", reentrant=True) as inner:
                assert inner.fencing_token == hold.fencing_token
            with pytest.raises(RuntimeError, match="reentrant"), zk.lock("/re"):
                pass
            assert not hold.asked.wait(0.01)
            assert other.revoke("/re") == hold.name
            assert hold.asked.wait(5)
            hold.ensure()
            assert len(other.children("/re")) == 1
        wait_until(lambda: other.children("/re") == [])


def test_readers_share_and_a_writer_does_not(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        with zk.rwlock("/rw").read() as one, other.rwlock("/rw").read(timeout=5) as two:
            assert one.is_shared
            assert two.is_shared
            assert not hasattr(two, "fencing_token")
            with other.rwlock("/rw").try_write() as hold:
                assert hold is None
            with pytest.raises(RuntimeError, match="wait for itself"), zk.rwlock("/rw").write():
                pass
        with other.rwlock("/rw").write(timeout=5) as hold:
            assert hold.fencing_token
            with zk.rwlock("/rw").try_read() as none:
                assert none is None


def test_a_semaphore_is_used_and_resized(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        semaphore = zk.semaphore("/sem", size=1)
        with semaphore.acquire(timeout=5) as hold:
            hold.ensure()
            with other.semaphore("/sem").try_acquire() as none:
                assert none is None
            other.semaphore("/sem").resize(2)
            assert semaphore.size() == 2
            with other.semaphore("/sem").acquire(timeout=5) as second:
                assert second.is_shared


def test_a_multilock_is_all_or_none(background: Background) -> None:
    with session(background) as zk, session(background) as other:
        with zk.multilock(["/m1", "/m2"]).acquire(timeout=5) as hold:
            hold.ensure()
            with other.multilock(["/m2", "/m3"]).try_acquire() as none:
                assert none is None
            with pytest.raises(RuntimeError, match="wait for itself"), zk.lock("/m2"):
                pass
        with other.lock("/m2", timeout=5) as later:
            assert later.fencing_token > hold.fencing_token


def test_a_lost_hold_tells_and_interrupts_nothing_and_leaving_raises(
    background: Background,
) -> None:
    told: list[tuple[str, str]] = []

    def on_lost(hold: sync.Hold) -> None:
        told.append((hold.name, threading.current_thread().name))

    with session(background) as one, session(background) as two:
        with (
            pytest.raises(Deposed, match="deleted by somebody"),
            one.lead("/lost", on_lost=on_lost) as leadership,
        ):
            two.delete(f"/lost/{leadership.name}")
            assert leadership.lost.wait(5)
            with pytest.raises(Deposed):
                leadership.ensure()
            assert leadership.remaining() == 0
        wait_until(lambda: told)
        assert told == [(leadership.name, "incumbent-lost")]


def test_an_exception_of_the_block_stays_itself(background: Background) -> None:
    with session(background) as zk:
        with pytest.raises(KeyError), zk.lock("/raises"):
            raise KeyError
        wait_until(lambda: zk.children("/raises") == [])


def test_on_change_is_called_in_the_thread_that_waits_and_may_call_us(
    background: Background,
) -> None:
    with session(background) as one, session(background) as two:
        seen: list[tuple[int, list[str]]] = []
        with one.lock("/change") as first:
            thread = threading.Thread(
                target=lambda: _stand(
                    two,
                    lambda place: seen.append(
                        (threading.get_ident(), two.children("/change"), place.watching)
                    ),
                )
            )
            thread.start()
            wait_until(lambda: seen)
        thread.join(5)
        assert seen[0][0] == thread.ident
        assert seen[0][2] == first.name
        assert len(seen[0][1]) == 2


def _stand(zk: sync.Zk, on_change: Any) -> None:
    with zk.lead("/change", on_change=on_change):
        pass


def test_an_election_is_seen_and_run(background: Background) -> None:
    with (
        session(background) as one,
        session(background) as two,
        two.election("/election").observe() as views,
    ):
        assert next(views).leader is None
        assert one.election("/election").run(lambda leadership: 42, "me") == 42
        names = []

        def work(leadership: sync.Hold) -> str:
            names.append(leadership.name)
            if len(names) == 1:
                two.delete(f"/election/{leadership.name}")
                leadership.lost.wait(5)
            return leadership.name

        assert one.election("/election").run(work) == names[1]


def test_a_call_from_the_loops_thread_raises_at_once(background: Background) -> None:
    with session(background) as zk:
        outcome: list[BaseException] = []
        done = threading.Event()

        def call() -> None:
            try:
                zk.children("/")
            except BaseException as error:
                outcome.append(error)
            done.set()

        zk._portal.post(call)

        assert done.wait(5)
        assert isinstance(outcome[0], RuntimeError)


def test_every_call_after_close_raises_at_once(background: Background) -> None:
    with session(background) as zk:
        pass
    calls: list[Any] = [
        lambda: zk.children("/"),
        lambda: zk.create("/x"),
        lambda: zk.lock("/x").__enter__(),
        lambda: zk.lead("/x").__enter__(),
        lambda: zk.try_lock("/x").__enter__(),
        lambda: zk.election("/x").view(),
        lambda: zk.ensure("/x"),
    ]
    for call in calls:
        with pytest.raises(SessionClosed):
            call()
    zk.close()


def test_a_forked_child_is_told_and_may_connect_anew(background: Background) -> None:
    with session(background) as zk:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer = b"?"
            try:
                try:
                    zk.children("/")
                except SessionClosed:
                    with session(background) as mine:
                        answer = b"ok" if "zookeeper" in mine.children("/") else b"no"
            finally:
                os.write(writer, answer)
                os._exit(0)
        os.close(writer)
        assert os.read(reader, 10) == b"ok"
        os.close(reader)
        os.waitpid(pid, 0)
        assert zk.children("/")


PROGRAM = """
import sys, threading, os, signal, time
import incumbent
zk = incumbent.connect(sys.argv[1], session_timeout=2.0, tick=0.0)
what = sys.argv[2]
try:
    if what == "waiting":
        with zk.lock("/ki", on_lost=None) as hold:
            print("held", flush=True)
    elif what == "holding":
        with zk.lock("/ki2") as hold:
            print("held", flush=True)
            time.sleep(30)
    elif what == "leave":
        print(zk.create("/left", ephemeral=True).path, flush=True)
except KeyboardInterrupt:
    print("interrupted", [c for c in zk.children("/ki" if what == "waiting" else "/ki2")], flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("what", ["waiting", "holding"])
def test_ctrl_c_leaves_no_contender(background: Background, what: str) -> None:
    path = "/ki" if what == "waiting" else "/ki2"
    with session(background) as zk, zk.lock("/ki"):
        process = _start(background, what)
        try:
            wait_until(
                lambda: zk.exists(path) and len(zk.children(path)) == (1 + (what == "waiting"))
            )
            process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=10)[0]
        finally:
            process.kill()
        assert process.returncode == 3, out
        wait_until(lambda: len(zk.children(path)) == (what == "waiting"))


def test_a_program_that_forgets_to_close_ends_and_its_session_with_it(
    background: Background,
) -> None:
    process = _start(background, "leave")
    try:
        out = process.communicate(timeout=10)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    assert "/left" in out
    with session(background) as zk:
        assert zk.exists("/left") is None


def _start(background: Background, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, background.hosts, what], stdout=subprocess.PIPE, text=True
    )


KINDS: dict[str, Callable[[sync.Zk], Any]] = {
    "lock": lambda zk: zk.lock("/any"),
    "reader": lambda zk: zk.rwlock("/any").read(),
    "semaphore": lambda zk: zk.semaphore("/some", size=1).acquire(),
    "multilock": lambda zk: zk.multilock(["/any", "/some/queue"]).acquire(),
    "leader": lambda zk: zk.lead("/any"),
    "term": lambda zk: zk.election("/any").lead(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_at_any_moment_nothing_is_held(background: Background, kind: str) -> None:
    with session(background) as zk, session(background) as other:
        zk.ensure("/any")
        zk.ensure("/some/queue")
        zk.semaphore("/some").resize(1)

        def hold_it() -> None:
            with KINDS[kind](zk) as hold:
                hold.lost.wait(5)

        for step in range(60 if kind == "lock" else 30):
            interrupt(step * 0.0001, hold_it)
            wait_until(lambda: other.children("/any") + other.children("/some/queue") == [])


def _again(call: Callable[[], object]) -> None:
    while True:
        call()


def _within(manager: Any) -> None:
    with manager:
        time.sleep(5)


ATTEMPTS: dict[str, Callable[[sync.Zk], object]] = {
    "put": lambda zk: _again(lambda: zk.queue("/i/q").put(b"x")),
    "take": lambda zk: zk.queue("/i/empty").take(5),
    "add": lambda zk: _again(lambda: zk.counter("/i/n").add(1)),
    "update": lambda zk: _again(lambda: zk.value("/i/v").update(lambda _: b"whole")),
    "barrier": lambda zk: zk.barrier("/i/up").wait(5),
    "double barrier": lambda zk: zk.double_barrier("/i/two", 2).enter(),
    "group": lambda zk: _within(zk.group("/i/g").join("me")),
    "cache": lambda zk: _within(zk.cache("/i")),
    "follow": lambda zk: _within(zk.value("/i/v").follow()),
    "observe": lambda zk: _within(zk.election("/i/e").observe()),
}


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_interrupted_at_any_moment_nothing_is_left_and_the_next_call_is_served(
    background: Background, kind: str
) -> None:
    with session(background) as zk, session(background) as other:
        zk.ensure("/i/two")
        zk.ensure("/i/g")
        zk.barrier("/i/up").create()
        for step in range(20):
            interrupt(step * 0.0003, lambda: ATTEMPTS[kind](zk))
            wait_until(lambda: other.children("/i/two") + other.children("/i/g") == [])

        zk.queue("/i/empty").put(b"theirs")
        item = other.queue("/i/empty").take(2)
        assert item is not None
        assert item.data == b"theirs"
        assert other.counter("/i/n").add(1) == zk.counter("/i/n").get()
        assert zk.value("/i/v").get().data in (b"", b"whole")
