"""A real guardian process whose agent is the test itself.

Rule of this file: everything that it starts is ended by pid, also when a test fails.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.cgroups import cgroups, why_no_cgroups
from tests.children import ends_with_us
from tests.waiting import wait_until

from incumbent.guardian import codec
from incumbent.guardian import messages as m
from incumbent.guardian.cgroup import end_cgroup, name_of

__all__ = ["Agent", "GuardianUnderTest", "boottime", "guardian", "living"]

PROGRAMS = Path(__file__).parent
M = TypeVar("M")


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def living(marker: str) -> list[int]:
    """Pids of all nasty programs, in any namespace, with `marker` in their command line."""
    found = []
    for name in sorted(path.name for path in Path("/proc").iterdir()):
        if not name.isdigit():
            continue
        with suppress(OSError):
            stat = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if stat[0] in (b"Z", b"X"):
                continue
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            if marker.encode() in words and b"nasty.py" in words:
                found.append(int(name))
    return found


class Agent:
    """One generation: what the guardian says to it, and what we let it say."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.splitter = codec.Splitter()
        self.heard: list[m.Message] = []
        self.history: list[m.Message] = []
        stream = b""
        sock.settimeout(10)
        while b"\n" not in stream:
            stream += sock.recv(4096)
        line, _, rest = stream.partition(b"\n")
        self.pid = int(line)
        self._feed(rest)
        self.generation = 0

    def say(self, *messages: m.FromAgent) -> None:
        self.sock.sendall(b"".join(codec.encode(each) for each in messages))

    def expect(
        self, kind: type[M] | tuple[type[M], ...], timeout: float = 15.0, **values: object
    ) -> M:
        """The next message of `kind` with these values; others before it are passed over."""

        def look() -> M | None:
            self._receive()
            while self.heard:
                message = self.heard.pop(0)
                matches = isinstance(message, kind)
                if matches and all(getattr(message, k) == v for k, v in values.items()):
                    return message  # type: ignore[return-value]
            return None

        found = wait_until(look, timeout, f"{kind} {values}; heard {self.history[-5:]}")
        assert found is not None
        return found

    def _receive(self) -> None:
        self.sock.settimeout(0.02)
        with suppress(TimeoutError, OSError):
            self._feed(self.sock.recv(65536))

    def _feed(self, data: bytes) -> None:
        found = list(self.splitter.feed(data))
        self.heard += found
        self.history += found

    # a usual life

    def hello(self) -> m.Welcome:
        self.say(m.Hello(pid=self.pid))
        welcome = self.expect(m.Welcome)
        self.generation = welcome.generation
        return welcome

    def lease(self, seconds: float) -> float:
        """A lease of so many seconds from now, acknowledged; its end."""
        valid_until = boottime() + seconds
        self.say(m.Lease(generation=self.generation, valid_until=valid_until, last_zxid=9))
        self.expect(m.LeaseAck, valid_until=valid_until)
        return valid_until

    def session(self, hosts: str = "127.0.0.1:1", **changes: object) -> None:
        passport = {
            "session_id": 0x1234,
            "password": uuid.uuid4().hex,
            "timeout_ms": 10_000,
            "s_min_ms": 10_000,
            "last_zxid": 5,
            "auth": [],
            "generation": 1,
            **changes,
        }
        self.say(m.Session(generation=self.generation, passport=passport, hosts=hosts))


class GuardianUnderTest:
    """`prefix` stands before the guardian's command, `agent` before the agent's."""

    def __init__(
        self,
        folder: Path,
        *,
        prefix: Sequence[str] = (),
        agent: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.folder = folder
        self.marker = f"incumbent-test-{uuid.uuid4().hex}"
        self.epoch = 0
        address = f"/tmp/{self.marker}.sock"  # a path in tmp_path may be too long
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen()
        self.listener.settimeout(15)
        self.address = address
        options.setdefault("beat", 60.0)  # the test is no clockwork: no ALIVE is demanded
        agent = [*agent, sys.executable, str(PROGRAMS / "relaying_agent.py"), address]
        guard = str(PROGRAMS / "guard.py")
        with (folder / "guardian.err").open("wb") as err:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, guard, json.dumps(options), *agent],
                stderr=err,
                preexec_fn=ends_with_us(),
            )

    def accept(self) -> Agent:
        """The next generation of the agent."""
        return Agent(self.listener.accept()[0])

    def connected(self, seconds: float = 60.0) -> Agent:
        """The first agent, with a session and a lease."""
        agent = self.accept()
        agent.hello()
        agent.session()
        agent.lease(seconds)
        return agent

    def nasty(self, kind: str, *rest: str, generation: int = 1, **changes: Any) -> m.Start:
        """A START of one of the nasty programs."""
        self.epoch += 1
        argv = (sys.executable, str(PROGRAMS / "nasty.py"), kind, self.marker, str(self.ready))
        self.ready.unlink(missing_ok=True)
        values: dict[str, Any] = {
            "generation": generation,
            "seat": "web/0",
            "epoch": self.epoch,
            "soft": 1.0,
            "hard": 0.2,
            "argv": (*argv, *rest),
            "env": {"PATH": os.environ["PATH"]},
            "cwd": "/",
            "stop_grace": 0.8,
            "log": str(self.folder / "web-0.log"),
            "cgroup": self.cgroup if changes.get("containment") == "contained" else None,
            **changes,
        }
        return m.Start(**values)

    @property
    def cgroup(self) -> str:
        """Of the newest START."""
        return f"{cgroups()}/{name_of(self.marker, 'web/0', self.epoch)}"

    @property
    def ready(self) -> Path:
        return self.folder / "ready"

    def run(self, agent: Agent, start: m.Start) -> m.Started:
        """Start it and wait until it has done its worst."""
        agent.say(start)
        started = agent.expect(m.Started, epoch=start.epoch)
        agent.say(m.Seen(seat=start.seat, epoch=start.epoch, pid=started.pid))
        wait_until(self.ready.exists, what=f"{start.argv[2]} to be ready")
        assert start.argv[2] == "tells" or not self.all_dead()
        return started

    def living(self) -> list[int]:
        """Pids that can be seen; one that never rests may be missing."""
        return living(self.marker)

    def all_dead(self) -> bool:
        """Exact: the lock that everybody of a tree shares is free."""
        lock = os.open(f"{self.ready}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return not self.living()

    @property
    def errors(self) -> str:
        return (self.folder / "guardian.err").read_text()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.listener.close()
        Path(self.address).unlink(missing_ok=True)
        if not why_no_cgroups():  # those of a guardian that was killed
            for path in cgroups().glob(f"incumbent-{self.marker}-*"):
                end_cgroup(path, 5.0)
        for pid in self.living():  # a test that failed left them
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def guardian(folder: Path, **options: Any) -> Iterator[GuardianUnderTest]:
    under_test = GuardianUnderTest(folder, **options)
    try:
        yield under_test
    except BaseException:
        print(under_test.errors)
        raise
    finally:
        under_test.end()
