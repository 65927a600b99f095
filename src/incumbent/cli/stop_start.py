"""`incumbent stop`, `start`, `restart` and `signal`: for one component or many.

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

from incumbent.agent.commands import signal_number
from incumbent.agent.tree import Command, Tree
from incumbent.cli import lifecycle, orders
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, No, TimedOut, Usage, say
from incumbent.cli.options import Hosts, Root
from incumbent.client import Client
from incumbent.errors import IncumbentError
from incumbent.settings import resolve

__all__ = ["restart", "signal", "start", "stop"]

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
    _order(Command(do="restart", by=_me()), names, wait, timeout, zookeeper, root)


def signal(
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="HUP, USR1, …")],
    names: Names,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Send a signal to the main process of components.

    --wait tells whether something ran to be sent it; what a program makes of it, nobody knows.
    """
    if signal_number(name) is None:
        raise Usage(f"there is no signal {name}; `kill -l` lists them")
    command = Command(do="signal", signal=name, by=_me())
    _order(command, names, wait, timeout, zookeeper, root)


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _order(
    command: Command,
    names: Sequence[str],
    wait: bool,
    timeout: float,
    zookeeper: str | None,
    root: str | None,
) -> None:
    order_id = f"{time.time_ns()}-{os.getpid()}"
    what = f"{command.do} {command.signal}".strip()

    async def work(client: Client, tree: Tree, name: str) -> str:
        path = await lifecycle.order(client, tree, name, command, order_id=order_id)
        if not wait:
            return f"is ordered to {what} ({path})"
        outcomes = await lifecycle.until_outcome(client, tree, name, path)
        if any(not each.startswith("done") for each in outcomes.values()):
            raise No(f"{name}: {'; '.join(f'{seat}: {said}' for seat, said in outcomes.items())}")
        epochs = ", ".join(each.removeprefix("done: ") for each in outcomes.values())
        return f"{what} done: {epochs}"

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
                            f"{name}: not done after {timeout:g} s; what was ordered stays ordered, "
                            f"and `incumbent status {name}` says what it waits for"
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
