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
from incumbent.errors import LockTimeout

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
