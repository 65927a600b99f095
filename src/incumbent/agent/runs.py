"""What `once` writes down of a key, and what follows from it.

One persistent znode per key has its newest runs, oldest first: one for each period, or a single
one, of the period "", for what is to run once and never again.

    (nothing) ──claim──► running ──ended by itself──► done
                           │  ▲
             holder gone   ▼  │ claim, `retry`
                        interrupted

Whoever reads a run as running while being first in the key's line knows that it is interrupted:
its holder stood there until it had written down the end, or until its session was over.

Rule of this file: pure. A run is claimed at most once per attempt: by a write that names the
version read, and that also checks that the writer is first in line.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from incumbent.errors import IncumbentError

__all__ = ["KEPT", "Run", "Runs", "UnreadableRuns", "Verdict", "What", "decide", "read_runs"]

KEPT = 20
"""So many runs of a key are kept, the newest. Older periods are over anyway: see `decide`."""


class UnreadableRuns(IncumbentError):
    """A key's znode has something else in it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path, self.why = path, why

    def __str__(self) -> str:
        return (
            f"{self.path} cannot be read: {self.why}; nothing was run. See what it is with "
            f"`incumbent zk get {self.path}`"
        )


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, or what is left of it. Times are wall time, of the machine that ran it."""

    period: str
    state: str
    """running, done or interrupted."""
    node: str
    pid: int
    """Of the `incumbent once` there."""
    nonce: str
    token: int
    started: float
    attempt: int = 1
    every: str = ""
    """What its period is one of, such as `86400 s, UTC`; "" for none, or none written down."""
    ended: float = 0.0
    code: int = 0
    """COMMAND's exit code, as a shell gives it; means something only when it is done."""
    why: str = ""
    """Why it is interrupted."""

    def interrupted(self) -> Run:
        """The same, its holder having gone without a word."""
        return msgspec.structs.replace(
            self, state="interrupted", why="its end was never written down"
        )

    def as_object(self) -> dict[str, Any]:
        """For JSON: what is not known is null."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        found["ended"] = self.ended or None
        found["code"] = self.code if self.state == "done" else None
        return found


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What a key's znode has."""

    v: int = 1
    runs: list[Run] = []

    def of(self, period: str) -> Run | None:
        return next((run for run in self.runs if run.period == period), None)

    def with_nonce(self, nonce: str) -> Run | None:
        return next((run for run in self.runs if run.nonce == nonce), None)

    def put(self, run: Run) -> Runs:
        """With `run` in the place of its period's; only the newest are kept."""
        others = [each for each in self.runs if each.period != run.period]
        return Runs(runs=sorted([*others, run], key=lambda each: each.period)[-KEPT:])

    def seen_with(self, line: Collection[int]) -> Runs:
        """What is so while these tokens, and no others, stand in the key's line."""
        return Runs(
            runs=[
                run.interrupted() if run.state == "running" and run.token not in line else run
                for run in self.runs
            ]
        )

    def without(self, nonce: str) -> Runs:
        return Runs(runs=[each for each in self.runs if each.nonce != nonce])

    def write(self) -> bytes:
        return msgspec.json.encode(self)


class What(Enum):
    """What is to be done about a period."""

    CLAIM = "claim"
    DONE = "done"
    OVER = "over"
    """A later period has been run: this one's time is past."""
    INTERRUPTED = "interrupted"
    MIXED = "mixed"
    """The key is used with periods and without, or with periods of two kinds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`run`: the one that it is about; the one to be run again where that is claimed."""

    what: What
    run: Run | None = None


def decide(runs: Runs, period: str, *, every: str = "", retry: bool, is_first: bool) -> Verdict:
    """What to do about `period`, one of `every`; `is_first`: read while being first in the key's
    line.

    Not being first, "claim" means: go and stand in line. A period older than the newest one
    that is known is never run: its record may have been dropped.
    """
    newest = runs.runs[-1] if runs.runs else None
    if newest is not None and bool(newest.period) != bool(period):
        return Verdict(What.MIXED, newest)
    if newest is not None and newest.every and every and newest.every != every:
        return Verdict(What.MIXED, newest)  # by which of the two would it be done?
    known = runs.of(period)
    if known is not None and known.state == "done":
        return Verdict(What.DONE, known)
    if newest is not None and newest.period > period:
        return Verdict(What.OVER, newest)
    if known is None:
        return Verdict(What.CLAIM)
    if not is_first or retry:
        return Verdict(What.CLAIM, known)
    return Verdict(What.INTERRUPTED, known)


def read_runs(data: bytes, path: str) -> Runs:
    """Nothing written yet reads as no runs. Raises `UnreadableRuns`."""
    if not data:
        return Runs()
    try:
        raw: Any = msgspec.json.decode(data)
        if not isinstance(raw, dict) or raw.get("v") != 1:
            raise UnreadableRuns(path, "it is no record that this version of incumbent knows")
        return msgspec.convert(raw, Runs)
    except msgspec.MsgspecError as error:
        raise UnreadableRuns(path, str(error)) from None
