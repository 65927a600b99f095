"""`incumbent why`: the cause of what a seat does, or does not.

Rule of this file: nothing but arguments, calls and printing; the sentences stand in `why`.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import local
from incumbent.cli import why as sentences
from incumbent.cli.cluster import connected, read_cluster
from incumbent.cli.exits import DONE, No, say
from incumbent.cli.explain import seat_rows
from incumbent.cli.options import AsOutput, Data, Hosts, Output, Root
from incumbent.settings import resolve

__all__ = ["why"]


def why(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A component, or a seat of it: web/1 (default: all but what runs)."
        ),
    ] = None,
    zookeeper: Hosts = None,
    root: Root = None,
    data: Data = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """Why it is so: cause, evidence, what is awaited, next.

    Without NAME: of everything that does not simply run. Exit code 1 if NAME is none of the
    components.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root, "data": data})
    tree = Tree(settings.root)

    async def work() -> int:
        async with connected(settings) as client:
            cluster = await read_cluster(client, tree)
        rows = seat_rows(cluster, local.ask_all(settings.agent_folders), now=time.time())
        if name is None:
            rows = [row for row in rows if row.case not in sentences.RUNS]
        else:
            rows = [row for row in rows if name in (row.component, f"{row.component}/{row.seat}")]
            if not rows:
                raise No(f"there is no component {name}; `incumbent status` lists all")
        told = [sentences.why(cluster, row, tree, time.time()) for row in rows]
        if output is Output.JSON:
            print(json.dumps([asdict(each) for each in told], indent=2, ensure_ascii=False))
        elif told:
            print("\n\n".join(map(str, told)))
        else:
            say("everything that there is runs; `incumbent why NAME` tells of one")
        return DONE

    raise typer.Exit(asyncio.run(work()))
