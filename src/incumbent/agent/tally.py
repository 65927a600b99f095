"""One seat's failures here: told to the tree once each, and what its next start waits for.

Rule of this file: what was ordered is no failure, and a failure is written down before its
instance is forgotten: whoever comes after an agent that dies in between writes the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from incumbent.agent.failures import PERMANENT, Rules, counted, remark, signature
from incumbent.agent.history import change_failures
from incumbent.agent.instance import Instance
from incumbent.agent.sentences import how_it_ended
from incumbent.agent.tree import Failure, split_seat
from incumbent.agent.view import ComponentView
from incumbent.guardian import messages as m
from incumbent.launch import went_background
from incumbent.spec import Spec

if TYPE_CHECKING:
    from incumbent.agent.reasons import Reasons
    from incumbent.agent.term import Term

__all__ = ["Tally", "is_success"]


class Tally:
    """Of one seat, within one session."""

    def __init__(self, term: Term, name: str, view: ComponentView, reasons: Reasons) -> None:
        self._term = term
        self._name = name
        self._view = view
        self._reasons = reasons
        self._pardoned_at = 0.0
        self._not_before = 0.0
        self._why = ""

    def pardon(self) -> None:
        """The next start waits for nothing of what was: it was ordered."""
        self._pardoned_at = self._term.clock.wall()
        self._not_before = 0.0

    def why_wait(self) -> tuple[str, float]:
        """(why the next start has to wait, until when on CLOCK_BOOTTIME); ("", 0) if it hasn't."""
        if self._term.clock.boottime() < self._not_before:
            return self._why, self._not_before
        failure, until = self._reasons.pause(self._pardoned_at)
        if not failure:
            return "", 0.0
        return self._why if self._why.startswith(failure) else failure, until

    async def ended(self, instance: Instance, spec: Spec | None, uptime: float) -> None:
        """It is proven dead, and not by an order; `uptime` seconds of it count as well."""
        exited, refused = instance.exited, instance.refused
        code = exited.code if exited is not None else None
        if refused is not None and not refused.permanent:
            self._wait(f"not started: {refused.why}", self._term.numbers.beat / 2)
            return
        what = instance.failed or how_it_ended(spec, exited, refused)
        if not instance.failed and spec is not None and is_success(spec, exited):
            self._wait(f"{what}, no failure; next start in {spec.backoff:g} s", spec.backoff)
            self._term.say(f"{self._name}: {self._why}")
            return
        await self.failed(
            what,
            key=f"{self._name}@{instance.epoch}",
            uptime=uptime,
            is_permanent=code == PERMANENT and not instance.failed,
            kind="" if instance.failed or not exited else f"code {code}, signal {exited.signal}",
        )

    async def failed(
        self,
        what: str,
        *,
        key: str = "",
        uptime: float = 0.0,
        is_permanent: bool = False,
        kind: str = "",
    ) -> None:
        """Count it, in the tree, and see what comes of it. `key`: by which it counts once; "" where
        nothing was started."""
        term, view, spec = self._term, self._view, self._view.spec
        if spec is None:
            return
        last_line = await term.host.last_line(self._name, uptime) if key else ""
        failure = Failure(
            id=key or f"{self._name}!{term.nonce()}",
            seat=self._name,
            node=term.node,
            at=term.clock.wall(),
            what=f"{what}: {last_line}" if last_line else what,
            signature=signature(kind or what, last_line),
            uptime=uptime,
            permanent=is_permanent,
        )
        rules, program = Rules.of(spec), view.program
        may = [node for node in term.view.nodes if spec.allows(node)]
        component, _ = split_seat(self._name)
        view.failures = await change_failures(
            term.client,
            term.tree,
            component,
            lambda history: counted(history, failure, rules, program=program, may=may),
        )
        self._why = ""
        _, until = self.why_wait()
        left = until - term.clock.boottime()
        when = f"next start in {left:.0f} s" if left > 0 else "next start now"
        more = remark(view.failures, failure, rules, may)
        if more.startswith(failure.what) or f"the last: {failure.what}" in more:
            self._why = more
        else:
            self._why = "; ".join(filter(None, [failure.what, more or "", when]))
        term.say(f"{self._name}: {self._why}")

    def _wait(self, why: str, seconds: float) -> None:
        self._why, self._not_before = why, self._term.clock.boottime() + seconds


def is_success(spec: Spec, exited: m.Exited | None) -> bool:
    """Whether it ended in a way that the component calls no failure."""
    if exited is None or exited.code not in spec.success_exit_codes:
        return False
    return went_background(spec.command, exited.code, exited.uptime, exited.left) is None
