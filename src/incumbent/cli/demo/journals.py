"""The witnesses' journals: who lived when, and what the auditor says of it.

Rule of this file: times are the witnesses' own, on the clock of the whole machine
(CLOCK_BOOTTIME); the verdict is the auditor's, a program apart, handed on word for word.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incumbent.cli.process import module

__all__ = ["Journals", "Life", "verdict"]

_PATIENCE = 20.0
"""Seconds that the auditor may read."""


@dataclass(slots=True)
class Life:
    """One instance, as its witness tells it: boottime in nanoseconds."""

    node: str
    began_ns: int
    seen_ns: int


class Journals:
    """One file for each component, and one for what the demo itself does."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._files = {name: folder / f"{name}.jsonl" for name in names}
        self._own = folder / "demo.jsonl"
        self._read = dict.fromkeys(self._files, 0)
        self._lives: dict[str, dict[int, Life]] = {name: {} for name in self._files}

    @property
    def files(self) -> list[Path]:
        return [path for path in (*self._files.values(), self._own) if path.exists()]

    def note(self, event: str, seat: str = "", **more: str) -> int:
        """Tell the auditor what the demo does now; returns the time, in nanoseconds."""
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        line = {"boottime_ns": now, "seat": seat, "epoch": 0, "node": "", "pid": 0, "event": event}
        with self._own.open("a") as file:
            file.write(json.dumps({**line, **more}) + "\n")
        return now

    def lives(self, name: str) -> dict[int, Life]:
        """Epoch → life, of all that was written so far."""
        path, lives = self._files[name], self._lives[name]
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read[name])
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[name] += len(whole)
            for line in whole.splitlines():
                _add(lives, json.loads(line))
        return lives


def _add(lives: dict[int, Life], event: dict[str, Any]) -> None:
    at, epoch = event["boottime_ns"], event["epoch"]
    if epoch in lives:
        lives[epoch].seen_ns = at
    else:
        lives[epoch] = Life(event["node"], at, at)


def verdict(files: Sequence[Path], within: float) -> tuple[bool, str]:
    """Whether the auditor finds these journals clean, and its words.

    `within`: seconds from a fault to a new sign of life of every seat.
    """
    command = module("incumbent.testing.auditor", "--within", f"{within:g}", *map(str, files))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"no verdict within {_PATIENCE:g} s"
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode == 0, "\n".join(said) or f"it ended with {done.returncode}"
