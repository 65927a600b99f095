"""How long after the leader's process is killed does its successor start?

Ours twice: a node's guardian under `incumbent agent`, and `incumbent elect`. Beside them kazoo's
Election and Curator's LeaderLatch, whose processes are killed in the same round, on the same
server, with the same session timeout; ours are measured while theirs run out.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contenders import SESSION, Election, Kind, curator, elect, kazoo, settle
from benchmarks.reports import Reports, now
from benchmarks.results import Figure, Outcome
from tests.e2e.nodes import Node, Nodes

from incumbent.agent.tree import Plan, Tree, read
from incumbent.client import Client

__all__ = ["SAMPLES", "Seat", "run"]

SAMPLES = 10
_TREE = Tree()
_SETTLED = 3.0


class Seat:
    """One seat and three nodes; its program reports its node's name when it starts.

    Every round begins at rest: three nodes stand, and the plan names the one that has it.
    """

    def __init__(self, nodes: Nodes, reports: Reports, ending: str = "") -> None:
        """`ending`: a line of shell for the program, run at SIGTERM."""
        self.nodes = nodes
        self._reports = reports
        since = now()
        for name in ("n1", "n2", "n3"):
            nodes.start(name)
        trap = f"trap '{ending}; exit 0' TERM; " if ending else ""
        waiting = "sleep 100000 & wait" if ending else "exec sleep 100000"
        script = f"{trap}echo seat started $INCUMBENT_NODE > {reports.fifo}; {waiting}"
        nodes.apply(f"[component.bench]\ncommand = {json.dumps(['sh', '-c', script])}\n")
        self.node = self._next(since)

    @property
    def owner(self) -> Node:
        return self.nodes.named(self.node)

    def successor(self, since: float) -> float:
        """When another node's program started; that is its owner from now on."""
        report = self._reports.wait(
            lambda each: (
                each.text.startswith("seat started ") and not each.text.endswith(self.node)
            ),
            since=since,
            what="the seat's next start",
        )
        self.node = report.text.split()[-1]
        return report.at

    def revive(self, node: Node) -> None:
        """The node's next life."""
        node.guardian.ends(20.0)
        node.start_again().connected()

    def until_at_rest(self) -> None:
        while not self.nodes.ask(self._is_at_rest):
            settle(0.05)

    async def _is_at_rest(self, client: Client) -> bool:
        standing = await client.children(_TREE.election("bench/0"))
        plan = read(Plan, (await client.get(_TREE.plan))[0], _TREE.plan)
        return len(standing) == 3 and plan.seats["bench/0"].node == self.node

    def _next(self, since: float) -> str:
        report = self._reports.wait(
            lambda each: each.text.startswith("seat started "), since=since, what="the seat's start"
        )
        return report.text.split()[-1]


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(
        title="Leader killed → successor started (session timeout 10 s, three members)"
    )
    ours: dict[str, list[float]] = {"seat": [], "elect": []}
    with ExitStack() as stack:
        reports = stack.enter_context(Reports(folder))
        nodes = stack.enter_context(Nodes(folder, tick=2.0, session=SESSION))
        seat = Seat(nodes, reports)
        command = ("sh", "-c", "echo started; exec sleep 100000")
        kinds = [elect(nodes.hosts, "/elect", command), *peers(nodes.hosts, folder, outcome)]
        own, *others = [stack.enter_context(Election(kind, reports, folder)) for kind in kinds]
        theirs: dict[str, list[float]] = {other.kind.name: [] for other in others}

        for _ in range(samples):
            settle(_SETTLED)
            killed = {other.kind.name: other.kill() for other in others}

            seat.until_at_rest()
            ours["seat"].append(_kill_guardian(seat))
            at = own.kill()
            ours["elect"].append(own.successor(at) - at)

            own.fill()
            for other in others:
                at = killed[other.kind.name]
                theirs[other.kind.name].append(other.successor(at, 3 * SESSION) - at)
                other.fill()

    outcome.figures = [
        _figure("a seat's guardian killed (incumbent agent)", ours["seat"], goal=100.0),
        _figure("incumbent elect killed", ours["elect"], goal=100.0),
        *(_figure(_PEERS[name], times, peer=True) for name, times in theirs.items() if times),
    ]
    return outcome


def peers(hosts: str, folder: Path, outcome: Outcome) -> list[Kind]:
    """kazoo, and Curator where it is; else a remark."""
    latch = curator(hosts, "/curator", folder)
    if isinstance(latch, str):
        outcome.remarks.append(latch)
        return [kazoo(hosts, "/kazoo")]
    return [kazoo(hosts, "/kazoo"), latch]


_PEERS = {
    "kazoo": "kazoo Election, process killed",
    "curator": "Curator LeaderLatch, process killed",
}


def _kill_guardian(seat: Seat) -> float:
    node, at = seat.owner, now()
    node.guardian.send(signal.SIGKILL)
    took = seat.successor(at) - at
    seat.revive(node)
    return took


def _figure(
    who: str, seconds: list[float], *, goal: float | None = None, peer: bool = False
) -> Figure:
    return Figure(who=who, samples=[each * 1000 for each in seconds], goal=goal, peer=peer)
