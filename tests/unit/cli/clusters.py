"""Trees as `status` and `why` read them, made by hand."""

from __future__ import annotations

from typing import Any

from incumbent.agent.tree import Breadcrumb, Control, Desired, NodeFacts, Observed, Plan, SeatRecord
from incumbent.cli.cluster import Cluster, ComponentState, SeatState
from incumbent.spec import Spec

__all__ = ["NOW", "cluster", "contender", "crumb", "node", "running", "seen", "web"]

NOW = 1_800_000_000.0


def node(name: str, **more: Any) -> NodeFacts:
    facts: dict[str, Any] = {
        "node": name,
        "node_id": f"id-{name}",
        "boot_id": f"boot-{name}",
        "session": f"5{name[-1]}",
        "containments": ["sealed", "swept"],
        "since": NOW - 90,
    }
    return NodeFacts(**{**facts, **more})


def crumb(epoch: int, name: str, **more: Any) -> Breadcrumb:
    facts: dict[str, Any] = {
        "epoch": epoch,
        "node": name,
        "node_id": f"id-{name}",
        "boot_id": f"boot-{name}",
        "session": f"5{name[-1]}",
        "s_min": 10.0,
        "containment": "sealed",
        "stop_budget": 3.5,
        "nonce": "n",
    }
    return Breadcrumb(**{**facts, **more})


def seen(epoch: int, state: str, name: str, **more: Any) -> Observed:
    return Observed(epoch=epoch, state=state, node=name, **{"since": NOW - 7, **more})


def contender(name: str, sequence: int) -> str:
    return f"5{name[-1]}-aa__lock__{sequence:010d}"


def cluster(*components: ComponentState, **more: Any) -> Cluster:
    nodes = {each.node: each for each in more.pop("nodes", [node("n1"), node("n2")])}
    facts: dict[str, Any] = {
        "control": Control(),
        "plan": Plan(),
        "nodes": nodes,
        "sessions": frozenset(each.session for each in nodes.values()),
    }
    return Cluster(**{**facts, **more}, components=components)


def web(*seats: SeatState, desired: bool = True, **spec: Any) -> ComponentState:
    spec = {"command": ("web",), "copies": max(1, len(seats)), **spec}
    return ComponentState(
        name="web",
        spec=Spec(name="web", **spec),
        desired=Desired(run=desired),
        seats=seats or (SeatState(number=0),),
    )


def running(epoch: int = 4, name: str = "n1", **more: Any) -> SeatState:
    return SeatState(
        number=more.pop("number", 0),
        record=SeatRecord(epoch=epoch),
        breadcrumbs=(crumb(epoch, name),),
        contenders=(contender(name, 1),),
        observed=more.pop("observed", seen(epoch, "running", name, pid=77)),
    )
