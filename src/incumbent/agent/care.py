"""The care for an instance: hooks at the turns of its life, and a look at its health.

    before_start ─► program ─► (ready) after_start ─► before_stop ─► stop ─► after_stop ─► on_fail

Rule of this file: nothing here decides whether something may start or must stop, but a hook that
fails before the start, and a verdict on health. What runs here is a part of the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from incumbent.agent.beside import Beside
from incumbent.agent.checkup import Checkup
from incumbent.agent.health import Verdict
from incumbent.agent.instance import Instance
from incumbent.agent.sentences import how_it_ended
from incumbent.agent.tally import is_success
from incumbent.agent.view import ComponentView
from incumbent.agent.word import Word
from incumbent.spec import Hook, Spec

if TYPE_CHECKING:
    from incumbent.agent.bell import Bell
    from incumbent.agent.edition import Edition
    from incumbent.agent.term import Term

__all__ = ["Care", "failure_of"]


class Care:
    """Of one seat, within one session. Hooks are those of the newest spec; they and the checks have
    the environment of the `edition` that was started."""

    def __init__(self, term: Term, seat: str, view: ComponentView, bell: Bell, word: Word) -> None:
        self._term = term
        self._seat = seat
        self._view = view
        self._word = word
        self._beside = Beside(term, seat, bell)
        self._checkup: Checkup | None = None
        self._has_welcomed = False
        self.edition: Edition | None = None
        """What our newest instance is, or is to be, started with."""

    def look(self, instance: Instance, edition: Edition) -> Verdict:
        """At an instance that runs, started with `edition`; goes on looking until `end`."""
        if self._checkup is None or self._checkup.instance is not instance:
            was_ready = instance.is_adopted and self._word.state == "ready"
            self._checkup = Checkup(
                self._term, instance, edition, self._beside, was_ready=was_ready
            )
            self._has_welcomed = instance.is_adopted
        verdict = self._checkup.verdict()
        if self._checkup.is_ready and not self._has_welcomed:
            self._has_welcomed = True
            if self._hook_of("after_start") is not None:
                self._beside.begin(self._after_start(instance.epoch))
        return verdict

    def is_up(self, instance: Instance) -> bool:
        """Whether it runs, and is ready, if there is a way to say so."""
        checkup = self._checkup
        if checkup is None or checkup.instance is not instance:
            return False
        return instance.state == "running" and checkup.is_ready

    def uptime(self, instance: Instance) -> float:
        """Seconds for which an ended instance was up; 0: it never was."""
        if instance.exited is None:
            return 0.0
        checkup = self._checkup
        if checkup is not None and checkup.instance is instance and not checkup.is_ready:
            return 0.0
        return instance.exited.uptime

    async def hook(
        self,
        what: str,
        epoch: int,
        *,
        why: str = "",
        give_up: Callable[[], str] = lambda: "",
    ) -> str:
        """Run a hook, if there is one; "" if there is none or it went well."""
        hook = self._hook_of(what)
        if hook is None or self.edition is None:
            return ""
        more = {"INCUMBENT_WHY": why}
        return await self._beside.run(
            self.edition, what, hook.command, hook.limit, epoch, more=more, give_up=give_up
        )

    async def before_stop(self, instance: Instance, why: str) -> None:
        """By order, and not because it failed."""
        if instance.state == "running" and not instance.stop_ordered and not instance.failed:
            ended = lambda: "" if instance.state == "running" else "it has ended"  # noqa: E731
            self._said(
                "before_stop",
                await self.hook("before_stop", instance.epoch, why=why, give_up=ended),
            )

    async def ended(self, instance: Instance, why: str) -> None:
        """Its tree is proven empty: all that is left beside it goes, then its last hooks run."""
        await self.end()
        epoch, failure = instance.epoch, failure_of(instance, self._view.spec)
        if instance.pid:
            self._said("after_stop", await self.hook("after_stop", epoch, why=failure or why))
        if failure:
            self._said("on_fail", await self.hook("on_fail", epoch, why=failure))

    async def failed_to_start(self, epoch: int, why: str) -> None:
        self._said("on_fail", await self.hook("on_fail", epoch, why=why))

    def cancel(self) -> None:
        """Our session is over, or the seat is given up."""
        self._beside.cancel()
        self._checkup = None

    async def end(self) -> None:
        """Everything beside the instance is proven dead after this."""
        await self._beside.end()

    async def _after_start(self, epoch: int) -> None:
        self._said("after_start", await self.hook("after_start", epoch))

    def _hook_of(self, what: str) -> Hook | None:
        hook: Hook | None = getattr(self._view.spec, what, None)
        return hook

    def _said(self, what: str, problem: str) -> None:
        if problem:
            self._term.say(f"{self._seat}: {what}: {problem}")


def failure_of(instance: Instance, spec: Spec | None) -> str:
    """Why an ended instance counts as a failure; "" if it does not."""
    if instance.failed:
        return instance.failed
    refused = instance.refused
    is_in_order = instance.stop_ordered or bool(instance.why_stopping)
    if is_in_order or (refused is not None and not refused.permanent):
        return ""
    if spec is not None and is_success(spec, instance.exited):
        return ""
    return how_it_ended(spec, instance.exited, refused)
