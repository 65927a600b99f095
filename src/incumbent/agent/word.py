"""What a seat says of itself to operators: for `status` on this node always, in the tree where
this node leads.

Rule of this file: it is written at each change and never periodically; nothing waits for it, and
no decision rests on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from incumbent.agent.health import Verdict
from incumbent.agent.instance import Instance
from incumbent.agent.tree import Observed, write
from incumbent.wire import SetData

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Word"]

_STATES = ("stuck", "stopping", "starting")


class Word:
    """Of one seat, within one session.

    epoch         of the newest instance that something was said of
    receipt       how it came to this node, in one line; "" if it did not just now
    is_leading    whether the tree is to hear it too
    """

    def __init__(self, term: Term, name: str) -> None:
        self.state = "waiting"
        self.reason = ""
        self.epoch = 0
        self.receipt = ""
        self.is_leading = False
        self._since = 0.0
        self._term = term
        self._path = term.tree.observed(name)
        self._told: tuple[object, ...] = ()

    def go_on(self, before: Observed) -> None:
        """What an agent before us in this session said of the instance holds on."""
        self.state, self._since, self.receipt = before.state, before.since, before.receipt

    def say(self, state: str, reason: str, instance: Instance | None) -> None:
        pid = instance.main if instance is not None else 0
        epoch = instance.epoch if instance is not None else self.epoch
        said = (state, reason, pid, epoch, self.is_leading)
        if said == self._told:
            return
        if self.state != state:
            self._since = self._term.clock.wall()
        self._told, self.state, self.reason, self.epoch = said, state, reason, epoch
        if not self.is_leading:
            return
        observed = Observed(
            epoch=epoch,
            state=state,
            node=self._term.node,
            pid=pid,
            containment=instance.containment if instance is not None else "",
            since=self._since,
            reason=reason,
            receipt=self.receipt,
        )
        self._term.inform(self._path, write(observed))

    def repeat(self) -> None:
        """Whatever is said next is written, even if it was said before."""
        self._told = ()

    def say_instance(
        self, instance: Instance, verdict: Verdict | None = None, waits_for: str = ""
    ) -> None:
        if verdict is not None and instance.state == "running":
            self.say(verdict.state, verdict.why or waits_for or instance.note, instance)
            return
        state = instance.state if instance.state in _STATES else "running"
        reason = {"stopping": instance.why_stopping, "running": instance.note}.get(state, "")
        self.say(state, reason, instance)

    def last(self, instance: Instance, why: str, noticed_at: float) -> SetData:
        """The write that goes with giving the seat up, `instance` being proven dead."""
        now = self._term.clock.wall()
        observed = Observed(
            epoch=instance.epoch,
            state="released",
            node=self._term.node,
            since=now,
            reason=why,
            noticed_at=noticed_at,
            proved_at=now,
        )
        return SetData(self._path, write(observed))

    def given_up(self, why: str) -> None:
        """From now on somebody else speaks of the seat."""
        self._told = ()
        self.state, self.reason = "waiting", why
