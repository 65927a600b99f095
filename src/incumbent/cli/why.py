"""Why a seat is as it is: the cause, the evidence for it, what is awaited, and what one can do.

Rule of this file: pure. The cause is the sentence of `explain`; here each case says by which
znodes it is known, what would change it and until when, and the next command to try.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from incumbent.agent.rollout import progress
from incumbent.agent.tree import Breadcrumb, Tree, seat_name
from incumbent.cli.cluster import Cluster, SeatState
from incumbent.cli.explain import Row
from incumbent.cli.show import age

__all__ = ["CASES", "RUNS", "Why", "why"]

RUNS = ("running", "ready")
"""Cases in which nobody need ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """`evidence`: a line for each thing that was read. `awaits`: what would change it."""

    seat: str
    state: str
    cause: str
    evidence: tuple[str, ...]
    awaits: str
    next: str

    def __str__(self) -> str:
        lines = [f"{self.seat}: {self.state}"]
        for label, text in (("cause", self.cause), ("awaits", self.awaits), ("next", self.next)):
            if label == "awaits":
                heads = ("evidence", *("" for _ in self.evidence[1:]))
                lines += [f"  {h:8}  {e}" for h, e in zip(heads, self.evidence, strict=True)]
            lines.append(f"  {label:8}  {text}")
        return "\n".join(lines)


def why(cluster: Cluster, row: Row, tree: Tree, now: float) -> Why:
    """Of one row of `explain.seat_rows`. `now`: wall time."""
    look = _Look(cluster, row, tree, now)
    evidence, awaits, advice = CASES.get(row.case, _other)(look)
    return Why(
        seat=row.name,
        state=f"{row.state} on {row.node}" if row.node else row.state,
        cause=row.why or "nothing speaks against it",
        evidence=tuple(each for each in evidence if each),
        awaits=awaits,
        next=advice,
    )


Said = tuple[tuple[str, ...], str, str]
"""(evidence, what is awaited, the next command)."""


class _Look:
    """At one row, with what was read for it."""

    def __init__(self, cluster: Cluster, row: Row, tree: Tree, now: float) -> None:
        self.cluster = cluster
        self.row = row
        self.tree = tree
        self.now = now
        self.name = row.name
        self.key = seat_name(row.component, row.seat)
        (self.component,) = [c for c in cluster.components if c.name == row.component]
        none = SeatState(number=row.seat)
        self.seat = next((s for s in self.component.seats if s.number == row.seat), none)

    @property
    def crumb(self) -> Breadcrumb | None:
        """Of the instance that the row is about."""
        return next((c for c in self.seat.breadcrumbs if c.epoch == self.row.epoch), None)

    def breadcrumb(self) -> str:
        crumb = self.crumb
        if crumb is None:
            return f"no breadcrumb in {self.tree.running(self.key)}: nothing of it runs"
        lives = "is alive" if crumb.session in self.cluster.sessions else "is gone"
        return (
            f"{self.tree.breadcrumb(self.key, crumb.epoch)}: {crumb.containment} on {crumb.node}, "
            f"whose agent's session {crumb.session} {lives}"
        )

    def instance(self) -> str:
        row = self.row
        pid = f"pid {row.pid}, " if row.pid else ""
        return (
            f"epoch {row.epoch}, {pid}{row.state} for {age(self.now - row.since)}"
            if row.since
            else ""
        )

    def told(self) -> str:
        """The leader's last word."""
        observed = self.seat.observed
        if observed is None:
            return ""
        since = time.strftime(" since %H:%M:%S UTC", time.gmtime(observed.since))
        where = f"{observed.state} on {observed.node}{since if observed.since else ''}"
        return f"{self.tree.observed(self.key)}: {where}"

    def desired(self) -> str:
        return f"{self.tree.desired(self.row.component)}: run = {str(self.component.desired.run).lower()}"

    def nodes(self) -> str:
        live = ", ".join(sorted(self.cluster.nodes)) or "no node"
        return f"{self.tree.nodes}: {live}"

    def line(self) -> str:
        names = self.cluster.session_nodes
        line = [names.get(each.partition("-")[0], "?") for each in self.seat.contenders]
        return f"{self.tree.election(self.key)}: {', '.join(line) or 'nobody stands'}"


def _running(look: _Look) -> Said:
    row, plan = look.row, look.cluster.plan.seats.get(look.key)
    awaits, advice = "nothing", f"`incumbent logs {look.name}` on {row.node}"
    if plan is not None and plan.node != row.node:
        awaits = f"{plan.node} to stand for it"
    elif (crumb := look.crumb) is not None:
        awaits = f"nothing; were {row.node} dead, its session would end within {crumb.s_min:g} s"
    if look.component.desired.frozen_by:
        advice = f"`incumbent unfreeze {row.component}`"
    return (look.instance(), look.breadcrumb()), awaits, advice


def _rolling(look: _Look) -> Said:
    """It runs, and a change of its component is under way, or came no further."""
    record, name = look.component.rollout, look.row.component
    assert record is not None
    copies = look.component.spec.copies if look.component.spec is not None else 1
    path = f"{look.tree.rollout(name)}: {progress(record, copies)}"
    evidence = (path, look.instance(), look.breadcrumb())
    if record.state == "under way":
        return evidence, "the copies before it to be up", f"`incumbent status {name}`"
    advice = f"apply a better FILE, or `incumbent config revert KEY`; `incumbent retry {name}` tries the same again"
    return evidence, "another change, or `retry`", advice


