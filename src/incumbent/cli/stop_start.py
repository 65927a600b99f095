"""`incumbent stop`, `start` and `restart`: for one component or many.

Rule of this file: nothing but arguments, calls and printing, as in `commands`.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import lifecycle, orders
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, No, TimedOut, say
from incumbent.cli.options import Hosts, Root
from incumbent.client import Client
from incumbent.errors import IncumbentError
from incumbent.settings import resolve

__all__ = ["restart", "start", "stop"]

Names = Annotated[
    list[str], typer.Argument(metavar="NAME…", help="Components, by name or glob ('web*').")
]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done.")]
WaitTimeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait at most.")
]


def stop(
    names: Names,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Stop components, wherever they run, until `start`. Their nodes keep their seats."""

    async def work(client: Client, tree: Tree, name: str) -> str:
        was_new = await lifecycle.want(client, tree, name, run=False)
        if wait:
            await orders.until_ended(client, tree, name, say)
            return "is stopped"
        return "is ordered to stop" if was_new else "was ordered to stop before"

    _each(names, work, zookeeper, root, timeout)


def start(
    names: Names,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Have components run that were stopped."""

    async def work(client: Client, tree: Tree, name: str) -> str:
        was_new = await lifecycle.want(client, tree, name, run=True)
        if wait:
            await lifecycle.until_running(client, tree, name)
            return "runs"
        return "is ordered to run" if was_new else "was not stopped"

    _each(names, work, zookeeper, root, timeout)


def restart(
    names: Names,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Restart components where they run, without giving their seats up.

    An order that nobody can carry out (it is stopped; the cluster is paused) is refused, which
    --wait tells. Orders stay in the tree, with what came of them: the newest 20 of a component.
    """
    order_id = f"{time.time_ns()}-{os.getpid()}"
    by = f"{getpass.getuser()}@{socket.gethostname()}"

    async def work(client: Client, tree: Tree, name: str) -> str:
        path = await lifecycle.order_restart(client, tree, name, order_id=order_id, by=by)
        if not wait:
            return f"is ordered to restart ({path})"
        outcomes = await lifecycle.until_outcome(client, tree, name, path)
        bad = [each for each in outcomes.values() if not each.startswith("done")]
        if bad:
            raise No(f"{name}: {'; '.join(f'{k}: {v}' for k, v in outcomes.items())}")
        return (
            f"is restarted: {', '.join(each.removeprefix('done: ') for each in outcomes.values())}"
        )

    _each(names, work, zookeeper, root, timeout)


def _each(
    names: Sequence[str],
    work: Callable[[Client, Tree, str], Awaitable[str]],
    zookeeper: str | None,
    root: str | None,
    timeout: float,
) -> None:
    """Do it for each of the components meant, at once, and print what was done."""
    settings = resolve({"zookeeper": zookeeper, "root": root})
    tree = Tree(settings.root)

    async def main() -> int:
        async with connected(settings) as client:
            chosen = await lifecycle.matching(client, tree, names)
            tasks = {
                name: asyncio.ensure_future(orders.again(partial(work, client, tree, name)))
                for name in chosen
            }
            await asyncio.wait(tasks.values(), timeout=timeout)
            problems: list[IncumbentError] = []
            for name, task in tasks.items():
                if not task.done():
                    task.cancel()
                    problems.append(
                        TimedOut(
                            f"{name}: ordered, but not done after {timeout:g} s; "
                            f"`incumbent status {name}` says what it waits for"
                        )
                    )
                elif isinstance(error := task.exception(), IncumbentError):
                    problems.append(error)
                else:
                    print(f"{name} {task.result()}")
        for problem in problems[:-1]:
            say(str(problem))
        if problems:
            raise problems[-1]
        return DONE

    raise typer.Exit(asyncio.run(main()))
