"""What runs here of one seat: started, configured, stopped, and what its end means.

Rule of this file: nothing is started but by a multi that makes a new epoch and a breadcrumb, our
own or one granted by whoever led before us; and no breadcrumb is deleted before the proof of death.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from incumbent.agent.breadcrumbs import oblige, why_wait
from incumbent.agent.care import Care, failure_of
from incumbent.agent.edition import Edition
from incumbent.agent.instance import Instance
from incumbent.agent.quitting import ask_to_quit
from incumbent.agent.reasons import why_not_run
from incumbent.agent.sentences import receipt
from incumbent.agent.start import NotStarted, write_start
from incumbent.agent.tally import Tally
from incumbent.agent.tree import Breadcrumb
from incumbent.errors import IncumbentError, NumbersDontFit, SpecErrors
from incumbent.guardian import messages as m
from incumbent.recipes.place import Place
from incumbent.spec import Spec
from incumbent.wire import Check, Delete

if TYPE_CHECKING:
    from incumbent.agent.seat import Seat

__all__ = ["Runner"]


class Runner:
    """Of one seat, within one session.

    written      the breadcrumb of our newest instance, as it was written
    crumb        where that is, until it is deleted; "" then
    unrecorded   why what runs has no breadcrumb, and must not go on; "" while it has
    """

    def __init__(self, seat: Seat) -> None:
        self.written: Breadcrumb | None = None
        self.crumb = ""
        self.unrecorded = ""
        self._term = seat.term
        self._name = seat.name
        self._component = seat.component
        self._view = seat.view
        self._bell = seat.bell
        self._word = seat.word
        self._offering = seat.offering
        self._rolling = seat.rolling
        self.care = Care(seat.term, seat.name, seat.view, seat.bell, seat.word)
        self.tally = Tally(seat.term, seat.name, seat.view, seat.reasons)

    @property
    def edition(self) -> Edition | None:
        """What our newest instance was started with, or has been told since."""
        return self.care.edition

    @edition.setter
    def edition(self, edition: Edition | None) -> None:
        self.care.edition = edition

    @property
    def spec(self) -> Spec | None:
        return self.edition.spec if self.edition is not None else None

    @property
    def instance(self) -> Instance | None:
        """The newest instance here, until it is forgotten after its proof of death."""
        return self._term.instances.get(self._name)

    def go_on(self, instance: Instance, crumb: Breadcrumb | None) -> None:
        """With an instance that an agent before us has started."""
        self.crumb = instance.breadcrumb
        if crumb is not None:
            self.written = crumb
            self._rolling.began(crumb)
        self.edition = self._rolling.running()
        if self.spec is not None:
            instance.note = self._term.launcher.unenforced(self.spec)

    async def start(self, place: Place, noticed_at: float, *, give_up: Callable[[], str]) -> None:
        """Prove every earlier instance dead, write the new epoch, order the start.

        give_up   why it is no longer to be waited for; "" while it is
        """
        edition, term = self._rolling.edition(), self._term
        assert edition is not None
        spec, control = edition.spec, term.view.control_zxid
        checks = (
            place.check_own(),
            Check(self._term.tree.control, term.view.control_version),
            Check(self._term.tree.desired(self._component), self._view.desired_version),
        )
        ready = self._ready(edition)
        ground = await self._offering.ground()
        waiting = await why_wait(
            self._term.client,
            self._term.tree,
            self._name,
            ground.breadcrumbs,
            nodes=term.view.nodes,
            me=term.presence.facts,
            on_unclean=spec.on_unclean,
            control=control,
            ring=self._bell.ring,
        )
        if waiting:
            self._word.say("waiting", waiting, self.instance)
            await self._bell.heard(self._term.clock.boottime() + term.numbers.session / 2)
            return
        newest = term.custody.newest.get(self._name, 0)
        if ground.granted:
            self.crumb = self._term.tree.breadcrumb(self._name, ground.epoch)
            if ground.epoch <= newest or ground.granted != self._offering.nonce():
                return  # and read it again: that start is not the one that we would make
        epoch = ground.epoch if ground.granted else max(ground.epoch, newest) + 1
        if not isinstance(ready, m.Start):
            if not await self._rolling.failed(place, str(ready), edition=edition):
                await self.tally.failed(str(ready))
            return
        start = term.launcher.numbered(ready, epoch)
        if self._rolling.edition() != edition:
            return  # it changed since the start was made ready: look again
        crumb = term.launcher.breadcrumb_of(edition, epoch, ground.granted or term.nonce())
        if not ground.granted:
            try:
                if not await write_start(
                    self._term.client, self._term.tree, self._name, crumb, ground, checks
                ):
                    return
            except NotStarted as error:
                term.say(f"{self._name}: not started: {error}")
                await self._bell.heard(self._term.clock.boottime() + 0.05)
                return
        self.edition, self.crumb = edition, start.breadcrumb or ""
        self.written, self.unrecorded = crumb, ""
        self._rolling.began(crumb)
        if problem := await self.care.hook("before_start", epoch, give_up=give_up):
            why = f"before_start: {problem}"
            await self._not_started(place, epoch, why, not give_up())
            return
        instance = Instance(
            seat=self._name,
            epoch=epoch,
            breadcrumb=self.crumb,
            containment=start.containment,
            note=term.launcher.unenforced(spec),
            session=term.session_key,
            control=crumb.control,
        )
        async with term.turn:
            if give_up():
                await self._not_started(place, epoch, "it was not waited for", False)
                return
            term.order_start(instance, start)
            handed_at = self._term.clock.wall()
            place.tell_next()
            while instance.state == "starting" and not give_up():
                await self._bell.heard()
        if instance.state == "running":
            self._word.receipt = receipt(
                self._name,
                ground.observed,
                term.node,
                noticed_at,
                handed_at,
                self._term.clock.wall(),
                was_left=bool(ground.breadcrumbs),
            )
            if self._word.receipt:
                term.say(self._word.receipt)

    async def change(self, instance: Instance, what: str) -> None:
        """What operators have changed takes effect: by a restart in place, or by a signal."""
        edition, before = self._rolling.edition(), self.edition
        is_told = edition is not None and edition.spec.on_config == "SIGHUP"
        if not is_told or edition is None or before is None or edition.program != before.program:
            self._term.say(f"{self._name}: {what}")
            await self.stop(what)
            return
        try:
            self._term.launcher.write_config(edition, self._name)
        except SpecErrors as error:
            what = str(error)
        self._term.say(f"{self._name}: {what}; SIGHUP")
        self._term.custody.signal(instance, signal.SIGHUP)
        self.edition = edition
        self._rolling.told(edition)

    def _ready(self, edition: Edition) -> m.Start | IncumbentError:
        """The order to start it, yet without its epoch; or why this node cannot. It takes as long
        as a round trip, and is made during one: what the start stands on is asked for first.
        """
        self._offering.look()
        try:
            return self._term.launcher.start_of(edition, self._name)
        except (NumbersDontFit, SpecErrors) as error:
            self._term.host.forget_config(self._name)  # nothing will run that has these files
            return error

    async def stop(self, why: str) -> None:
        """Order the stop and wait for the proof, however long it takes."""
        instance = self.instance
        assert instance is not None
        if instance.state == "running":
            self._word.say("stopping", why, self.instance)
        await self.care.before_stop(instance, why)
        while not instance.is_empty:
            if not instance.stop_ordered:
                grace = self.spec.stop_grace if self.spec else None
                grace = self._term.numbers.stop_grace if grace is None else grace
                if self.spec and self.spec.stop_http and instance.state == "running":
                    grace = await self._ask_to_quit(instance, self.spec.stop_http, grace, why)
                self._term.custody.order_stop(instance, grace)
            self._word.say("stuck" if instance.state == "stuck" else "stopping", why, self.instance)
            await self._bell.heard()

    async def _ask_to_quit(self, instance: Instance, url: str, grace: float, why: str) -> float:
        """The first rung of the stop ladder, half of the grace long; what is left of it."""
        instance.why_stopping = why  # its end is no failure
        self._word.say("stopping", why, self.instance)
        until = self._term.clock.boottime() + grace / 2
        deaf = await ask_to_quit(url, grace / 2)
        if deaf:
            self._term.say(f"{self._name}: {url}: {deaf}; the stop signal follows")
        while not deaf and not instance.is_empty and self._term.clock.boottime() < until:
            await self._bell.heard(until)
        return max(0.0, until + grace / 2 - self._term.clock.boottime())

    async def after_exit(self, place: Place, instance: Instance) -> None:
        """A tree is proven empty: count a failure, or not, and take its breadcrumb away."""
        self._word.epoch = instance.epoch  # it may have ended before anything was said of it
        failure = failure_of(instance, self.spec)
        why = self._word.reason if instance.stop_ordered else instance.why_stopping
        await self.care.ended(instance, why)
        if (not failure and (instance.stop_ordered or instance.why_stopping)) or (
            failure
            and await self._rolling.failed(place, failure, uptime=self.care.uptime(instance))
        ):
            self.tally.pardon()
        else:
            await self.tally.ended(instance, self.spec, self.care.uptime(instance))
        self._term.forget(instance)
        if self.why_not_start()[0]:  # else the next start's multi deletes it, or the release
            await oblige(self._term.client, [place.check_own(), Delete(instance.breadcrumb)])
            self.crumb = ""

    async def _not_started(self, place: Place, epoch: int, why: str, is_wanted: bool) -> None:
        """A hook would not have it, or it was not waited for; nothing of the epoch runs."""
        if is_wanted and self._term.is_leased():
            await self.care.failed_to_start(epoch, why)
            self._word.epoch = epoch
            if not await self._rolling.failed(place, why):
                await self.tally.failed(why, key=f"{self._name}@{epoch}")
        await self.clear(place)

    async def clear(self, place: Place) -> None:
        """Delete the breadcrumb of our newest instance, of which nothing runs any more."""
        await oblige(self._term.client, [place.check_own(), Delete(self.crumb)])
        self.crumb = ""

    def why_not_start(self) -> tuple[str, float | None]:
        """(why nothing may start now, until when that holds by itself)."""
        if why := why_not_run(self._term, self._view, self._name):
            return why, None
        why, until = self.tally.why_wait()
        if why:
            return why, until
        if self._term.clock.boottime() < (until := self._term.starts_from(self._name)):
            return "back after a lost session, programs start one after the other", until
        if (edition := self._rolling.edition()) is not None and (key := edition.unset):
            return f"{key} is not set: `incumbent config set {key} VALUE`", None
        if why := self._term.why_paused():
            return why, None
        return "" if self._term.is_leased() else "waits for an acknowledged beat", None
