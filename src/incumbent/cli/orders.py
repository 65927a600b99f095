"""What changes the tree: apply, remove, confirm-dead.

Each is a loop that reads, writes one transaction guarded by the versions it read, and looks
again if the answer was lost or somebody else was faster: so each may be repeated at will.

Rule of this file: a seat's znode, with its epoch, is never deleted. A removed component is a
tombstone: its own znode with no data, ignored by agents, under which a component of that name
goes on counting if it ever comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from incumbent.agent.start import together
from incumbent.agent.tree import (
    Breadcrumb,
    Desired,
    Observed,
    Tree,
    UnreadableZnode,
    altered,
    read,
    seat_name,
    write,
)
from incumbent.cli.cluster import Cluster, all_breadcrumbs, read_cluster
from incumbent.cli.exits import No, TimedOut
from incumbent.cli.explain import proven_dead
from incumbent.cli.wishes import components, spec_bytes, want
from incumbent.client import Client
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    NoAuth,
    NodeExists,
    NoNode,
    SpecError,
)
from incumbent.recipes.flight import flight
from incumbent.spec import Spec, changed_keys, decode, is_same, stored
from incumbent.wire import Check, Create, MultiOp, SetData, WatchEvent

__all__ = [
    "Change",
    "absent",
    "again",
    "apply",
    "breadcrumbs_of",
    "confirm_dead",
    "discard",
    "make_skeleton",
    "not_removed",
    "not_up",
    "remove",
    "removed",
    "until_ended",
]

T = TypeVar("T")

_GOING = ("stopping", "stuck", "released")
_COMPONENTS_AT_ONCE = 32
_LOOK_EVERY = 1.0
"""Seconds between two looks at what a node that is gone has left."""
_SEATS_AT_ONCE = 400
"""So many seats' znodes go into one multi; a multi has at most 256 KB."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one component. `keys`: what changed, if it was there before."""

    component: str
    what: str
    """created, changed, unchanged, or absent (from FILE)"""
    keys: tuple[str, ...] = ()
    is_stopped: bool = False
    """An operator stopped it, and it stays so."""
    is_started_again: bool = False
    """An operator had stopped it, and it runs from now on."""


async def make_skeleton(client: Client, tree: Tree) -> None:
    """What must exist before anything else, in one flight. Made twice is no error."""
    await again(lambda: _make_skeleton(client, tree))


async def apply(
    client: Client, tree: Tree, specs: Sequence[Spec], *, run: bool = False
) -> list[Change]:
    """Declare components: one change for each, in the order given, then those that are absent.

    One that an operator stopped stays stopped, unless `run`.
    """
    await make_skeleton(client, tree)
    changes: list[Change] = []
    for at in range(0, len(specs), _COMPONENTS_AT_ONCE):
        batch = specs[at : at + _COMPONENTS_AT_ONCE]
        changes += await together(
            *(again(lambda spec=spec: _declare(client, tree, spec, run)) for spec in batch)  # type: ignore[misc]
        )
    others = await absent(client, tree, specs)
    return [*changes, *(Change(name, "absent") for name in others)]


async def absent(client: Client, tree: Tree, specs: Sequence[Spec]) -> list[str]:
    """The components that there are, and that are none of these."""
    ours = {spec.name for spec in specs}
    return [name for name in await components(client, tree) if name not in ours]


def removed(change: Change) -> Change:
    """What becomes of one that is absent from FILE, if it is pruned."""
    return replace(change, what="removed")


async def discard(client: Client, tree: Tree, name: str) -> bool:
    """Stop a component; if nothing of it runs, remove it. Returns whether it is removed."""
    await again(lambda: want(client, tree, name, run=False))
    return await again(lambda: _bury(client, tree, name))


async def remove(
    client: Client, tree: Tree, name: str, *, timeout: float, say: Callable[[str], None]
) -> None:
    """Stop a component, wait until no instance of it is left, and remove it.

    Raises `No` if there is none, `TimedOut`: it stays stopped then.
    """
    if await again(lambda: want(client, tree, name, run=False)) is None:
        known = ", ".join(await components(client, tree)) or "none"
        raise No(f"there is no component {name}; there are: {known}")
    try:
        async with asyncio.timeout(timeout):
            await until_ended(client, tree, name, say)
    except TimeoutError:
        left = await _breadcrumbs(client, tree, name)
        raise TimedOut(not_removed(name, timeout, [crumb for _, crumb in left])) from None
    await again(lambda: _bury(client, tree, name))


