"""How much does a server serve, beside Apache ZooKeeper 3.8, and how well does it bear crowds?

Both servers stand through the whole question and take turns, cell by cell and round by round;
both sync what they acknowledge. The load comes from `peers/load.c`, which needs a fraction of what
either server needs.

Rule of this file: Apache is given what its own scripts give it (both compiler tiers, a
gigabyte of heap) and the longer warm-up.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders import settle
from benchmarks.results import Figure, Outcome
from tests.apache import ApacheServer, apache_missing, four_letters, free_port
from tests.children import ends_with_us
from tests.e2e.terminals import Terminals
from tests.waiting import wait_until

__all__ = ["SAMPLES", "run"]

SAMPLES = 5

_KINDS = {"get": 3.0, "set": 1.5, "ephemeral": 1.5, "mix": 1.5}
"""And how many times Apache's rate is the goal where requests are pipelined; elsewhere once."""

_SHAPES = ((1, 1), (8, 1), (8, 64), (64, 1))  # connections, and outstanding requests of each
_SECONDS = 0.5
_MOST = 200_000  # requests in that time
_MOST_EPHEMERALS = 20_000
_WARM_UP = 1  # rounds; Apache gets three times as many

_MANY = 100_000  # znodes, and watches
_IDLE = 10_000  # sessions
_IDLE_SECONDS = 10.0
_BRIEF = 10_000  # ephemerals of one session
_HERD = 1_000
_CROWD_SAMPLES = 3

_JAVA = "-XX:TieredStopAtLevel=4 -Xmx1000m -XX:-UseSerialGC -XX:+UseG1GC"


class _Load(NamedTuple):
    """What one run of the load generator told."""

    rate: float
    """Replies in a second."""
    median: float
    """Microseconds from a request to its reply."""


class _Side(NamedTuple):
    """A server under load."""

    name: str
    pid: int
    port: int


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Serving: requests in a second, and crowds")
    program = folder / "load"
    why = _compile(program)
    if why:
        outcome.remarks.append(why)
        return outcome
    with ExitStack() as stack:
        sides = [stack.enter_context(_ours(folder / "ours"))]
        why = apache_missing()
        if why:
            outcome.remarks.append(f"Apache ZooKeeper is left out: {why}")
        else:
            sides.append(stack.enter_context(_apache(folder / "apache")))
        outcome.rows = _rates(program, sides, samples, outcome.remarks)
        outcome.figures = _crowds(program, sides, samples)
    outcome.figures[:0] = _memory(program, folder, samples)
    return outcome


