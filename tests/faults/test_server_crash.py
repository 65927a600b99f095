"""SIGKILL of the server under writes: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.raw import Closed, RawClient
from tests.waiting import wait_until

from incumbent.wire import Create, Delete, Exists, GetChildren, GetData, Multi, SetData


class Writer(threading.Thread):
    """Creates /w<k>/<n> for n = 0, 1, 2…, keeps /a<k> and /b<k> equal, and has a brief ephemeral for
    each n; many requests in flight, so many bytes that the log is folded meanwhile."""

    def __init__(self, server: EmbeddedServer, number: int, first: int) -> None:
        super().__init__()
        self.client = RawClient.connected(server.host, server.port, timeout_ms=30_000)
        self.number = number
        self.first = first
        self.acknowledged = first  # every n below is there
        self.pair = -1  # the last n acknowledged for the pair
        self.zxid = 0
        self.sent = first

    def run(self) -> None:
        k, ahead = self.number, 20
        assert self.client.session is not None
        session = self.client.session.session_id
        requests: list[Create | Multi | Delete] = []
        with contextlib.suppress(Closed, OSError):
            while True:
                while len(requests) < ahead:
                    n = str(self.sent)
                    both = [SetData(f"/a{k}", n.encode()), SetData(f"/b{k}", n.encode())]
                    brief = f"/brief-{session:x}-{n}"
                    requests += [Create(brief, flags=1), Create(f"/w{k}/{n}", bytes(3000))]
                    requests += [Multi(both), Delete(brief)]
                    self.sent += 1
                    for request in requests[-4:]:
                        self.client.submit(request)
                request = requests.pop(0)
                reply = self.client.reply(request)
                assert reply.err == 0, reply
                assert reply.zxid > self.zxid
                self.zxid = reply.zxid
                if isinstance(request, Create) and not request.flags:
                    self.acknowledged = int(request.path.rpartition("/")[2]) + 1
                elif isinstance(request, Multi):
                    self.pair = self.acknowledged - 1


WRITERS = 3


def test_no_acknowledged_write_is_lost_and_no_multi_is_half_there(tmp_path: Path) -> None:
    ten_crashes(tmp_path, seed=20)


def ten_crashes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    server = EmbeddedServer(tmp_path)
    with server:
        with RawClient.connected(server.host, server.port) as setup:
            for k in range(WRITERS):
                for path in (f"/w{k}", f"/a{k}", f"/b{k}"):
                    assert setup.call(Create(path, b"-1")).err == 0
        firsts = [0] * WRITERS
        zxid = 0
        total = 0
        for _ in range(10):
            writers = [Writer(server, k, firsts[k]) for k in range(WRITERS)]
            for writer in writers:
                writer.start()
            enough = rng.randrange(5, 400)
            wait_until(
                lambda w=writers, e=enough: sum(x.acknowledged - x.first for x in w) > e, 60.0
            )  # type: ignore[misc]
            server.kill()
            for writer in writers:
                writer.join(10)
                writer.client.close()
            server.start()
            seen = max(writer.zxid for writer in writers)
            with RawClient.connected(server.host, server.port, last_zxid=seen) as reader:
                zxid_now = reader.call(Exists("/")).zxid
                assert zxid_now >= seen, "the zxid went back"
                assert zxid_now >= zxid
                zxid = zxid_now
                for k, writer in enumerate(writers):
                    names = {int(name) for name in reader.call(GetChildren(f"/w{k}")).value}
                    assert names == set(range(len(names))), "a write is missing in the middle"
                    assert len(names) >= writer.acknowledged, "an acknowledged write is lost"
                    pair = [reader.call(GetData(f"/{side}{k}")).value.data for side in "ab"]
                    assert pair[0] == pair[1], "half of a multi"
                    assert int(pair[0]) >= writer.pair, "an acknowledged multi is lost"
                    firsts[k] = len(names)
            total += sum(writer.acknowledged - writer.first for writer in writers)
    assert total > 100


def test_a_session_and_its_ephemerals_outlive_a_crash(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        client = RawClient.connected(server.host, server.port)
        session = client.session
        assert session is not None
        client.call(Create("/e", b"", flags=1))

        server.restart()

        with RawClient(server.host, server.port) as again:
            answer = again.connect(
                session_id=session.session_id, password=session.password, last_zxid=2
            )
            assert answer == session
            assert again.call(Exists("/e")).value.ephemeralOwner == session.session_id


def test_a_lock_of_kazoo_outlives_a_crash(tmp_path: Path) -> None:
    """Its client reconnects by itself, to the same session, and still holds it."""
    with EmbeddedServer(tmp_path) as server:
        holder, other = (KazooClient(server.hosts, timeout=10) for _ in range(2))
        holder.start(timeout=10)
        other.start(timeout=10)
        try:
            lock = holder.Lock("/lock")
            assert lock.acquire(timeout=5)
            session = holder.client_id
            seen: dict[KazooClient, list[str]] = {holder: [], other: []}
            for client, states in seen.items():
                client.add_listener(states.append)

            server.restart()

            back = [KazooState.SUSPENDED, KazooState.CONNECTED]
            wait_until(lambda: all(s == back for s in seen.values()), 20, "kazoo to come back")
            assert holder.client_id == session
            assert not other.Lock("/lock").acquire(blocking=False)
            lock.release()
            assert other.Lock("/lock").acquire(timeout=5)
        finally:
            for client in (holder, other):
                client.stop()
                client.close()


@pytest.mark.soak
def test_two_hundred_crashes(tmp_path: Path) -> None:
    for seed in range(20):
        ten_crashes(tmp_path / str(seed), seed)
