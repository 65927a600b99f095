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
from typing import TypeVar

from incumbent.agent.admission import dress
from incumbent.agent.tree import (
    Breadcrumb,
    Control,
    Desired,
    Failures,
    NodeFacts,
    Observed,
    Plan,
    Rollout,
    SeatRecord,
    Tree,
    UnreadableZnode,
    read,
    seat_name,
)
from incumbent.cli.srvr import refuse_clear_text
from incumbent.client import Client
from incumbent.credentials import Credentials
from incumbent.errors import NoNode, SpecError
from incumbent.settings import Settings
from incumbent.spec import Spec, decode, program

__all__ = [
    "Cluster",
    "ComponentState",
    "SeatState",
    "all_breadcrumbs",
    "connected",
    "dress",
    "read_cluster",
]

T = TypeVar("T")

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
    problem: str = ""
    """What of it cannot be read; the rest is as if it were not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    """One component. `spec` is None where it cannot be read (`problem`), or was removed ("")."""

    name: str
    spec: Spec | None
    problem: str = ""
    desired: Desired = field(default_factory=Desired)
    failures: Failures = field(default_factory=Failures)
    seats: tuple[SeatState, ...] = ()
    rollout: Rollout | None = None

    @property
    def is_removed(self) -> bool:
        return self.spec is None and not self.problem

    @property
    def is_rolling(self) -> bool:
        """Whether a change of it has not reached all copies, and perhaps will not."""
        spec, rolled = self.spec, self.rollout
        if spec is None or rolled is None or (spec.copies == 1 and not spec.auto_revert):
            return False
        return rolled.state != "done" and rolled.new.program == program(spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything below one root, as read at one time."""

    control: Control
    plan: Plan
    nodes: Mapping[str, NodeFacts]
    components: tuple[ComponentState, ...]
    sessions: frozenset[str]
    """Keys of the agents' sessions that are alive."""
    problems: tuple[str, ...] = ()
    """What cannot be read of what belongs to no component."""
    control_zxid: int = 0
    """Of control's last change."""

    @property
    def session_nodes(self) -> dict[str, str]:
        return {facts.session: node for node, facts in self.nodes.items()}


@asynccontextmanager
async def connected(
    settings: Settings,
    *,
    timeout: float = CONNECT_TIME,
    session_timeout: float = SESSION,
    credentials: Credentials | None = None,
) -> AsyncIterator[Client]:
    """A session for one command. Raises `ConnectTimeout`, `AuthFailed`, `SettingMissing`,
    `SpecErrors`. `credentials`: in place of those of the settings."""
    hosts, credentials = settings.hosts(), credentials or settings.credentials()
    refuse_clear_text(hosts, credentials)
    client = Client(
        hosts,
        session_timeout=session_timeout,
        request_timeout=max(timeout, 1.0),
        tick=settings.tick,
        **credentials.for_client(),
        rng=random.SystemRandom(),
        log=lambda _line: None,
    )
    await client.connect(timeout)
    try:
        await dress(client, Tree(settings.root))
        yield client
    finally:
        await client.close()


async def read_cluster(client: Client, tree: Tree) -> Cluster:
    """Read it all. A root that was never used is an empty cluster; what cannot be read is told."""
    await client.sync("/")
    control, plan, nodes, names = await asyncio.gather(
        _data_and_zxid(client, tree.control),
        _data(client, tree.plan),
        _nodes(client, tree),
        _children(client, tree.components),
    )
    components = await asyncio.gather(*(_component(client, tree, name) for name in names))
    sessions = frozenset(await _children(client, tree.sessions))
    problems: list[str] = []
    wrong = Control(paused=True)  # as the agents take it
    return Cluster(
        control=_read(Control, control[0], tree.control, problems, wrong) or Control(),
        control_zxid=control[1],
        plan=_read(Plan, plan, tree.plan, problems) or Plan(),
        nodes={
            facts.node: facts
            for path, data in nodes
            if (facts := _read(NodeFacts, data, path, problems)) is not None
        },
        components=tuple(components),
        sessions=sessions,
        problems=tuple(problems),
    )


