"""What failures of a component lead to: a pause, another node, or no start at all.

    an instance fails ─► counted (once, by its id) ─► back-off
                              │ max_failures in window, or exit 125
                              └─► a restraint, as `on_failure` says:
        move              its node does without the component for a window, each time twice as long
        quarantine-node   the same until `incumbent retry`
        freeze            the seat is kept and not started until `incumbent retry`
        stop-everywhere   the component is neither run nor started until `incumbent retry`

The history stands in the tree, for all nodes to go by: so leadership that is passed from node to
node counts as the loop that it is, and an agent's death forgets nothing. It holds for the program
under which it was written: another spec begins anew.

Rule of this file: pure. Times are wall time, which nodes share as well as they can: a wrong clock
makes pauses wrong, and one that is set back by hours makes none of them last for hours (`holds`).
No failure counts twice, however often it is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from incumbent.agent.tree import Failure, Failures, Restraint
from incumbent.spec import Spec

__all__ = [
    "PERMANENT",
    "STEADY_AFTER",
    "Rules",
    "away",
    "counted",
    "holds",
    "next_change",
    "pause",
    "remark",
    "restraint_of",
    "signature",
]

PERMANENT = 125
"""The exit code by which a program says that trying again is vain."""
STEADY_AFTER = 10.0
"""Seconds of running after which a start was a success: the back-off begins anew."""
_SAME_ON = 3
"""The same failure on so many nodes is not the node's."""
_KEPT = 60
"""So many failures of a component are kept, and none longer than an hour or its window."""
_LONGEST = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a component's spec says of its failures. Seconds."""

    on_failure: str = "backoff"
    max_failures: int = 5
    window: float = 600.0
    backoff: float = 1.0
    backoff_most: float = 60.0

    @classmethod
    def of(cls, spec: Spec) -> Rules:
        return cls(**{name: getattr(spec, name) for name in cls.__dataclass_fields__})


def holds(at: float, until: float, now: float) -> bool:
    """Whether what was to last from `at` to `until` is kept at `now`.

    A clock that is behind `at` by more than the whole length was set back, or is not the clock by
    which it began: it is not kept then, and else for twice its length at most.
    """
    return at - (until - at) <= now < until


def signature(what: str, last_line: str) -> str:
    """By which two failures are the same: how it ended, and what was said last, numbers aside."""
    return f"{what} | {re.sub(r'[0-9]+', '#', last_line)}"[:200]


def pause(
    history: Failures, seat: str, node: str, rules: Rules, *, since: float = 0.0
) -> tuple[float, Failure | None]:
    """(until when a seat's next start on `node` waits, the failure that it waits for).

    The first restart is at once; then `backoff` seconds, twice as long each time, up to
    `backoff_most`. Failures up to `since` are pardoned.
    """
    row = 0
    last: Failure | None = None
    for each in history.failures:
        if (each.seat, each.node) != (seat, node) or each.at <= since:
            continue
        row = 1 if each.uptime >= STEADY_AFTER else row + 1
        last = each
    if last is None or row < 2:
        return 0.0, last
    doublings = min(row - 2, 30)
    return last.at + min(rules.backoff_most, rules.backoff * 2.0**doublings), last


def counted(
    history: Failures,
    failure: Failure,
    rules: Rules,
    *,
    program: str,
    may: Collection[str],
) -> Failures:
    """The history with one more failure, and what it leads to. Told again, it changes nothing.

    `may`: the live nodes that may run the component.
    """
    if history.program != program:
        history = Failures(program=program)
    if any(each.id == failure.id for each in history.failures):
        return history
    now = failure.at
    kept_for = max(rules.window, 3600.0)
    failures = [each for each in history.failures if abs(now - each.at) < kept_for][-_KEPT + 1 :]
    failures.append(failure)
    restraints = [each for each in history.restraints if _is_remembered(each, now)]
    history = Failures(program=program, failures=failures, restraints=restraints)
    if len(_same_on(history, failure, rules, may)) > 1:  # it is not the node: none is to blame
        restraints = [r for r in restraints if r.what != "node" or r.signature != failure.signature]
    elif (new := _consequence(history, failure, rules, may)) is not None:
        restraints = [r for r in restraints if (r.what, r.name) != (new.what, new.name)]
        restraints.append(new)
    return msgspec.structs.replace(history, restraints=restraints)


