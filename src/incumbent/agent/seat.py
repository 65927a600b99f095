"""One seat at one node: stand, wait, accept or decline, start, keep, stop, hand over.

Rule of this file: nothing is started but by a multi that makes a new epoch and a breadcrumb,
our own or one granted by whoever led before us, and the candidate is given up only in or after
the deletion of the breadcrumb, which follows the proof of death. Cancelling (the session is over) gives nothing up: the
session's end does.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from incumbent.agent import lifecycle
from incumbent.agent.adoption import adopt
from incumbent.agent.bell import Bell
from incumbent.agent.breadcrumbs import oblige, why_wait
from incumbent.agent.care import Care, failure_of
from incumbent.agent.commands import Orders, signal_number
from incumbent.agent.grant import Grant, read_offer
from incumbent.agent.instance import Instance
from incumbent.agent.offering import Offering
from incumbent.agent.quitting import ask_to_quit
from incumbent.agent.reasons import Reasons, why_not_run
from incumbent.agent.records import keep_breadcrumb, keep_word
from incumbent.agent.sentences import receipt
from incumbent.agent.settling import Settling, due_at, look
from incumbent.agent.start import NotStarted, read_breadcrumbs, read_ground, write_start
from incumbent.agent.tally import Tally
from incumbent.agent.tree import Breadcrumb, read, split_seat
from incumbent.agent.view import ComponentView, follow_children, patient, take_outcome
from incumbent.agent.word import Word
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NoNode,
    NotSent,
    NumbersDontFit,
    Refused,
    SessionError,
    SpecErrors,
)
from incumbent.guardian import messages as m
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.spec import Spec
from incumbent.wire import Check, Delete, MultiOp

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Seat"]

RETRY = 1.0
"""Seconds between two looks at what is wrong in the tree."""
PATIENCE = 0.02
"""Seconds that a handover waits for what makes it shorter."""
COURTESY = 0.2
"""Seconds that others leave the target of a plan to stand first."""


class Seat:
    """The procedure for one seat, within one session."""

    def __init__(self, term: Term, name: str, view: ComponentView) -> None:
        self._term = term
        self._client = term.client
        self._tree = term.tree
        self._clock = term.clock
        self.name = name
        self.component, self.number = split_seat(name)
        self._view = view
        self.bell = Bell(term.clock)
        self.leaving = ""
        """Why this seat is to be given up for good; "" while it is not."""
        self.word = Word(term, name)
        self._reasons = Reasons(term, name, view)
        self._spec: Spec | None = None
        self._program = ""
        self._written: Breadcrumb | None = None
        """The breadcrumb of our newest instance, as it was written."""
        self._unrecorded = ""
        """Why what runs has no breadcrumb, and must not go on; "" while it has."""
        self._accepted_version = -1
        self._tally = Tally(term, name, view, self._reasons)
        self._noticed_at = 0.0
        self._crumb = ""
        """The breadcrumb of our newest instance, until it is deleted."""
        self._listing: list[str] = []
        self._candidate_gone = False
        self._problem = ""
        self._digests: dict[str, str] = {}
        self._settling = Settling(in_effect={}, seen={})
        self._offering = Offering(term, name, view)
        self._care = Care(term, name, view, self.bell, self.word)

    @property
    def is_leading(self) -> bool:
        """Whether this node holds the seat, whatever runs."""
        return self.word.is_leading

    @property
    def requires(self) -> bool:
        """Whether it depends on files of this node."""
        return self._view.spec is not None and bool(self._view.spec.requires)

    @property
    def instance(self) -> Instance | None:
        """The newest instance here, until it is forgotten after its proof of death."""
        return self._term.instances.get(self.name)

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
            self._term.say(f"{self.name}: nothing is decided: {problem}")
        self._say("baffled", problem)
        await self._care.end()
        instance, why = self.instance, self.leaving or self._reasons.why_stop(self._program)
        if instance is not None and why:
            await self._stop_instance(why)
            with suppress(Refused):
                await oblige(self._client, [Delete(instance.breadcrumb)])
            self._term.forget(instance)
        if not self.leaving:
            await self.bell.heard(self._clock.boottime() + RETRY)
        return bool(self.leaving)

    async def _live(self) -> None:
        queue = self._term.queue(self._tree.election(self.name))
        await self._care.end()  # what an agent before us has left
        await self._clear_own_breadcrumbs()
        place = await self._adopted(queue)
        self._offering.may_be_granted = place is not None
        while not self.leaving or place is not None:
            if place is None:
                if not await self._until_standing():
                    return
                place = await queue.enter(self._offering.candidate())
            if self.instance is not None or await self._until_first(place):
                await self._lead(place)
            place = None

    async def _clear_own_breadcrumbs(self) -> None:
        """What earlier lives of this node started here is proven dead: at this agent's start by
        the guardian's, later before the session began. Others may be waiting for our word.
        """
        facts = self._term.facts
        for crumb in await read_breadcrumbs(self._client, self._tree, self.name):
            is_current = self.instance is not None and self.instance.epoch == crumb.epoch
            if is_current or (crumb.node_id, crumb.boot_id) != (facts.node_id, facts.boot_id):
                continue
            if crumb.containment != "sealed":
                await self._term.sweep(self.name, crumb)
            await oblige(self._client, [Delete(self._tree.breadcrumb(self.name, crumb.epoch))])

    async def _adopted(self, queue: Queue) -> Place | None:
        """A respawned agent goes on with the candidate and the instance of its session."""
        place, instance = await adopt(queue), self.instance
        if instance is None:
            return place
        if place is None:
            await self._carry(instance)
            await self._stop_instance("its candidate is gone")
            await oblige(self._client, [Delete(instance.breadcrumb)])
            self._term.forget(instance)
            return None
        try:
            data, _stat = await patient(lambda: self._client.get(instance.breadcrumb))
            crumb = read(Breadcrumb, data, instance.breadcrumb)
        except NoNode:
            crumb = None
        is_ours = crumb is not None and crumb.session == self._term.session_key
        if instance.is_empty and not is_ours:  # it ended long ago; somebody else may lead now
            self._term.forget(instance)
            return place
        self._spec, self._crumb = self._view.spec, instance.breadcrumb
        if self._spec is not None:
            instance.note = self._term.unenforced(self._spec)
        if crumb is not None:
            self._program, self._written = crumb.program, crumb
            self._settling = Settling(in_effect=crumb.config, seen=crumb.config)
        else:
            await self._stop_instance("its breadcrumb is gone")
        before = (await read_ground(self._client, self._tree, self.name)).observed
        if before is not None and before.epoch == instance.epoch:  # it holds on
            self.word.go_on(before)
        return place

    async def _carry(self, instance: Instance) -> None:
        """It has outlived its session in a pause: it goes on as long as nothing could take its
        place. Others honour its breadcrumb, which is not of this session.
        """
        while (
            self._term.is_carried(instance)
            and self._reasons.is_paused
            and not (instance.is_empty or self.leaving)
            and self._view.desired.run
        ):
            self._say("running", "its session has ended in the pause: restarted when that is over")
            await self.bell.heard()

    async def _until_standing(self) -> bool:
        """Wait until this node should be a candidate; False: it is to leave."""
        polite = False
        while not self.leaving:
            verdict = self._reasons.standing()
            if isinstance(verdict, lifecycle.StandAside):
                self._say("aside", verdict.why)
                again = self._clock.boottime() + 2.0 if self._reasons.unfit() else None
                await self.bell.heard(again or self._reasons.restrained_until())
                continue
            plan = self._reasons.plan()
            if not polite and self._term.plan_is_due(self.name):
                await self.bell.heard(self._term.plan_due_at(self.name))
                continue
            if not polite and plan is not None and plan.node != self._term.node:
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
                    ahead = self._reasons.nodes_standing(place.ahead())
                    why = self.leaving or self._reasons.why_stand_down()
                    if why:
                        first.cancel()
                        await asyncio.wait([first])
                        await self._step_out(place)
                        return False
                    self._say("waiting", f"waits for {self._owner(place)}")
                    self._offering.renew(place)
                    await self.bell.heard()
                await first
                self._offering.look()
                await self._look_for_target(place, ahead)
            except NoNode:
                self._term.say(f"{self.name}: its candidate was deleted by hand: standing again")
                await self._step_out(place)
                return False
            finally:
                first.cancel()
            self._noticed_at = self._clock.wall()
            names = [each.name for each in place.listing]
            verdict = self._reasons.accepts(self._term.node, self._offering.declined, names)
            if isinstance(verdict, lifecycle.Accept):
                self._accepted_version = self._term.view.plan.version
                return True
            self._offering.declined = self._term.view.plan.version
            self._term.say(f"{self.name}: declines: {verdict.why}")
            await self._step_out(place)
            return False

    async def _step_out(self, place: Place) -> None:
        """Leave the queue, and a start that was granted to us until then."""
        await place.leave()
        await self._waive()

    async def _waive(self) -> None:
        """Take a start back that may have been granted to us, and that we don't carry out."""
        self._offering.forget_ground()
        if self._offering.may_be_granted:
            await self._clear_own_breadcrumbs()
            self._offering.may_be_granted = False

    async def _look_for_target(self, place: Place, ahead: Sequence[str]) -> None:
        """A handover without a round trip goes by the listing from before it: the node that the
        plan means may stand by now, and must not be passed over. One that stood ahead of us
        has just left; it is not looked for.
        """
        plan = self._reasons.plan()
        if plan is None or plan.node in (self._term.node, *ahead):
            return
        if plan.node not in self._term.view.nodes:
            return
        if plan.node not in self._reasons.nodes_standing([each.name for each in place.listing]):
            await place.refresh()

    # ── leading

    async def _lead(self, place: Place) -> None:
        """Hold the seat until it is to be given up; then the candidate is gone too."""
        self.word.is_leading, self._candidate_gone = True, False
        self._listing = [each.name for each in place.listing]
        orders = Orders(
            self._client,
            self._tree,
            self.name,
            self.bell.ring,
            self._term.say,
            self._term.admission.distrust_order,
        )
        watches: list[asyncio.Future[None]] = [
            asyncio.ensure_future(each) for each in (self._watch_candidates(place), orders.follow())
        ]
        for watch in watches:
            watch.add_done_callback(take_outcome)
        try:
            while True:
                why = self._why_leave()
                instance = self.instance
                if why:
                    self._noticed_at = self._clock.wall()
                    grant = None
                    if instance is not None and not instance.is_empty:
                        grant = await self._stop_and_read_offer(place, instance, why)
                    await self._release(place, why, grant)
                    return
                if instance is not None and instance.is_empty:
                    await self._after_exit(place, instance)
                elif orders.has_news:
                    await self._take_order(place, orders)
                elif instance is not None:
                    stop = self._unrecorded or self._reasons.why_stop(self._program)
                    if stop:
                        await self._stop_instance(stop)
                        continue
                    if len(watches) == 2:  # not before the start, which they would delay
                        watches += self._keep_records(place)
                    await self._look_after(place, orders, instance)
                else:
                    wait, until = self._why_not_start()
                    if wait and self._offering.may_be_granted:
                        await self._waive()
                    elif wait and orders.begun is not None:
                        await self._answer(orders, place, f"failed: {wait}")
                    elif wait:
                        self._say(self._reasons.state_while_down(until), wait)
                        await self.bell.heard(until)
                    else:
                        await self._start(place)
        finally:
            self.word.is_leading = False
            self._care.cancel()
            for watch in watches:
                watch.cancel()

    def _keep_records(self, place: Place) -> list[asyncio.Future[None]]:
        def lost(why: str) -> None:
            self._unrecorded = why
            self._term.say(f"{self.name}: {why}")
            self.bell.ring()

        def again() -> None:
            self.word.repeat()
            self.bell.ring()

        kept: list[asyncio.Future[None]] = [
            asyncio.ensure_future(each)
            for each in (
                keep_breadcrumb(
                    self._term, self.name, place, lambda: (self.instance, self._written), lost
                ),
                keep_word(self._term, self.name, again),
            )
        ]
        for each in kept:
            each.add_done_callback(take_outcome)
        return kept

    async def _take_order(self, place: Place, orders: Orders) -> None:
        """A restart under the same leadership, or a signal."""
        instance = self.instance
        epoch = instance.epoch if instance is not None else self.word.epoch
        why_not = why_not_run(self._term, self._view, self.name)
        order = await orders.take(place, epoch, why_not, self._copies())
        if order is None:
            return
        self._term.say(f"{self.name}: {order.what} ordered{order.by}")
        signo = signal_number(order.command.signal)
        if order.command.do == "restart":
            self._tally.pardon()
            if instance is not None:
                await self._stop_instance(f"restart ordered{order.by}")
        elif instance is None or instance.state != "running" or signo is None:
            await self._answer(orders, place, "failed: nothing runs")
        else:
            self._term.custody.signal(instance, signo)
            await self._answer(orders, place, f"done: epoch {epoch}")

    async def _answer(self, orders: Orders, place: Place, outcome: str) -> None:
        instance = self.instance
        epoch = instance.epoch if instance is not None else self.word.epoch
        await orders.finish(place, epoch, outcome, self._copies())

    def _copies(self) -> int:
        return self._view.spec.copies if self._view.spec is not None else 1

    async def _start(self, place: Place) -> None:
        """Prove every earlier instance dead, write the new epoch, order the start."""
        spec, term = self._view.spec, self._term
        assert spec is not None
        control = term.view.control_zxid
        checks = (
            place.check_own(),
            Check(self._tree.control, term.view.control_version),
            Check(self._tree.desired(self.component), self._view.desired_version),
        )
        ready = await self._ready(spec)
        ground = await self._offering.ground()
        waiting = await why_wait(
            self._client,
            self._tree,
            self.name,
            ground.breadcrumbs,
            nodes=term.view.nodes,
            me=term.facts,
            on_unclean=spec.on_unclean,
            control=control,
            ring=self.bell.ring,
        )
        if waiting:
            self._say("waiting", waiting)
            await self.bell.heard(self._clock.boottime() + term.numbers.session / 2)
            return
        newest = term.custody.newest.get(self.name, 0)
        if ground.granted:
            self._crumb = self._tree.breadcrumb(self.name, ground.epoch)
            if ground.epoch <= newest or ground.granted != self._offering.nonce():
                return  # and read it again: that start is not the one that we would make
        epoch = ground.epoch if ground.granted else max(ground.epoch, newest) + 1
        if not isinstance(ready, m.Start):
            await self._tally.failed(str(ready))
            return
        start = term.numbered(ready, epoch)
        crumb = term.breadcrumb_of(spec, epoch, ground.granted or term.nonce())
        if crumb.config != self._digests:
            return  # it changed since the start was made ready: look again
        if not ground.granted:
            try:
                if not await write_start(
                    self._client, self._tree, self.name, crumb, ground, checks
                ):
                    return
            except NotStarted as error:
                term.say(f"{self.name}: not started: {error}")
                await self.bell.heard(self._clock.boottime() + 0.05)
                return
        self._spec, self._program, self._crumb = spec, crumb.program, start.breadcrumb or ""
        self._written, self._unrecorded = crumb, ""
        self._settling = Settling(in_effect=crumb.config, seen=crumb.config)
        if problem := await self._care.hook("before_start", epoch, give_up=self._why_not_go_on):
            await self._not_started(place, epoch, f"before_start: {problem}")
            return
        instance = Instance(
            seat=self.name,
            epoch=epoch,
            breadcrumb=self._crumb,
            containment=start.containment,
            note=term.unenforced(spec),
            session=term.session_key,
            control=crumb.control,
        )
        async with term.turn:
            if self._why_not_go_on():
                await self._not_started(place, epoch, "it was not waited for")
                return
            term.order_start(instance, start)
            handed_at = self._clock.wall()
            place.tell_next()
            while instance.state == "starting" and not self._why_not_go_on():
                await self.bell.heard()
        if instance.state == "running":
            self.word.receipt = receipt(
                self.name,
                ground.observed,
                term.node,
                self._noticed_at,
                handed_at,
                self._clock.wall(),
                was_left=bool(ground.breadcrumbs),
            )
            if self.word.receipt:
                term.say(self.word.receipt)

    async def _look_after(self, place: Place, orders: Orders, instance: Instance) -> None:
        """It is to go on, unless it is not well."""
        verdict, spec = None, self._spec or self._view.spec
        if instance.state == "running" and spec is not None:
            verdict = self._care.look(instance, spec)
            if verdict.failed:
                instance.failed = verdict.failed
                await self._stop_instance(verdict.failed)
                return
            if orders.begun is not None and self._care.is_up(instance):
                await self._answer(orders, place, f"done: epoch {instance.epoch}")
                return
        due = self._config_due() if instance.state == "running" else math.inf
        if self._clock.boottime() >= due:
            await self._configure(instance)
            return
        self.word.say_instance(instance, verdict)
        until = min(verdict.until if verdict is not None else math.inf, due)
        await self.bell.heard(until if math.isfinite(until) else None)

    def _config_due(self) -> float:
        """When configuration that has changed is to take effect; inf: it is as it was started."""
        spec, now = self._view.spec or self._spec, self._clock.boottime()
        if spec is None or spec.on_config == "none" or self._term.unset(spec):
            return math.inf
        self._settling = look(self._settling, self._term.digests(spec), now)
        return due_at(self._settling, spec.debounce, spec.debounce_max)

    async def _configure(self, instance: Instance) -> None:
        """What has changed takes effect: by a restart in place, or by a signal."""
        spec = self._view.spec or self._spec
        assert spec is not None
        names = [
            n for n in spec.config if self._settling.seen.get(n) != self._settling.in_effect.get(n)
        ]
        keys = ", ".join(spec.config[name].key for name in names)
        what = f"the configuration has changed: {keys}"
        if spec.on_config == "restart":
            self._term.say(f"{self.name}: {what}")
            await self._stop_instance(what)
            return
        try:
            self._term.write_config(spec, self.name)
        except SpecErrors as error:
            what = str(error)
        self._term.say(f"{self.name}: {what}; {spec.on_config}")
        self._term.custody.signal(instance, signal.SIGHUP)
        self._settling = Settling(in_effect=self._settling.seen, seen=self._settling.seen)

    async def _ready(self, spec: Spec) -> m.Start | IncumbentError:
        """The order to start it, yet without its epoch; or why this node cannot. It takes as long
        as a round trip, and is made during one: what the start stands on is asked for first.
        """
        self._offering.look()
        await asyncio.sleep(0)
        self._client.flush()
        try:
            self._digests = self._term.digests(spec)
            return self._term.start_of(spec, self.name)
        except (NumbersDontFit, SpecErrors) as error:
            return error

    async def _stop_instance(self, why: str) -> None:
        """Order the stop and wait for the proof, however long it takes."""
        instance = self.instance
        assert instance is not None
        if instance.state == "running":
            self._say("stopping", why)
        await self._care.before_stop(instance, why)
        while not instance.is_empty:
            if not instance.stop_ordered:
                grace = self._spec.stop_grace if self._spec else None
                grace = self._term.numbers.stop_grace if grace is None else grace
                if self._spec and self._spec.stop_http and instance.state == "running":
                    grace = await self._ask_to_quit(instance, self._spec.stop_http, grace, why)
                self._term.custody.order_stop(instance, grace)
            self._say("stuck" if instance.state == "stuck" else "stopping", why)
            await self.bell.heard()

    async def _ask_to_quit(self, instance: Instance, url: str, grace: float, why: str) -> float:
        """The first rung of the stop ladder, half of the grace long; what is left of it."""
        instance.why_stopping = why  # its end is no failure
        self._say("stopping", why)
        until = self._clock.boottime() + grace / 2
        deaf = await ask_to_quit(url, grace / 2)
        if deaf:
            self._term.say(f"{self.name}: {url}: {deaf}; the stop signal follows")
        while not deaf and not instance.is_empty and self._clock.boottime() < until:
            await self.bell.heard(until)
        return max(0.0, until + grace / 2 - self._clock.boottime())

    async def _after_exit(self, place: Place, instance: Instance) -> None:
        """A tree is proven empty: count a failure, or not, and take its breadcrumb away."""
        self.word.epoch = instance.epoch  # it may have ended before anything was said of it
        failure = failure_of(instance, self._spec)
        why = self.word.reason if instance.stop_ordered else instance.why_stopping
        await self._care.ended(instance, why)
        if not failure and (instance.stop_ordered or instance.why_stopping):
            self._tally.pardon()
        else:
            await self._tally.ended(instance, self._spec, self._care.uptime(instance))
        self._term.forget(instance)
        if self._why_not_start()[0]:  # else the next start's multi deletes it, or `_release`
            await oblige(self._client, [place.check_own(), Delete(instance.breadcrumb)])
            self._crumb = ""

    async def _not_started(self, place: Place, epoch: int, why: str) -> None:
        """A hook would not have it, or it was not waited for; nothing of the epoch runs."""
        if not self._why_not_go_on() and self._term.is_leased():
            await self._care.failed_to_start(epoch, why)
            self.word.epoch = epoch
            await self._tally.failed(why, key=f"{self.name}@{epoch}")
        await oblige(self._client, [place.check_own(), Delete(self._crumb)])
        self._crumb = ""

    async def _release(self, place: Place, why: str, grant: Grant | None) -> None:
        """Give the seat up: breadcrumb, last word and candidate in one transaction; with a
        grant, the next one's start too."""
        instance = self.instance
        if instance is not None:
            await self._care.ended(instance, why)
        await self._care.end()
        ops: list[MultiOp] = [place.check_own()]
        if instance is not None:
            self._term.forget(instance)
            ops.append(self.word.last(instance, why, self._noticed_at))
        if self._crumb:
            ops.append(Delete(self._crumb))
            self._crumb = ""
        self.word.given_up(why)
        ops.append(Delete(place.path))
        if grant is None or not await self._granted([*grant.ops(self._tree, self.name), *ops]):
            await oblige(self._client, ops)
        await self._step_out(place)

    async def _granted(self, ops: list[MultiOp]) -> bool:
        """False: not, as far as we know."""
        try:
            await self._client.multi(ops)
        except (NotSent, FateUnknown, Refused):
            return False
        return True

    async def _stop_and_read_offer(
        self, place: Place, instance: Instance, why: str
    ) -> Grant | None:
        reading = asyncio.ensure_future(self._read_offer(place, instance.epoch))
        reading.add_done_callback(take_outcome)
        try:
            await self._stop_instance(why)
            await asyncio.wait([reading], timeout=PATIENCE)
        finally:
            reading.cancel()
        is_read = reading.done() and not reading.cancelled() and reading.exception() is None
        return reading.result() if is_read else None

    async def _read_offer(self, place: Place, epoch: int) -> Grant | None:
        """Of the next in line, if it would accept."""
        grant = await read_offer(self._client, self._tree, place, self.name, epoch, self._listing)
        if grant is None:
            return None
        others = [each for each in self._listing if each != place.name]
        verdict = self._reasons.accepts(grant.candidate.node, grant.candidate.declined, others)
        return grant if isinstance(verdict, lifecycle.Accept) else None

    # ── why

    def _why_leave(self) -> str:
        """Why the seat is to be given up, or "" to keep it."""
        if self.leaving:
            return self.leaving
        if self._candidate_gone:
            return "its candidate was deleted by hand"
        not_here = self._reasons.why_not_here(is_running=self.instance is not None)
        return not_here or self._reasons.why_abdicate(self._accepted_version, self._listing)

    def _why_not_go_on(self) -> str:
        """Why a start that was written is not to be waited for."""
        return self._why_leave() or self._reasons.why_stop(self._program)

    def _why_not_start(self) -> tuple[str, float | None]:
        """(why nothing may start now, until when that holds by itself)."""
        if why := why_not_run(self._term, self._view, self.name):
            return why, None
        why, until = self._tally.why_wait()
        if why:
            return why, until
        if self._clock.boottime() < (until := self._term.starts_from(self.name)):
            return "back after a lost session, programs start one after the other", until
        if self._view.spec is not None and (key := self._term.unset(self._view.spec)):
            return f"{key} is not set: `incumbent config set {key} VALUE`", None
        if why := self._term.why_paused():
            return why, None
        return "" if self._term.is_leased() else "waits for an acknowledged beat", None

    # ── small things

    def _say(self, state: str, reason: str) -> None:
        self.word.say(state, reason, self.instance)

    def _owner(self, place: Place) -> str:
        nodes = self._reasons.nodes_standing([each.name for each in place.listing[:1]])
        return nodes[0] if nodes else "whoever is ahead"

    async def _watch_candidates(self, place: Place) -> None:
        """While leading: does the plan's target stand, and is our own candidate still there?"""
        election = self._tree.election(self.name)

        async def see(names: list[str]) -> None:
            self._listing = names
            self._candidate_gone = place.name not in names
            self.bell.ring()

        await follow_children(self._client, election, see)
