"""How long after an agent is killed is the next one in control, its programs untouched?

In control: its control socket says CONNECTED under the next generation. Once with the spare that
a guardian keeps ready, and once more at once, before there is a new spare. Each kill must leave
the program with the pid and epoch it had.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders import SESSION, settle
from benchmarks.failover import Seat
from benchmarks.reports import Reports, now
from benchmarks.results import Figure, Outcome
from tests.e2e.nodes import Node, Nodes

__all__ = ["SAMPLES", "run"]

SAMPLES = 10
_SETTLED = SESSION + 0.5  # three deaths within a session are a crash loop; a spare needs 2 s


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    with_spare, without = [], []
    restarts = 0
    with Reports(folder) as reports, Nodes(folder, tick=2.0, session=SESSION) as nodes:
        seat = Seat(nodes, reports)
        for _ in range(samples):
            settle(_SETTLED)
            since, before = now(), _program(seat.owner)
            with_spare.append(_kill_agent(seat.owner))
            without.append(_kill_agent(seat.owner))
            began = reports.find(lambda each: each.text.startswith("seat started"), since=since)
            restarts += began is not None or _program(seat.owner) != before
    return Outcome(
        title="Agent killed → the next one in control",
        figures=[
            Figure(who="agent killed", samples=with_spare, goal=300.0),
            Figure(who="killed again at once (no spare yet)", samples=without, goal=300.0),
        ],
        remarks=[f"restarts of the program: {restarts} in {2 * samples} kills (goal: 0)"],
    )


def _kill_agent(node: Node) -> float:
    """Milliseconds from SIGKILL to control."""
    generation = node.status()["generation"]
    at = now()
    node.kill_agent()
    while now() < at + 20.0:
        said = node.status()
        if said.get("generation", 0) > generation and said["connection"] == "CONNECTED":
            return (now() - at) * 1000
        settle(0.001)
    raise TimeoutError("no agent came back within 20 s")


def _program(node: Node) -> tuple[int, int]:
    """Its epoch and pid, by its own agent."""
    while True:
        seats = node.status().get("seats", {})
        if "bench/0" in seats and seats["bench/0"]["pid"]:
            return seats["bench/0"]["epoch"], seats["bench/0"]["pid"]
        settle(0.01)