def remark(history: Failures, failure: Failure, rules: Rules, may: Collection[str]) -> str:
    """What else there is to say of a failure that was counted; "" for nothing."""
    for each in history.restraints:
        if each.at == failure.at and each.signature == failure.signature:
            return each.why
    same = _same_on(history, failure, rules, may)
    if len(same) > 1 and rules.on_failure in ("move", "quarantine-node"):
        return f"the same failure on {', '.join(same)}: it is not the node, so it stays here"
    return ""


def restraint_of(history: Failures, program: str, seat: str) -> Restraint | None:
    """What keeps a seat from being started anywhere, if anything does."""
    if history.program != program:
        return None
    component = seat.rpartition("/")[0]
    for each in history.restraints:
        if (each.what, each.name) in (("component", component), ("seat", seat)):
            return each
    return None


def away(history: Failures, program: str, node: str, now: float) -> Restraint | None:
    """What keeps a component from a node, if anything does."""
    if history.program != program:
        return None
    for each in history.restraints:
        if (each.what, each.name) == ("node", node) and _is_on(each, now):
            return each
    return None


def next_change(history: Failures, now: float) -> float | None:
    """When the next restraint ends by itself."""
    ends = (each.until for each in history.restraints if holds(each.at, each.until, now))
    return min(ends, default=None)


def _consequence(
    history: Failures, failure: Failure, rules: Rules, may: Collection[str]
) -> Restraint | None:
    recent = _recent(history, rules, failure.at)
    component, seat, node = failure.seat.rpartition("/")[0], failure.seat, failure.node
    what: Literal["node", "seat", "component"]
    match rules.on_failure:
        case "stop-everywhere":
            what, name, count = "component", component, len(recent)
            then = "it is stopped everywhere"
        case "freeze":
            what, name = "seat", seat
            count = sum(each.seat == seat for each in recent)
            then = "it is not started again"
        case "move" | "quarantine-node" if len(set(may) | {node}) > 1:
            what, name = "node", node
            count = sum(each.node == node for each in recent)
            then = f"{node} does without it"
        case _:
            if not failure.permanent:
                return None
            what, name, count, then = "seat", seat, 0, "it is not started again"
    before = next((r for r in history.restraints if (r.what, r.name) == (what, name)), None)
    is_under_way = before is not None and _is_on(before, failure.at)
    if is_under_way or not (failure.permanent or count >= rules.max_failures):
        return None
    times = before.times + 1 if before is not None else 1
    until, end = 0.0, f"until `incumbent retry {component}`"
    if what == "node" and rules.on_failure == "move":
        lasts = min(_LONGEST, rules.window * 2.0 ** min(times - 1, 30))
        until, end = failure.at + lasts, f"for {lasts:g} s"
    if failure.permanent:
        cause = f"{failure.what}, which says that trying again is vain"
    else:
        cause = f"{count} failures within {rules.window:g} s, the last: {failure.what}"
    return Restraint(
        what=what,
        name=name,
        at=failure.at,
        until=until,
        times=times,
        signature=failure.signature,
        why=f"{cause}; {then} {end}",
    )


def _same_on(
    history: Failures, failure: Failure, rules: Rules, may: Collection[str]
) -> Sequence[str]:
    """The nodes with the same failure, if they are so many that it is not the node."""
    same = {
        each.node
        for each in _recent(history, rules, failure.at)
        if each.signature == failure.signature
    }
    enough = min(_SAME_ON, max(2, len(set(may) | {failure.node})))
    return sorted(same) if len(same) >= enough else ()


def _recent(history: Failures, rules: Rules, now: float) -> list[Failure]:
    return [each for each in history.failures if abs(now - each.at) < rules.window]


def _is_on(restraint: Restraint, now: float) -> bool:
    return not restraint.until or holds(restraint.at, restraint.until, now)


def _is_remembered(restraint: Restraint, now: float) -> bool:
    """For a while after its end, too: the next one is longer."""
    lasted = restraint.until - restraint.at
    return not restraint.until or now < restraint.until + 2 * lasted
