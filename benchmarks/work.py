"""What it costs to do each order once: claims beside kazoo's locks and queue, and PostgreSQL's.

Workers are processes, whose handling of an order is nothing; on one Apache ZooKeeper, on our server, and
on one PostgreSQL, which all sync before they acknowledge. PostgreSQL's is another thing: a queue in one
database, without which there is no second copy to lag and no second machine to take over; it says what a
claim costs beside what the order's own transaction costs anyway.

Rule of this file: what is compared is measured in turns, in the same minutes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.results import Outcome
from tests.apache import ApacheServer, apache_missing
from tests.children import ends_with_us
from tests.conformance.embedded import EmbeddedServer
from tests.postgres import PostgresServer, postgres_missing

__all__ = ["SAMPLES", "run"]

SAMPLES = 3
_FOR = 1.5  # seconds
_MANY = 4  # workers
_GOAL = 10.0
"""Claims in batches are to be so many times as fast as a lock of kazoo's per order."""
_PEER = Path(__file__).parent / "peers" / "work.py"

_QUESTIONS = (
    ("claims", "apache", 1, "claims in batches of 500"),
    ("claims", "ours", 1, "the same on our server"),
    ("claims", "apache", _MANY, f"{_MANY} workers"),
    ("claims", "ours", _MANY, f"{_MANY} workers, our server"),
    ("run", "apache", 1, "work.run, 64 handlers"),
    ("run", "ours", 1, "the same on our server"),
    ("kazoo-lock", "apache", 1, "kazoo: a Lock per order"),
    ("kazoo-lock", "apache", _MANY, f"kazoo: a Lock per order, {_MANY} workers"),
    ("kazoo-queue", "apache", 1, "kazoo: LockingQueue"),
    ("postgres", "postgres", 1, "PostgreSQL: FOR UPDATE SKIP LOCKED"),
)
"""What a worker does, where, how many of them, and what that is called."""


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Orders that are done once, orders/s")
    if missing := apache_missing():
        outcome.remarks.append(missing)
        return outcome
    with ExitStack() as stack:
        where = {
            "apache": stack.enter_context(ApacheServer(folder / "apache")).hosts,
            "ours": stack.enter_context(EmbeddedServer(folder)).hosts,
        }
        if why := postgres_missing():
            outcome.remarks.append(why)
        else:
            url = stack.enter_context(PostgresServer()).url
            where["postgres"] = url.replace("+psycopg", "")
        asked = [each for each in _QUESTIONS if each[1] in where]
        rates: dict[tuple[str, str, int, str], list[float]] = {each: [] for each in asked}
        for sample in range(samples):
            for number, each in enumerate(asked):
                task, server, workers, _ = each
                path = f"/work-{number}-{sample}"
                rates[each].append(_measure(task, where[server], path, workers, folder))
    medians = {each: statistics.median(found) for each, found in rates.items()}
    locks = {each[2]: rate for each, rate in medians.items() if each[0] == "kazoo-lock"}
    outcome.rows.append(("", "orders/s", "least", "most", "beside as many workers' Lock per order"))
    for each, found in rates.items():
        task, server, workers, title = each
        ratio = f"{medians[each] / locks[workers]:.1f} times as fast"
        if (task, server) == ("claims", "apache"):
            is_met = medians[each] >= _GOAL * locks[workers]
            ratio += f"; goal {_GOAL:g}: {'met' if is_met else 'MISSED'}"
        row = (medians[each], min(found), max(found))
        outcome.rows.append((title, *(f"{rate:,.0f}" for rate in row), ratio))
    outcome.remarks.append(f"medians of {samples}, {_FOR:g} s each, in turns; handlers do nothing")
    return outcome


def _measure(task: str, where: str, path: str, workers: int, folder: Path) -> float:
    """Orders per second of all workers together, who begin at once."""
    argv = [sys.executable, str(_PEER), task, where, path, str(_FOR)]
    with ExitStack() as stack:
        peers = [stack.enter_context(_peer(argv, folder)) for _ in range(workers)]
        for peer in peers:
            _hear(peer, "ready", task, folder)
        for peer in peers:
            assert peer.stdin is not None
            peer.stdin.write("go\n")
            peer.stdin.flush()
        return sum(float(_hear(peer, "result", task, folder)) for peer in peers)


def _hear(peer: subprocess.Popen[str], word: str, task: str, folder: Path) -> str:
    """What it says after this word."""
    assert peer.stdout is not None
    for line in peer.stdout:
        first, *rest = line.split() or [""]
        if first == word:
            return "".join(rest)
    raise RuntimeError(f"{task} ended without a {word}: {(folder / 'work.err').read_text()}")


@contextmanager
def _peer(argv: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    with (folder / "work.err").open("ab") as err:
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
            process.wait(2)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
