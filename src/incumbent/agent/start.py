"""The start of an instance, up to the order: what it stands on, and the multi that writes it.

    read the ground ─► every breadcrumb proven dead? ─► multi ─► START to the guardian

Rule of this file: every start is a new epoch with a new breadcrumb, in one
transaction that also checks our candidate, the operators' word and the seat's version. No
write, no start. A lost reply is read back by the nonce, never repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from incumbent.agent.tree import (
    Breadcrumb,
    Observed,
    SeatRecord,
    Tree,
    UnreadableZnode,
    read,
    split_seat,
    write,
)
from incumbent.agent.view import patient
from incumbent.client import Client
from incumbent.errors import BadVersion, FateUnknown, NodeExists, NoNode, NotSent
from incumbent.recipes.flight import depart, landed, take_outcome
from incumbent.wire import (
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    MultiOp,
    Request,
    SetData,
)

__all__ = [
    "Ground",
    "NotStarted",
    "read_breadcrumbs",
    "read_ground",
    "start_ops",
    "together",
    "write_start",
]


class NotStarted(Exception):
    """The multi was refused: something has changed since it was read. Look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a start stands on, as read. `epoch`: the newest that anything here tells of;
    `version` is the seat's, for compare-and-set. `granted`: the nonce of our offer, if whoever
    led before us has written our start, with this epoch; then the breadcrumbs are not read.
    """

    epoch: int
    version: int
    breadcrumbs: Sequence[Breadcrumb]
    observed: Observed | None
    granted: str = ""


def read_ground(
    client: Client, tree: Tree, seat: str, nonce: str = ""
) -> Coroutine[Any, Any, Ground]:
    """In one flight, which departs now and not when this is awaited, and one more where there are
    breadcrumbs. `nonce`: of our offer.
    """
    asked = depart(client, *_stands_on(tree, seat))
    client.flush()
    for each in asked:
        each.add_done_callback(take_outcome)  # it may never be awaited
    return _ground(client, tree, seat, nonce, asked)


async def _ground(
    client: Client, tree: Tree, seat: str, nonce: str, asked: Sequence[asyncio.Future[Any]]
) -> Ground:
    path, told = tree.seat(seat), tree.observed(seat)
    found, last_word, names = await _answered(client, tree, seat, asked)
    for missing in (found, names):
        if isinstance(missing, NoNode):
            raise missing
    (data, stat), running = found, _epochs(tree.running(seat), names)
    record, observed = read(SeatRecord, data or b"", path), _observed(last_word, told)
    epochs = [record.epoch, *running]
    if observed is not None:  # a record that was made anew by hand must not count again
        epochs.append(observed.epoch)
    is_ours = nonce != "" and record.nonce == nonce
    is_granted = is_ours and running == [record.epoch] == [max(epochs)]
    return Ground(
        epoch=max(epochs),
        version=stat.version,
        breadcrumbs=() if is_granted else await _breadcrumbs(client, tree, seat, running),
        observed=observed,
        granted=nonce if is_granted else "",
    )


async def read_breadcrumbs(client: Client, tree: Tree, seat: str) -> list[Breadcrumb]:
    """Every instance of a seat that may be running, oldest first."""
    folder = tree.running(seat)
    names = await patient(lambda: client.children(folder))
    return await _breadcrumbs(client, tree, seat, _epochs(folder, names))


def start_ops(
    tree: Tree, seat: str, crumb: Breadcrumb, version: int, dead: Sequence[Breadcrumb] = ()
) -> list[MultiOp]:
    """What a start writes: the seat's new epoch over `version`, and its breadcrumb; those of
    instances that are proven `dead` go."""
    return [
        SetData(tree.seat(seat), write(SeatRecord(epoch=crumb.epoch, nonce=crumb.nonce)), version),
        Create(tree.breadcrumb(seat, crumb.epoch), write(crumb)),
        *(Delete(tree.breadcrumb(seat, each.epoch)) for each in dead),
    ]


async def write_start(
    client: Client,
    tree: Tree,
    seat: str,
    crumb: Breadcrumb,
    ground: Ground,
    checks: Sequence[Check],
) -> bool:
    """Write it. False: it was certainly not written. Raises `NotStarted`.

    `checks`: our candidate, control and desired, at the versions that were read. The ground's
    breadcrumbs, all proven dead, are deleted.
    """
    component, _ = split_seat(seat)
    path = tree.seat(seat)
    try:
        await client.multi(
            [*checks, *start_ops(tree, seat, crumb, ground.version, ground.breadcrumbs)]
        )
        return True
    except NotSent:
        return False
    except FateUnknown:
        data, _stat = await patient(lambda: client.get(path))
        return read(SeatRecord, data, path).nonce == crumb.nonce
    except (NoNode, BadVersion, NodeExists) as error:
        raise NotStarted(f"{component}: {error}") from error


def _stands_on(tree: Tree, seat: str) -> tuple[Request, ...]:
    return GetData(tree.seat(seat)), GetData(tree.observed(seat)), GetChildren(tree.running(seat))


async def _answered(
    client: Client, tree: Tree, seat: str, asked: Sequence[asyncio.Future[Any]]
) -> list[Any]:
    """As asked, and again in one flight until each has its answer, which may be NoNode."""
    while True:
        answers = await landed(asked)
        errors = [each for each in answers if isinstance(each, BaseException)]
        if lost := [e for e in errors if not isinstance(e, FateUnknown | NotSent | NoNode)]:
            raise lost[0]
        if all(isinstance(error, NoNode) for error in errors):
            return answers
        await asyncio.sleep(0.05)
        asked = depart(client, *_stands_on(tree, seat))


def _epochs(folder: str, names: Sequence[str]) -> list[int]:
    for name in names:
        if not name.isdecimal():
            raise UnreadableZnode(f"{folder}/{name}", "expected an epoch, in digits")
    return sorted(map(int, names))


async def _breadcrumbs(
    client: Client, tree: Tree, seat: str, epochs: Sequence[int]
) -> list[Breadcrumb]:
    found = await together(*(_breadcrumb(client, tree.breadcrumb(seat, e)) for e in epochs))
    return [crumb for crumb in found if crumb is not None]


async def _breadcrumb(client: Client, path: str) -> Breadcrumb | None:
    try:
        data, _stat = await patient(lambda: client.get(path))
    except NoNode:
        return None
    return read(Breadcrumb, data, path)


def _observed(answer: Any, path: str) -> Observed | None:
    """It only informs: what cannot be read is as good as missing."""
    if isinstance(answer, NoNode) or not answer[0]:
        return None
    try:
        return read(Observed, answer[0], path)
    except UnreadableZnode:
        return None


async def together(*reads: Awaitable[Any]) -> list[Any]:
    """Send all at once; their results in order. The first error, itself, cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_as_coroutine(each)) for each in reads]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _as_coroutine(read_: Awaitable[Any]) -> Any:
    return await read_
