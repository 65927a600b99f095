"""`incumbent demo --keep`: it runs on after its acts, for whoever wants to kill something.

Rule of this file: what is told to try works as it stands: real pids, real ports, real paths.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

from incumbent.cli.demo.stage import Stage
from incumbent.cli.demo.voice import Voice

__all__ = ["keep"]

COMES_BACK = 15.0
"""Seconds after which a node that died is started again."""
_LOOK_EVERY = 0.1


async def keep(stage: Stage, voice: Voice) -> None:
    """Start dead nodes again, for ever; first all are started, then it says what to try."""
    for node in stage.nodes.values():
        if not node.guardian:
            node.start()
    await stage.until("all nodes to be there", lambda: len(stage.facts) == len(stage.nodes), 30.0)
    await asyncio.sleep(1.0)  # the planner looks at newcomers after a beat
    _say_what_to_try(stage, voice)
    voice.caption = lambda: "Ctrl-C ends it"
    while True:
        for node in stage.nodes.values():
            if not node.guardian and time.monotonic() - node.ended_at > COMES_BACK:
                node.start()
        await asyncio.sleep(_LOOK_EVERY)


def _say_what_to_try(stage: Stage, voice: Voice) -> None:
    """Everything that one can type in another terminal."""
    command = _incumbent()
    first, second, third = stage.nodes.values()
    shown = stage.loads[0].name
    where = stage.nodes.get(stage.now.row(shown).node, first)
    tries = [
        ("once", f"export INCUMBENT_ZOOKEEPER={stage.hosts}"),
        ("what runs where", f"{command} status"),
        ("the nodes", f"{command} node list"),
        (f"{shown}'s log, on {where.name}", f"{command} logs {shown} --data {where.data}"),
        ("who writes it", f"tail -f {stage.loads[-1].where}"),
        ("an agent: nothing happens", f"kill -9 {first.agent}"),
        ("a guardian: at once", f"kill -9 {second.guardian}"),
        ("a node: after S", f"kill -9 {third.guardian} {third.agent}"),
    ]
    voice.line()
    voice.line(("It runs on. In another terminal:", "bold"))
    for why, words in tries:
        voice.line("     ", (why.ljust(27), ""), (words, "cyan"))
    for load in stage.loads[:-1]:
        voice.line("     ", (f"{load.name} is at".ljust(27), ""), (load.where, "cyan"))
    voice.say(f"A node that dies comes back after {COMES_BACK:g} s. Ctrl-C ends it all.")


def _incumbent() -> str:
    """How the command is called here, as short as it can be."""
    beside = Path(sys.executable).with_name("incumbent")
    found = shutil.which("incumbent")
    if found is not None and Path(found) == beside:
        return "incumbent"
    if not beside.exists():
        return f"{sys.executable} -m incumbent.cli"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
