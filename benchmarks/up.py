"""How long does `incumbent up` take from nothing to all started? Three trivial components.

From the start of the command, in a folder that has only the file, to the first line of the last
program. And once more where it has run before: then the tree is read before anything starts.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.reports import Reports, now
from benchmarks.results import Figure, Outcome
from tests.e2e.terminals import Terminals

__all__ = ["SAMPLES", "run"]

SAMPLES = 10
_NAMES = ("one", "two", "three")


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    first, again = [], []
    with Reports(folder) as reports:
        for number in range(samples):
            home = folder / f"up-{number}"
            home.mkdir()
            (home / "incumbent.toml").write_text(_file(reports.fifo))
            first.append(_up(home, reports))
            again.append(_up(home, reports))
    return Outcome(
        title="`incumbent up`, three components: from nothing to all started",
        figures=[
            Figure(who="the first time", samples=first, goal=700.0),
            Figure(who="again, on the same data", samples=again),
        ],
    )


def _file(fifo: Path) -> str:
    parts = []
    for name in _NAMES:
        argv = ["sh", "-c", f"echo up {name} > {fifo}; exec sleep 100000"]
        parts.append(f"[component.{name}]\ncommand = {json.dumps(argv)}\n")
    return "".join(parts)


def _up(home: Path, reports: Reports) -> float:
    """Milliseconds."""
    with Terminals(home) as terminals:
        at = now()
        up = terminals.start("up", [sys.executable, "-P", "-m", "incumbent.cli", "up"])
        last = max(
            reports.wait(
                lambda each, name=name: each.text == f"up {name}",  # type: ignore[misc]
                since=at,
                what=f"the start of {name}",
            ).at
            for name in _NAMES
        )
        try:
            up.end(signal.SIGINT, 30.0)
        except subprocess.TimeoutExpired:
            up.end(signal.SIGINT, 10.0)
    return (last - at) * 1000
