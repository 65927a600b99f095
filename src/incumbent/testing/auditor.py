"""The auditor: reads journals and says whether the promise was kept.

    python -m incumbent.testing.auditor [--within S] [--settle S] [--owners] FILE...

A journal is JSON lines {boottime_ns, seat, epoch, node, pid, event}; several are read as one,
ordered by boottime_ns. The test program itself (witness.py) writes the first two lines of
events, the harness the others, with the fields that do not apply "" or 0:

    start, tick, stop   it runs from here on; it still runs, every 5 ms; it ends by its own will
    beside        a hook or check of this epoch lives, with or without its program
    overlap             another process held its seat's lock
    owner         seat, epoch, node: the record under which this process runs
    owner-gone    seat, epoch: from now on nothing of it may run
    stop-ordered  seat: no start later than `settle` after this; start-ordered: wanted again
    fault         something breaks; healed: every wanted seat shows life within `within`
    moved         seat, "from", "to": a planned move; input: the moves before count no more

All processes of one seat, epoch and node are one instance; it lives from its first sign of life
to its last. A killed writer may leave its file's last line torn; a torn line elsewhere is a lie.

Rule of this file: it imports nothing of ours and believes nobody; an empty journal is a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

__all__ = ["Expectations", "Verdict", "audit", "main"]

Event = dict[str, Any]

_LIFE = ("start", "tick", "stop", "beside")
_ORDERS = ("stop-ordered", "start-ordered", "owner", "owner-gone")
_KINDS = (*_LIFE, "overlap", *_ORDERS, "fault", "healed", "moved", "input")
_FIELDS = {"boottime_ns": int, "seat": str, "epoch": int, "node": str, "pid": int, "event": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    within: float = 30.0  # seconds from healing to a sign of life
    settle: float = 0.0  # seconds that a stop order needs to reach everyone
    owners: bool = False  # each start needs its owner record; also on once one is found


@dataclass(slots=True)
class Verdict:
    violations: list[str] = field(default_factory=list)
    torn: int = 0
    starts: int = 0

    @property
    def clean(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        how = "clean" if self.clean else f"NOT CLEAN, {len(self.violations)} violations"
        seen = f"{self.starts} starts, {self.torn} torn at a file's end"
        return "\n".join([f"{how} ({seen})", *self.violations])


def audit(lines: Iterable[str], expectations: Expectations | None = None) -> Verdict:
    """Judge the lines of one or several files; only a file's last line may lack its newline."""
    expected = expectations or Expectations()
    verdict = Verdict()
    events = sorted(_read(lines, verdict), key=lambda e: int(e["boottime_ns"]))
    verdict.starts = sum(e["event"] == "start" for e in events)
    if not verdict.starts:
        verdict.violations.append("empty: no process ever started, so nothing is proven")
    verdict.violations += _one_at_a_time(events)
    verdict.violations += _starts(events, int(expected.settle * 1e9))
    verdict.violations += _progress(events, int(expected.within * 1e9))
    verdict.violations += chain(_owners(events, expected.owners), _moves(events))
    return verdict


def _read(lines: Iterable[str], verdict: Verdict) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            right = all(type(event[name]) is kind for name, kind in _FIELDS.items())
        except (ValueError, KeyError, TypeError):
            if line.endswith("\n"):
                verdict.violations.append(f"torn line {number}: {line[:80]!r}")
            else:
                verdict.torn += 1
            continue
        if right and event["event"] in _KINDS:
            yield event
        else:
            verdict.violations.append(f"strange line {number}: {line[:80]!r}")


def _say(event: Event) -> str:
    who = f"{event['seat']} epoch {event['epoch']} on {event['node']} pid {event['pid']}"
    return f"{who} ({event['event']} at {event['boottime_ns'] / 1e9:.3f} s)"


def _lives(events: list[Event]) -> list[list[Event]]:
    found: dict[tuple[str, int, str], list[Event]] = {}
    for e in (e for e in events if e["event"] in _LIFE):
        found.setdefault((e["seat"], e["epoch"], e["node"]), []).append(e)
    return list(found.values())


