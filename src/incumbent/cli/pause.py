"""`incumbent pause` and `resume`: ZooKeeper may be away for a while, and what runs goes on.

Rule of this file: control is written over the version that was read, and what is promised to the
operator (ZooKeeper may be stopped now) is what every live node has said of its guardian.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from incumbent.agent.tree import Control, NodeFacts, Tree, UnreadableZnode, read, write
from incumbent.client import Client
from incumbent.errors import NoNode

__all__ = ["set_paused", "until_heard"]

_LOOK_EVERY = 0.2


async def set_paused(
    client: Client, tree: Tree, *, paused: bool, by: str, now: float
) -> tuple[Control, int]:
    """What control said before, and the zxid of its last change now. `now`: wall time.

    To be called `again`. A control that cannot be read is taken for paused, as agents take it, and
    written anew.
    """
    data, stat = await client.get(tree.control)
    try:
        before = read(Control, data, tree.control)
    except UnreadableZnode as error:
        if error.is_foreign:
            raise
        before = Control(paused=not paused)
    if before.paused != paused:
        control = Control(paused=paused, by=by, since=now)
        stat = await client.set(tree.control, write(control), stat.version)
    return before, stat.mzxid


async def until_heard(
    client: Client, tree: Tree, zxid: int, missing: Callable[[list[str]], None]
) -> list[str]:
    """Until the guardian of every live node goes by the pause of `zxid`, or, 0, by its lease again.

    Returns their names. `missing` is told at each look whom is still waited for.
    """
    while True:
        facts = await _nodes(client, tree)
        late = sorted(each.node for each in facts if each.paused != zxid)
        missing(late)
        if not late:
            return sorted(each.node for each in facts)
        await asyncio.sleep(_LOOK_EVERY)


async def _nodes(client: Client, tree: Tree) -> list[NodeFacts]:
    found = []
    for name in await client.children(tree.nodes):
        try:
            data, _stat = await client.get(tree.node(name))
            found.append(read(NodeFacts, data, tree.node(name)))
        except (NoNode, UnreadableZnode):
            continue
    return found
