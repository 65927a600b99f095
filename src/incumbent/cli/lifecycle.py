"""`stop`, `start`, `restart`, `signal`: what operators want of components that are there.

Stop and start are what is wanted from now on: a word in the tree, obeyed by whoever leads.
The others are orders, carried out once by who leads then, without giving the seat up.

Rule of this file: what is ordered stays ordered; waiting for it only looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from incumbent.agent.commands import is_done, read_command
from incumbent.agent.tree import (
    Command,
    Desired,
    Observed,
    SeatRecord,
    Tree,
    read,
    seat_name,
    write,
)
from incumbent.agent.view import patient
from incumbent.cli.exits import No
from incumbent.cli.orders import components
from incumbent.client import Client
from incumbent.errors import NodeExists, NoNode
from incumbent.spec import decode
from incumbent.wire import WatchEvent

__all__ = ["matching", "order", "until_outcome", "until_running", "want"]


async def matching(client: Client, tree: Tree, patterns: Sequence[str]) -> list[str]:
    """The components that these names and globs (`web*`) mean. Raises `No` for one without any."""
    known = await components(client, tree)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            raise No(f"there is no component {pattern}; there are: {', '.join(known) or 'none'}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


async def want(client: Client, tree: Tree, component: str, *, run: bool) -> bool:
    """Write down whether it is to run. False: that was wanted already."""
    path = tree.desired(component)
    data, stat = await client.get(path)
    if read(Desired, data, path).run == run:
        return False
    await client.set(path, write(Desired(run=run)), stat.version)
    return True


async def order(
    client: Client, tree: Tree, component: str, command: Command, *, order_id: str
) -> str:
    """Order it once; the path of the order."""
    path = f"{tree.commands(component)}/{order_id}"
    with suppress(NodeExists):  # an earlier try of ours, whose answer was lost
        await client.create(path, write(command), parents=True)
    return path


async def until_outcome(client: Client, tree: Tree, component: str, path: str) -> dict[str, str]:
    """What came of an order, by seat; when all of them have said so. Raises `No` if it is gone."""
    copies = await _copies(client, tree, component)
    while True:
        changed = asyncio.Event()

        def watcher(_event: WatchEvent, changed: asyncio.Event = changed) -> None:
            changed.set()

        try:
            data, _stat = await patient(lambda w=watcher: client.get(path, watcher=w))  # type: ignore[misc]
        except NoNode:
            raise No(
                f"{path} was deleted before every seat had answered it: what came of it is not "
                f"known; `incumbent status {component}` shows what runs"
            ) from None
        command = read_command(data, path)
        if is_done(command, copies):
            client.unwatch(path, watcher)
            names = [seat_name(component, k) for k in range(copies)]
            return {name: command.seats[name.rpartition("/")[2]].outcome for name in names}
        await changed.wait()


async def until_running(client: Client, tree: Tree, component: str) -> None:
    """Until every seat says that its newest instance runs."""
    for number in range(await _copies(client, tree, component)):
        seat = seat_name(component, number)
        path = tree.observed(seat)
        while True:
            changed = asyncio.Event()

            def watcher(_event: WatchEvent, changed: asyncio.Event = changed) -> None:
                changed.set()

            data, _stat = await patient(lambda p=path, w=watcher: client.get(p, watcher=w))  # type: ignore[misc]
            record, _stat = await client.get(tree.seat(seat))
            observed = read(Observed, data, path) if data else None
            epoch = read(SeatRecord, record, tree.seat(seat)).epoch
            if observed is not None and (observed.state, observed.epoch) == ("running", epoch):
                client.unwatch(path, watcher)
                break
            await changed.wait()


async def _copies(client: Client, tree: Tree, component: str) -> int:
    path = tree.component(component)
    data, _stat = await client.get(path)
    return decode(data, path).copies
