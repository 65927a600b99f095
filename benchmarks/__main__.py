"""`python -m benchmarks [NAME…] [--write]`: speed beside its peers, all in one run.

Rule of this file: a question is bounded in time and leaves nothing running, whatever happens.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import Outcome, block, document, in_columns, machine, table

QUESTIONS = (
    *("failover", "respawn", "handover", "supervisor", "recipes", "work", "up", "server", "client"),
)
APART = ("serving",)
"""Asked by name only: it takes minutes."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help=f"of {', '.join(QUESTIONS + APART)}"
    )
    parser.add_argument(
        "--write", action="store_true", help="write their blocks of RESULTS.md as well"
    )
    parser.add_argument("--samples", type=int, metavar="N", help="of each thing (default: enough)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in QUESTIONS + APART]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(QUESTIONS + APART)}")

    for number in _ENDING:
        signal.signal(number, _end)
    facts = [*machine(), ("date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))]
    before = os.getloadavg()[0]
    outcomes: dict[str, Outcome] = {}
    for name in options.names or QUESTIONS:
        outcomes[name] = outcome = _ask(name, options.samples)
        print(f"\n{outcome.title}", flush=True)
        if outcome.rows:
            print(in_columns(outcome.rows), flush=True)
        if outcome.figures:
            print(in_columns(table(outcome)), flush=True)
        for remark in outcome.remarks:
            print(f"  {remark}", flush=True)
    facts.append(("load", f"{before:.1f} before, {os.getloadavg()[0]:.1f} at the end (one minute)"))
    if options.write:
        file = Path(__file__).parent / "RESULTS.md"
        text = file.read_text() if file.exists() else ""
        blocks = {name: block(outcome, facts) for name, outcome in outcomes.items()}
        file.write_text(document(text, blocks, QUESTIONS + APART))
    return 0


def _end(number: int, _frame: object) -> None:
    """By way of every `finally`; told once more, at once, and the kernel ends what we started."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    sys.exit(128 + number)


def _ask(name: str, samples: int | None) -> Outcome:
    """In a folder of its own."""
    question = importlib.import_module(f"benchmarks.{name}")
    with tempfile.TemporaryDirectory(
        prefix="incumbent-bench-", ignore_cleanup_errors=True
    ) as folder:
        outcome: Outcome = question.run(Path(folder), samples or question.SAMPLES)
        return outcome


if __name__ == "__main__":
    sys.exit(main())
