"""What it costs to do each order once: claims beside kazoo's locks and queue, and PostgreSQL's.

One process each, whose handling of an order is nothing; on one Apache ZooKeeper and one PostgreSQL
that both sync before they acknowledge. PostgreSQL's is another thing: a queue in one database, without
which there is no second copy to lag and no second machine to take over; it says what a claim costs
beside what the order's own transaction costs anyway.

Rule of this file: what is compared is measured in turns, in the same minute.
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
from tests.postgres import PostgresServer, postgres_missing

__all__ = ["SAMPLES", "run"]

SAMPLES = 3
_FOR = 3.0  # seconds
_GOAL = 10.0
"""Claims in batches are to be so many times as fast as a lock of kazoo's per order."""
_PEER = Path(__file__).parent / "peers" / "work.py"

_TASKS = {
    "claims": "claims in batches of 500, one worker",
    "run": "work.run, 64 handlers",
    "kazoo-lock": "kazoo: a Lock per order",
    "kazoo-queue": "kazoo: LockingQueue",
    "postgres": "PostgreSQL: FOR UPDATE SKIP LOCKED",
}


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Orders that are done once, orders/s of one process")
    if missing := apache_missing():
        outcome.remarks.append(missing)
        return outcome
    rates: dict[str, list[float]] = {task: [] for task in _TASKS}
    with ExitStack() as stack:
        apache = stack.enter_context(ApacheServer(folder / "apache"))
        where = dict.fromkeys(_TASKS, apache.hosts)
        if why := postgres_missing():
            outcome.remarks.append(why)
            del rates["postgres"]
        else:
            server = stack.enter_context(PostgresServer())
            where["postgres"] = server.url.replace("+psycopg", "")
        for number in range(samples):
            for task, found in rates.items():
                found.append(_measure(task, where[task], f"/{task}-{number}", folder))
    medians = {task: statistics.median(found) for task, found in rates.items()}
    lock = medians["kazoo-lock"]
    outcome.rows.append(("", "orders/s", "least", "most", "beside a Lock per order"))
    for task, found in rates.items():
        ratio = f"{medians[task] / lock:.1f} times as fast"
        if task == "claims":
            ratio += f"; goal {_GOAL:g}: {'met' if medians[task] >= _GOAL * lock else 'MISSED'}"
        row = (medians[task], min(found), max(found))
        outcome.rows.append((_TASKS[task], *(f"{each:,.0f}" for each in row), ratio))
    outcome.remarks.append(f"medians of {samples}, {_FOR:g} s each, in turns; handlers do nothing")
    return outcome


def _measure(task: str, where: str, path: str, folder: Path) -> float:
    with _peer([sys.executable, str(_PEER), task, where, path, str(_FOR)], folder) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for line in peer.stdout:
            match line.split():
                case ["ready"]:
                    peer.stdin.write("go\n")
                    peer.stdin.flush()
                case ["result", rate]:
                    return float(rate)
    raise RuntimeError(f"{task} ended without a result: {(folder / 'work.err').read_text()}")


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
