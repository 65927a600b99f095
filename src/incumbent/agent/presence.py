"""The znodes that say this node is there: the skeleton, the session's own, and its name's.

Rule of this file: each is made as often as it takes, and made again if somebody deletes it; a name
that another machine has is never taken from it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from incumbent.agent.tree import NodeFacts, UnreadableZnode, altered, read, write
from incumbent.agent.view import CLOSED_RETRY, Change, patient
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NoAuth,
    NodeExists,
    NoNode,
    NotSent,
    Refused,
)
from incumbent.recipes.flight import flight
from incumbent.wire import Create, CreateFlag

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["NodeNameTaken", "Presence"]


class NodeNameTaken(IncumbentError):
    """Another machine goes by our node name."""

    def __init__(self, node: str, other: NodeFacts) -> None:
        self.node = node
        self.other = other
        super().__init__(node, other)

    def __str__(self) -> str:
        return (
            f"the node name {self.node} is taken by node id {self.other.node_id} "
            f"(pid {self.other.pid}); start this agent with another --node NAME"
        )


class Presence:
    """Of one node, within one session.

    facts   what our node's znode says
    shown   what we show to the server, for whoever is refused
    """

    def __init__(self, term: Term, facts: NodeFacts, shown: str) -> None:
        self.facts = facts
        self._term = term
        self._shown = shown

    def state_pause(self, zxid: int) -> None:
        """What `pause` and `resume` wait for: our node's znode says which pause we go by."""
        self.tell(altered(self.facts, paused=zxid))

    def tell(self, facts: NodeFacts) -> None:
        """What our node's znode says from now on. We go by it at once; `keep_node_name` writes it."""
        if facts == self.facts:
            return
        self.facts = facts
        nodes = self._term.view.nodes
        if self._term.node in nodes:
            nodes[self._term.node] = facts
        self._term.bell.ring()

    async def make_skeleton(self) -> None:
        skeleton = self._term.tree.skeleton()
        made = await flight(self._term.client, *(Create(path, data) for path, data in skeleton))
        for (path, data), result in zip(skeleton, made, strict=True):
            if isinstance(result, NotSent | FateUnknown):
                await self._create(path, data)
            elif isinstance(result, Exception) and not isinstance(
                result, NodeExists | NoNode | NoAuth
            ):  # its parent is gone again: whoever needs it will see
                raise result

    async def _create(self, path: str, data: bytes, flags: int = 0) -> None:
        """An idempotent create: repeated until it is there."""
        told = False
        while True:
            try:
                await self._term.client.submit(Create(path, data, flags=flags))
                return
            except NodeExists:
                return
            except NoNode:
                await asyncio.sleep(0.05)
                await self.make_skeleton()
            except NoAuth as error:
                shown = self._shown
                if not told:
                    told = True
                    self._term.say(
                        f"nothing runs here: {error}, to {shown}; see the setting `auth`"
                    )
                await asyncio.sleep(CLOSED_RETRY)
            except (NotSent, FateUnknown):
                await asyncio.sleep(0.05)

    async def keep_beat(self, path: str) -> None:
        """Our session's znode, if somebody deletes it by hand, is made again: while it is missing
        no beat is acknowledged, and every start would be stopped again for that. Others take it
        for our end only if they lead, and they don't while our candidates stand.
        """
        while True:
            change = Change()
            try:
                await patient(lambda c=change: self._term.client.get(path, watcher=c))  # type: ignore[misc]
            except NoNode:
                self._term.say(f"{path} was deleted by hand: made again")
                await self.own_ephemeral(path, b"")
            else:
                await change.seen()

    async def own_ephemeral(self, path: str, data: bytes) -> None:
        """Make an ephemeral, or find it made by this very session."""
        await self._create(path, data, CreateFlag.EPHEMERAL)

    async def take_node_name(self) -> None:
        """Our node's znode. Our own old session's is waited for; another's is an error."""
        path = self._term.tree.node(self._term.node)
        began_at = self._term.clock.boottime()
        told = ""
        while True:
            await self.own_ephemeral(path, write(self.facts))
            try:
                data, stat = await patient(lambda: self._term.client.get(path, watcher=self._ring))
            except NoNode:
                continue
            if stat.ephemeralOwner == self._term.client.session_id:
                if data != write(self.facts):  # somebody wrote over it
                    with suppress(NoNode):
                        await patient(lambda: self._term.client.set(path, write(self.facts)))
                return
            try:
                other = read(NodeFacts, data, path)
            except UnreadableZnode as error:
                why = f"waiting for the node's name: {error}"
            else:
                if other.node_id != self.facts.node_id:
                    raise NodeNameTaken(self._term.node, other)
                is_late = self._term.clock.boottime() > began_at + 2 * self._term.client.timeout
                why = _why_wait(other, self._term.client.timeout, is_late)
            if why != told:
                told = why
                self._term.say(why)
            await self._term.bell.heard()

    async def keep_node_name(self) -> None:
        """Somebody may delete our node's znode by hand: nobody would give us a seat again. And what
        we say in it may change."""
        told, written = "", self.facts
        path = self._term.tree.node(self._term.node)
        while True:
            if written == self.facts:
                await self._term.bell.heard()
            facts = self._term.view.nodes.get(self._term.node)
            if facts is not None and facts.session == self._term.session_key:
                if written != self.facts:
                    written = self.facts
                    with suppress(Refused):
                        await patient(lambda: self._term.client.set(path, write(self.facts)))
                continue
            try:
                written = self.facts
                await self.take_node_name()
            except NodeNameTaken as error:
                if str(error) != told:
                    told = str(error)
                    self._term.say(f"this node's znode was deleted, and {error}")

    def _ring(self, _event: object) -> None:
        self._term.bell.ring()


def _why_wait(other: NodeFacts, timeout: float, is_late: bool) -> str:
    if is_late:
        return (
            f"this node's other session {other.session} lives on (guardian {other.pid}): an "
            "agent with a copy of this data directory, or an earlier one that still proves its "
            "programs dead"
        )
    return f"waiting for this node's old session {other.session} to end, at most {timeout:g} s"
