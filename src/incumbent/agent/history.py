"""A component's failures in the tree: counted, and pardoned by `incumbent retry`.

Rule of this file: each writes over the version that it has read, again and again until it is
done; as a failure counts once by its id, a lost answer does no harm.
"""

from __future__ import annotations

from collections.abc import Callable

from incumbent.agent.tree import Failures, Tree, UnreadableZnode, read, write
from incumbent.agent.view import patient
from incumbent.client import Client
from incumbent.errors import BadVersion, FateUnknown, NodeExists, NoNode, NotSent
from incumbent.recipes.ledger import Pause

__all__ = ["change_failures"]


async def change_failures(
    client: Client, tree: Tree, component: str, change: Callable[[Failures], Failures]
) -> Failures:
    """Have the history be what `change` makes of it; returns it. Without the component: nothing."""
    path = tree.failures(component)
    pause = Pause()
    while True:
        try:
            data, stat = await patient(lambda: client.get(path))
        except NoNode:
            old, version = Failures(), None
        else:
            version = stat.version
            try:
                old = read(Failures, data, path)
            except UnreadableZnode as error:
                if error.is_foreign:
                    raise
                old = Failures()
        new = change(old)
        if new == old:
            return old
        try:
            if version is None:
                await client.create(path, write(new))
            else:
                await client.set(path, write(new), version)
            return new
        except NoNode:
            return new
        except (BadVersion, NodeExists):
            continue
        except (NotSent, FateUnknown):
            await pause.take()
