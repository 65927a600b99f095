"""Several requests at once: one round trip for all that does not depend on what comes of it.

A session's requests are carried out in their order, so a flight may rely on that: a create, and a
listing behind it that shows what was made.

Rule of this file: who is cancelled while waiting leaves no answer behind that nobody looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from incumbent.client import Client
from incumbent.errors import NodeExists, NoNode, Refused
from incumbent.recipes.ledger import SYSTEM_ERROR
from incumbent.wire import Err, Request, WatchEvent
from incumbent.wire.paths import ancestors

__all__ = ["depart", "flight", "landed", "take_outcome", "unheard", "why_not_made"]

_PASSING = (SYSTEM_ERROR, Err.SESSION_MOVED)
"""Refusals that say nothing of the znode."""


async def flight(
    client: Client, *requests: Request, watcher: Callable[[WatchEvent], object] | None = None
) -> list[object]:
    """Send all at once, in order; each result, or the error that came instead. `watcher` goes
    with those that set a watch."""
    return await landed(depart(client, *requests, watcher=watcher))


def depart(
    client: Client, *requests: Request, watcher: Callable[[WatchEvent], object] | None = None
) -> list[asyncio.Future[Any]]:
    """The beginning of a flight, for whoever has something to do while it is under way."""
    return [
        client.submit(each, watcher=watcher if getattr(each, "watch", False) else None)
        for each in requests
    ]


async def landed(sent: Sequence[asyncio.Future[Any]]) -> list[object]:
    """The end of a flight: each result, or the error that came instead."""
    try:
        for each in reversed(sent):  # answers come in order: mostly there is one to wait for
            with contextlib.suppress(Exception):
                await each
    except BaseException:
        for each in sent:
            if not each.cancel():
                take_outcome(each)
        raise
    return [each.exception() or each.result() for each in sent]


def take_outcome(answer: asyncio.Future[Any]) -> None:
    """For an answer that nobody has to look at: its error is told by something else."""
    if not answer.cancelled():
        answer.exception()


def why_not_made(client: Client, path: str, made: Sequence[object]) -> Refused | None:
    """Why the znode at `path` could not be made, for something above it is missing.

    `made`: what became of the creates of all that is above, outermost first, in the same flight;
    empty if they were not tried. None: it is there, or it is not known; another try may help.
    """
    if ancestors(path) and not made:
        return None
    for each in reversed(made):
        if not isinstance(each, Refused) or isinstance(each, NodeExists):
            return None
        if not isinstance(each, NoNode):
            return None if each.code in _PASSING else each
    return NoNode(f"{client.root.path}, this client's root") if client.root.path else None


def unheard(outcome: object) -> None:
    """For `Client.ask`, where the answer doesn't matter."""