def _compile(program: Path) -> str:
    """Why there is no load, or ""."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "left out: no C compiler (apt-get install gcc libc6-dev)"
    source = Path(__file__).parent / "peers" / "load.c"
    asked = [compiler, "-O2", "-o", str(program), str(source)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return f"left out: {done.stderr.strip()[:300]}" if done.returncode else ""


# -- rates


def _rates(
    program: Path, sides: list[_Side], samples: int, remarks: list[str]
) -> list[tuple[str, ...]]:
    cells = [(kind, shape) for kind in _KINDS for shape in _SHAPES]
    for side in sides:
        for _ in range(_WARM_UP * (1 if side is sides[0] else 3)):
            for kind, shape in cells:
                _load(program, side, kind, shape, _SECONDS)
    told: dict[tuple[str, tuple[int, int], str], list[_Load]] = {}
    for _ in range(samples):
        for kind, shape in cells:
            for side in sides:
                one = _load(program, side, kind, shape, _SECONDS)
                told.setdefault((kind, shape, side.name), []).append(one)
    head = ["requests/s (p50)"]
    head += [side.name for side in sides]
    rows = [(*head, "ratio", "goal")]
    missed = 0
    for kind, shape in cells:
        medians = []
        shown = []
        for side in sides:
            loads = told[kind, shape, side.name]
            medians.append(statistics.median(one.rate for one in loads))
            p50 = statistics.median(one.median for one in loads)
            least, most = min(one.rate for one in loads), max(one.rate for one in loads)
            shown.append(
                f"{_thousands(medians[-1])} ({_thousands(least)}-{_thousands(most)}; {p50:.0f} us)"
            )
        ratio = goal = ""
        if len(medians) == 2:
            aim = _KINDS[kind] if shape[1] > 1 and kind != "ephemeral" else 1.0
            is_met = medians[0] >= aim * medians[1]
            missed += not is_met
            ratio = f"{medians[0] / medians[1]:.2f}"
            goal = f">= {aim:g}: {'met' if is_met else 'MISSED'}"
        rows.append((f"{kind} {shape[0]} x {shape[1]}", *shown, ratio, goal))
    remarks += [
        f"connections x outstanding requests of each; 100 bytes of data; medians of {samples} "
        f"(least-most; median latency), the servers in turns, {_SECONDS:g} s each",
        "both sync before they acknowledge; Apache: -Xmx1000m, G1, both compiler tiers, "
        "warmed up three times as long",
        f"mix: 9 reads, then a write. Goals missed: {missed} of {len(cells)}",
    ]
    return rows


def _load(program: Path, side: _Side, kind: str, shape: tuple[int, int], seconds: float) -> _Load:
    most = _MOST_EPHEMERALS if kind == "ephemeral" else _MOST
    told = _tell(program, side, "run", kind, *shape, seconds, most)
    replies, took, median, errors = map(float, told.split())
    assert not errors, f"{side.name} refused {errors:.0f} requests"
    return _Load(replies / took, median)


def _thousands(rate: float) -> str:
    return f"{rate / 1000:.1f}k" if rate < 100_000 else f"{rate / 1000:.0f}k"


# -- crowds


def _crowds(program: Path, sides: list[_Side], samples: int) -> list[Figure]:
    samples = min(samples, _CROWD_SAMPLES)
    figures = []
    for what, unit, measure in (
        (f"a herd of {_HERD} watchers told", "ms", _herd),
        (f"worst ping while {_BRIEF} ephemerals expire", "ms", _expire),
        (f"{_IDLE} idle sessions, of a core", "%", _idle),
    ):
        told: dict[str, list[float]] = {}
        for _ in range(samples):
            for side in sides:
                told.setdefault(side.name, []).append(measure(program, side))
        figures += [
            Figure(
                who=f"{side.name}: {what}",
                samples=told[side.name],
                unit=unit,
                peer=side is not sides[0],
            )
            for side in sides
        ]
    return figures


def _herd(program: Path, side: _Side) -> float:
    return float(_tell(program, side, "herd", _HERD))


def _expire(program: Path, side: _Side) -> float:
    return float(_tell(program, side, "expire", _BRIEF).split()[0])


def _idle(program: Path, side: _Side) -> float:
    """Percent of a core while each pings every 10 s."""
    with _holding(program, side, "idle", _IDLE, _IDLE_SECONDS + 5):
        settle(1.0)
        before, at = _cpu(side.pid), time.monotonic()
        settle(_IDLE_SECONDS)
        return (_cpu(side.pid) - before) / (time.monotonic() - at) * 100


def _memory(program: Path, folder: Path, samples: int) -> list[Figure]:
    """Of ours: the heap of a JVM tells nothing of the kind from outside."""
    znodes, watches = [], []
    for number in range(min(samples, _CROWD_SAMPLES)):
        with _ours(folder / f"memory-{number}") as side:
            empty = _resident(side.pid)
            with _holding(program, side, "fill", _MANY):
                pass
            settle(1.0)
            full = _resident(side.pid)
            with _holding(program, side, "watch", _MANY):
                settle(0.5)
                watched = _resident(side.pid)
            znodes.append((full - empty) / _MANY)
            watches.append((watched - full) / _MANY)
    return [
        Figure(who=f"ours: memory of a znode, {_MANY} of them", samples=znodes, unit="B"),
        Figure(who=f"ours: memory of a watch, {_MANY} of them", samples=watches, unit="B"),
    ]


# -- processes


@contextmanager
def _ours(folder: Path) -> Iterator[_Side]:
    folder.mkdir()
    port = free_port()
    argv = [sys.executable, "-P", "-m", "incumbent.server", "--data", folder / "data"]
    argv += ["--listen", f"127.0.0.1:{port}", "--max-connections", "0"]
    with _many_files(), Terminals(folder) as terminals:
        server = terminals.start("server", argv)
        wait_until(
            lambda: bool(four_letters("127.0.0.1", port, "srvr")), 30.0, "our server to serve"
        )
        yield _Side("ours", server.pid, port)


@contextmanager
def _apache(folder: Path) -> Iterator[_Side]:
    server = ApacheServer(folder, properties={"zookeeper.forceSync": "yes"})
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = _JAVA
    try:
        with _many_files():
            server.start()
    finally:
        if before is None:
            del os.environ["_JAVA_OPTIONS"]
        else:
            os.environ["_JAVA_OPTIONS"] = before
    try:
        yield _Side("Apache 3.8", server.pid, server.port)
    finally:
        server.stop()


@contextmanager
def _many_files() -> Iterator[None]:
    """For processes started meanwhile: as many open files as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _argv(program: Path, side: _Side, words: tuple[object, ...]) -> list[str]:
    return [str(program), str(side.port), *map(str, words)]


def _tell(program: Path, side: _Side, *words: object) -> str:
    done = subprocess.run(
        _argv(program, side, words),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=ends_with_us(),
    )
    assert done.returncode == 0, f"{side.name}, {words}: {done.stderr}"
    return done.stdout


@contextmanager
def _holding(program: Path, side: _Side, *words: object) -> Iterator[None]:
    """The generator has done what it was asked and holds its connections."""
    with subprocess.Popen(
        _argv(program, side, words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=ends_with_us(),
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n", f"{side.name}: no {words[0]}"
            yield
        finally:
            process.kill()


def _cpu(pid: int) -> float:
    """Seconds that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    """Bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