def _one_at_a_time(events: list[Event]) -> Iterator[str]:
    yield from (f"overlap: {_say(e)}, by its lock" for e in events if e["event"] == "overlap")
    latest: dict[str, Event] = {}  # seat -> the last sign of life of the instances before
    for signs in _lives(events):
        seat, first, last = signs[0]["seat"], signs[0], signs[-1]
        for own in [e for e in signs if e["event"] != "beside"][:1]:
            if own["event"] != "start":
                yield f"life without a start: {_say(own)}"
        before = latest.get(seat, {"boottime_ns": -1})
        if before["boottime_ns"] >= first["boottime_ns"]:
            yield f"overlap: {_say(first)} while {_say(before)}"
        latest[seat] = max(before, last, key=lambda e: int(e["boottime_ns"]))


def _starts(events: list[Event], settle: int) -> Iterator[str]:
    newest: dict[str, int] = {}  # seat -> epoch
    until: dict[str, int] = {}  # seat -> no start after
    for event in events:
        seat, epoch, at = event["seat"], event["epoch"], event["boottime_ns"]
        if event["event"] == "stop-ordered":
            until[seat] = at + settle
        elif event["event"] == "start-ordered":
            until.pop(seat, None)
        elif event["event"] == "start":
            if (before := newest.get(seat, epoch - 1)) >= epoch:
                how = "equal epochs" if epoch == before else "epoch going back"
                yield f"{how}: {_say(event)}, after epoch {before}"
            newest[seat] = max(epoch, before)
            if at > until.get(seat, at):
                yield f"start after a stop was ordered: {_say(event)}"


def _progress(events: list[Event], within: int) -> Iterator[str]:
    seats = dict.fromkeys(e["seat"] for e in events if e["event"] in (*_LIFE, *_ORDERS))
    owed: dict[str, Event] = {}
    unwanted: dict[str, bool] = {}
    for event in [*events, {"event": "", "seat": "", "boottime_ns": 1 << 80}]:  # all there is
        kind, seat = event["event"], event["seat"]
        for late in [s for s in owed if event["boottime_ns"] > owed[s]["boottime_ns"] + within]:
            at = owed.pop(late)["boottime_ns"] / 1e9
            yield f"no start after healing: {late} within {within / 1e9:g} s of {at:.3f} s"
        if kind == "healed":
            owed = {s: event for s in seats if not unwanted.get(s)}
        elif kind == "fault":
            owed.clear()
        elif kind in ("stop-ordered", "start-ordered"):
            unwanted[seat] = kind == "stop-ordered"
        if kind in ("start", "tick", "stop-ordered"):
            owed.pop(seat, None)


def _owners(events: list[Event], needed: bool) -> Iterator[str]:
    owners = {(e["seat"], e["epoch"], e["node"]) for e in events if e["event"] == "owner"}
    gone = {(e["seat"], e["epoch"]): e for e in events if e["event"] == "owner-gone"}
    for signs in _lives(events):
        seat, epoch, node = (signs[0][k] for k in ("seat", "epoch", "node"))
        if (owners or needed) and (seat, epoch, node) not in owners:
            yield f"process without owner: {_say(signs[0])}"
        end = gone.get((seat, epoch), signs[-1])
        if signs[-1]["boottime_ns"] > end["boottime_ns"]:
            yield f"process without owner: {_say(signs[-1])} outlived it, {_say(end)}"


def _moves(events: list[Event]) -> Iterator[str]:
    left: dict[str, list[Any]] = {}  # seat -> the nodes it was moved away from since the last input
    for event in events:
        if event["event"] == "input":
            left.clear()
        elif event["event"] == "moved":
            nodes = left.setdefault(event["seat"], [])
            if event.get("to") in nodes:
                yield f"move undone: {_say(event)}, back to {event.get('to')}"
            nodes.append(event.get("from"))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="auditor")
    parser.add_argument("--within", type=float, default=30.0, metavar="S")
    parser.add_argument("--settle", type=float, default=0.0, metavar="S")
    parser.add_argument("--owners", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = vars(parser.parse_args(argv))
    files = [open(name, errors="replace", newline="\n") for name in options.pop("files")]  # noqa: SIM115
    verdict = audit(chain.from_iterable(files), Expectations(**options))
    print(verdict)
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
