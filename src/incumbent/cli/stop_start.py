"""`stop`, `start`, `restart`, `signal`, `move`, `freeze`, `unfreeze`, `retry`: for one component or many.

Rule of this file: nothing but arguments, calls and printing, as in `commands`.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from incumbent.agent.commands import signal_number
from incumbent.agent.history import change_failures
from incumbent.agent.tree import Command, Desired, Failures, Tree
from incumbent.cli import lifecycle, moving, orders, wishes
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, No, TimedOut, Usage, say
from incumbent.cli.options import Hosts, Root
from incumbent.cli.selection import Choice, select
from incumbent.client import Client
from incumbent.errors import IncumbentError
from incumbent.settings import resolve

__all__ = ["freeze", "me", "move", "restart", "retry", "signal", "start", "stop", "unfreeze"]

Work = Callable[[Client, Tree, Choice], Awaitable[str]]

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="Components, by name or glob ('web*'); '*' is all."),
]
SeatNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="Components ('web*'), or seats of them (web/1)."),
]
Node = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Only what this node has, or those with KEY=VALUE."
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Only components with this label."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done.")]
WaitTimeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="How long to wait at most, for each."),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--max-parallel",
        metavar="N",
        min=1,
        help="Wait, and have N copies under way at a time; stop at the first that fails.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Called:
    """What every one of these commands was called with."""

    names: list[str] | None
    node: str | None
    labels: list[str] | None
    timeout: float
    zookeeper: str | None
    root: str | None
    parallel: int | None = None


def stop(
    names: Names = None,
    node: Node = None,
    label: Labels = None,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Stop components until `start`, wherever they run.

    Their nodes keep their seats.
    """

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        before = await _want(client, tree, choice, run=False)
        if wait:
            await orders.until_ended(client, tree, choice.component, say)
            return "is stopped"
        return "is ordered to stop" if before.run else "was ordered to stop before"

    _each(_called(names, node, label, timeout, zookeeper, root), work)


def start(
    names: Names = None,
    node: Node = None,
    label: Labels = None,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Have components run that were stopped."""

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        before = await _want(client, tree, choice, run=True)
        name = choice.component
        if before.frozen_by:
            hint = f"`incumbent unfreeze {name}` lets it"
            return f"is ordered to run, but is frozen by {before.frozen_by}: {hint}"
        if wait:
            await lifecycle.until_running(client, tree, name)
            return "runs"
        return "is ordered to run" if not before.run else "was not stopped"

    _each(_called(names, node, label, timeout, zookeeper, root), work)


def restart(
    names: SeatNames = None,
    node: Node = None,
    label: Labels = None,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    max_parallel: Parallel = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Restart components where they run; no seat is given up.

    An order that nobody can carry out (it is stopped or frozen; the cluster is paused) is refused,
    which --wait tells. Orders stay in the tree, with what came of them: the newest 20 of a
    component.
    """
    called = _called(names, node, label, timeout, zookeeper, root, max_parallel)
    _order(Command(do="restart", by=me()), called, wait or max_parallel is not None)


def signal(
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="HUP, USR1, …")],
    names: SeatNames = None,
    node: Node = None,
    label: Labels = None,
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
    command = Command(do="signal", signal=name, by=me())
    _order(command, _called(names, node, label, timeout, zookeeper, root), wait)


def move(
    names: SeatNames = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NODE", help="Where to; else the node with least to do."),
    ] = None,
    node: Node = None,
    label: Labels = None,
    wait: Wait = False,
    timeout: WaitTimeout = 60.0,
    max_parallel: Parallel = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Move components to another node.

    In order: stopped, proven dead, started there.

    They stay there as long as that node lives and may run them; no other one moves for it. Without
    --wait, nothing tells whether NODE has what they require.
    """

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        async with _moving:  # one plan at a time: each counts what the one before has moved
            planned = await orders.again(lambda: moving.move(client, tree, [choice], to))
        if not (wait or max_parallel is not None):
            return f"is to move: {_places(planned)}"
        desired = await wishes.desired(client, tree, choice.component)
        if not desired.run:
            return f"is stopped; it will start there: {_places(planned)}"
        for seat, target in planned.items():
            number = int(seat.rpartition("/")[2])
            await lifecycle.until_running(client, tree, choice.component, [number], node=target)
        return f"runs: {_places(planned)}"

    _moving = asyncio.Lock()
    _each(_called(names, node, label, timeout, zookeeper, root, max_parallel), work)


def freeze(
    names: Names = None,
    node: Node = None,
    label: Labels = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Leave components as they are: nothing starts or moves.

    Nothing of them is started, restarted or moved.

    What runs goes on, also if its file is applied with changes; what ends stays down. `stop` still
    stops it, and a node that is stopped or dies takes its own down. What is amid a restart or a move
    is stopped, and not started; this says so.
    """
    by = me()

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        before = await _want(client, tree, choice, frozen_by=by)
        if before.frozen_by:
            return f"was frozen before, by {before.frozen_by}"
        down = await orders.not_up(client, tree, choice.component) if before.run else []
        if not down:
            return "is frozen"
        ends = f"`incumbent unfreeze {choice.component}` starts what is down"
        return f"is frozen while it does not run ({', '.join(down)}): {ends}"

    _each(_called(names, node, label, 60.0, zookeeper, root), work)


