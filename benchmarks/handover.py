"""How long does a clean handover take, beyond the stop of the old program and the start of the new?

    library lead, kazoo Election, Curator LeaderLatch: from the moment that the leader begins to
    give way to the moment that the next one leads; no program is stopped or started.
    elect without a COMMAND: the same from SIGTERM to its process, so signal and guardian count.
    a seat: its node is told to stop; what its receipt says between proof of death and START.
    whole: from the last line of the old program to the first of the new.

All on one server in turns, and library, kazoo and Curator once more on Apache ZooKeeper.
"""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contenders import SESSION, Election, elect, library, settle
from benchmarks.failover import Seat, peers
from benchmarks.reports import Reports, now
from benchmarks.results import Figure, Outcome
from tests.apache import ApacheServer, apache_missing
from tests.e2e.nodes import Nodes

from incumbent.agent.tree import Observed, Tree, read

__all__ = ["SAMPLES", "run"]

SAMPLES = 10
_QUIET = 0.3  # seconds: whoever left before has ended
_SETTLED = 2.5  # seconds: the next in line has sent beats
_PARTS = re.compile(r"handed over ([\d.]+) · claimed ([\d.]+) · started ([\d.]+)")
_SEAT = (
    "A seat's handover is one transaction on disk and one read: the old node gives up breadcrumb "
    "and candidate and writes the next one's start, the new one reads that it is its own."
)
_NAMES = {
    "library": "library: aio lead",
    "elect": "incumbent elect, no COMMAND",
    "kazoo": "kazoo Election",
    "curator": "Curator LeaderLatch",
}


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Clean handover, beyond stop and start", remarks=[_SEAT])
    ours, apache = folder / "ours", folder / "apache"
    ours.mkdir()
    apache.mkdir()
    with ExitStack() as stack:
        reports = stack.enter_context(Reports(ours))
        nodes = stack.enter_context(Nodes(ours, tick=2.0, session=SESSION))
        seat = Seat(nodes, reports, ending=f"echo seat stopped > {reports.fifo}")
        command = (
            "sh",
            "-c",
            "trap 'echo stopped; exit 0' TERM; echo started; sleep 100000 & wait",
        )
        kinds = [
            library(nodes.hosts, "/library"),
            elect(nodes.hosts, "/elect"),
            *peers(nodes.hosts, folder, outcome),
        ]
        all_ = [stack.enter_context(Election(kind, reports, ours)) for kind in kinds]
        whole = stack.enter_context(Election(elect(nodes.hosts, "/whole", command), reports, ours))
        took: dict[str, list[float]] = {each.kind.name: [] for each in all_}
        beyond: list[float] = []
        seat_whole: list[float] = []
        elect_whole: list[float] = []

        for _ in range(samples):
            settle(_SETTLED)
            for each in all_:
                took[each.kind.name].append(_give_way(each))
            settle(_QUIET)
            at = whole.give_way()
            led = whole.successor(at)
            elect_whole.append((led - _stopped(reports, at, "stopped")) * 1000)
            whole.has_left()
            seat.until_at_rest()
            settle(_QUIET)
            parts = _drain(nodes, seat, reports)
            beyond.append(parts[0])
            seat_whole.append(parts[1])
            for each in (*all_, whole):
                each.fill()

    on_apache = _on_apache(apache, samples, outcome)
    outcome.figures = [
        Figure(who="a seat, its node stopped: proof of death → START", samples=beyond, goal=3.0),
        Figure(who=_NAMES["elect"], samples=took.pop("elect"), goal=3.0),
        *(_figures(took, "")),
        *(_figures(on_apache, ", on Apache 3.8")),
    ]
    outcome.figures += [
        Figure(
            who="whole, a seat: last line of the old program → first of the new", samples=seat_whole
        ),
        Figure(who="whole, elect with COMMAND: the same", samples=elect_whole),
    ]
    return outcome


def _figures(took: dict[str, list[float]], where: str) -> list[Figure]:
    """Of the library, then of its peers."""
    return [
        Figure(
            who=f"{_NAMES[name]}{where}",
            samples=times,
            goal=3.0 if name == "library" else None,
            peer=name != "library",
        )
        for name, times in took.items()
    ]


def _give_way(election: Election) -> float:
    """Milliseconds."""
    settle(_QUIET)
    at = election.give_way()
    took = (election.successor(at) - at) * 1000
    election.has_left()
    return took


def _drain(nodes: Nodes, seat: Seat, reports: Reports) -> tuple[float, float]:
    """Milliseconds: by the receipt beyond stop and start, and between the programs' lines."""
    node, at = seat.owner, now()
    node.guardian.send(signal.SIGTERM)
    started = seat.successor(at)
    stopped = _stopped(reports, at, "seat stopped")
    parts, path = None, Tree().observed("bench/0")
    while parts is None:
        data, _stat = nodes.ask(lambda client: client.get(path))
        receipt = read(Observed, data, path).receipt
        parts = _PARTS.search(receipt) if f"→ {seat.node} " in receipt else None
    seat.revive(node)
    return float(parts[1]) + float(parts[2]), (started - stopped) * 1000


def _stopped(reports: Reports, since: float, words: str) -> float:
    return reports.wait(lambda each: each.text == words, since=since, what=f"a line `{words}`").at


def _on_apache(folder: Path, samples: int, outcome: Outcome) -> dict[str, list[float]]:
    if why := apache_missing():
        outcome.remarks.append(f"Apache ZooKeeper is left out: {why}")
        return {}
    with ExitStack() as stack:
        reports = stack.enter_context(Reports(folder))
        server = stack.enter_context(ApacheServer(folder))
        kinds = [
            library(server.hosts, "/library"),
            *peers(server.hosts, folder.parent, Outcome(title="")),
        ]
        all_ = [stack.enter_context(Election(kind, reports, folder)) for kind in kinds]
        took: dict[str, list[float]] = {each.kind.name: [] for each in all_}
        for _ in range(samples):
            settle(_SETTLED)
            for each in all_:
                took[each.kind.name].append(_give_way(each))
                each.fill()
        return took
