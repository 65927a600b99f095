"""A move writes a plan that the planner keeps, or says why not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.clusters import cluster, node

from incumbent.agent.placement import SeatNeeds, place
from incumbent.agent.tree import Control, Desired, Plan, SeatPlan
from incumbent.cli.cluster import Cluster, ComponentState, SeatState
from incumbent.cli.exits import No
from incumbent.cli.moving import moved
from incumbent.cli.selection import Choice
from incumbent.spec import Spec

NODES = [node("n1"), node("n2"), node("n3")]


def component(spec: Spec, **more: Any) -> ComponentState:
    return ComponentState(name=spec.name, spec=spec, seats=(SeatState(number=0),), **more)


def on(where: str, taken_from: str = "", **spec: Any) -> tuple[Cluster, Choice]:
    """web, planned at `where`."""
    web = Spec(name="web", command=("/bin/web",), **spec)
    planned = place(
        [SeatNeeds(seat="web/0", nodes=web.nodes, owner=where, taken_from=taken_from)],
        [each.node for each in NODES],
    )
    there = cluster(component(web), nodes=NODES, plan=Plan(version=4, seats=planned))
    return there, Choice(component="web", spec=web)


def test_it_is_what_the_planner_would_write_next() -> None:
    there, web = on("n1")

    seats = moved(there, [web], "n3")

    assert seats["web/0"].node == "n3"
    assert seats["web/0"].taken_from == "n1"
    again = [SeatNeeds(seat="web/0", owner="n3", taken_from="n1")]
    assert place(again, [each.node for each in NODES]) == seats


def test_moved_twice_it_still_counts_where_it_was_first() -> None:
    there, web = on("n3", taken_from="n1")

    assert moved(there, [web], "n2")["web/0"].taken_from == "n1"


def test_moved_back_it_is_as_it_was() -> None:
    there, web = on("n3", taken_from="n1")

    assert moved(there, [web], "n1") == on("n1")[0].plan.seats


def test_without_a_node_it_is_the_one_with_least_to_do() -> None:
    there, web = on("n1")
    busy = {f"other/{k}": SeatPlan(node="n2") for k in range(2)}
    plan = Plan(version=4, seats={**there.plan.seats, **busy})
    there = cluster(*there.components, nodes=NODES, plan=plan)

    assert moved(there, [web], None)["web/0"].node == "n3"


@pytest.mark.parametrize(
    ("to", "spec", "more", "said"),
    [
        ("n9", {}, {}, "there is no live node n9; live nodes: n1, n2, n3"),
        ("n3", {"nodes": ("n1", "n2")}, {}, "n3 may not run web: its `nodes` are n1, n2"),
        (None, {"nodes": ("n1",)}, {}, "no other live node may run web: its `nodes` are n1"),
        ("n2", {}, {"control": Control(paused=True)}, "the cluster is paused: nothing moves"),
    ],
)
def test_where_it_may_not_be_says_why(
    to: str | None, spec: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    there, web = on("n1", **spec)
    there = cluster(*there.components, nodes=NODES, plan=there.plan, **more)

    with pytest.raises(No, match="^" + said.replace("(", r"\(")):
        moved(there, [web], to)


def test_what_is_frozen_is_not_moved() -> None:
    there, web = on("n1")
    spec = web.spec
    assert spec is not None
    frozen = component(spec, desired=Desired(frozen_by="ops@n9"))
    there = cluster(frozen, nodes=NODES, plan=there.plan)

    with pytest.raises(No, match=r"web is frozen by ops@n9: .*`incumbent unfreeze web` first"):
        moved(there, [web], "n2")
