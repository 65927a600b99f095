"""Orders to components that are there (`restart`, `signal`), and waiting for what was ordered.

An order is carried out once, by who leads then, without giving the seat up.

Rule of this file: what is ordered stays ordered; waiting for it only looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from incumbent.agent.commands import is_done, meant, read_command
from incumbent.agent.tree import (
    Command,
    Observed,
    SeatRecord,
    Tree,
    altered,
    read,
    seat_name,
    write,
)
from incumbent.agent.view import patient
from incumbent.cli.exits import No
from incumbent.cli.selection import Choice
from incumbent.client import Client
from incumbent.errors import NodeExists, NoNode
from incumbent.spec import Spec, decode
from incumbent.wire import WatchEvent

__all__ = ["order", "until_outcome", "until_running"]


async def order(
    client: Client, tree: Tree, choice: Choice, command: Command, *, order_id: str
) -> str:
    """Order it once; the path of the order."""
    path = f"{tree.commands(choice.component)}/{order_id}"
    command = altered(command, only=[str(number) for number in choice.only])
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
            said = command.seats
            return {f"{component}/{k}": said[k].outcome for k in meant(command, copies)}
        await changed.wait()


async def until_running(
    client: Client, tree: Tree, component: str, only: Sequence[int] = (), *, node: str = ""
) -> None:
    """Until every seat (`only` these) says that its newest instance runs, and is ready if it can
    tell; on `node` if one is named."""
    spec = await _spec(client, tree, component)
    wanted = "running" if spec.ready is None else "ready"
    for number in only or range(spec.copies):
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
            if (
                observed is not None
                and (observed.state, observed.epoch) == (wanted, epoch)
                and node in ("", observed.node)
            ):
                client.unwatch(path, watcher)
                break
            await changed.wait()


async def _copies(client: Client, tree: Tree, component: str) -> int:
    return (await _spec(client, tree, component)).copies


async def _spec(client: Client, tree: Tree, component: str) -> Spec:
    path = tree.component(component)
    data, _stat = await client.get(path)
    return decode(data, path)