def not_removed(name: str, timeout: float, left: Sequence[Breadcrumb]) -> str:
    """What is so after `timeout` seconds. `left` may be gone by now: then once more is enough."""
    if not left:
        return (
            f"{name} is ordered to stop, and nothing of it is left; but that took more than "
            f"{timeout:g} s: `incumbent remove {name}` again removes it"
        )
    what = ", ".join(f"epoch {crumb.epoch} on {crumb.node}" for crumb in left)
    return (
        f"{name} is ordered to stop, but is not proven dead after {timeout:g} s: {what}; "
        f"`incumbent status` says why, then `incumbent remove {name}` again"
    )


async def confirm_dead(
    client: Client, tree: Tree, cluster: Cluster, node: str
) -> list[tuple[str, Breadcrumb]]:
    """Delete the breadcrumbs of a dead machine. Returns the seats that were freed.

    Raises `No` while any agent of that name has a session.
    """
    crumbs = breadcrumbs_of(cluster, node)
    freed = []
    for seat, crumb in crumbs:
        try:
            await again(lambda s=seat, c=crumb: client.delete(tree.breadcrumb(s, c.epoch)))  # type: ignore[misc]
            freed.append((seat, crumb))
        except NoNode:
            continue
    return freed


def breadcrumbs_of(cluster: Cluster, node: str) -> list[tuple[str, Breadcrumb]]:
    """What a node that is gone may still run. Raises `No` where nobody may call it dead."""
    facts = cluster.nodes.get(node)
    if facts is not None:
        raise No(
            f"{node} is alive (session {facts.session}): it proves its programs' death itself; "
            "stop its agent first if you mean to take it out"
        )
    crumbs = [(seat, crumb) for seat, crumb in all_breadcrumbs(cluster) if crumb.node == node]
    for _seat, crumb in crumbs:
        if crumb.session in cluster.sessions:
            raise No(
                f"{node}'s session {crumb.session} is still alive: wait for its end, "
                f"at most {crumb.s_min:g} s after its agent died"
            )
    if not crumbs:
        known = ", ".join(sorted(cluster.nodes)) or "none"
        raise No(f"{node} holds no seat; live nodes: {known} (`incumbent node list`)")
    return crumbs


# ── one transaction each


async def _make_skeleton(client: Client, tree: Tree) -> None:
    made = await flight(client, *(Create(path, data) for path, data in tree.skeleton()))
    for result in made:  # there, or not ours to make: whoever needs it is told
        if isinstance(result, Exception) and not isinstance(result, NodeExists | NoAuth):
            raise result


async def _declare(client: Client, tree: Tree, spec: Spec, run: bool) -> Change:
    name = spec.name
    found = await spec_bytes(client, tree, name)
    data = stored(spec, found[0] if found is not None else b"")
    if found is None:
        first, rest = _seats(tree, spec, range(spec.copies))
        top = [(tree.component(name), b"" if rest else data), *tree.component_skeleton(name, 0)]
        await client.multi([*_creates(top), *first])
        await _in_parts(client, rest)
        if rest:
            await client.set(tree.component(name), data, 0)
        return Change(name, "created")

    old, version = found
    await _mend(client, tree, spec)
    there = {int(each) for each in await client.children(tree.seats(name)) if each.isdecimal()}
    first, rest = _seats(tree, spec, [k for k in range(spec.copies) if k not in there])
    path = tree.desired(name)
    wanted, stat = await client.get(path)
    before = read(Desired, wanted, path)
    is_stopped = not before.run
    ops = list(first)
    if is_changed := not is_same(old, spec):
        ops.append(SetData(tree.component(name), data, version))
    if is_stopped and (run or not old):
        again_ = altered(before, run=True) if old else Desired()
        ops.append(SetData(path, write(again_), stat.version))
    await _in_parts(client, rest)
    await client.multi(ops)
    was_stopped = is_stopped and run and bool(old)
    if not is_changed:
        return Change(
            name, "unchanged", is_stopped=is_stopped and not run, is_started_again=was_stopped
        )
    if not old:
        return Change(name, "created")
    keys = tuple(_changed(old, spec, tree.component(name)))
    return Change(
        name,
        "changed",
        keys,
        is_stopped=is_stopped and not run,
        is_started_again=was_stopped,
    )


async def _mend(client: Client, tree: Tree, spec: Spec) -> None:
    """Make what somebody has deleted by hand below a component: seats that are there are whole."""
    for path, data in tree.component_skeleton(spec.name, 0):
        if await client.exists(path) is None:
            await client.create(path, data)
    there = set(await client.children(tree.seats(spec.name)))
    seats = [seat_name(spec.name, k) for k in range(spec.copies) if str(k) in there]
    parts = [part for seat in seats for part in tree.seat_skeleton(seat)[1:]]
    found = await asyncio.gather(*(client.exists(path) for path, _data in parts))
    missing = [part for part, stat in zip(parts, found, strict=True) if stat is None]
    await _in_parts(client, _creates(missing))


