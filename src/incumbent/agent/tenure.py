"""One leadership of a seat at one node: what is to be started, kept, stopped, or handed over.

Rule of this file: the candidate is given up only in or after the deletion of the breadcrumb, which
follows the proof of death. Cancelling (the session is over) gives nothing up: the session's end
does.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from incumbent.agent import lifecycle
from incumbent.agent.breadcrumbs import oblige
from incumbent.agent.commands import Orders, signal_number
from incumbent.agent.grant import Grant, read_offer
from incumbent.agent.instance import Instance
from incumbent.agent.reasons import why_not_run
from incumbent.agent.records import keep_breadcrumb, keep_word
from incumbent.agent.rolling import Look
from incumbent.agent.view import follow_children, take_outcome
from incumbent.errors import FateUnknown, NotSent, Refused
from incumbent.recipes.place import Place
from incumbent.wire import Delete, Multi, MultiOp

if TYPE_CHECKING:
    from incumbent.agent.seat import Seat

__all__ = ["Tenure"]

PATIENCE = 0.02
"""Seconds that a handover waits for what makes it shorter."""


class Tenure:
    """Of `place`, from being first until it is given up.

    accepted     the version of the plan under which the seat was taken
    noticed_at   wall time at which we were found to be first
    """

    def __init__(self, seat: Seat, place: Place, accepted: int, noticed_at: float) -> None:
        self._seat = seat
        self._place = place
        self._accepted = accepted
        self._noticed_at = noticed_at
        self._term = term = seat.term
        self._name = seat.name
        self._view = seat.view
        self._bell = seat.bell
        self._word = seat.word
        self._reasons = seat.reasons
        self._offering = seat.offering
        self._runner = seat.runner
        self._rolling = seat.rolling
        self._listing = [each.name for each in place.listing]
        self._candidate_gone = False
        self._orders = Orders(
            term.client,
            term.tree,
            seat.name,
            seat.bell.ring,
            term.say,
            term.admission.distrust_order,
        )

    async def lead(self) -> None:
        """Hold the seat until it is to be given up; then the candidate is gone too."""
        self._word.is_leading = True
        watches: list[asyncio.Future[None]] = [
            asyncio.ensure_future(each)
            for each in (self._watch_candidates(), self._orders.follow())
        ]
        for watch in watches:
            watch.add_done_callback(take_outcome)
        try:
            while True:
                why = self._why_leave()
                instance = self._runner.instance
                if why:
                    self._noticed_at = self._term.clock.wall()
                    grant = None
                    if instance is not None and not instance.is_empty:
                        grant = await self._stop_and_read_offer(instance, why)
                    await self._release(why, grant)
                    return
                if instance is not None and instance.is_empty:
                    await self._runner.after_exit(self._place, instance)
                elif self._orders.has_news:
                    await self._take_order()
                elif instance is not None:
                    stop = self._runner.unrecorded or self._reasons.why_stop()
                    if stop:
                        await self._runner.stop(stop)
                        continue
                    if len(watches) == 2:  # not before the start, which they would delay
                        watches += self._keep_records()
                    await self._look_after(instance)
                else:
                    wait, until = self._runner.why_not_start()
                    if wait and self._offering.may_be_granted:
                        await self._seat.waive()
                    elif wait and self._runner.crumb:  # the start that was to delete it is not made
                        await self._runner.clear(self._place)
                    elif wait and self._orders.begun is not None:
                        await self._answer(f"failed: {wait}")
                    elif wait:
                        self._word.say(
                            self._reasons.state_while_down(until), wait, self._runner.instance
                        )
                        await self._bell.heard(until)
                    else:
                        await self._runner.start(
                            self._place, self._noticed_at, give_up=self._why_not_go_on
                        )
        finally:
            self._word.is_leading = False
            self._runner.care.cancel()
            for watch in watches:
                watch.cancel()

    async def _look_after(self, instance: Instance) -> None:
        """It is to go on, unless it is not well."""
        verdict, look = None, Look()
        edition = self._runner.edition = self._runner.edition or self._rolling.running()
        if instance.state == "running" and edition is not None:
            verdict = self._runner.care.look(instance, edition)
            if verdict.failed:
                instance.failed = verdict.failed
                await self._runner.stop(verdict.failed)
                return
            if self._orders.begun is not None and self._runner.care.is_up(instance):
                await self._answer(f"done: epoch {instance.epoch}")
                return
        if instance.state == "running" and not self._reasons.is_held:
            is_up = self._runner.care.is_up(instance)
            look = await self._rolling.look(self._place, is_up=is_up)
        if look.change and instance.state == "running":
            await self._runner.change(instance, look.change)
            return
        self._word.say_instance(instance, verdict, look.why)
        until = min(verdict.until if verdict is not None else math.inf, look.until)
        await self._bell.heard(until if math.isfinite(until) else None)

    def _keep_records(self) -> list[asyncio.Future[None]]:
        def lost(why: str) -> None:
            self._runner.unrecorded = why
            self._term.say(f"{self._name}: {why}")
            self._bell.ring()

        def again() -> None:
            self._word.repeat()
            self._bell.ring()

        kept: list[asyncio.Future[None]] = [
            asyncio.ensure_future(each)
            for each in (
                keep_breadcrumb(
                    self._term,
                    self._name,
                    self._place,
                    lambda: (self._runner.instance, self._runner.written),
                    lost,
                ),
                keep_word(self._term, self._name, again),
            )
        ]
        for each in kept:
            each.add_done_callback(take_outcome)
        return kept

    async def _take_order(self) -> None:
        """A restart under the same leadership, or a signal."""
        instance = self._runner.instance
        epoch = instance.epoch if instance is not None else self._word.epoch
        why_not = why_not_run(self._term, self._view, self._name)
        order = await self._orders.take(self._place, epoch, why_not, self._copies())
        if order is None:
            return
        self._term.say(f"{self._name}: {order.what} ordered{order.by}")
        signo = signal_number(order.command.signal)
        if order.command.do == "restart":
            self._runner.tally.pardon()
            if instance is not None:
                await self._runner.stop(f"restart ordered{order.by}")
        elif instance is None or instance.state != "running" or signo is None:
            await self._answer("failed: nothing runs")
        else:
            self._term.custody.signal(instance, signo)
            await self._answer(f"done: epoch {epoch}")

    async def _answer(self, outcome: str) -> None:
        instance = self._runner.instance
        epoch = instance.epoch if instance is not None else self._word.epoch
        await self._orders.finish(self._place, epoch, outcome, self._copies())

    def _copies(self) -> int:
        return self._view.spec.copies if self._view.spec is not None else 1

    async def _release(self, why: str, grant: Grant | None) -> None:
        """Give the seat up: breadcrumb, last word and candidate in one transaction; with a
        grant, the next one's start too."""
        instance = self._runner.instance
        if instance is not None:
            await self._runner.care.ended(instance, why)
        await self._runner.care.end()
        ops: list[MultiOp] = [self._place.check_own()]
        if instance is not None:
            self._term.forget(instance)
            ops.append(self._word.last(instance, why, self._noticed_at))
        if self._runner.crumb:
            ops.append(Delete(self._runner.crumb))
            self._runner.crumb = ""
        self._word.given_up(why)
        ops.append(Delete(self._place.path))
        if grant is None or not await self._granted(
            [*grant.ops(self._term.tree, self._name), *ops]
        ):
            await oblige(self._term.client, ops)
        await self._seat.step_out(self._place)

    async def _granted(self, ops: list[MultiOp]) -> bool:
        """False: not, as far as we know."""
        written = self._term.client.submit(Multi(ops))
        self._term.client.flush()  # the next one waits
        try:
            await written
        except (NotSent, FateUnknown, Refused):
            return False
        return True

    async def _stop_and_read_offer(self, instance: Instance, why: str) -> Grant | None:
        reading = asyncio.ensure_future(self._read_offer(instance.epoch))
        reading.add_done_callback(take_outcome)
        try:
            await self._runner.stop(why)
            await asyncio.wait([reading], timeout=PATIENCE)
        finally:
            reading.cancel()
        is_read = reading.done() and not reading.cancelled() and reading.exception() is None
        return reading.result() if is_read else None

    async def _read_offer(self, epoch: int) -> Grant | None:
        """Of the next in line, if it would accept."""
        grant = await read_offer(
            self._term.client, self._term.tree, self._place, self._name, epoch, self._listing
        )
        if grant is None:
            return None
        others = [each for each in self._listing if each != self._place.name]
        verdict = self._reasons.accepts(grant.candidate.node, grant.candidate.declined, others)
        return grant if isinstance(verdict, lifecycle.Accept) else None

    # ── why

    def _why_leave(self) -> str:
        """Why the seat is to be given up, or "" to keep it."""
        if self._seat.leaving:
            return self._seat.leaving
        if self._candidate_gone:
            return "its candidate was deleted by hand"
        not_here = self._reasons.why_not_here(is_running=self._runner.instance is not None)
        return not_here or self._reasons.why_abdicate(self._accepted, self._listing)

    def _why_not_go_on(self) -> str:
        """Why a start that was written is not to be waited for."""
        if why := self._why_leave() or self._reasons.why_stop():
            return why
        return "its spec has changed" if self._rolling.is_overtaken else ""

    async def _watch_candidates(self) -> None:
        """While leading: does the plan's target stand, and is our own candidate still there?"""
        election = self._term.tree.election(self._name)

        async def see(names: list[str]) -> None:
            self._listing = names
            self._candidate_gone = self._place.name not in names
            self._bell.ring()

        await follow_children(self._term.client, election, see)
