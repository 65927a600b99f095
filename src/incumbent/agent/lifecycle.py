"""A seat's decisions, each with its reason.

Rule of this file: a decision is a function of what was read, and returns the sentence that an
operator will read. No decision is taken on what a side network says: only znodes count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from incumbent.agent.tree import Breadcrumb, NodeFacts, SeatPlan

__all__ = [
    "Accept",
    "Decline",
    "ProvenDead",
    "Stand",
    "StandAside",
    "StillWaiting",
    "accepts",
    "breadcrumb_verdict",
    "stands",
]


@dataclass(frozen=True, slots=True)
class Accept:
    why: str


@dataclass(frozen=True, slots=True)
class Decline:
    why: str


def accepts(
    me: str, plan: SeatPlan | None, version: int, declined: int, standing: Collection[str]
) -> Accept | Decline:
    """Whether the head of a seat's queue takes it, or lets others pass.

    `standing`: the nodes with a candidate in the listing; `declined`: the plan version under
    which we let others pass before. At most n - 1 declines per version, and somebody accepts.
    """
    if plan is None:
        return Accept("there is no plan for it yet")
    if plan.node == me:
        return Accept(f"plan {version} gives it to this node")
    if plan.node not in standing:
        return Accept(f"plan {version} gives it to {plan.node}, which does not stand")
    if declined == version:
        return Accept(f"declined once under plan {version}")
    return Decline(f"plan {version} gives it to {plan.node}, which stands")


@dataclass(frozen=True, slots=True)
class Stand:
    pass


@dataclass(frozen=True, slots=True)
class StandAside:
    why: str


def stands(
    me: str,
    *,
    allowed: Sequence[str],
    unfit: str,
    plan: SeatPlan | None,
    live: Collection[str],
    restrained: str = "",
) -> Stand | StandAside:
    """Whether this node is a candidate for a seat. No plan, or its node gone: everyone is."""
    if allowed and me not in allowed:
        return StandAside(f"only {', '.join(allowed)} may run it")
    if unfit:
        return StandAside(unfit)
    if restrained:
        return StandAside(restrained)
    if plan is None or plan.node == me or me in plan.standbys or plan.node not in live:
        return Stand()
    return StandAside(f"{plan.node} has it, {', '.join(plan.standbys) or 'nobody'} stands by")


@dataclass(frozen=True, slots=True)
class ProvenDead:
    why: str


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """Nothing may start yet. `watch`: the session or node whose change would tell."""

    why: str


def breadcrumb_verdict(
    crumb: Breadcrumb,
    *,
    session_lives: bool,
    nodes: Mapping[str, NodeFacts],
    me: NodeFacts,
    mine_running: bool,
    on_unclean: str,
    control: int,
) -> ProvenDead | StillWaiting:
    """What a breadcrumb says about its instance.

    `session_lives` must have been read after the breadcrumb, on one session.
    `mine_running`: our own guardian has not proven this epoch's tree empty. `control`: the zxid of
    control's last change; where the breadcrumb knows another, there may have been a pause, and an
    instance outlives its session in one.
    """
    who = f"epoch {crumb.epoch} on {crumb.node}"
    if crumb.node_id == me.node_id and crumb.boot_id == me.boot_id:
        if mine_running:
            return StillWaiting(f"{who} still runs here")
        return ProvenDead(f"{who} was this node's, and its processes are gone")
    if session_lives:
        return StillWaiting(f"{who} still runs: its agent's session {crumb.session} is alive")
    was_bound = crumb.control == control
    if crumb.containment == "sealed" and was_bound:
        return ProvenDead(f"{who} was sealed and its session is gone")
    for node in sorted(nodes):
        facts = nodes[node]
        if facts.node_id == crumb.node_id and facts.boot_id != crumb.boot_id:
            return ProvenDead(f"{crumb.node} has been booted again since")
    if not was_bound:
        return StillWaiting(
            f"{who} may run on: it began before a pause, and {crumb.node} has not answered since: "
            f"waiting for it, or for `incumbent node confirm-dead {crumb.node}`"
        )
    if on_unclean == "go":
        return ProvenDead(f"{who} is unproven, and on_unclean = go")
    return StillWaiting(
        f"{who} was only {crumb.containment} and nobody saw it die: waiting for {crumb.node} to come back, "
        f"or for `incumbent node confirm-dead {crumb.node}`"
    )