def all_breadcrumbs(cluster: Cluster) -> Iterable[tuple[str, Breadcrumb]]:
    """(seat, breadcrumb) of every instance that may be running."""
    for component in cluster.components:
        for seat in component.seats:
            for crumb in seat.breadcrumbs:
                yield seat_name(component.name, seat.number), crumb


def _read(
    kind: type[T], data: bytes | None, path: str, problems: list[str], wrong: T | None = None
) -> T | None:
    """None where there is nothing; `wrong`, and one problem more, where it cannot be read."""
    try:
        return read(kind, data, path) if data else None  # type: ignore[type-var]
    except UnreadableZnode as error:
        problems.append(str(error))
        return wrong


async def _nodes(client: Client, tree: Tree) -> list[tuple[str, bytes | None]]:
    paths = [tree.node(name) for name in await _children(client, tree.nodes)]
    found = await asyncio.gather(*(_data(client, path) for path in paths))
    return list(zip(paths, found, strict=True))


async def _component(client: Client, tree: Tree, name: str) -> ComponentState:
    path = tree.component(name)
    data, desired, failed, rolled, numbers = await asyncio.gather(
        _data(client, path),
        _data(client, tree.desired(name)),
        _data(client, tree.failures(name)),
        _data(client, tree.rollout(name)),
        _children(client, tree.seats(name)),
    )
    spec, problem = None, ""
    if data:
        try:
            spec = decode(data, path)
        except SpecError as error:
            problem = str(error)
    ours = sorted(int(number) for number in numbers if number.isdecimal())
    seats = await asyncio.gather(*(_seat(client, tree, name, number) for number in ours))
    problems = [problem] if problem else []
    wanted = _read(Desired, desired, tree.desired(name), problems)
    return ComponentState(
        name=name,
        spec=spec,
        problem="; ".join(problems),
        desired=wanted or Desired(),
        failures=_read(Failures, failed, tree.failures(name), []) or Failures(),
        seats=tuple(seats),
        rollout=_read(Rollout, rolled, tree.rollout(name), []),
    )


async def _seat(client: Client, tree: Tree, component: str, number: int) -> SeatState:
    seat = seat_name(component, number)
    record, epochs, names, observed = await asyncio.gather(
        _data(client, tree.seat(seat)),
        _children(client, tree.running(seat)),
        _children(client, tree.election(seat)),
        _data(client, tree.observed(seat)),
    )
    ours = sorted(int(epoch) for epoch in epochs if epoch.isdecimal())
    paths = [tree.breadcrumb(seat, epoch) for epoch in ours]
    found = await asyncio.gather(*(_data(client, path) for path in paths))
    problems = [
        f"{tree.running(seat)}/{epoch} is not an epoch: nothing starts while it is there"
        for epoch in epochs
        if not epoch.isdecimal()
    ]
    seen = _read(SeatRecord, record, tree.seat(seat), problems)
    crumbs = [
        _read(Breadcrumb, data, path, problems)
        for path, data in zip(paths, found, strict=True)
        if data is not None
    ]
    return SeatState(
        number=number,
        record=seen or SeatRecord(),
        breadcrumbs=tuple(crumb for crumb in crumbs if crumb is not None),
        contenders=tuple(sorted(names, key=lambda name: name[-10:])),
        observed=_read(Observed, observed, tree.observed(seat), []),
        problem="; ".join(problems),
    )


async def _data(client: Client, path: str) -> bytes | None:
    try:
        return (await client.get(path))[0]
    except NoNode:
        return None


async def _data_and_zxid(client: Client, path: str) -> tuple[bytes | None, int]:
    """With the zxid of its last change."""
    try:
        data, stat = await client.get(path)
        return data, stat.mzxid
    except NoNode:
        return None, 0


async def _children(client: Client, path: str) -> list[str]:
    try:
        return await client.children(path)
    except NoNode:
        return []
