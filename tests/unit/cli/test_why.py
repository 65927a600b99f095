"""What `why` says in each situation, word by word, in one file: tests/golden/why.txt.

After a change on purpose: `RENEW_GOLDEN=1 make test PART=unit`, then read the diff.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.cli.clusters import NOW, cluster, contender, crumb, node, running, seen, web

from incumbent.agent.tree import (
    Control,
    Desired,
    Failures,
    Mark,
    Plan,
    Restraint,
    Rollout,
    SeatPlan,
    SeatRecord,
    Tree,
)
from incumbent.cli.cluster import Cluster, ComponentState, SeatState
from incumbent.cli.explain import seat_rows
from incumbent.cli.why import CASES, why
from incumbent.spec import Spec, program

GOLDEN = Path(__file__).parents[2] / "golden" / "why.txt"
PLANNED = Plan(version=3, seats={"web/0": SeatPlan(node="n1")})
FROZEN = Desired(frozen_by="ops@desk", frozen_since=NOW - 60)


def one(state: str, reason: str = "", **more: Any) -> Cluster:
    """`web` on n1, whose leader's last word is this."""
    word = seen(4, state, "n1", pid=77, reason=reason)
    return cluster(web(running(observed=word), **more), plan=PLANNED)


def down(seat: SeatState | None = None, **spec: Any) -> ComponentState:
    return web(seat or SeatState(number=0, record=SeatRecord(epoch=4)), **spec)


def between(reason: str) -> Cluster:
    """n1 leads, and waits with the next start."""
    seat = SeatState(
        number=0,
        record=SeatRecord(epoch=4),
        contenders=(contender("n1", 1),),
        observed=seen(4, "backoff", "n1", reason=reason),
    )
    return cluster(web(seat), plan=PLANNED)


def here(state: str, reason: str) -> dict[str, Any]:
    """What the agent of n2, on this machine, says."""
    return {"node": "n2", "session": "52", "seats": {"web/0": {"state": state, "reason": reason}}}


def rolling(state: Any, why_: str) -> Cluster:
    """`web` runs, while a change of it is rolled out, or was."""
    (seen_,) = one("ready", why_, auto_revert=True).components
    assert seen_.spec is not None
    record = Rollout(
        new=Mark(program=program(seen_.spec)), state=state, why=why_.partition(": ")[2]
    )
    return cluster(replace(seen_, rollout=record), plan=PLANNED)


SWEPT = SeatState(
    number=0,
    record=SeatRecord(epoch=4),
    breadcrumbs=(crumb(4, "n3", containment="swept"),),
    contenders=(contender("n2", 7),),
)
KEPT_OUT = Failures(
    program=program(Spec(name="web", command=("web",), nodes=("n1",))),
    restraints=[
        Restraint(
            what="node",
            name="n1",
            at=NOW - 60,
            until=0.0,
            why="web failed 3 times on n1 within 300 s (exit code 1): it does without n1",
        )
    ],
)
RECEIPT = "web n2 → n1 in 74 ms: proved dead 31 · handed over 4.0 · claimed 3.0 · started 36"

