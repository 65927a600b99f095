"""What the tree says, read at once: components, seats, nodes.

Rule of this file: it reads and decides nothing. Sessions are listed after the breadcrumbs were
read, on one session of ours, so that a session which is missing then has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from incumbent.agent.tree import (
    Breadcrumb,
    Control,
    Desired,
    NodeFacts,
    Observed,
    Plan,
    SeatRecord,
    Tree,
    read,
    seat_name,
)
from incumbent.client import Client
from incumbent.errors import NoNode, SpecError
from incumbent.settings import Settings
from incumbent.spec import Spec, decode

__all__ = ["Cluster", "ComponentState", "SeatState", "all_breadcrumbs", "connected", "read_cluster"]

CONNECT_TIME = 5.0
"""Seconds that a command tries to connect."""
SESSION = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatState:
    """One seat. `contenders`: names in its election, first in line first."""

    number: int
    record: SeatRecord = field(default_factory=SeatRecord)
    breadcrumbs: tuple[Breadcrumb, ...] = ()
    """Oldest first."""
    contenders: tuple[str, ...] = ()
    observed: Observed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    """One component. `spec` is None where it cannot be read (`problem`), or was removed ("")."""

    name: str
    spec: Spec | None
    problem: str = ""
    desired: Desired = field(default_factory=Desired)
    seats: tuple[SeatState, ...] = ()

    @property
    def is_removed(self) -> bool:
        return self.spec is None and not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything below one root, as read at one time."""

    control: Control
    plan: Plan
    nodes: Mapping[str, NodeFacts]
    components: tuple[ComponentState, ...]
    sessions: frozenset[str]
    """Keys of the agents' sessions that are alive."""

    @property
    def session_nodes(self) -> dict[str, str]:
        return {facts.session: node for node, facts in self.nodes.items()}


@asynccontextmanager
async def connected(
    settings: Settings, *, timeout: float = CONNECT_TIME, session_timeout: float = SESSION
) -> AsyncIterator[Client]:
    """A session for one command. Raises `ConnectTimeout`, `SettingMissing`."""
    client = Client(
        settings.hosts(),
        session_timeout=session_timeout,
        request_timeout=max(timeout, 1.0),
        tick=settings.tick,
        rng=random.SystemRandom(),
        log=lambda _line: None,
    )
    await client.connect(timeout)
    try:
        yield client
    finally:
        await client.close()


async def read_cluster(client: Client, tree: Tree) -> Cluster:
    """Read it all. A root that was never used is an empty cluster. Raises `UnreadableZnode`."""
    await client.sync("/")
    control, plan, nodes, names = await asyncio.gather(
        _data(client, tree.control),
        _data(client, tree.plan),
        _nodes(client, tree),
        _children(client, tree.components),
    )
    components = await asyncio.gather(*(_component(client, tree, name) for name in names))
    sessions = frozenset(await _children(client, tree.sessions))
    return Cluster(
        control=read(Control, control, tree.control) if control else Control(),
        plan=read(Plan, plan, tree.plan) if plan else Plan(),
        nodes=nodes,
        components=tuple(components),
        sessions=sessions,
    )


def all_breadcrumbs(cluster: Cluster) -> Iterable[tuple[str, Breadcrumb]]:
    """(seat, breadcrumb) of every instance that may be running."""
    for component in cluster.components:
        for seat in component.seats:
            for crumb in seat.breadcrumbs:
                yield seat_name(component.name, seat.number), crumb


async def _nodes(client: Client, tree: Tree) -> dict[str, NodeFacts]:
    paths = [tree.node(name) for name in await _children(client, tree.nodes)]
    found = await asyncio.gather(*(_data(client, path) for path in paths))
    facts = [read(NodeFacts, data, path) for path, data in zip(paths, found, strict=True) if data]
    return {each.node: each for each in facts}


async def _component(client: Client, tree: Tree, name: str) -> ComponentState:
    path = tree.component(name)
    data, desired, numbers = await asyncio.gather(
        _data(client, path), _data(client, tree.desired(name)), _children(client, tree.seats(name))
    )
    spec, problem = None, ""
    if data:
        try:
            spec = decode(data, path)
        except SpecError as error:
            problem = str(error)
    seats = await asyncio.gather(
        *(_seat(client, tree, name, number) for number in sorted(map(int, numbers)))
    )
    return ComponentState(
        name=name,
        spec=spec,
        problem=problem,
        desired=read(Desired, desired, tree.desired(name)) if desired else Desired(),
        seats=tuple(seats),
    )


async def _seat(client: Client, tree: Tree, component: str, number: int) -> SeatState:
    seat = seat_name(component, number)
    record, epochs, names, observed = await asyncio.gather(
        _data(client, tree.seat(seat)),
        _children(client, tree.running(seat)),
        _children(client, tree.election(seat)),
        _data(client, tree.observed(seat)),
    )
    paths = [tree.breadcrumb(seat, epoch) for epoch in sorted(map(int, epochs))]
    crumbs = await asyncio.gather(*(_data(client, path) for path in paths))
    return SeatState(
        number=number,
        record=read(SeatRecord, record, tree.seat(seat)) if record else SeatRecord(),
        breadcrumbs=tuple(
            read(Breadcrumb, data, path) for path, data in zip(paths, crumbs, strict=True) if data
        ),
        contenders=tuple(sorted(names, key=lambda name: name[-10:])),
        observed=read(Observed, observed, tree.observed(seat)) if observed else None,
    )


async def _data(client: Client, path: str) -> bytes | None:
    try:
        return (await client.get(path))[0]
    except NoNode:
        return None


async def _children(client: Client, path: str) -> list[str]:
    try:
        return await client.children(path)
    except NoNode:
        return []
