"""One copy's part in the roll-outs of its component: what `rollout` decides, written down.

Rule of this file: nothing is done to a copy for a roll-out before that stands in the record, written
by whoever leads the copy, over the version that was read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from incumbent.agent import rollout
from incumbent.agent.edition import Edition, current, earlier_one
from incumbent.agent.failures import STEADY_AFTER
from incumbent.agent.rollout import REVERTED, STOPPED, Copy, Rules, Step, Wanted
from incumbent.agent.settling import Settling, due_at
from incumbent.agent.settling import look as settle
from incumbent.agent.tree import Breadcrumb, Mark, Rollout, split_seat, write
from incumbent.agent.view import ComponentView
from incumbent.errors import BadVersion, FateUnknown, NodeExists, NoNode, NotSent
from incumbent.recipes.place import Place
from incumbent.spec import Spec
from incumbent.wire import Create, MultiOp, SetData

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Look", "Rolling"]

SETTLING = "its configuration has changed, and settles"
PATIENCE = 0.5
"""Seconds after which a record that could not be written is looked at again, whatever is heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """`change`: why what runs is to be changed now, "" to leave it. `why`: what it waits for. `until`:
    when to look again, whatever happens."""

    change: str = ""
    why: str = ""
    until: float = math.inf


class Rolling:
    """Of one seat, within one session."""

    def __init__(self, term: Term, name: str, view: ComponentView) -> None:
        self._term = term
        self._clock = term.clock
        self._program = ""
        self._settling = Settling(in_effect={}, seen={})
        self._since: float | None = None
        """When what runs was first seen to run as it does; boottime."""
        self._was_told = False
        self._view = view
        self._component, self._number = split_seat(name)
        self._path = term.tree.rollout(self._component)

    def wanted(self) -> Edition | None:
        """What operators want, as it is now; None where the spec cannot be read."""
        view = self._view
        if view.spec is None:
            return None
        return current(view.spec, view.program, self._term.view.config)

    def edition(self) -> Edition | None:
        """What is started of this copy while nothing of it runs."""
        wanted, spec = self.wanted(), self._view.spec
        if wanted is None or spec is None:
            return None
        mark = rollout.target(self._view.rollout, self._number, wanted.mark, _rules(spec))
        return wanted if mark == wanted.mark else self._earlier(mark) or wanted

    def began(self, crumb: Breadcrumb) -> None:
        """Our newest instance is started with this."""
        self._program, self._since, self._was_told = crumb.program, None, False
        self._settling = Settling(in_effect=crumb.config, seen=crumb.config)

    def running(self) -> Edition | None:
        """What our newest instance was started with; what is wanted, if that is not known."""
        wanted = self.wanted()
        if wanted is None or self._mark(wanted.spec) == wanted.mark:
            return wanted
        return self._earlier(self._mark(wanted.spec)) or wanted

    @property
    def is_overtaken(self) -> bool:
        """Whether something else would be started by now than what our newest instance is."""
        edition = self.edition()
        return edition is not None and edition.program != self._program

    def told(self, edition: Edition) -> None:
        """What runs was told of its configuration."""
        self._since, self._was_told = self._clock.boottime(), True
        self._settling = Settling(in_effect=edition.digests, seen=edition.digests)

    async def look(self, place: Place, *, is_up: bool) -> Look:
        """At an instance that runs, and is ready if there is a way to say so. If it is to be
        changed, that stands in the record."""
        wanted, now = self.wanted(), self._clock.boottime()
        if wanted is None:
            return Look()
        self._since = now if self._since is None else self._since
        if wanted.unset:
            return Look(why=f"{wanted.unset} is not set: it goes on with what it has")
        due = math.inf
        if wanted.spec.on_config != "none":
            self._settling = settle(self._settling, wanted.digests, now)
            due = due_at(self._settling, wanted.spec.debounce, wanted.spec.debounce_max)
        runs = self._mark(wanted.spec)
        is_due = wanted.program != self._program or now >= due
        is_known = is_due or runs == wanted.mark  # it may have started with it before anyone began
        steady_at = self._since
        if wanted.spec.ready is None or self._was_told:
            steady_at += STEADY_AFTER
        step = await self._step(
            place,
            Copy(number=self._number, mark=runs, is_up=is_up and now >= steady_at),
            Wanted(mark=wanted.mark, zxid=self._zxid()) if is_known else Wanted(mark=runs, zxid=0),
            _rules(wanted.spec),
        )
        if step is None:
            return Look(until=now)
        if step.do == "change":
            return Look(change=self._what_changes(wanted, step.record))
        ends = [due if now < due else math.inf]
        if step.record is not None and step.record.seats.get(str(self._number)) == "going":
            ends.append(steady_at if now < steady_at else math.inf)
        is_settling = now < due < math.inf
        return Look(why=SETTLING if is_settling else step.why, until=min(ends))

    async def _step(self, place: Place, copy: Copy, wanted: Wanted, rules: Rules) -> Step | None:
        """None: it could not be written down, and much may be otherwise by now."""
        while True:
            record = self._view.rollout
            step = rollout.look(record, copy, wanted, rules, self._clock.wall())
            if step.record == record or step.record is None:
                return step
            if not await self._write(place, step.record):
                await self._term.bell.heard(self._clock.boottime() + PATIENCE)
                return None

    def _what_changes(self, wanted: Edition, record: Rollout | None) -> str:
        if record is not None and record.state == "reverted":
            return f"it goes back to what ran before: {record.why}"
        if wanted.program != self._program:
            return "its spec has changed"
        before, config = self._settling.in_effect, wanted.spec.config
        keys = [config[n].key for n, now in wanted.digests.items() if before.get(n) != now]
        return f"the configuration has changed: {', '.join(keys)}"

    async def failed(
        self, place: Place, why: str, *, edition: Edition | None = None, uptime: float | None = None
    ) -> bool:
        """Our newest instance has failed, or what was to be one. True: that is the change's
        failure, which is taken back, and counts no further. `edition`: what could not be started;
        `uptime`: for how many seconds something ran that may have said why.
        """
        newest = self.wanted()
        if newest is None:
            return False
        mark = edition.mark if edition is not None else self._mark(newest.spec)
        copy = Copy(number=self._number, mark=mark, is_up=False)
        wanted = Wanted(mark=newest.mark, zxid=self._zxid())
        rules, now = _rules(newest.spec), self._clock.wall()
        while True:
            record = self._view.rollout
            can_revert = record is not None and self._is_known(record)
            step = rollout.failed(record, copy, why, wanted, rules, now, can_revert=can_revert)
            if step.record is None or step.record == record:
                return step.do == "pardon"
            if uptime is not None:
                last_line = await self._term.host.last_line(
                    f"{self._component}/{self._number}", uptime
                )
                why, uptime = f"{why}: {last_line}" if last_line else why, None
                continue
            if await self._write(place, step.record):
                how = STOPPED if step.record.state == "stopped" else REVERTED
                self._term.say(f"{self._component}: {how}: {step.record.why}")
                return step.do == "pardon"
            place.raise_if_gone()
            await self._term.bell.heard(self._clock.boottime() + PATIENCE)

    def _mark(self, spec: Spec) -> Mark:
        """Of what runs."""
        config = {} if spec.on_config == "none" else dict(self._settling.in_effect)
        return Mark(program=self._program, config=config)

    def _earlier(self, mark: Mark) -> Edition | None:
        view, tree = self._view, self._term.view
        if view.spec is None:
            return None
        values = {key: [value, *tree.config_before[key]] for key, value in tree.config.items()}
        return earlier_one(mark, view.spec, view.before, values)

    def _is_known(self, record: Rollout) -> bool:
        return record.good is not None and self._earlier(record.good) is not None

    def _zxid(self) -> int:
        spec, zxids = self._view.spec, self._term.view.config_zxid
        keys = [use.key for use in spec.config.values()] if spec is not None else []
        return max([self._view.zxid, *(zxids.get(key, 0) for key in keys)])

    async def _write(self, place: Place, record: Rollout) -> bool:
        """False: somebody was faster, or it is not known; look again."""
        view, data = self._view, write(record)
        op: MultiOp = SetData(self._path, data, view.rollout_version)
        if view.rollout_version < 0:
            op = Create(self._path, data)
        version = view.rollout_version + 1
        try:
            await self._term.client.multi([place.check_own(), op])
        except (BadVersion, NodeExists, NoNode, NotSent, FateUnknown):
            return False
        if version > view.rollout_version:
            view.rollout, view.rollout_version = record, version
        return True


def _rules(spec: Spec) -> Rules:
    return Rules(copies=spec.copies, max_parallel=spec.max_parallel, auto_revert=spec.auto_revert)