SITUATIONS: dict[str, tuple[Cluster, list[dict[str, Any]]]] = {
    "it runs where the plan has it": (one("running"), []),
    "it came here a moment ago": (
        cluster(web(running(observed=seen(4, "running", "n1", pid=77, receipt=RECEIPT)))),
        [],
    ),
    "an operator moved it here": (
        cluster(
            web(running()),
            plan=Plan(version=3, seats={"web/0": SeatPlan(node="n1", taken_from="n2")}),
        ),
        [],
    ),
    "an operator moved it to a node that cannot have it": (
        cluster(
            web(running(), requires=("/dev/ttyS0",)),
            plan=Plan(version=3, seats={"web/0": SeatPlan(node="n2", taken_from="n1")}),
        ),
        [],
    ),
    "its start is written and not yet said to run": (
        cluster(web(running(observed=seen(3, "released", "n2")))),
        [],
    ),
    "its agent says that it starts": (one("starting"), []),
    "an operator stopped it, and it ends": (one("stopping", "an operator stopped it"), []),
    "its spec has changed, and it ends": (
        one("stopping", "its spec has changed", stop_grace=2.0),
        [],
    ),
    "a plan gives it to another node, and it ends": (
        one("stopping", "plan 4 gives it to n2"),
        [],
    ),
    "it cannot be killed": (one("stuck", "an operator stopped it"), []),
    "it ended by itself": (between("exited with 3 after 0.2 s; next start in 4 s"), []),
    "it put itself in the background": (
        between("put itself in the background after 0.3 s; use `daemon off;`; next start in 4 s"),
        [],
    ),
    "its program is not on this node": (
        between("webb: no such program in PATH; next start in 4 s"),
        [],
    ),
    "it is ready": (one("ready"), []),
    "it failed too often": (
        cluster(
            web(
                SeatState(
                    number=0,
                    record=SeatRecord(epoch=4),
                    contenders=(contender("n1", 1),),
                    observed=seen(
                        4,
                        "failed",
                        "n1",
                        reason="5 failures within 600 s, the last: exited with 3 after 0.2 s; it is not "
                        "started again until `incumbent retry web`",
                    ),
                )
            ),
            plan=PLANNED,
        ),
        [],
    ),
    "its node is gone and nobody saw it die": (cluster(web(SWEPT)), []),
    "an operator stopped it": (cluster(down(desired=False)), []),
    "it is frozen and runs": (cluster(replace(web(running()), desired=FROZEN)), []),
    "it is frozen and down": (cluster(replace(down(), desired=FROZEN)), []),
    "the cluster is paused": (cluster(down(), control=Control(paused=True)), []),
    "there is no node": (cluster(down(), nodes=[], sessions=frozenset()), []),
    "none of its nodes lives": (cluster(down(nodes=("db1", "db2"))), []),
    "no node has what it requires": (cluster(down(requires=("/dev/ttyS0",))), []),
    "the node here stands aside": (
        cluster(down()),
        [here("aside", "/dev/ttyS0 does not exist on this node")],
    ),
    "its failures keep it from every node that may run it": (
        cluster(replace(down(nodes=("n1",)), failures=KEPT_OUT)),
        [],
    ),
    "it was moved to a node that keeps losing its session": (
        cluster(
            web(running()),
            plan=Plan(version=3, seats={"web/0": SeatPlan(node="n2", taken_from="n1")}),
            nodes=[node("n1"), node("n2", lost=3, since=NOW - 4, aside_until=NOW + 6)],
        ),
        [],
    ),
    "nobody stands yet": (cluster(down()), []),
    "the first in line is about to start it": (
        cluster(
            down(SeatState(number=0, record=SeatRecord(epoch=4), contenders=(contender("n2", 7),)))
        ),
        [],
    ),
    "something of it in the tree is missing": (
        cluster(down()),
        [
            here(
                "baffled",
                "/incumbent/components/web/seats/0 is missing; `incumbent apply` makes it anew",
            )
        ],
    ),
    "its spec cannot be read": (
        cluster(
            replace(
                web(running()),
                spec=None,
                problem="/incumbent/components/web cannot be read: written by a newer version; "
                "upgrade this node, or put it right",
            )
        ),
        [],
    ),
    "a change waits for the copies before it": (
        rolling("under way", "waits for its turn in the roll-out, after copy 3"),
        [],
    ),
    "a change came no further": (
        rolling(
            "stopped", "the roll-out is stopped: copy 3: exited with 1 after 0.2 s: no such port"
        ),
        [],
    ),
    "a change is taken back": (
        rolling("reverted", "the change is taken back: copy 3: not ready within 60 s"),
        [],
    ),
    "it is being removed": (cluster(replace(web(running()), spec=None)), []),
}


def said(situation: str) -> str:
    looked_at, local = SITUATIONS[situation]
    (row,) = seat_rows(looked_at, local, now=NOW)
    return str(why(looked_at, row, Tree("/incumbent"), NOW))


def test_each_situation_is_told_as_in_the_golden_file() -> None:
    told = "\n\n".join(f"# {situation}\n{said(situation)}" for situation in SITUATIONS) + "\n"

    if os.environ.get("RENEW_GOLDEN"):
        GOLDEN.write_text(told)
    assert told == GOLDEN.read_text()


def test_there_are_at_least_twenty_five_of_them() -> None:
    assert len(SITUATIONS) >= 25


def test_every_case_that_why_knows_is_among_them() -> None:
    seen_cases = set()
    for looked_at, local in SITUATIONS.values():
        (row,) = seat_rows(looked_at, local, now=NOW)
        seen_cases.add(row.case)

    assert set(CASES) == seen_cases
