"""What `status` and `node list` say of a tree: one sentence for each thing that can be so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.cli.clusters import NOW, cluster, contender, crumb, node, running, seen, web

from incumbent.agent.tree import (
    Breadcrumb,
    Control,
    Desired,
    Plan,
    SeatPlan,
    SeatRecord,
)
from incumbent.cli.cluster import Cluster, ComponentState, SeatState
from incumbent.cli.explain import Row, node_rows, seat_rows, title
from incumbent.cli.show import (
    NODE_HEADS,
    SEAT_HEADS,
    age,
    node_cells,
    plain,
    seat_cells,
    to_json,
)
from incumbent.spec import Spec


def only(looked_at: Cluster, *local: dict[str, Any]) -> Row:
    (row,) = seat_rows(looked_at, local, now=NOW)
    return row


def test_a_running_seat() -> None:
    row = only(cluster(web(running())))

    assert (row.state, row.node, row.pid, row.epoch) == ("running", "n1", 77, 4)
    assert row.containment == "sealed"
    assert row.fence is None


def test_its_fence_comes_from_the_agent_here_with_that_session() -> None:
    here = {"session": "0x51", "node": "n1", "time_to_fence": 8.25, "seats": {}}
    elsewhere = {"session": "0x52", "node": "n2", "time_to_fence": 3.0, "seats": {}}

    assert only(cluster(web(running())), elsewhere, here).fence == 8.25


def test_it_says_how_it_came_there_or_by_which_plan() -> None:
    plan = Plan(version=3, seats={"web/0": SeatPlan(node="n1")})
    moved = seen(4, "running", "n1", receipt="web n2 → n1 in 74 ms")

    assert only(cluster(web(running()), plan=plan)).why == "plan 3 gives it to n1"
    assert only(cluster(web(running(observed=moved)), plan=plan)).why == "web n2 → n1 in 74 ms"


def test_a_frozen_seat_says_by_whom_and_since_when() -> None:
    frozen = Desired(frozen_by="ops@desk", frozen_since=NOW)

    runs = only(cluster(replace(web(running()), desired=frozen)))
    rests = only(cluster(replace(web(), desired=frozen)))

    assert (runs.state, rests.state) == ("running", "frozen")
    assert runs.why == rests.why
    assert runs.why == (
        "frozen by ops@desk since 2027-01-15 08:00 UTC: nothing is started or moved until "
        "`incumbent unfreeze web`"
    )


def test_a_seat_that_an_operator_moved_says_so_or_why_it_is_not_there() -> None:
    plan = Plan(version=3, seats={"web/0": SeatPlan(node="n2", taken_from="n1")})
    there = running(name="n2", observed=seen(4, "running", "n2"))

    arrived = only(cluster(web(there), plan=plan))
    waits = only(cluster(web(running(), requires=("/dev/x",)), plan=plan))
    here = {"node": "n2", "session": "52", "seats": {"web/0": {"state": "aside", "reason": "so"}}}
    told = only(cluster(web(running()), plan=plan), here)

    assert arrived.why == "an operator moved it here from n1"
    assert waits.why.startswith("an operator moved it to n2: it may lack /dev/x; ")
    assert told.why == "an operator moved it to n2: so"


def test_an_observation_of_an_earlier_epoch_is_stale() -> None:
    row = only(cluster(web(running(observed=seen(3, "running", "n2", pid=66)))))

    assert (row.state, row.node, row.pid, row.epoch) == ("starting", "n1", 0, 4)
    assert row.why == "epoch 4 begins"


def test_a_sealed_instance_whose_session_is_gone_is_no_obstacle() -> None:
    seat = SeatState(
        number=0,
        record=SeatRecord(epoch=4),
        breadcrumbs=(crumb(4, "n3"),),
        contenders=(contender("n2", 7),),
        observed=seen(4, "running", "n3", pid=77),
    )

    row = only(cluster(web(seat)))

    assert (row.state, row.node, row.pid) == ("waiting", "n2", 0)
    assert row.why == "n2 is to start it"


def test_a_swept_one_is_unproven_and_the_way_out_is_named() -> None:
    swept = crumb(4, "n3", containment="swept")
    seat = SeatState(number=0, record=SeatRecord(epoch=4), breadcrumbs=(swept,))

    row = only(cluster(web(seat)))

    assert (row.state, row.node, row.epoch) == ("unproven", "n3", 4)
    assert "`incumbent node confirm-dead n3`" in row.why


def test_on_unclean_go_is_no_obstacle() -> None:
    swept = crumb(4, "n3", containment="swept")
    seat = SeatState(number=0, breadcrumbs=(swept,), contenders=(contender("n1", 2),))

    assert only(cluster(web(seat, on_unclean="go"))).why == "n1 is to start it"


def test_one_that_waits_between_two_starts() -> None:
    seat = SeatState(
        number=0,
        record=SeatRecord(epoch=4),
        contenders=(contender("n1", 1), contender("n2", 2)),
        observed=seen(4, "backoff", "n1", reason="exited with 3 after 0.0 s; next start in 2 s"),
    )

    row = only(cluster(web(seat)))

    assert (row.state, row.node) == ("backoff", "n1")
    assert row.why.startswith("exited with 3")


@pytest.mark.parametrize(
    ("component", "more", "why"),
    [
        (web(), {"nodes": []}, "there is no node: start one with `incumbent agent`"),
        (web(nodes=("n8", "n9")), {}, "only n8, n9 may run it, and there is no such node now"),
        (web(), {}, "no node stands for it yet; n1, n2 may"),
        (
            web(requires=("/dev/sdz",)),
            {},
            "no node stands for it: n1, n2 may lack /dev/sdz; `incumbent status` there tells",
        ),
        (web(desired=False), {}, "an operator stopped it"),
        (web(), {"control": Control(paused=True)}, "the cluster is paused: nothing starts"),
    ],
)
def test_why_nothing_runs(component: ComponentState, more: dict[str, Any], why: str) -> None:
    assert only(cluster(component, **more)).why == why


def test_an_agent_here_tells_which_file_is_missing() -> None:
    said = {"state": "aside", "reason": "/dev/sdz does not exist on this node"}
    here = {"session": "0x51", "node": "n1", "time_to_fence": 8.0, "seats": {"web/0": said}}

    row = only(cluster(web(requires=("/dev/sdz",))), here)

    assert row.why == "n1: /dev/sdz does not exist on this node"


def test_a_removed_component_is_shown_only_while_something_may_run() -> None:
    quiet = ComponentState(name="web", spec=None, seats=(SeatState(number=0),))
    busy = ComponentState(name="web", spec=None, seats=(running(),))

    assert seat_rows(cluster(quiet), now=NOW) == []
    assert only(cluster(busy)).state == "running"


def test_a_spec_that_cannot_be_read_says_so() -> None:
    odd = ComponentState(name="web", spec=None, problem="/c/web: not a spec of ours")

    assert only(cluster(odd)).why == "/c/web: not a spec of ours"


def test_the_seat_is_named_only_where_there_are_several() -> None:
    several = cluster(web(running(), running(number=1)))

    assert [row.name for row in seat_rows(several, now=NOW)] == ["web/0", "web/1"]
    assert only(cluster(web(running()))).name == "web"
    assert title(several, "web/0") == "web/0"
    assert title(cluster(web(running())), "web/0") == "web"
    assert title(cluster(), "gone/0") == "gone"


TABLE = """\
COMPONENT  STATE    NODE  PID  EPOCH  CONTAINMENT  SINCE  FENCE IN  WHY
web/0      running  n1    77   4      sealed       7 s    8.2 s     plan 3 gives it to n1
web/1      waiting  –     –    –      –            –      –         no node stands for it yet; n1, n2 may"""


def test_the_table() -> None:
    plan = Plan(version=3, seats={"web/0": SeatPlan(node="n1")})
    here = {"session": "0x51", "time_to_fence": 8.2}
    rows = seat_rows(cluster(web(running(), SeatState(number=1)), plan=plan), [here], now=NOW)

    assert plain(SEAT_HEADS, [seat_cells(row, NOW) for row in rows]) == TABLE


def test_the_json() -> None:
    here = {"session": "0x51", "time_to_fence": 8.21234}
    rows = seat_rows(cluster(web(running(), SeatState(number=1))), [here], now=NOW)

    first, second = json.loads(to_json(rows))

    assert first == {
        "component": "web",
        "seat": 0,
        "state": "running",
        "node": "n1",
        "pid": 77,
        "epoch": 4,
        "containment": "sealed",
        "since": "2027-01-15T07:59:53.000+00:00",
        "time_to_fence": 8.212,
        "why": None,
    }
    assert [key for key, value in second.items() if value is None] == [
        "node",
        "pid",
        "epoch",
        "containment",
        "since",
        "time_to_fence",
    ]


NODES = """\
NODE  STATE  RUNS  CONTAINMENT    LABELS  SINCE       WHY
n1    live   web   sealed, swept  rack=a  1 min 30 s  –
n2    live   –     sealed, swept  –       1 min 30 s  n2 lost its connection for too long 3 times within an hour: it \
stands for nothing for 120 s since it came back, while others can
n3    gone   db    –              –       –           epoch 9 on n3 was only swept and nobody saw it die: \
waiting for n3 to come back, or for `incumbent node confirm-dead n3`
n4    gone   old   –              –       –           what it ran is proven dead"""


def test_the_nodes() -> None:
    def component(name: str, *crumbs: Breadcrumb) -> ComponentState:
        seat = SeatState(number=0, breadcrumbs=crumbs)
        return ComponentState(name=name, spec=Spec(name=name, command=("x",)), seats=(seat,))

    rows = node_rows(
        cluster(
            web(running()),
            component("db", crumb(9, "n3", containment="swept")),
            component("old", crumb(2, "n4")),
            nodes=[
                node("n1", labels={"rack": "a"}),
                node("n2", lost=3, since=NOW - 90, aside_until=NOW + 30),
            ],
        ),
        NOW,
    )

    assert plain(NODE_HEADS, [node_cells(row, NOW) for row in rows]) == NODES
    assert json.loads(to_json(rows))[2]["runs"] == ["db"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (90061, "1 d 1 h"),
    ],
)
def test_an_age_has_two_figures(seconds: float, text: str) -> None:
    assert age(seconds) == text
