"""How fast is the client, beside kazoo and aiozk, all on one Apache ZooKeeper 3.8?

Each has a process of its own (`peers/client_load.py`), one after the other, and the order is gone
through anew for every sample. Beside them a bare socket, which sends the same bytes and cuts the
answers into frames: what this server gives on this machine, and so what any client can have.

Rule of this file: nobody is measured while another one runs, except in "four processes".
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders import settle
from benchmarks.results import Outcome
from tests.apache import ApacheServer, apache_missing, four_letters
from tests.peers import PEERS_PYTHON, peers_missing

__all__ = ["SAMPLES", "run"]

SAMPLES = 5

_NAMES = {
    "bare": "bare socket",
    "ours": "ours, asyncio",
    "blocking": "ours, blocking",
    "kazoo": "kazoo 2.11",
    "aiozk": "aiozk",
}
_LOAD = Path(__file__).parent / "peers" / "client_load.py"
_NUMBERS = {"single": 2_000, "get": 20_000, "set": 10_000}
_PROCESSES = 4
_WATCHES = 10_000
_WATCH_SAMPLES = 2
_LIMIT = 120.0  # seconds that anybody gets
_JAVA = "-XX:TieredStopAtLevel=4 -Xmx1000m -XX:-UseSerialGC -XX:+UseG1GC"

_Told = dict[tuple[str, str], list[float]]
"""What was asked and who answered → samples."""


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Client: one Apache ZooKeeper 3.8, five ways to use it")
    why = apache_missing()
    if why:
        outcome.remarks.append(f"left out: {why}")
        return outcome
    who = list(_NAMES)
    if absent := peers_missing():
        outcome.remarks.append(f"aiozk is left out: {absent}")
        who.remove("aiozk")
    told: _Told = {}
    with _apache(folder / "apache") as server:
        for name in who:  # the first round warms the server up
            _rates(server, name, {}, name != "blocking")
        for _ in range(samples):
            for name in who:
                _rates(server, name, told, name != "blocking")
        for _ in range(min(samples, _WATCH_SAMPLES)):
            for name in ("ours", "kazoo"):
                _watches(server, name, told)
    outcome.rows = _rows(who, told)
    outcome.remarks += [
        f"medians of {samples} (least-most), in turns; 100 bytes of data; pipelined: at most 256 "
        "outstanding; Apache syncs what it acknowledges, both compiler tiers, -Xmx1000m, G1",
        f"watches: {_WATCHES}; set again: from the end of the connection until the server has all "
        "of them again. kazoo's are DataWatches: of its plain ones none outlives a connection",
        "where the bare socket is not much faster than a client, it is the server that is measured",
    ]
    return outcome


def _rates(server: ApacheServer, name: str, told: _Told, is_pipelined: bool) -> None:
    for what, number in _NUMBERS.items():
        if what == "single" or is_pipelined:
            with _load(server, name, what, number) as (answers,):
                told.setdefault((what, name), []).append(answers()[0])
    if is_pipelined:
        with _load(server, name, "get", _NUMBERS["get"] // 2, _PROCESSES) as all_of_them:
            rates = [answers()[0] for answers in all_of_them]
        told.setdefault(("four", name), []).append(sum(rates))


def _watches(server: ApacheServer, name: str, told: _Told) -> None:
    with _load(server, name, "watch", _WATCHES) as (answers,):
        took, memory = answers()
        _until(server, lambda there: there >= _WATCHES)
        began = time.monotonic()
        answers.send()
        _until(server, lambda there: there < _WATCHES / 2)
        _until(server, lambda there: there >= _WATCHES)
        again = (time.monotonic() - began) * 1000
    for what, figure in (("watch", took), ("again", again), ("memory", memory)):
        told.setdefault((what, name), []).append(figure)
    _until(server, lambda there: there == 0)


def _until(server: ApacheServer, is_so: Callable[[int], bool]) -> None:
    """Until the number of watches at the server is such a one."""
    end = time.monotonic() + _LIMIT
    while time.monotonic() < end:
        words = four_letters(server.host, server.port, "wchs").split()
        if words and is_so(int(words[-1].removeprefix("watches:"))):
            return
        settle(0.005)
    raise TimeoutError(f"the watches at {server.hosts} did not become what they should be")


_ROWS = (
    ("single", "one get after the other, p50 in ms", 3),
    ("get", "pipelined gets a second", 0),
    ("set", "pipelined sets a second", 0),
    ("four", "pipelined gets a second, four processes", 0),
    ("watch", f"{_WATCHES} watches set, ms", 0),
    ("again", "set again after a reconnect, ms", 0),
    ("memory", "memory of a watch at the client, bytes", 0),
)


def _rows(who: list[str], told: _Told) -> list[tuple[str, ...]]:
    rows = [("", *(_NAMES[name] for name in who), "ours / kazoo", "goal")]
    for what, title, digits in _ROWS:
        medians = {
            name: statistics.median(told[what, name]) for name in who if (what, name) in told
        }
        cells = [_shown(told.get((what, name), []), digits) for name in who]
        ratio = medians["ours"] / medians["kazoo"]
        rows.append((title, *cells, f"{ratio:.2f}", _verdict(what, medians)))
    return rows


def _verdict(what: str, medians: dict[str, float]) -> str:
    def met(is_met: bool) -> str:
        return "met" if is_met else "MISSED"

    if what == "single":
        blocking = met(medians["blocking"] <= medians["kazoo"])
        return f"asyncio <= 0.25: {met(medians['ours'] <= 0.25)}; blocking <= kazoo: {blocking}"
    if what in ("get", "set"):
        share = medians["ours"] / medians["bare"]
        verdict = met(medians["ours"] >= 4 * medians["kazoo"])
        return f">= 4 x kazoo: {verdict} ({share:.0%} of the bare socket)"
    return ""


def _shown(samples: list[float], digits: int) -> str:
    if not samples:
        return ""
    middle, least, most = statistics.median(samples), min(samples), max(samples)
    return f"{middle:,.{digits}f} ({least:,.{digits}f}-{most:,.{digits}f})"


class _Answers:
    """A process under load: called, its next line as numbers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._process.args} said nothing"
        return [float(word) for word in line.split()]

    def send(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()


@contextmanager
def _load(
    server: ApacheServer, name: str, what: str, number: int, processes: int = 1
) -> Iterator[list[_Answers]]:
    python = str(PEERS_PYTHON) if name == "aiozk" else sys.executable
    argv = ["timeout", f"{_LIMIT:g}", python, str(_LOAD), name, server.hosts, what, str(number)]
    started = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        yield [_Answers(process) for process in started]
    finally:
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def _apache(folder: Path) -> Iterator[ApacheServer]:
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = _JAVA
    try:
        server = ApacheServer(folder, properties={"zookeeper.forceSync": "yes"})
        server.start()
    finally:
        if before is None:
            del os.environ["_JAVA_OPTIONS"]
        else:
            os.environ["_JAVA_OPTIONS"] = before
    try:
        yield server
    finally:
        server.stop()
