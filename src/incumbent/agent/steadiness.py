"""How a node that loses its connection again and again is trusted less, and how it comes back.

Each failover costs what runs a stop and a start. A node that takes seats, loses its session and
takes them again does that to them for ever, though nothing is wrong with them: leadership passed
from node to node is a loop, too. So is one that keeps its session, each time only just, after its
programs had to end. After the third such outage within an hour the node stands for nothing for a
while, each time twice as long, as long as others can stand.

Rule of this file: pure. Times are wall time, as nodes share it; a wrong clock costs fairness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incumbent.agent.failures import away, holds
from incumbent.agent.tree import Failures, NodeFacts

__all__ = ["Loss", "aside_until", "kept_out", "lately", "staged", "why_aside"]

WITHIN = 3600.0
"""Seconds in which losses add up."""
_FREE = 2
_FIRST, _LONGEST = 10.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A lost session, or an outage nearly as long: when, why, and whose programs ended with it."""

    at: float
    why: str
    ran: Sequence[str] = ()


def lately(losses: Sequence[Loss]) -> int:
    """How many of these, oldest first, there were within an hour of the last."""
    return sum(abs(losses[-1].at - each.at) < WITHIN for each in losses)


def aside_until(losses: Sequence[Loss], now: float) -> float:
    """Until when a node that is back `now` stands for nothing by itself, after these, oldest first;
    0 if they are few. It lasts no longer if the clock was set back since the last one."""
    if not losses:
        return 0.0
    count = lately(losses)
    if count <= _FREE:
        return 0.0
    return min(losses[-1].at, now) + min(_LONGEST, _FIRST * 2.0 ** min(count - _FREE - 1, 30))


def why_aside(facts: NodeFacts, now: float) -> str:
    """Why a node is passed over now, where others can stand; "" if it is not."""
    if not holds(facts.since, facts.aside_until, now):
        return ""
    return (
        f"{facts.node} lost its connection for too long {facts.lost} times within an hour: it stands "
        f"for nothing for {facts.aside_until - facts.since:.0f} s since it came back, while others can"
    )


def staged(position: int, jitter: float) -> float:
    """Seconds that a seat waits when its node comes back after a lost session, so that not all
    programs of all nodes start in the same instant. `position` among the node's seats; `jitter`
    from 0 to 1, one draw for each node.
    """
    return min(5.0, jitter * 0.5 + position * 0.05)


def kept_out(
    history: Failures, program: str, may: Mapping[str, NodeFacts], now: float
) -> dict[str, str]:
    """Of the live nodes that may run a component: those that are to do without it now, and why.

    Where nobody else is left, a node that is only to be passed over for a while is not.
    """
    out: dict[str, str] = {}
    spared: dict[str, str] = {}
    for node, facts in may.items():
        restraint = away(history, program, node, now)
        if restraint is not None:
            (spared if restraint.until else out)[node] = restraint.why
        elif why := why_aside(facts, now):
            spared[node] = why
    if len(out) + len(spared) < len(may):
        out |= spared
    return out