def _seats(tree: Tree, spec: Spec, numbers: Sequence[int]) -> tuple[list[MultiOp], list[MultiOp]]:
    """The creates of these seats: what fits into the component's own multi, and the rest."""
    ops = [
        op
        for number in numbers
        for op in _creates(tree.seat_skeleton(seat_name(spec.name, number)))
    ]
    per_seat = len(tree.seat_skeleton(seat_name(spec.name, 0)))
    return ops[: _SEATS_AT_ONCE * per_seat], ops[_SEATS_AT_ONCE * per_seat :]


async def _in_parts(client: Client, ops: Sequence[MultiOp]) -> None:
    size = _SEATS_AT_ONCE * 4
    for start in range(0, len(ops), size):
        await client.multi(ops[start : start + size])


def _creates(znodes: Sequence[tuple[str, bytes]]) -> list[MultiOp]:
    return [Create(path, data) for path, data in znodes]


def _changed(old: bytes, spec: Spec, path: str) -> list[str]:
    try:
        return changed_keys(decode(old, path), spec)
    except SpecError:
        return ["everything (its spec could not be read)"]


async def _bury(client: Client, tree: Tree, name: str) -> bool:
    """Make a stopped component a tombstone; False: it runs, or may run again.

    A start's multi checks the version of `desired` that it read as "run". So once it says
    "stop", and then no breadcrumb is found, none can come while `desired` stays as it is.
    """
    found = await spec_bytes(client, tree, name)
    if found is None or not found[0]:
        return True
    path = tree.desired(name)
    data, stat = await client.get(path)
    if read(Desired, data, path).run or await _breadcrumbs(client, tree, name):
        return False
    ops: list[MultiOp] = [SetData(tree.component(name), b"", found[1]), Check(path, stat.version)]
    if (rolled := await client.exists(tree.rollout(name))) is not None:
        ops.append(SetData(tree.rollout(name), b"", rolled.version))  # it holds for this one only
    await client.multi(ops)
    return True


# ── reading


async def _breadcrumbs(client: Client, tree: Tree, name: str) -> list[tuple[str, Breadcrumb]]:
    """(seat, breadcrumb) of whatever may run of a component."""
    found = []
    for number in sorted(map(int, await client.children(tree.seats(name)))):
        seat = seat_name(name, number)
        for epoch in sorted(map(int, await client.children(tree.running(seat)))):
            path = tree.breadcrumb(seat, epoch)
            try:
                data, _stat = await client.get(path)
            except NoNode:
                continue
            found.append((seat, read(Breadcrumb, data, path)))
    return found


async def not_up(client: Client, tree: Tree, name: str) -> list[str]:
    """The seats of a component of which nothing runs, or what runs is being stopped: amid a restart
    or a move, too."""
    seats = [seat_name(name, int(k)) for k in await client.children(tree.seats(name))]
    return [seat for seat in sorted(seats) if not await _is_up(client, tree, seat)]


async def _is_up(client: Client, tree: Tree, seat: str) -> bool:
    if not await client.children(tree.running(seat)):
        return False
    try:
        data, _stat = await client.get(tree.observed(seat))
        return not data or read(Observed, data, tree.observed(seat)).state not in _GOING
    except (NoNode, UnreadableZnode):
        return True  # nobody has said otherwise


async def until_ended(client: Client, tree: Tree, name: str, say: Callable[[str], None]) -> None:
    """Until no seat has a breadcrumb, told by watches.

    What a node that is gone has left is proven dead by nobody else: nothing is to start over it.
    """
    is_said = False
    for number in sorted(map(int, await client.children(tree.seats(name)))):
        folder = tree.running(seat_name(name, number))
        while True:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def watcher(_event: WatchEvent, changed: asyncio.Future[None] = changed) -> None:
                if not changed.done():
                    changed.set_result(None)

            if not await client.children(folder, watcher=watcher):
                client.unwatch(folder, watcher)
                break
            if not is_said:
                is_said = True
                say(f"stopping {name}")
            await asyncio.wait([changed], timeout=_LOOK_EVERY)
            if not changed.done():
                client.unwatch(folder, watcher)
                await _clear(client, tree, name)


async def _clear(client: Client, tree: Tree, name: str) -> None:
    """Delete the breadcrumbs of what is proven dead."""
    for seat, crumb in proven_dead(await read_cluster(client, tree), name):
        with suppress(NoNode):
            await again(lambda s=seat, c=crumb: client.delete(tree.breadcrumb(s, c.epoch)))  # type: ignore[misc]


async def again(turn: Callable[[], Awaitable[T]]) -> T:
    """Take a turn until its transaction went through as read. Ends with the session, or refused."""
    tries = 0
    while True:
        try:
            return await turn()
        except (FateUnknown, BadVersion, NodeExists):
            tries += 1
            if tries > 20:
                raise
