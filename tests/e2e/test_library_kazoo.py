"""Our locks and kazoo's in one directory: each keeps the other out, whoever comes first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from tests.apache import ApacheServer
from tests.e2e.library_server import ServerProcess
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import LockTimeout, MixedDialects

logging.getLogger("kazoo").setLevel(logging.ERROR)


@pytest.fixture(params=["ours", "apache"])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "apache":
        apache: ApacheServer = request.getfixturevalue("apache")
        yield apache.hosts
    else:
        with ServerProcess(request.getfixturevalue("tmp_path")) as server:
            yield server.hosts


@contextmanager
def kazoo_session(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=5.0)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def both(hosts: str) -> Iterator[tuple[sync.Zk, KazooClient]]:
    with incumbent.connect(hosts, session_timeout=5.0) as zk, kazoo_session(hosts) as kazoo:
        yield zk, kazoo


def test_kazoo_first_then_ours(hosts: str) -> None:
    with both(hosts) as (zk, kazoo):
        theirs = kazoo.Lock("/interop/a", "theirs")
        theirs.acquire()
        with pytest.raises(LockTimeout) as caught, zk.lock("/interop/a", timeout=0.2):
            pass
        assert len(caught.value.ahead) == 1
        events: list[str] = []

        def ours() -> None:
            with zk.lock("/interop/a", member="ours"):
                events.append("ours begins")

        thread = threading.Thread(target=ours)
        thread.start()
        wait_until(lambda: len(zk.children("/interop/a")) == 2)
        assert theirs.contenders() == ["theirs", "ours"]
        events.append("theirs ends")
        theirs.release()
        thread.join(10)

        assert events == ["theirs ends", "ours begins"]


def test_ours_first_then_kazoo(hosts: str) -> None:
    with both(hosts) as (zk, kazoo):
        theirs = kazoo.Lock("/interop/b", "theirs")
        events: list[str] = []

        def acquire() -> None:
            theirs.acquire()
            events.append("theirs begins")
            theirs.release()

        with zk.lock("/interop/b", member="ours"):
            assert theirs.acquire(blocking=False) is False
            thread = threading.Thread(target=acquire)
            thread.start()
            wait_until(lambda: len(zk.children("/interop/b")) == 2)
            assert kazoo.Lock("/interop/b").contenders() == ["ours", "theirs"]
            events.append("ours ends")
        thread.join(10)

        assert events == ["ours ends", "theirs begins"]


def test_kazoos_election_and_ours_have_one_leader_at_a_time(hosts: str) -> None:
    with both(hosts) as (zk, kazoo), kazoo_session(hosts) as kazoo2:
        inside = threading.Lock()
        order: list[str] = []

        def work(name: str) -> None:
            assert inside.acquire(blocking=False), f"{name} while another leads"
            order.append(name)
            inside.release()

        def theirs(client: KazooClient, name: str) -> None:
            for _ in range(5):
                client.Election("/interop/e", name).run(work, name)

        def ours() -> None:
            for _ in range(5):
                with zk.lead("/interop/e", member="ours"):
                    work("ours")

        threads = [
            threading.Thread(target=theirs, args=(kazoo, "kazoo")),
            threading.Thread(target=theirs, args=(kazoo2, "kazoo2")),
            threading.Thread(target=ours),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert sorted(order) == ["kazoo"] * 5 + ["kazoo2"] * 5 + ["ours"] * 5


def test_readers_of_kazoo_keep_our_lock_out(hosts: str) -> None:
    with both(hosts) as (zk, kazoo):
        reader = kazoo.ReadLock("/interop/r", "reader")
        reader.acquire()

        with pytest.raises(LockTimeout), zk.lock("/interop/r", timeout=0.2):
            pass
        reader.release()
        with zk.lock("/interop/r", timeout=5):
            assert kazoo.ReadLock("/interop/r").acquire(blocking=False) is False


def test_readers_and_writers_of_both_share_and_exclude_each_other(hosts: str) -> None:
    path = "/interop/rw"
    with both(hosts) as (zk, kazoo), kazoo_session(hosts) as kazoo2:
        ours = zk.rwlock(path)
        reader, writer = kazoo.ReadLock(path, "reader"), kazoo2.WriteLock(path, "writer")
        with ours.read(timeout=5):
            assert reader.acquire(timeout=5)
            assert writer.acquire(blocking=False) is False
            reader.release()
            thread = threading.Thread(target=writer.acquire)
            thread.start()
            wait_until(lambda: len(zk.children(path)) == 2)
            with ours.try_read() as late:  # not before the writer that waits
                assert late is None
        thread.join(10)
        assert writer.is_acquired
        for guarded in (ours.read(timeout=0.2), ours.write(timeout=0.2)):
            with pytest.raises(LockTimeout), guarded:
                pass
        writer.release()
        with ours.write(timeout=5):
            assert kazoo.ReadLock(path).acquire(blocking=False) is False
            assert kazoo.WriteLock(path).acquire(blocking=False) is False
        assert reader.acquire(timeout=5)
        reader.release()


def test_a_writer_of_ours_then_a_reader_of_kazoos_then_a_writer_get_in_in_this_order(
    hosts: str,
) -> None:
    path = "/interop/order"
    with both(hosts) as (zk, kazoo), kazoo_session(hosts) as kazoo2:
        order: list[str] = []
        last = threading.Event()

        def read() -> None:
            with kazoo.ReadLock(path):
                order.append("reads")
                last.wait(10)

        def write() -> None:
            with kazoo2.WriteLock(path):
                order.append("writes")

        threads = [threading.Thread(target=read), threading.Thread(target=write)]
        with zk.rwlock(path).write(timeout=5):
            for number, thread in enumerate(threads, 2):
                thread.start()
                wait_until(lambda number=number: len(zk.children(path)) == number)  # type: ignore[misc]
            assert order == []
        wait_until(lambda: order == ["reads"])
        with zk.rwlock(path).try_read() as late:
            assert late is None
        last.set()
        for thread in threads:
            thread.join(10)
        assert order == ["reads", "writes"]


def test_a_tutorials_election_and_ours_have_one_leader_at_a_time(hosts: str) -> None:
    """`n_` and ten digits, the smallest one leads, the others watch the one before them."""
    path = "/interop/plain"
    with both(hosts) as (zk, kazoo):
        kazoo.ensure_path(path)

        def first() -> str:
            return min(kazoo.get_children(path))

        theirs = kazoo.create(f"{path}/n_", ephemeral=True, sequence=True)
        assert theirs.endswith(first())
        with pytest.raises(LockTimeout), zk.lead(path, dialect="plain:n_", timeout=0.3):
            pass
        began, end = threading.Event(), threading.Event()

        def ours() -> None:
            with zk.lead(path, dialect=None):
                began.set()
                end.wait(10)

        thread = threading.Thread(target=ours)
        thread.start()
        wait_until(lambda: len(zk.children(path)) == 2)
        assert not began.is_set()
        kazoo.delete(theirs)
        assert began.wait(10)
        again = kazoo.create(f"{path}/n_", ephemeral=True, sequence=True)
        assert not again.endswith(first())
        end.set()
        thread.join(10)
        wait_until(lambda: again.endswith(first()))


def test_in_a_directory_of_kazoos_another_dialect_is_not_spoken(hosts: str) -> None:
    path = "/interop/mixed"
    with both(hosts) as (zk, kazoo), kazoo.Lock(path, "theirs"):
        (theirs,) = zk.children(path)
        for dialect in ("curator-lock", "curator-latch", "curator-rw", "plain:n_"):
            with (
                pytest.raises(MixedDialects, match=theirs),
                zk.lock(path, dialect=dialect, timeout=5),
            ):
                pass
        wait_until(lambda: zk.children(path) == [theirs])


def test_members_of_a_group_and_of_kazoos_party_see_each_other(hosts: str) -> None:
    with both(hosts) as (zk, kazoo):
        group, party = zk.group("/interop/party"), kazoo.Party("/interop/party", "theirs")
        party.join()
        with group.join("ours") as membership:
            assert sorted(party) == ["ours", "theirs"]
            assert len(party) == 2
            assert sorted(each.data for each in group.members().values()) == [b"ours", b"theirs"]
            membership.update("newer")
            membership.settled(5)
            assert sorted(party) == ["newer", "theirs"]
        wait_until(lambda: list(party) == ["theirs"])
        party.leave()
        assert group.members() == {}


def test_kazoos_party_passes_over_a_member_whose_name_is_not_of_its_kind(hosts: str) -> None:
    with both(hosts) as (zk, kazoo):
        party = kazoo.Party("/interop/names", "theirs")
        group = zk.group("/interop/names")
        with group.join("a", name="web-1"):
            assert list(party) == []
            with group.join("b", name="web-2__party__"):
                assert list(party) == ["b"]
