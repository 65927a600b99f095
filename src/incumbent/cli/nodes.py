"""`incumbent node list` and `confirm-dead`: the machines.

Rule of this file: nothing but arguments, calls and printing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import orders, show
from incumbent.cli.cluster import connected, read_cluster
from incumbent.cli.exits import DONE, No, Usage, say
from incumbent.cli.explain import node_rows, title
from incumbent.cli.options import AsOutput, Hosts, Output, Root
from incumbent.cli.screen import print_table
from incumbent.settings import resolve

__all__ = ["node_app"]

node_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The machines: list, confirm-dead."
)


@node_app.command("list")
def node_list(zookeeper: Hosts = None, root: Root = None, output: AsOutput = Output.TABLE) -> None:
    """The live nodes, and dead ones that may still run something."""
    settings = resolve({"zookeeper": zookeeper, "root": root})

    async def work() -> int:
        async with connected(settings) as client:
            rows = node_rows(await read_cluster(client, Tree(settings.root)), time.time())
        if output is Output.JSON:
            print(show.to_json(rows))
        elif rows:
            now = time.time()
            print_table(show.NODE_HEADS, [show.node_cells(row, now) for row in rows])
        else:
            say("there is no node; start one with `incumbent agent`")
        return DONE

    raise typer.Exit(asyncio.run(work()))


@node_app.command("confirm-dead")
def node_confirm_dead(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node that is gone.")],
    yes: Annotated[
        str | None, typer.Option("--yes", metavar="NODE", help="The name again, to not be asked.")
    ] = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Say that a machine is dead for certain: others take over.

    Only where its programs were `contained` or `swept` this is needed. If the machine still runs them, two
    instances will run: switch it off first. Refused while the node's session is alive.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root})

    async def work() -> int:
        tree = Tree(settings.root)
        async with connected(settings) as client:
            cluster = await read_cluster(client, tree)
            crumbs = orders.breadcrumbs_of(cluster, node)
        for seat, crumb in crumbs:
            where = f"epoch {crumb.epoch}, {crumb.containment}"
            say(f"{title(cluster, seat)} ({where}) may still run on {node}")
        _certain(node, yes)
        async with connected(settings) as client:
            freed = await orders.confirm_dead(client, tree, await read_cluster(client, tree), node)
        for seat, crumb in freed:
            print(f"freed {title(cluster, seat)} (epoch {crumb.epoch})")
        return DONE

    raise typer.Exit(asyncio.run(work()))


def _certain(node: str, yes: str | None) -> None:
    """The operator says the name again. Raises `No`."""
    if yes is None:
        if not sys.stdin.isatty():
            raise Usage(f"there is nobody to ask; if {node} is dead, say so: --yes {node}")
        say(f"type {node} again if that machine is switched off or its programs are ended:")
        yes = sys.stdin.readline().strip()
    if yes != node:
        raise No(f"{yes or 'nothing'} is not {node}: nothing was changed")