def _begins(look: _Look) -> Said:
    crumb = look.crumb
    until = f", or the end of its session, at most {crumb.s_min:g} s" if crumb else ""
    advice = f"`incumbent logs {look.name}` on {look.row.node}, if it stays so"
    return (look.breadcrumb(),), f"the word of {look.row.node} that it runs{until}", advice


def _stopping(look: _Look) -> Said:
    spec = look.component.spec
    grace = f" (stop_grace {spec.stop_grace:g} s)" if spec and spec.stop_grace is not None else ""
    awaits = f"the end of its last process; what is left after the grace is killed{grace}"
    return (look.instance(), look.breadcrumb()), awaits, "nothing to do"


def _stuck(look: _Look) -> Said:
    row = look.row
    awaits = (
        "the kernel: SIGKILL was sent and goes on being sent; nobody takes over before its proof"
    )
    advice = f"look at pid {row.pid} on {row.node} (`ps -o pid,stat,wchan`): a dead disk or NFS?"
    return (look.instance(), look.breadcrumb()), awaits, advice


def _backoff(look: _Look) -> Said:
    advice = f"`incumbent logs {look.name}` on {look.row.node}; `incumbent restart {look.name}` starts it now"
    return (
        (look.told(), look.breadcrumb()),
        "the time of the next start, counted from there",
        advice,
    )


def _failed(look: _Look) -> Said:
    """Its failures have led where the component says."""
    failures = f"{look.tree.failures(look.row.component)}: what failed, and when"
    where = f" on {look.row.node}" if look.row.node else ""
    advice = f"`incumbent logs {look.name}`{where}, then `incumbent retry {look.row.component}`"
    return (failures, look.told(), look.breadcrumb()), "what the cause names", advice


def _unproven(look: _Look) -> Said:
    node = look.row.node
    awaits = f"{node} to come back and say so, however long that takes"
    advice = f"if {node} is surely off: `incumbent node confirm-dead {node}`"
    return (look.breadcrumb(), look.nodes()), awaits, advice


def _stopped(look: _Look) -> Said:
    advice = f"`incumbent start {look.row.component}`"
    return (look.desired(), look.breadcrumb()), "an operator", advice


def _frozen(look: _Look) -> Said:
    advice = f"`incumbent unfreeze {look.row.component}`"
    return (look.desired(), look.breadcrumb()), "an operator", advice


def _paused(look: _Look) -> Said:
    return (f"{look.tree.control}: paused",), "an operator", "`incumbent resume`"


def _no_node(look: _Look) -> Said:
    return (look.nodes(),), "a node", "`incumbent agent` on a machine that may run it"


def _no_such_node(look: _Look) -> Said:
    advice = (
        f"start the agent there, or change `nodes` of {look.row.component} and `incumbent apply`"
    )
    return (
        (look.nodes(), f"{look.tree.component(look.row.component)}: nodes"),
        "one of these nodes",
        advice,
    )


def _lacks(look: _Look) -> Said:
    advice = "`incumbent status` on each node names what is missing there"
    return (look.nodes(), look.line()), "a node that has them", advice


def _aside(look: _Look) -> Said:
    return (
        (look.nodes(), look.line()),
        "a node that can have it",
        "`incumbent status` on the others",
    )


def _kept_out(look: _Look) -> Said:
    failures = f"{look.tree.failures(look.row.component)}: what failed, and when"
    awaits = "another node that may run it, or `retry`"
    advice = f"put right what failed there, then `incumbent retry {look.row.component}`"
    return (failures, look.nodes(), look.line()), awaits, advice


def _nobody(look: _Look) -> Said:
    return (look.nodes(), look.line()), "a candidate, in a moment", "ask again"


def _first(look: _Look) -> Said:
    head = look.row.node or "whoever is first"
    advice = f"ask again; if it stays so, the agent's own output on {head}"
    return (look.line(), look.breadcrumb()), f"the start by {head}", advice


def _baffled(look: _Look) -> Said:
    return (look.told(), look.breadcrumb()), "the tree to be put right", "do what the cause says"


def _unreadable(look: _Look) -> Said:
    path = look.tree.component(look.row.component)
    return (look.breadcrumb(),), "the znode to be put right", f"`incumbent zk tree {path}` shows it"


def _removing(look: _Look) -> Said:
    return (look.breadcrumb(),), "the proof of its end", "nothing to do"


def _other(look: _Look) -> Said:
    advice = f"`incumbent logs {look.name}`" + (f" on {look.row.node}" if look.row.node else "")
    return (look.told(), look.breadcrumb(), look.line()), "see the cause", advice


CASES: dict[str, Callable[[_Look], Said]] = {
    "running": _running,
    "ready": _running,
    "rolling": _rolling,
    "begins": _begins,
    "starting": _begins,
    "stopping": _stopping,
    "stuck": _stuck,
    "backoff": _backoff,
    "failed": _failed,
    "unproven": _unproven,
    "stopped": _stopped,
    "frozen": _frozen,
    "paused": _paused,
    "no node": _no_node,
    "no such node": _no_such_node,
    "lacks": _lacks,
    "aside": _aside,
    "kept out": _kept_out,
    "nobody": _nobody,
    "first": _first,
    "baffled": _baffled,
    "unreadable": _unreadable,
    "removing": _removing,
}
