"""`incumbent pause` and `resume`, with which nodes have heard.

Rule of this file: nothing but arguments, calls and printing, as in `commands`.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from incumbent.agent.tree import Control, Tree
from incumbent.cli import orders
from incumbent.cli.cluster import Cluster, all_breadcrumbs, connected, read_cluster
from incumbent.cli.exits import DONE, TimedOut, say
from incumbent.cli.explain import title
from incumbent.cli.options import Hosts, Root
from incumbent.cli.pause import set_paused, until_heard
from incumbent.client import Client
from incumbent.settings import resolve

__all__ = ["pause", "paused_since", "resume"]

Patience = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the nodes' word."),
]


def pause(timeout: Patience = 30.0, zookeeper: Hosts = None, root: Root = None) -> None:
    """Let ZooKeeper be away for a while: what runs goes on.

    Nothing starts, moves or fails over until `resume`, on any node. Returns when every live node has
    heard: then ZooKeeper may be stopped. A node that is out of touch has not heard, and stops its
    programs at their deadlines, as ever.
    """

    async def work(client: Client, tree: Tree) -> str:
        before, zxid = await orders.again(lambda: _set(client, tree, True))
        if before.paused:
            say(f"{paused_since(before)} already")
        heard = await _heard(client, tree, zxid, timeout, "what runs there may stop meanwhile")
        who = _who(heard, "has heard", "have heard")
        return f"paused: {who}; ZooKeeper may be stopped now, and `incumbent resume` ends it"

    _run(work, zookeeper, root)


def resume(timeout: Patience = 30.0, zookeeper: Hosts = None, root: Root = None) -> None:
    """End `pause`: components start, move and fail over again.

    Returns when every live node goes by its lease again. A node that does not answer keeps what it
    ran, and nobody starts that elsewhere, until it does or is confirmed dead.
    """

    async def work(client: Client, tree: Tree) -> str:
        before, _zxid = await orders.again(lambda: _set(client, tree, False))
        heard = await _heard(client, tree, 0, timeout, "nothing of theirs is started elsewhere")
        for line in _unanswered(await read_cluster(client, tree)):
            say(line)
        what = "resumed" if before.paused else "it was not paused"
        return f"{what}: {_who(heard, 'goes by its lease', 'go by their leases')}"

    _run(work, zookeeper, root)


def _who(nodes: list[str], does: str, do: str) -> str:
    """A clause: which nodes do it."""
    if not nodes:
        return "there is no node"
    return f"{', '.join(nodes)} {does if len(nodes) == 1 else do}"


def paused_since(control: Control) -> str:
    """One sentence."""
    who = f" by {control.by}" if control.by else ""
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(control.since))
    since = f" since {at} UTC" if control.since else ""
    return f"the cluster is paused{who}{since}: nothing starts until `incumbent resume`"


def _unanswered(cluster: Cluster) -> list[str]:
    """What nodes that are gone ran when they were last heard of."""
    return [
        f"{crumb.node} has not answered: {title(cluster, seat)} may run on there; if that machine is "
        f"dead, `incumbent node confirm-dead {crumb.node}`"
        for seat, crumb in all_breadcrumbs(cluster)
        if crumb.control != cluster.control_zxid and crumb.session not in cluster.sessions
    ]


async def _set(client: Client, tree: Tree, paused: bool) -> tuple[Control, int]:
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    return await set_paused(client, tree, paused=paused, by=by, now=time.time())


async def _heard(
    client: Client, tree: Tree, zxid: int, timeout: float, meanwhile: str
) -> list[str]:
    late: list[str] = []

    def missing(nodes: list[str]) -> None:
        late[:] = nodes

    try:
        async with asyncio.timeout(timeout):
            return await until_heard(client, tree, zxid, missing)
    except TimeoutError:
        raise TimedOut(
            f"{', '.join(late)} did not answer within {timeout:g} s: {meanwhile}; it is ordered, "
            "and the same command again tells whether all have heard"
        ) from None


def _run(
    work: Callable[[Client, Tree], Awaitable[str]], zookeeper: str | None, root: str | None
) -> None:
    settings = resolve({"zookeeper": zookeeper, "root": root})

    async def main() -> int:
        async with connected(settings) as client:
            await orders.make_skeleton(client, Tree(settings.root))
            print(await work(client, Tree(settings.root)))
        return DONE

    raise typer.Exit(asyncio.run(main()))
