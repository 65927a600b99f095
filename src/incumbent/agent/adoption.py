"""Finding the place that this session has in a queue already.

A respawned agent goes on with the session of the one before it, and with that one's
candidates: it has not to stand again.

Rule of this file: a znode is taken for ours only if this very session owns it.
"""

from __future__ import annotations

from incumbent.agent.tree import session_key
from incumbent.agent.view import patient
from incumbent.errors import NoNode
from incumbent.recipes.dialects import OURS
from incumbent.recipes.place import Place, join
from incumbent.recipes.queue import Queue

__all__ = ["adopt"]


async def adopt(queue: Queue) -> Place | None:
    """Our first place in the queue, or None. Any others that we have there are given up."""
    client = queue.client
    try:
        children = await patient(lambda: client.children(queue.path))
    except NoNode:
        return None
    stem = f"{session_key(client.session_id)}-"
    adopted: Place | None = None
    for contender in OURS.rank(queue.path, children):
        if not contender.name.startswith(stem):
            continue
        path = join(queue.path, contender.name)
        try:
            data, stat = await patient(lambda p=path: client.get(p))  # type: ignore[misc]
        except NoNode:
            continue
        if stat.ephemeralOwner != client.session_id:
            continue
        place = Place(queue.ledger, queue.path, OURS, path, stat, data)
        if adopted is None:
            adopted = place
        else:
            await place.leave()
    if adopted is not None:
        await adopted.refresh()
    return adopted
