"""One seat at one node: stand, wait, accept or decline, lead, and stand again.

Rule of this file: nobody leads but whoever was first in the queue and accepts, or goes on with what
this session has started. What is wrong in the tree stops this seat alone, and until it is put right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from incumbent.agent import lifecycle
from incumbent.agent.adoption import adopt
from incumbent.agent.bell import Bell
from incumbent.agent.breadcrumbs import oblige
from incumbent.agent.instance import Instance
from incumbent.agent.offering import Offering
from incumbent.agent.reasons import Reasons
from incumbent.agent.rolling import Rolling
from incumbent.agent.runner import Runner
from incumbent.agent.start import read_breadcrumbs, read_ground
from incumbent.agent.tenure import Tenure
from incumbent.agent.tree import Breadcrumb, read, split_seat
from incumbent.agent.view import ComponentView, patient
from incumbent.agent.word import Word
from incumbent.errors import (
    IncumbentError,
    NoNode,
    Refused,
    SessionError,
)
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.wire import Delete

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Seat"]

RETRY = 1.0
"""Seconds between two looks at what is wrong in the tree."""
COURTESY = 0.2
"""Seconds that others leave the target of a plan to stand first."""


class Seat:
    """The procedure for one seat, within one session."""

    def __init__(self, term: Term, name: str, view: ComponentView) -> None:
        self.term: Term = term
        self._client = term.client
        self._tree = term.tree
        self._clock = term.clock
        self.name: str = name
        self.component: str = split_seat(name)[0]
        self.view: ComponentView = view
        self.bell: Bell = Bell(term.clock)
        self.leaving: str = ""
        """Why this seat is to be given up for good; "" while it is not."""
        self.word: Word = Word(term, name)
        self.reasons: Reasons = Reasons(term, name, view)
        self.rolling: Rolling = Rolling(term, name, view)
        self.offering: Offering = Offering(term, name, view, self.rolling.edition)
        self.runner: Runner = Runner(self)
        self._accepted = -1
        """The version of the plan under which we took the seat."""
        self._noticed_at = 0.0
        self._problem = ""

    @property
    def is_leading(self) -> bool:
        """Whether this node holds the seat, whatever runs."""
        return self.word.is_leading

    @property
    def requires(self) -> bool:
        """Whether it depends on files of this node."""
        return self.view.spec is not None and bool(self.view.spec.requires)

    # ── the whole life

    async def run(self) -> None:
        """Until `leaving` is set and everything of ours here is gone.

        What is wrong in the tree (unreadable, missing, a stranger in the queue) stops this seat
        alone, and until it is put right: other seats, and what runs here, go on.
        """
        while True:
            try:
                await self._live()
                return
            except SessionError:
                raise
            except IncumbentError as error:
                if await self._baffled(error):
                    return

    async def _baffled(self, error: IncumbentError) -> bool:
        """Wait a little, orders are obeyed meanwhile. True: given up, as far as that goes."""
        problem = str(error)
        if isinstance(error, NoNode):
            problem = f"{error.path} is missing; `incumbent apply` makes it anew"
        if problem != self._problem:
            self._problem = problem
            self.term.say(f"{self.name}: nothing is decided: {problem}")
        self._say("baffled", problem)
        await self.runner.care.end()
        instance = self.runner.instance
        why = self.leaving or self.reasons.why_stop()
        if instance is not None and why:
            await self.runner.stop(why)
            with suppress(Refused):
                await oblige(self._client, [Delete(instance.breadcrumb)])
            self.term.forget(instance)
        if not self.leaving:
            await self.bell.heard(self._clock.boottime() + RETRY)
        return bool(self.leaving)

    async def _live(self) -> None:
        queue = self.term.queue(self._tree.election(self.name))
        await self.runner.care.end()  # what an agent before us has left
        await self._clear_own_breadcrumbs()
        place = await self._adopted(queue)
        self.offering.may_be_granted = place is not None
        while not self.leaving or place is not None:
            if place is None:
                if not await self._until_standing():
                    return
                place = await queue.enter(self.offering.candidate())
            if self.runner.instance is not None or await self._until_first(place):
                await Tenure(self, place, self._accepted, self._noticed_at).lead()
            place = None

    async def _clear_own_breadcrumbs(self) -> None:
        """What earlier lives of this node started here is proven dead: at this agent's start by
        the guardian's, later before the session began. Others may be waiting for our word.
        """
        facts = self.term.presence.facts
        for crumb in await read_breadcrumbs(self._client, self._tree, self.name):
            is_current = (
                self.runner.instance is not None and self.runner.instance.epoch == crumb.epoch
            )
            if is_current or (crumb.node_id, crumb.boot_id) != (facts.node_id, facts.boot_id):
                continue
            if crumb.containment != "sealed":
                await self.term.host.sweep(self.name, crumb.epoch)
            await oblige(self._client, [Delete(self._tree.breadcrumb(self.name, crumb.epoch))])

    async def _adopted(self, queue: Queue) -> Place | None:
        """A respawned agent goes on with the candidate and the instance of its session."""
        place, instance = await adopt(queue), self.runner.instance
        if instance is None:
            return place
        if place is None:
            await self._carry(instance)
            await self.runner.stop("its candidate is gone")
            await oblige(self._client, [Delete(instance.breadcrumb)])
            self.term.forget(instance)
            return None
        try:
            data, _stat = await patient(lambda: self._client.get(instance.breadcrumb))
            crumb = read(Breadcrumb, data, instance.breadcrumb)
        except NoNode:
            crumb = None
        is_ours = crumb is not None and crumb.session == self.term.session_key
        if instance.is_empty and not is_ours:  # it ended long ago; somebody else may lead now
            self.term.forget(instance)
            return place
        self.runner.go_on(instance, crumb)
        if crumb is None:
            await self.runner.stop("its breadcrumb is gone")
        before = (await read_ground(self._client, self._tree, self.name)).observed
        if before is not None and before.epoch == instance.epoch:  # it holds on
            self.word.go_on(before)
        return place

    async def _carry(self, instance: Instance) -> None:
        """It has outlived its session in a pause: it goes on as long as nothing could take its
        place. Others honour its breadcrumb, which is not of this session.
        """
        while (
            self.term.is_carried(instance)
            and self.reasons.is_paused
            and not (instance.is_empty or self.leaving)
            and self.view.desired.run
        ):
            self._say("running", "its session has ended in the pause: restarted when that is over")
            await self.bell.heard()

    async def _until_standing(self) -> bool:
        """Wait until this node should be a candidate; False: it is to leave."""
        polite = False
        while not self.leaving:
            verdict = self.reasons.standing()
            if isinstance(verdict, lifecycle.StandAside):
                self._say("aside", verdict.why)
                again = self._clock.boottime() + 2.0 if self.reasons.unfit() else None
                await self.bell.heard(again or self.reasons.restrained_until())
                continue
            plan = self.reasons.plan()
            if not polite and self.term.plan_is_due(self.name):
                await self.bell.heard(self.term.plan_due_at(self.name))
                continue
            if not polite and plan is not None and plan.node != self.term.node:
                polite = True
                until = self._clock.boottime() + COURTESY
                while self._clock.boottime() < until and not self.leaving:
                    await self.bell.heard(until)
                continue
            return True
        return False

    async def _until_first(self, place: Place) -> bool:
        """Wait in the queue. False: we left it."""
        while True:
            first = asyncio.ensure_future(place.first())
            first.add_done_callback(self.bell.ring)
            ahead: list[str] = []
            try:
                while not first.done():
                    ahead = self.reasons.nodes_standing(place.ahead())
                    why = self.leaving or self.reasons.why_stand_down()
                    if why:
                        first.cancel()
                        await asyncio.wait([first])
                        await self.step_out(place)
                        return False
                    self._say("waiting", f"waits for {self._owner(place)}")
                    self.offering.renew(place)
                    await self.bell.heard()
                await first
                self.offering.look()
                await self._look_for_target(place, ahead)
            except NoNode:
                self.term.say(f"{self.name}: its candidate was deleted by hand: standing again")
                await self.step_out(place)
                return False
            finally:
                first.cancel()
            self._noticed_at = self._clock.wall()
            names = [each.name for each in place.listing]
            verdict = self.reasons.accepts(self.term.node, self.offering.declined, names)
            if isinstance(verdict, lifecycle.Accept):
                self._accepted = self.term.view.plan.version
                return True
            self.offering.declined = self.term.view.plan.version
            self.term.say(f"{self.name}: declines: {verdict.why}")
            await self.step_out(place)
            return False

    async def step_out(self, place: Place) -> None:
        """Leave the queue, and a start that was granted to us until then."""
        await place.leave()
        await self.waive()

    async def waive(self) -> None:
        """Take a start back that may have been granted to us, and that we don't carry out."""
        self.offering.forget_ground()
        if self.offering.may_be_granted:
            await self._clear_own_breadcrumbs()
            self.offering.may_be_granted = False

    async def _look_for_target(self, place: Place, ahead: Sequence[str]) -> None:
        """A handover without a round trip goes by the listing from before it: the node that the
        plan means may stand by now, and must not be passed over. One that stood ahead of us
        has just left; it is not looked for.
        """
        plan = self.reasons.plan()
        if plan is None or plan.node in (self.term.node, *ahead):
            return
        if plan.node not in self.term.view.nodes:
            return
        if plan.node not in self.reasons.nodes_standing([each.name for each in place.listing]):
            await place.refresh()

    # ── small things

    def _say(self, state: str, reason: str) -> None:
        self.word.say(state, reason, self.runner.instance)

    def _owner(self, place: Place) -> str:
        nodes = self.reasons.nodes_standing([each.name for each in place.listing[:1]])
        return nodes[0] if nodes else "whoever is ahead"
