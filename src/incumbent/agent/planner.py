"""The planner: writes where each seat should be. One agent at a time, by its own election.

Rule of this file: safety and availability never need it. A plan only tells the head of a
seat's queue whether to let others pass, and a leader when to hand over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from incumbent.agent.adoption import adopt
from incumbent.agent.bell import Bell
from incumbent.agent.placement import SeatNeeds, place
from incumbent.agent.tree import Plan, read, seat_name, write
from incumbent.agent.view import patient
from incumbent.errors import BadVersion, FateUnknown, NoNode, NotSent

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Planner"]


class Planner:
    """Stands for planner, and plans while it is."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._client = term.client
        self.bell = Bell(term.clock)
        self.is_planning = False
        self._moving_until = 0.0
        """Until then a seat is taken to be where the plan has it: a move takes its time."""

    async def run(self) -> None:
        queue = self._term.queue(self._term.tree.planner)
        place_ = await adopt(queue) or await queue.enter(self._term.node.encode())
        await place_.first()
        self.is_planning = True
        self._expect_moves()
        self._term.say("this node is the planner")
        last_nodes: list[str] | None = None
        while True:
            nodes = sorted(self._term.view.nodes)
            if nodes != last_nodes and not self._has_new_seats():
                await self._settle()
            last_nodes = sorted(self._term.view.nodes)
            await self._plan()
            if self._is_current(last_nodes):
                await self.bell.heard(self._moving_until if self._is_moving() else None)

    def _expect_moves(self) -> None:
        self._moving_until = self._term.clock.boottime() + self._term.numbers.session

    def _is_moving(self) -> bool:
        return self._term.clock.boottime() < self._moving_until

    def _is_current(self, nodes: list[str]) -> bool:
        return nodes == sorted(self._term.view.nodes) and not self._has_new_seats()

    def _has_new_seats(self) -> bool:
        planned = self._term.view.plan.seats
        return any(name not in planned for name, _ in self._wanted())

    def _wanted(self) -> list[tuple[str, tuple[str, ...]]]:
        """(seat, the nodes it may be on) of every component whose spec can be read."""
        live = self._term.view.nodes
        return [
            (seat_name(view.name, number), view.spec.nodes)
            for view in self._term.view.components.values()
            if view.spec is not None and any(view.spec.allows(node) for node in live)
            for number in range(view.spec.copies)
        ]

    async def _settle(self) -> None:
        """Until the nodes have been the same for one beat: a failover comes first, then a plan.

        New seats wait for nothing but a plan.
        """
        quiet = min(1.0, self._term.numbers.beat)
        nodes = sorted(self._term.view.nodes)
        until = self._term.clock.boottime() + quiet
        while (now := self._term.clock.boottime()) < until and not self._has_new_seats():
            await self.bell.heard(until)
            if sorted(self._term.view.nodes) != nodes:
                nodes, until = sorted(self._term.view.nodes), now + quiet

    async def _plan(self) -> None:
        data, stat = await patient(lambda: self._client.get(self._term.tree.plan))
        old = read(Plan, data, self._term.tree.plan)
        seats = place(await self._needs(old), sorted(self._term.view.nodes))
        if seats == old.seats:
            return
        new = Plan(version=old.version + 1, seats=seats)
        try:
            await self._client.set(self._term.tree.plan, write(new), stat.version)
        except (BadVersion, NotSent, FateUnknown):
            return  # looked at again with the next turn
        self._expect_moves()
        self._term.view.plan = new
        self._term.ring()
        moved = [
            name for name in seats if name in old.seats and seats[name].node != old.seats[name].node
        ]
        self._term.say(
            f"plan {new.version}: {len(seats)} seats, moved: {', '.join(moved) or 'none'}"
        )

    async def _needs(self, old: Plan) -> list[SeatNeeds]:
        """Every seat with its owner: the node at the head of its queue; else where the old plan
        had it. A seat that was planned and for which nobody stands is no load.

        While a plan is new, the owner is the one it names, if that node lives: whoever is first
        in the middle of a move owns nothing, and nothing is to be undone for that.
        """
        live = self._term.view.nodes
        nodes = self._term.view.session_nodes()
        wanted = self._wanted()
        reads = [asyncio.ensure_future(self._contenders(seat)) for seat, _ in wanted]
        needs = []
        try:
            for (seat, allowed), read_ in zip(wanted, reads, strict=True):
                heads = [
                    nodes[key] for name in await read_ if (key := name.partition("-")[0]) in nodes
                ]
                planned = old.seats[seat].node if seat in old.seats else None
                is_settled = planned not in live or not self._is_moving()
                owner = heads[0] if heads and is_settled else planned
                is_load = bool(heads) or planned is None
                needs.append(SeatNeeds(seat=seat, nodes=allowed, owner=owner, is_load=is_load))
        finally:
            for each in reads:
                each.cancel()
        return needs

    async def _contenders(self, seat: str) -> list[str]:
        """The candidates of a seat, first in line first."""
        path = self._term.tree.election(seat)
        try:
            names = await patient(lambda: self._client.children(path))
        except NoNode:
            return []
        return sorted(names, key=lambda name: name[-10:])
