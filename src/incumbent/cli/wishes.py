"""What operators want of a component from now on: a word in the tree, obeyed by whoever leads.

Rule of this file: that word is written here alone (but for a component's birth), over the version
that was read, and only while the component is there.
"""

from __future__ import annotations

import asyncio

from incumbent.agent import rollout
from incumbent.agent.tree import Desired, Rollout, Tree, altered, read, write
from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.wire import Check, SetData

__all__ = ["components", "desired", "roll_on", "spec_bytes", "want"]


async def want(
    client: Client,
    tree: Tree,
    component: str,
    *,
    run: bool | None = None,
    frozen_by: str | None = None,
    now: float = 0.0,
) -> Desired | None:
    """Write down whether it is to run, and who wants it frozen ("": nobody); None leaves it.

    Returns what was wanted before, or None if there is no such component. Raises `BadVersion` if
    somebody else was faster: to be called `again`. `now`: wall time.
    """
    found = await spec_bytes(client, tree, component)
    if found is None or not found[0]:
        return None
    path = tree.desired(component)
    data, stat = await client.get(path)
    before = wanted = read(Desired, data, path)
    if run is not None:
        wanted = altered(wanted, run=run)
    if frozen_by is not None and bool(frozen_by) != bool(before.frozen_by):
        since = now if frozen_by else 0.0
        wanted = altered(wanted, frozen_by=frozen_by, frozen_since=since)
    if wanted != before:
        there = Check(tree.component(component), found[1])
        await client.multi([there, SetData(path, write(wanted), stat.version)])
    return before


async def roll_on(client: Client, tree: Tree, component: str) -> str:
    """Have a roll-out that has failed go on; what it had failed for, "" if there is none."""
    path = tree.rollout(component)
    try:
        data, stat = await client.get(path)
    except NoNode:
        return ""
    before = read(Rollout, data, path) if data else None
    after = rollout.again(before)
    if before is None or after is None or after == before:
        return ""
    await client.set(path, write(after), stat.version)
    return f"its roll-out goes on ({before.why})"


async def desired(client: Client, tree: Tree, component: str) -> Desired:
    path = tree.desired(component)
    return read(Desired, (await client.get(path))[0], path)


async def spec_bytes(client: Client, tree: Tree, name: str) -> tuple[bytes, int] | None:
    """A component's bytes (none: a tombstone) and their version; None if it never was."""
    try:
        data, stat = await client.get(tree.component(name))
    except NoNode:
        return None
    return data, stat.version


async def components(client: Client, tree: Tree) -> list[str]:
    """The names of those that were not removed."""
    try:
        names = await client.children(tree.components)
    except NoNode:
        return []
    reads = await asyncio.gather(*(spec_bytes(client, tree, name) for name in names))
    return [name for name, found in zip(names, reads, strict=True) if found and found[0]]
