"""`incumbent queue …` and `incumbent barrier …`: scripts on several machines that wait for each other.

Rule of this file: what was taken is printed before the next one is taken; where nobody reads any
more it is put back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

import typer

from incumbent.aio import Zk
from incumbent.cli import znode
from incumbent.cli.exits import DONE, No, TimedOut, Usage, say, tell
from incumbent.cli.options import AsOutput, Hosts, Output, Root
from incumbent.cli.stdio import lines_of_stdin, read_data, write_out
from incumbent.cli.zk_session import Where, do_there, lets_go
from incumbent.client import State
from incumbent.errors import BarrierTimeout, BrokenBarrier, ItemUnknown
from incumbent.recipes.items import Item
from incumbent.recipes.round import MOST
from incumbent.settings import name_problem, resolve
from incumbent.wire import paths

__all__ = ["barrier_app", "queue_app"]

queue_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Items that each go to one taker: put, take."
)
barrier_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Wait for others: meet, or up, down, wait.",
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name, or its znode's path, from / on.")
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.0, metavar="S", help="Wait S seconds at most; 0: not at all."),
]


@queue_app.command()
def put(
    name: Name,
    data: Annotated[str, typer.Argument(metavar="DATA", help="The item; - for stdin's.")],
    priority: Annotated[
        int, typer.Option("--priority", min=0, max=999, metavar="N", help="0 goes first; 100.")
    ] = 100,
    lines: Annotated[
        bool, typer.Option("--lines", help="With DATA -: each line of stdin is an item.")
    ] = False,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Put an item, or each line of stdin, at the end of a queue."""
    if lines and data != "-":
        raise Usage("--lines reads items from stdin: give - for DATA")
    items = lines_of_stdin() if lines else _one(read_data(data))

    async def work(zk: Zk, path: str) -> int:
        queue, count = zk.queue(path), 0
        try:
            async for item in items:
                await queue.put(item, priority=priority)
                count += 1
        except BaseException:
            if lines:
                say(f"{_number(count)} put into {path} before that")
            raise
        tell(f"{_number(count)} put into {path}")
        return DONE

    _at("queues", name, zookeeper, root, work)


@queue_app.command()
def take(
    name: Name,
    timeout: Timeout = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Take N items; 1.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Take whatever comes, until Ctrl-C.")
    ] = False,
    zookeeper: Hosts = None,
    root: Root = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """Take the first item of a queue and print it; waits for one.

    Each is a line of its own. Exit code 4: none came within --timeout; 1: there is none, with --timeout 0.
    """
    if follow and count is not None:
        raise Usage("--follow takes whatever comes, and --count so many: give one of them")

    async def work(zk: Zk, path: str) -> int:
        left = None if follow else count or 1
        with lets_go():
            return await take_there(zk, path, left)

    async def take_there(zk: Zk, path: str, left: int | None) -> int:
        async with zk.queue(path).items() as items:
            items.looks_ahead = left is None or left > 1
            while left is None or left > 0:
                try:
                    item = await items.take(timeout)
                except ItemUnknown as error:
                    say(f"what it holds, if nobody else has taken it: {error.data!r}")
                    raise
                if item is None:
                    if timeout == 0:
                        raise No(f"{path}: there is no item")
                    raise _late(zk, f"{path}: no item came within {timeout:g} s")
                try:
                    _print(item, output)
                except OSError as error:
                    await zk.queue(path).put_back(item)
                    sys.stdout = None  # else it is written once more, at the end
                    if isinstance(error, BrokenPipeError):
                        raise
                    raise No(
                        f"{path} has its item back: stdout takes none ({error.strerror})"
                    ) from None
                left = None if left is None else left - 1
        return DONE

    _at("queues", name, zookeeper, root, work)


