"""What recipes cost, beside kazoo's and Curator's, on one Apache ZooKeeper.

Each figure is of one process that uses one recipe for some seconds (`holds`: of several at once), or
does something once. Whoever is measured says `ready`, and begins at a word from here; ours, kazoo's
and Curator's take turns, so that a busy machine is busy for all of them.

Rule of this file: what is compared does the same number of the same thing, in the same minute.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contenders import java
from benchmarks.results import Outcome
from tests.apache import ApacheServer, apache_missing
from tests.children import ends_with_us

__all__ = ["SAMPLES", "run"]

SAMPLES = 3
_FOR = 2.0  # seconds that a rate is measured
_DELAY = 0.020  # seconds, each way
_LIMIT = 120.0  # seconds for one figure
_PEERS = Path(__file__).parent / "peers"
_WAYS = {"on uvloop": "uvloop-", "blocking": "blocking-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `amount`: seconds, or how many; `is_rate`: more is better."""

    what: str
    task: str
    amount: float = _FOR
    unit: str = "/s"
    processes: int = 1
    is_rate: bool = True
    is_far: bool = False
    has_blocking: bool = False


ROWS = [
    Row(what="lock, nobody else: cycles", task="lock", has_blocking=True),
    *(
        Row(what=f"lock, {n} processes: holds", task="holds", processes=n, has_blocking=n < 32)
        for n in (2, 8, 32)
    ),
    Row(what="semaphore of one: cycles", task="semaphore", has_blocking=True),
    Row(what="queue: put and take", task="queue", has_blocking=True),
    Row(what="counter: additions", task="counter", has_blocking=True),
    Row(what="double barrier of two: rounds", task="barrier"),
    Row(what="election: handover", task="handover", amount=40, unit="ms", is_rate=False),
    Row(
        what="500 elections in one process, all led",
        task="elections",
        amount=500,
        unit="s",
        is_rate=False,
    ),
    Row(
        what="1,000 contenders of one process stand",
        task="contenders",
        amount=1000,
        unit="s",
        is_rate=False,
    ),
    Row(
        what="lock behind a 40 ms round trip",
        task="far",
        amount=7,
        unit="ms",
        is_rate=False,
        is_far=True,
    ),
]


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Recipes, on one Apache ZooKeeper 3.8")
    if missing := apache_missing():
        outcome.remarks.append(f"left out: {missing}")
        return outcome
    kinds = {
        "bare socket": [sys.executable, str(_PEERS / "recipes_bare.py")],
        "asyncio": [sys.executable, str(_PEERS / "recipes_ours.py")],
        "on uvloop": [sys.executable, str(_PEERS / "recipes_ours.py")],
        "blocking": [sys.executable, str(_PEERS / "recipes_ours.py")],
        "kazoo": [sys.executable, str(_PEERS / "recipes_kazoo.py")],
    }
    curator = java(folder, "Recipes")
    if isinstance(curator, str):
        outcome.remarks.append(curator)
    else:
        kinds["Curator"] = curator
    outcome.rows.append(("", *kinds, "on uvloop, beside the better of the others"))
    wanted = os.environ.get("RECIPES", "").split()
    threads: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        apache = stack.enter_context(ApacheServer(folder / "apache"))
        far = stack.enter_context(_delayed(apache.hosts, _DELAY))
        for row in ROWS:
            if wanted and row.task not in wanted:
                continue
            took: dict[str, list[float]] = {name: [] for name in kinds}
            for number in range(samples):
                for name, argv in kinds.items():
                    if name == "blocking" and not row.has_blocking:
                        continue
                    if name == "bare socket" and row.task not in ("lock", "holds"):
                        continue
                    path = f"/{row.task}-{row.processes}-{name}-{number}"
                    hosts = far if row.is_far else apache.hosts
                    task = _WAYS.get(name, "") + row.task
                    result, alive = _measure([*argv, hosts, task, path], row, folder)
                    took[name].append(result)
                    if alive:
                        threads.setdefault(row.what, {})[name] = alive
            outcome.rows.append(_line(row, took))
    for what, counts in threads.items():
        counted = ", ".join(f"{name} {count}" for name, count in counts.items())
        outcome.remarks.append(f"threads, {what}: {counted}")
    outcome.remarks.append(
        f"medians of {samples}; a rate is measured for {_FOR:g} s. Blocking code runs on uvloop, which "
        "`incumbent[all]` installs. Our taker is in the queue's "
        "`items()`, as a loop that takes is written; kazoo's queue keeps its listing too. kazoo's queue and Curator's "
        "SimpleDistributedQueue lose an item whose taker fails; kazoo's counter and Curator's may "
        "count an addition twice when its answer is lost; a bare socket does what no lock can do "
        "without, and nothing else: what the server and the disk allow"
    )
    return outcome


