"""`incumbent status`: what runs where since when, and why; once, or again at each change.

Rule of this file: nothing but arguments, calls and printing, as in `commands`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import local, show
from incumbent.cli.cluster import Cluster, connected, read_cluster
from incumbent.cli.exits import DONE, No, say
from incumbent.cli.explain import Row, seat_rows
from incumbent.cli.options import AsOutput, Data, Hosts, Output, Root
from incumbent.cli.pausing import paused_since
from incumbent.cli.screen import print_table
from incumbent.errors import ConnectTimeout, SessionError
from incumbent.settings import Settings, resolve

__all__ = ["status"]

LOOK_EVERY = 1.0
"""Seconds."""


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only this component, or seat of it: web/1."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again at each change, until Ctrl-C.")
    ] = False,
    zookeeper: Hosts = None,
    root: Root = None,
    data: Data = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """What runs where since when, and why.

    "fence in" is how long the programs here would still be allowed to run if ZooKeeper were gone
    from now on; only agents on this machine tell it.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root, "data": data})

    async def work() -> int:
        try:
            async with connected(settings) as client:
                cluster = await read_cluster(client, Tree(settings.root))
        except ConnectTimeout:
            for line in local.while_unreachable(settings.agent_folders):
                say(line)
            raise
        _show(cluster, _rows(cluster, settings, name), output)
        for agent in local.ask_all(settings.agent_folders):
            if agent.get("in_the_way"):
                say(f"{agent['node']} runs nothing: {agent['in_the_way']}")
        return DONE

    async def watched() -> int:
        last: object = None
        while True:
            async with connected(settings) as client:
                try:
                    while True:
                        cluster = await read_cluster(client, Tree(settings.root))
                        rows = _rows(cluster, settings, name)
                        told = (_without_time(rows), cluster.problems, cluster.control)
                        is_screen = sys.stdout.isatty() and output is Output.TABLE
                        if is_screen:
                            sys.stdout.write("\x1b[H\x1b[2J")
                        if is_screen or told != last:
                            _show(cluster, rows, output)
                            sys.stdout.flush()
                        last = told
                        await asyncio.sleep(LOOK_EVERY)
                except SessionError:
                    continue  # the next one

    raise typer.Exit(asyncio.run(watched() if watch else work()))


def _rows(cluster: Cluster, settings: Settings, name: str | None) -> list[Row]:
    rows = seat_rows(cluster, local.ask_all(settings.agent_folders), now=time.time())
    if name is None:
        return rows
    rows = [row for row in rows if name in (row.component, f"{row.component}/{row.seat}")]
    if not rows:
        raise No(f"there is no component {name}; `incumbent status` lists all")
    return rows


def _without_time(rows: list[Row]) -> list[object]:
    return [(row.name, row.state, row.node, row.pid, row.epoch, row.why) for row in rows]


def _show(cluster: Cluster, rows: list[Row], output: Output) -> None:
    if output is Output.JSON:
        print(show.to_json(rows))
    elif rows:
        now = time.time()
        print_table(show.SEAT_HEADS, [show.seat_cells(row, now) for row in rows])
    else:
        say("there are no components; `incumbent apply FILE` declares some")
    for problem in cluster.problems:
        say(problem)
    if cluster.control.paused:
        say(paused_since(cluster.control))