@barrier_app.command()
def meet(
    name: Name,
    count: Annotated[
        int, typer.Option("--count", min=1, max=MOST, metavar="N", help="How many are to come.")
    ],
    timeout: Timeout = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Wait until N have come, this one too; then all go on.

    Exit code 4: not all came within --timeout; 1: one of them was lost just then.
    """
    if timeout == 0:
        raise Usage("--timeout 0 leaves the others no time to come: give more, or leave it out")

    async def work(zk: Zk, path: str) -> int:
        barrier = zk.double_barrier(path, count, timeout=timeout)
        try:
            with lets_go():
                async with barrier:
                    pass
        except BrokenBarrier as error:
            raise No(str(error)) from None
        except BarrierTimeout as error:
            raise _late(zk, str(error)) from None
        return DONE

    _at("barriers", name, zookeeper, root, work)


@barrier_app.command()
def up(name: Name, zookeeper: Hosts = None, root: Root = None) -> None:
    """Put a barrier up: whoever waits at it waits until it is down.

    It stays without us.
    """

    async def work(zk: Zk, path: str) -> int:
        if await zk.barrier(path).create():
            tell(f"{path} is up: `incumbent barrier down {name}` lets those go on who wait at it")
        else:
            say(f"{path} was up already")
        return DONE

    _at("barriers", name, zookeeper, root, work)


@barrier_app.command()
def down(name: Name, zookeeper: Hosts = None, root: Root = None) -> None:
    """Take a barrier down: all who wait at it go on."""

    async def work(zk: Zk, path: str) -> int:
        if await zk.barrier(path).remove():
            tell(f"{path} is down: those who waited at it go on")
        else:
            say(f"{path} was down already")
        return DONE

    _at("barriers", name, zookeeper, root, work)


@barrier_app.command()
def wait(name: Name, timeout: Timeout = None, zookeeper: Hosts = None, root: Root = None) -> None:
    """Wait until a barrier is down.

    Exit code 4: it is still up, after --timeout.
    """

    async def work(zk: Zk, path: str) -> int:
        if not await zk.barrier(path).wait(timeout):
            raise _late(zk, f"{path} is up; `incumbent barrier down {name}` takes it down")
        return DONE

    _at("barriers", name, zookeeper, root, work)


def _at(
    kind: str,
    name: str,
    zookeeper: str | None,
    root: str | None,
    work: Callable[[Zk, str], Awaitable[int]],
) -> None:
    """Do `work` at the znode that is called `name`."""
    settings = resolve({"zookeeper": zookeeper, "root": root})
    where = Where(
        hosts=settings.hosts(),
        root=settings.root,
        tick=settings.tick,
        credentials=settings.credentials(),
    )
    wrong = paths.problem(name) if name.startswith("/") else name_problem(name)
    if wrong:
        raise Usage(f"{name!r} is no name here: {wrong}; or a znode's path, such as /{kind}/x")
    path = name if name.startswith("/") else f"{where.root}/{kind}/{name}"
    if _is_others(path, where.root, kind):
        raise Usage(f"{path} holds what others need: take a NAME, or a path elsewhere")
    do_there(where, path, lambda zk: work(zk, path))


def _is_others(path: str, root: str, kind: str) -> bool:
    """ZooKeeper's own, or what Incumbent keeps under `root` besides queues and barriers."""
    below = f"{path}/"
    if path == "/" or below.startswith("/zookeeper/"):
        return True
    return root != "" and below.startswith(f"{root}/") and not path.startswith(f"{root}/{kind}/")


def _late(zk: Zk, sentence: str) -> TimedOut:
    """That what was waited for did not come, as far as we know."""
    if zk.state is not State.CONNECTED:
        sentence = f"ZooKeeper is not reached; before that: {sentence}"
    return TimedOut(sentence)


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _number(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _print(item: Item, output: Output) -> None:
    """Through to whoever reads, before this returns."""
    if output is Output.JSON:
        shown = {"name": item.name, **znode.as_data(item.data), "priority": item.priority}
        line = json.dumps(shown, ensure_ascii=False).encode()
    else:
        line = item.data.removesuffix(b"\n")
    write_out(line + b"\n")