def _line(row: Row, took: dict[str, list[float]]) -> tuple[str, ...]:
    medians = {name: statistics.median(each) for name, each in took.items() if each}
    others = [value for name, value in medians.items() if name in ("kazoo", "Curator")]
    on_uvloop, plain = (
        medians[name] / max(others) if row.is_rate else min(others) / medians[name]
        for name in ("on uvloop", "asyncio")
    )
    shown = [f"{_short(medians[name])} {row.unit}" if name in medians else "" for name in took]
    return (row.what, *shown, f"{on_uvloop:.2f} times as fast; asyncio alone {plain:.2f}")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _measure(argv: Sequence[str], row: Row, folder: Path) -> tuple[float, int]:
    """The sum of what all processes achieved, and the threads that one said it has."""
    with ExitStack() as stack:
        users = [
            stack.enter_context(_user([*argv, str(row.amount)], folder))
            for _ in range(row.processes)
        ]
        for user in users:
            _line_of(user, "ready")
        for user in users:
            assert user.stdin is not None
            user.stdin.write("go\n")
            user.stdin.flush()
        threads, result = 0, 0.0
        for user in users:
            words = _line_of(user, "result", "threads")
            if words[0] == "threads":
                threads, words = int(words[1]), _line_of(user, "result")
            result += float(words[1])
        return result, threads


@contextmanager
def _user(argv: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    with (folder / "recipes.err").open("ab") as err:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            cwd=folder,
            preexec_fn=ends_with_us(),
        )
    try:
        yield process
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def _line_of(user: subprocess.Popen[str], *kinds: str) -> list[str]:
    """Its next line of these kinds. Raises RuntimeError if it ends without, or takes too long."""
    assert user.stdout is not None
    killer = threading.Timer(_LIMIT, user.kill)
    killer.start()
    try:
        for line in user.stdout:
            if (words := line.split())[:1] and words[0] in kinds:
                return words
    finally:
        killer.cancel()
    raise RuntimeError(f"{' '.join(user.args)} ended without a {' or '.join(kinds)}")  # type: ignore[arg-type]


@contextmanager
def _delayed(hosts: str, seconds: float) -> Iterator[str]:
    """A relay to these hosts that passes everything on so much later; where it listens."""
    host, port = hosts.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        """What comes is sent `seconds` later, however much is on its way."""
        waiting: list[tuple[float, bytes]] = []
        news = threading.Condition()

        def send() -> None:
            while True:
                with news:
                    while not waiting:
                        news.wait()
                    at, data = waiting.pop(0)
                time.sleep(max(0.0, at - time.monotonic()))
                with suppress(OSError):
                    if data:
                        target.sendall(data)
                        continue
                    target.shutdown(socket.SHUT_WR)
                return

        threading.Thread(target=send, daemon=True).start()
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with news:
                waiting.append((time.monotonic() + seconds, data))
                news.notify()
            if not data:
                return

    def accept() -> None:
        while not is_over.is_set():
            try:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
            except OSError:
                return
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _in_thread(lambda near=near, far=far: pass_on(near, far))
            _in_thread(lambda near=near, far=far: pass_on(far, near))

    _in_thread(accept)
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        listener.close()


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()
