"""Whether a start must wait for an instance that a breadcrumb tells of; and taking them away.

Rule of this file: a session is looked up after the breadcrumb that names it was read, on the
same session of ours, and with a watch, so that its end is not missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from incumbent.agent.lifecycle import StillWaiting, breadcrumb_verdict
from incumbent.agent.tree import Breadcrumb, NodeFacts, Tree
from incumbent.agent.view import patient
from incumbent.client import Client
from incumbent.errors import FateUnknown, NoNode, NotSent, Refused
from incumbent.recipes.ledger import Pause
from incumbent.wire import Delete, MultiOp, SetData

__all__ = ["oblige", "why_wait"]


async def why_wait(
    client: Client,
    tree: Tree,
    seat: str,
    crumbs: Sequence[Breadcrumb],
    *,
    nodes: Mapping[str, NodeFacts],
    me: NodeFacts,
    on_unclean: str,
    control: int,
    ring: Callable[..., None],
) -> str:
    """Why a start must wait, or "" if every breadcrumb's instance is proven dead.

    Call it only where our own guardian has proven our own instance of the seat dead. `ring` is
    called when a session that was waited for ends, or a breadcrumb is deleted by its node.
    """
    for crumb in crumbs:
        session = f"{tree.sessions}/{crumb.session}"
        lives = await patient(lambda p=session: client.exists(p, watcher=ring))  # type: ignore[misc]
        verdict = breadcrumb_verdict(
            crumb,
            session_lives=lives is not None,
            nodes=nodes,
            me=me,
            mine_running=False,
            on_unclean=on_unclean,
            control=control,
        )
        if isinstance(verdict, StillWaiting):
            path = tree.breadcrumb(seat, crumb.epoch)
            if await patient(lambda p=path: client.exists(p, watcher=ring)):  # type: ignore[misc]
                return verdict.why
    return ""


async def oblige(client: Client, ops: Sequence[MultiOp]) -> None:
    """Carry out what we owe others, in one transaction: until it is done, or was done, or the
    session is over. What cannot be done together any more is deleted one by one; the last word on
    an instance goes with its breadcrumb, or not at all: another may speak by then."""
    pause = Pause()
    while True:
        try:
            await client.multi(ops)
            return
        except (NotSent, FateUnknown):
            await pause.take()
        except Refused:
            break  # done before, or our candidate was deleted by hand
    words: list[MultiOp] = [op for op in ops if isinstance(op, SetData)]
    for op in ops:
        if isinstance(op, Delete):
            if words:
                with suppress(Refused, NotSent, FateUnknown):
                    await client.multi([op, *words])
                words = []
            with suppress(NoNode):
                await patient(lambda o=op: client.delete(o.path))  # type: ignore[misc]
