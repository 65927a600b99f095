"""Our locks and Curator's in one directory: each keeps the other out, whoever comes first."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import LockTimeout, MixedDialects

_SOURCE = Path(__file__).parent / "clients" / "Holder.java"
_JARS = ("curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute")
_JARS += ("guava", "slf4j-api", "slf4j-nop", "netty-all")
_CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS)

pytestmark = pytest.mark.skipif(
    shutil.which("javac") is None or not Path("/usr/share/java/curator-recipes.jar").exists(),
    reason="no javac, or no Curator (apt-get install default-jdk-headless libcurator-recipes-java)",
)


class Curator:
    """The Java program: `tell` a command, get its answer; `begin` does not wait for it."""

    def __init__(self, classes: Path, hosts: str) -> None:
        java = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m")
        self._process = subprocess.Popen(
            [*java, "-cp", f"{classes}:{_CLASSPATH}", "Holder", hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._caller = ThreadPoolExecutor(1)
        self.asked = threading.Event()
        assert self._answer() == "connected"

    def tell(self, command: str) -> str:
        return self.begin(command).result(20)

    def begin(self, command: str) -> Future[str]:
        return self._caller.submit(self._tell, command)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._caller.shutdown()
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()

    def _tell(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline().strip()).startswith("asked"):
            self.asked.set()
        return line


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curator")
    subprocess.run(["javac", "-cp", _CLASSPATH, "-d", str(folder), str(_SOURCE)], check=True)
    return folder


@pytest.fixture(scope="module", params=["ours", "apache"])
def both(request: pytest.FixtureRequest, classes: Path) -> Iterator[tuple[sync.Zk, Curator]]:
    """Both servers are left the same behind: later tests compare their roots."""
    hosts: str = request.getfixturevalue(request.param).hosts
    curator = Curator(classes, hosts)
    try:
        with incumbent.connect(hosts, session_timeout=10.0) as zk:
            zk.ensure("/curator")
            yield zk, curator
    finally:
        curator.stop()


def stand(zk: sync.Zk, path: str, number: int) -> None:
    wait_until(lambda: zk.exists(path) is not None and len(zk.children(path)) == number)


def test_curators_mutex_first_then_ours(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    curator.tell("mutex a /curator/a")
    assert curator.tell("acquire a 10000") == "true"
    with (
        pytest.raises(LockTimeout) as caught,
        zk.lock("/curator/a", dialect="curator-lock", timeout=0.5),
    ):
        pass
    assert caught.value.ahead[0].startswith("_c_")
    events: list[str] = []

    def ours() -> None:
        with zk.lock("/curator/a", dialect=None):
            events.append("ours begins")

    thread = threading.Thread(target=ours)
    thread.start()
    stand(zk, "/curator/a", 2)
    events.append("theirs ends")
    curator.tell("release a")
    thread.join(10)

    assert events == ["theirs ends", "ours begins"]


def test_ours_first_then_curators_mutex(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    curator.tell("mutex b /curator/b")
    with zk.lock("/curator/b", dialect="curator-lock") as hold:
        assert curator.tell("acquire b 200") == "false"
        waiting = curator.begin("acquire b 10000")
        stand(zk, "/curator/b", 2)
        hold.ensure()
        assert not waiting.done()
    assert waiting.result(10) == "true"
    curator.tell("release b")


def test_readers_share_and_writers_do_not(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    path = "/curator/rw"
    curator.tell(f"read r {path}")
    curator.tell(f"write w {path}")
    ours = zk.rwlock(path, dialect="curator-rw")
    with ours.read(timeout=5):
        assert curator.tell("acquire r 5000") == "true"
    with pytest.raises(LockTimeout), ours.write(timeout=0.3):
        pass
    with ours.read(timeout=5):
        curator.tell("release r")
        assert curator.tell("acquire w 200") == "false"
        stand(zk, path, 1)
        waiting = curator.begin("acquire w 10000")
        stand(zk, path, 2)
        with ours.try_read() as late:  # not before the writer that waits
            assert late is None
    assert waiting.result(10) == "true"
    with pytest.raises(LockTimeout), ours.read(timeout=0.3):
        pass
    curator.tell("release w")
    with ours.write(timeout=5) as hold:
        assert hold.fencing_token
        assert curator.tell("acquire r 200") == "false"
    assert curator.tell("acquire r 5000") == "true"
    curator.tell("release r")


def test_curators_latch_and_our_leadership_take_turns(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    path = "/curator/latch"
    curator.tell(f"latch one {path}")
    assert curator.tell("leads one 10000") == "true"
    view = zk.election(path).view()
    assert view.leader is not None
    assert view.leader.member == b"one"
    with (
        pytest.raises(LockTimeout),
        zk.lead(path, member="us", dialect="curator-latch", timeout=0.5),
    ):
        pass
    began = threading.Event()
    end = threading.Event()

    def lead() -> None:
        with zk.lead(path, member="us", dialect="curator-latch"):
            began.set()
            end.wait(20)

    thread = threading.Thread(target=lead)
    thread.start()
    stand(zk, path, 2)
    curator.tell("close one")
    assert began.wait(10)
    curator.tell(f"latch two {path}")
    assert curator.tell("leads two 200") == "false"
    assert curator.tell("leader two") == "us"
    end.set()
    assert curator.tell("leads two 10000") == "true"
    curator.tell("close two")
    thread.join(10)


def test_each_can_ask_the_other_to_give_way(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    path = "/curator/revoked"
    curator.tell(f"mutex v {path}")
    curator.tell("revocable v")
    assert curator.tell("acquire v 10000") == "true"
    assert zk.revoke(path) is not None
    wait_until(lambda: curator.tell("ping") == "pong" and curator.asked.is_set())
    curator.tell("release v")
    with zk.lock(path, dialect="curator-lock") as hold:
        curator.tell(f"revoke {path}/{hold.name}")
        assert hold.asked.wait(10)
        hold.ensure()


def test_in_a_directory_of_curators_another_dialect_is_not_spoken(
    both: tuple[sync.Zk, Curator],
) -> None:
    zk, curator = both
    path = "/curator/mixed"
    curator.tell(f"mutex x {path}")
    assert curator.tell("acquire x 10000") == "true"
    (theirs,) = zk.children(path)
    for dialect in ("ours", "plain:n_", "curator-latch", "curator-rw"):
        with pytest.raises(MixedDialects, match=theirs), zk.lock(path, dialect=dialect, timeout=5):
            pass
    stand(zk, path, 1)
    curator.tell("release x")
    ours = zk.create(f"{path}/a__lock__", ephemeral=True, sequential=True)
    with (
        pytest.raises(MixedDialects, match=ours.path.rpartition("/")[2]),
        zk.lock(path, dialect="curator-lock", timeout=5),
    ):
        pass


def test_members_of_a_group_see_each_other(both: tuple[sync.Zk, Curator]) -> None:
    zk, curator = both
    group = zk.group("/curator/group")
    curator.tell("join theirs /curator/group a")
    with group.join("b", name="ours") as membership:
        wait_until(lambda: set(group.members()) == {"ours", "theirs"})
        wait_until(lambda: curator.tell("members theirs") == "{ours=b, theirs=a}")
        assert group.members()["theirs"].data == b"a"
        membership.update("c")
        wait_until(lambda: curator.tell("members theirs") == "{ours=c, theirs=a}")
    wait_until(lambda: curator.tell("members theirs") == "{theirs=a}")
    curator.tell("quit theirs")
    wait_until(lambda: group.members() == {})