def unfreeze(
    names: Names = None,
    node: Node = None,
    label: Labels = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """End `freeze`: what is down or out of date is put right."""

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        before = await _want(client, tree, choice, frozen_by="")
        return "is no longer frozen" if before.frozen_by else "was not frozen"

    _each(_called(names, node, label, 60.0, zookeeper, root), work)


def retry(
    names: Names = None,
    node: Node = None,
    label: Labels = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Forget the failures of components, and try them again.

    What waits after a failure starts now; a node that did without one may have it again; a roll-out
    that was stopped or taken back is tried again. A component that an operator stopped stays stopped.
    """

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        before = Failures()

        def forget(history: Failures) -> Failures:
            nonlocal before
            before = history
            return Failures() if history.failures or history.restraints else history

        await change_failures(client, tree, choice.component, forget)
        again = await orders.again(lambda: wishes.roll_on(client, tree, choice.component))
        count = len(before.failures)
        if not count:
            return f"is tried again: {again}" if again else "has no failures to forget"
        was = "; ".join(each.why for each in before.restraints)
        forgotten = "1 failure is forgotten" if count == 1 else f"{count} failures are forgotten"
        more = f"; {again}" if again else ""
        return f"is tried again: {forgotten}{f' ({was})' if was else ''}{more}"

    _each(_called(names, node, label, 60.0, zookeeper, root), work)


def me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _places(planned: dict[str, str]) -> str:
    if len(planned) == 1:
        return f"on {next(iter(planned.values()))}"
    return ", ".join(f"{seat} on {node}" for seat, node in planned.items())


def _called(
    names: list[str] | None,
    node: str | None,
    labels: list[str] | None,
    timeout: float,
    zookeeper: str | None,
    root: str | None,
    parallel: int | None = None,
) -> _Called:
    return _Called(
        names=names,
        node=node,
        labels=labels,
        timeout=timeout,
        zookeeper=zookeeper,
        root=root,
        parallel=parallel,
    )


async def _want(
    client: Client,
    tree: Tree,
    choice: Choice,
    *,
    run: bool | None = None,
    frozen_by: str | None = None,
) -> Desired:
    """Of a whole component; raises `No` where only some of its seats are meant."""
    name = choice.component
    if choice.only:
        raise No(
            f"{choice.title} is only a part of {name}, and this is about all of it: say {name}"
        )
    now = time.time()
    before = await wishes.want(client, tree, name, run=run, frozen_by=frozen_by, now=now)
    if before is None:
        raise No(f"{name} was removed meanwhile")
    return before


def _order(command: Command, called: _Called, wait: bool) -> None:
    order_id = f"{time.time_ns()}-{os.getpid()}"
    what = f"{command.do} {command.signal}".strip()

    async def work(client: Client, tree: Tree, choice: Choice) -> str:
        which = "".join(f"-{number}" for number in choice.only)[:40]
        path = await lifecycle.order(client, tree, choice, command, order_id=order_id + which)
        if not wait:
            return f"is ordered to {what} ({path})"
        outcomes = await lifecycle.until_outcome(client, tree, choice.component, path)
        if any(not each.startswith("done") for each in outcomes.values()):
            told = "; ".join(f"{seat}: {said}" for seat, said in outcomes.items())
            raise No(f"{choice.component}: {told}")
        epochs = ", ".join(each.removeprefix("done: ") for each in outcomes.values())
        return f"{what} done: {epochs}"

    _each(called, work)


def _each(called: _Called, work: Work) -> None:
    """Do it for each of the components meant and print what was done: all at once, or
    `parallel` of their copies at a time, and no more after one has failed.
    """
    settings = resolve({"zookeeper": called.zookeeper, "root": called.root})
    tree = Tree(settings.root)

    async def main() -> int:
        async with connected(settings) as client:
            choices = await select(
                client, tree, called.names or [], node=called.node, labels=called.labels or []
            )
            if called.parallel is not None:
                choices = [one for choice in choices for one in choice.singly()]
            problems, left = await _carry_out(client, tree, choices, called, work)
        for problem in problems[:-1]:
            say(str(problem))
        if left:
            say(f"not begun: {', '.join(each.title for each in left)}")
        if problems:
            raise problems[-1]
        return DONE

    raise typer.Exit(asyncio.run(main()))


async def _carry_out(
    client: Client, tree: Tree, choices: list[Choice], called: _Called, work: Work
) -> tuple[list[IncumbentError], list[Choice]]:
    """The problems that there were, and what was not begun for them."""
    waiting = list(choices)
    problems: list[IncumbentError] = []
    said: dict[str, str] = {}  # printed in the order of the choices, if they go all at once

    async def one(choice: Choice) -> None:
        try:
            async with asyncio.timeout(called.timeout):
                said[choice.title] = await orders.again(partial(work, client, tree, choice))
        except TimeoutError:
            problems.append(
                TimedOut(
                    f"{choice.title}: not done after {called.timeout:g} s; what was ordered stays "
                    f"ordered, and `incumbent status {choice.component}` says what it waits for"
                )
            )
        except IncumbentError as error:
            problems.append(error)
        else:
            if called.parallel is not None:
                print(choice.title, said.pop(choice.title), flush=True)

    async def worker() -> None:
        while waiting and not (problems and called.parallel is not None):
            await one(waiting.pop(0))

    count = called.parallel or max(1, len(choices))
    await asyncio.gather(*(worker() for _ in range(count)))
    for choice in choices:
        if choice.title in said:
            print(choice.title, said[choice.title])
    return problems, waiting
