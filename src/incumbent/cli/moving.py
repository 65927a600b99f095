"""`incumbent move`: a plan in which an operator says where a seat is.

The plan is written by the planner, from the one before: so what an operator writes into it stands
in the next one too, as long as the node lives and may have the seat. Nobody need plan at that moment.

Rule of this file: it writes a plan that the planner would keep, over the version that was read, or
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from incumbent.agent.placement import best_other, standbys
from incumbent.agent.tree import Plan, SeatPlan, Tree, read, write
from incumbent.cli.cluster import Cluster, ComponentState, read_cluster
from incumbent.cli.exits import No
from incumbent.cli.selection import Choice, owner
from incumbent.client import Client
from incumbent.wire import Check, MultiOp, SetData

__all__ = ["move", "moved"]


async def move(
    client: Client, tree: Tree, choices: Sequence[Choice], to: str | None
) -> dict[str, str]:
    """Plan the seats to be at `to`, or each at the best other node; seat → its node from now on.

    Raises `No` where that may not be, and `BadVersion` if a plan was made meanwhile: to be called
    `again`. The seats are handed over by whoever has them.
    """
    data, stat = await client.get(tree.plan)
    cluster = replace(await read_cluster(client, tree), plan=read(Plan, data, tree.plan))
    seats = moved(cluster, choices, to)
    if seats != cluster.plan.seats:
        plan = Plan(version=cluster.plan.version + 1, seats=dict(seats))
        components = sorted({each.component for each in choices})
        there: list[MultiOp] = [Check(tree.component(name), -1) for name in components]
        await client.multi([*there, SetData(tree.plan, write(plan), stat.version)])
    return {seat: seats[seat].node for choice in choices for seat in choice.seats}


def moved(cluster: Cluster, choices: Sequence[Choice], to: str | None) -> Mapping[str, SeatPlan]:
    """The plan's seats with these moved. Raises `No`."""
    if cluster.control.paused:
        raise No("the cluster is paused: nothing moves")
    if to is not None and to not in cluster.nodes:
        live = ", ".join(sorted(cluster.nodes)) or "none"
        raise No(f"there is no live node {to}; live nodes: {live} (`incumbent node list`)")
    seats = dict(cluster.plan.seats)
    there = {each.name: each for each in cluster.components}
    for choice in choices:
        component = there.get(choice.component)
        if component is None or component.spec is None:
            raise No(f"{choice.component}: its spec cannot be read, or it was removed")
        for number, seat in zip(choice.numbers, choice.seats, strict=True):
            may = _may(cluster, component, to)
            before = seats.get(seat)
            if before is None:
                raise No(f"{seat} is in no plan yet; `incumbent status {component.name}` says why")
            states = {each.number: each for each in component.seats}
            here = owner(cluster, states[number]) if number in states else before.node
            node = to or best_other(seat, here or before.node, seats, may)
            if node is None:
                raise No(f"no other live node may run {component.name}: {_only(component)}")
            seats[seat] = _to(seat, before, here, node, may)
    return seats


def _may(cluster: Cluster, component: ComponentState, to: str | None) -> list[str]:
    """The live nodes that may have it."""
    spec, frozen_by = component.spec, component.desired.frozen_by
    assert spec is not None
    if frozen_by:
        raise No(
            f"{component.name} is frozen by {frozen_by}: it is not moved; "
            f"`incumbent unfreeze {component.name}` first"
        )
    if to is not None and not spec.allows(to):
        raise No(f"{to} may not run {component.name}: {_only(component)}")
    return [node for node in sorted(cluster.nodes) if spec.allows(node)]


def _only(component: ComponentState) -> str:
    nodes = component.spec.nodes if component.spec is not None else ()
    return f"its `nodes` are {', '.join(nodes)}" if nodes else "there is only one live node"


def _to(seat: str, before: SeatPlan, here: str, node: str, may: Sequence[str]) -> SeatPlan:
    """Moved to `node` from `here`; moved back where it was taken from, it is as before."""
    if node == before.node == here:
        return before
    home = before.taken_from or here or before.node
    return SeatPlan(
        node=node,
        standbys=standbys(seat, node, may),
        taken_from="" if home == node else home,
    )
