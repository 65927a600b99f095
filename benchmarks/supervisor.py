"""What does one node cost that runs many components, and how soon is a large tree dead?

Components that sleep: how many start a second, what guardian, agent, log writers, first processes
and server together use of a core while nothing happens, and how much memory each component costs
(the proportional set size of all those, not of the programs). How long from the moment that an
operator's order is asked to be written until its outcome is there: a signal sent, or a program
ended and its successor started. And a program with a thousand processes: from the order to kill
it to the proof that it is dead, in each containment.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.contenders import settle
from benchmarks.reports import now
from benchmarks.results import Figure, Outcome
from tests.cgroups import cgroups, why_no_cgroups
from tests.e2e.nodes import Node, Nodes
from tests.programs.guardian_under_test import guardian
from tests.waiting import wait_until

from incumbent.agent.tree import Command, Tree
from incumbent.cli import lifecycle
from incumbent.cli.selection import Choice
from incumbent.client import Client
from incumbent.clock import SYSTEM
from incumbent.guardian import kernel
from incumbent.guardian import messages as m
from incumbent.guardian.containment import probe

__all__ = ["SAMPLES", "run"]

SAMPLES = 5
COMPONENTS = 500
PROCESSES = 1000
_IDLE = 20.0  # seconds of watching
_SETTLED = 12.0  # seconds after the last start: more than a session
_TICK = os.sysconf("SC_CLK_TCK")
_FOREST = """
import os, signal, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(1e6)
open(sys.argv[2], "w").close()
time.sleep(1e6)
"""


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(
        title=f"One node: {COMPONENTS} components, and a tree of {PROCESSES} processes"
    )
    _many(folder / "many", outcome)
    _orders(folder / "orders", outcome, 4 * samples)
    for containment, why_not in probe(cgroups() if not why_no_cgroups() else None).items():
        if why_not:
            outcome.remarks.append(f"{containment}: {why_not}")
            continue
        took = [_kill(folder / f"{containment}-{n}", containment) for n in range(samples)]
        who = f"{PROCESSES} processes, {containment}: order → proven dead"
        outcome.figures.append(Figure(who=who, samples=took, goal=1000.0))
    return outcome


def _many(folder: Path, outcome: Outcome) -> None:
    folder.mkdir()
    with Nodes(folder, tick=2.0, session=10.0) as nodes:
        node = nodes.start("n1")
        text = "".join(
            f'[component.c{n}]\ncommand = ["sleep", "1000000"]\n' for n in range(COMPONENTS)
        )
        began = now()
        nodes.apply(text)
        applied = now()
        wait_until(lambda: _running(node) == COMPONENTS, 300.0, "every component to run")
        took = now() - began
        settle(_SETTLED)
        pids = list(_ours(node))
        server = nodes.server.pid
        before = {pid: _cpu(pid) for pid in [*pids, server]}
        at = now()
        settle(_IDLE)
        used = {pid: _cpu(pid) - before[pid] for pid in before}
        seconds = now() - at
        memory = sum(_memory(pid) for pid in pids)
        shares = {
            "guardian": used[node.guardian.pid],
            "agent": used.get(node.agent_pid, 0.0),
            "server": used[server],
        }
        shares["first processes and log writers"] = sum(used.values()) - sum(shares.values())
    outcome.figures += [
        Figure(who="started, from apply to the last", samples=[COMPONENTS / took], unit="/s"),
        Figure(
            who="idle, of a core", samples=[100 * sum(used.values()) / seconds], unit="%", goal=1.0
        ),
        Figure(who="memory of each component", samples=[memory / COMPONENTS / 1024], unit="MiB"),
    ]
    parts = ", ".join(f"{who} {100 * each / seconds:.2f} %" for who, each in shares.items())
    outcome.remarks.append(f"idle: {parts}; apply itself took {applied - began:.1f} s")


def _orders(folder: Path, outcome: Outcome, samples: int) -> None:
    folder.mkdir()
    with Nodes(folder, tick=2.0, session=10.0) as nodes:
        nodes.start("n1")
        nodes.apply('[component.c0]\ncommand = ["sleep", "1000000"]\n')
        nodes.wait("c0", "running")
        signals = asyncio.run(_ordered(nodes.hosts, Command(do="signal", signal="CONT"), samples))
        restarts = asyncio.run(_ordered(nodes.hosts, Command(do="restart"), samples))
    outcome.figures += [
        Figure(who="signal: order → sent", samples=signals),
        Figure(who="restart: order → the old program dead, the new one started", samples=restarts),
    ]


async def _ordered(hosts: str, command: Command, samples: int) -> list[float]:
    """Milliseconds of each, one after the other."""
    client, tree, took = Client(hosts, clock=SYSTEM, rng=random.Random(1)), Tree(), []
    await client.connect(10.0)
    for n in range(samples):
        at = now()
        path = await lifecycle.order(
            client,
            tree,
            Choice(component="c0", spec=None),
            command,
            order_id=f"{command.do}-{n}",
        )
        (said,) = (await lifecycle.until_outcome(client, tree, "c0", path)).values()
        took.append((now() - at) * 1000)
        if not said.startswith("done"):
            raise RuntimeError(f"{path}: {said}")
        await asyncio.sleep(0.2)
    await client.close()
    return took


def _running(node: Node) -> int:
    seats = node.status().get("seats", {})
    return sum(each["state"] == "running" for each in seats.values())


def _ours(node: Node) -> Iterator[int]:
    """Guardian, agent, and what the guardian forked of itself; not the programs."""
    yield node.guardian.pid
    for process in kernel.descendants([node.guardian.pid]):
        with suppress(OSError):
            if b"python" in Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0]:
                yield process.pid


def _cpu(pid: int) -> float:
    """Seconds of it that a process has used; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def _memory(pid: int) -> int:
    """Its share of the memory in KiB."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _kill(folder: Path, containment: str) -> float:
    """Milliseconds from the order to the proof."""
    folder.mkdir()
    with guardian(folder) as g:
        agent = g.connected(600.0)
        argv = (sys.executable, "-c", _FOREST, str(PROCESSES), str(g.ready))
        agent.say(g.nasty("plain", argv=argv, containment=containment))
        started = agent.expect(m.Started, 60.0)
        agent.say(m.Seen(seat="web/0", epoch=1, pid=started.pid))
        wait_until(g.ready.exists, 60.0, "the forest to have grown")
        at = now()
        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.0))
        agent.expect(m.Empty, 60.0)
        return (now() - at) * 1000
