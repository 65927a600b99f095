"""The planner: writes where each seat should be. One agent at a time, by its own election.

Rule of this file: safety and availability never need it. A plan only tells the head of a
seat's queue whether to let others pass, and a leader when to hand over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from incumbent.agent.adoption import adopt
from incumbent.agent.bell import Bell
from incumbent.agent.failures import holds, next_change
from incumbent.agent.placement import SeatNeeds, place
from incumbent.agent.steadiness import kept_out
from incumbent.agent.tree import Plan, UnreadableZnode, read, seat_name, split_seat, write
from incumbent.agent.view import patient
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    NodeExists,
    NoNode,
    NotSent,
    SessionError,
)

if TYPE_CHECKING:
    from incumbent.agent.term import Term
    from incumbent.recipes.place import Place

__all__ = ["Planner"]

RETRY = 1.0
"""Seconds between two looks at what keeps a planner from planning."""


class Planner:
    """Stands for planner, and plans while it is."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._client = term.client
        self.bell = Bell(term.clock)
        self.is_planning = False
        self._moving_until = 0.0
        """Until then a seat is taken to be where the plan has it: a move takes its time."""
        self._newest = 0
        """Version of the newest plan seen: one made anew goes on counting."""

    async def run(self) -> None:
        """Whatever is wrong with the plan or its election stops nothing but planning."""
        problem = ""
        while True:
            try:
                await self._stand()
            except SessionError:
                raise
            except IncumbentError as error:
                self.is_planning = False
                if str(error) != problem:
                    problem = str(error)
                    self._term.say(f"no planning here now: {problem}")
            await self.bell.heard(self._term.clock.boottime() + RETRY)

    async def _stand(self) -> None:
        """Until it cannot go on, or our candidate was deleted."""
        queue = self._term.queue(self._term.tree.planner)
        place_ = await adopt(queue) or await queue.enter(self._term.node.encode())
        await place_.first()
        place_.watch_own()
        forget = place_.gone.listen(self.bell.ring)
        try:
            self.is_planning = True
            self._expect_moves()
            self._term.say("this node is the planner")
            await self._keep_planning(place_)
        finally:
            self.is_planning = False
            forget()

    async def _keep_planning(self, place_: Place) -> None:
        last_nodes: list[str] | None = None
        while True:
            place_.raise_if_gone()
            nodes = sorted(self._term.view.nodes)
            if nodes != last_nodes and not self._has_new_seats():
                await self._settle()
            last_nodes = sorted(self._term.view.nodes)
            await self._plan()
            if self._is_current(last_nodes):
                await self.bell.heard(self._look_again_at())

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
        """(seat, the nodes it may be on) of every component whose spec can be read. A node that
        does without a component, for its failures or the node's own, is left out.
        """
        wanted: list[tuple[str, tuple[str, ...]]] = []
        now = self._term.clock.wall()
        for view in self._term.view.components.values():
            if view.spec is None:
                continue
            live = self._term.view.nodes
            may = {name: live[name] for name in sorted(live) if view.spec.allows(name)}
            out = kept_out(view.failures, view.program, may, now)
            able = tuple(name for name in may if name not in out)
            nodes = able if out else view.spec.nodes
            if able:
                wanted += [(seat_name(view.name, k), nodes) for k in range(view.spec.copies)]
        return wanted

    def _look_again_at(self) -> float | None:
        """On CLOCK_BOOTTIME, whatever happens: a move is over, or a node may have a component
        again."""
        boottime, wall = self._term.clock.boottime(), self._term.clock.wall()
        ends = [
            boottime + until - wall
            for view in self._term.view.components.values()
            if (until := next_change(view.failures, wall)) is not None
        ]
        ends += [
            boottime + facts.aside_until - wall
            for facts in self._term.view.nodes.values()
            if holds(facts.since, facts.aside_until, wall)
        ]
        if self._is_moving():
            ends.append(self._moving_until)
        return min(ends, default=None)

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
        old, version = await self._read()
        nodes = sorted(self._term.view.nodes)
        seats = place(await self._needs(old or Plan()), nodes)
        if old is not None and (seats == old.seats or nodes != sorted(self._term.view.nodes)):
            return  # nodes that came or went meanwhile: first let them settle
        before = old.seats if old is not None else {}
        new = Plan(version=self._newest + 1, seats=seats)
        try:
            if version is None:
                await self._client.create(self._term.tree.plan, write(new))
            else:
                await self._client.set(self._term.tree.plan, write(new), version)
        except (BadVersion, NodeExists, NotSent, FateUnknown):
            return  # looked at again with the next turn
        self._expect_moves()
        self._term.view.plan = new
        self._term.ring()
        moved = [name for name in seats if name in before and seats[name].node != before[name].node]
        self._term.say(
            f"plan {new.version}: {len(seats)} seat{'s' * (len(seats) != 1)}, "
            f"moved: {', '.join(moved) or 'none'}"
        )

    async def _read(self) -> tuple[Plan | None, int | None]:
        """The plan and its znode's version; (None, None) where it is missing. One that nobody
        can read is None, and made anew; raises `UnreadableZnode` if it may be a newer version's.
        """
        path = self._term.tree.plan
        try:
            data, stat = await patient(lambda: self._client.get(path))
        except NoNode:
            return None, None
        try:
            old = read(Plan, data, path)
        except UnreadableZnode as error:
            if error.is_foreign:
                raise
            return None, stat.version
        self._newest = max(self._newest, old.version)
        return old, stat.version

    async def _needs(self, old: Plan) -> list[SeatNeeds]:
        """Every seat with its owner: the node at the head of its queue; else where the old plan
        had it. A seat that was planned and for which nobody stands is no load.

        While a plan is new, the owner is the one it names, if that node lives: whoever is first
        in the middle of a move owns nothing, and nothing is to be undone for that. Where an
        operator has moved a seat, the plan itself says so, until it cannot be there any more.
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
                before = old.seats.get(seat)
                planned = before.node if before is not None else None
                taken_from = before.taken_from if before is not None and planned in live else ""
                is_settled = planned not in live or not (taken_from or self._is_moving())
                owner = heads[0] if heads and is_settled else planned
                is_load = bool(heads) or planned is None
                needs.append(
                    SeatNeeds(
                        seat=seat,
                        nodes=allowed,
                        owner=owner,
                        is_load=is_load,
                        is_new=planned is None,
                        taken_from=taken_from,
                        stays=self._is_frozen(seat),
                    )
                )
        finally:
            for each in reads:
                each.cancel()
        return needs

    def _is_frozen(self, seat: str) -> bool:
        view = self._term.view.components.get(split_seat(seat)[0])
        return view is not None and bool(view.desired.frozen_by)

    async def _contenders(self, seat: str) -> list[str]:
        """The candidates of a seat, first in line first."""
        path = self._term.tree.election(seat)
        try:
            names = await patient(lambda: self._client.children(path))
        except NoNode:
            return []
        return sorted(names, key=lambda name: name[-10:])
