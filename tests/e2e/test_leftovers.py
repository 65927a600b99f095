"""Benchmarks and the demo leave no process behind, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import with_variable
from tests.e2e.nodes import INCUMBENT
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
BENCHMARK = (sys.executable, "-m", "benchmarks", "failover", "--samples", "1")
ELECTING = re.compile(r"cli elect .* --name elect-3 ")


@pytest.mark.parametrize(
    "signals",
    [
        ["SIGKILL"],
        *(
            pytest.param(names, marks=pytest.mark.soak)
            for names in (["SIGHUP"], ["SIGINT", "SIGTERM"], ["SIGTERM", "SIGKILL"])
        ),
    ],
    ids="-".join,
)
def test_a_benchmark_that_is_ended_leaves_nothing(signals: list[str], tmp_path: Path) -> None:
    """Nodes and contenders of all kinds run by then."""
    process = started(BENCHMARK, tmp_path)
    try:
        wait_until(lambda: any(map(ELECTING.search, running(tmp_path))), 60, "elections")

        for name in signals:
            process.send_signal(getattr(signal, name))

        process.wait(60)
        nothing_runs(tmp_path)
    finally:
        end_all(tmp_path)


def test_a_demo_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    process = started((*INCUMBENT, "demo"), tmp_path)
    try:
        wait_until(lambda: "1/4" in (tmp_path / "out").read_text(), 60, "the first act")

        process.kill()

        process.wait(60)
        nothing_runs(tmp_path)
    finally:
        end_all(tmp_path)


def started(argv: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    """Its temporary files, and a mark on all its processes, are of `folder`."""
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


def running(folder: Path) -> list[str]:
    return list(with_variable("TMPDIR", str(folder)).values())


def nothing_runs(folder: Path) -> None:
    """Before any session has ended by itself: who closes one needs the server until then."""
    wait_until(lambda: not running(folder), 8, "the end of everything")


def end_all(folder: Path) -> None:
    for pid in with_variable("TMPDIR", str(folder)):
        os.kill(pid, signal.SIGKILL)
