"""Why a seat is stood for or not, kept or given up, started or stopped: the decisions of
`lifecycle`, put to what this session knows.

Rule of this file: each answer is the sentence that an operator will read, or "" for "nothing
speaks against it". Nothing is done here, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from incumbent.agent import lifecycle
from incumbent.agent.failures import Rules, holds, next_change, pause, restraint_of
from incumbent.agent.sentences import frozen
from incumbent.agent.steadiness import kept_out
from incumbent.agent.tree import SeatPlan
from incumbent.agent.view import ComponentView

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Reasons", "why_not_run"]


def why_not_run(term: Term, view: ComponentView, seat: str) -> str:
    """Why it is not to run anywhere now, as operators want it or its failures have it; "": it is."""
    if view.spec is None:
        return view.problem
    if unknown := view.desired_problem or term.view.control_problem:
        return unknown
    if not view.desired.run:
        return "an operator stopped it"
    if view.desired.frozen_by:
        return frozen(view.name, view.desired)
    if term.view.control.paused:
        return "the cluster is paused"
    restraint = restraint_of(view.failures, view.program, seat)
    return restraint.why if restraint is not None else ""


class Reasons:
    """Of one seat, within one session."""

    def __init__(self, term: Term, name: str, view: ComponentView) -> None:
        self._term = term
        self._name = name
        self._view = view

    def standing(self) -> lifecycle.Stand | lifecycle.StandAside:
        spec = self._view.spec
        if spec is None:
            return lifecycle.StandAside(self._view.problem or "its spec was not read yet")
        return lifecycle.stands(
            self._term.node,
            allowed=spec.nodes,
            unfit=self.unfit(),
            plan=self.plan(),
            live=self._term.view.nodes,
            restrained=self.why_restrained(),
        )

    def unfit(self) -> str:
        """What this node lacks for it."""
        return self._term.launcher.unfit(self._view.spec) if self._view.spec is not None else ""

    def why_stand_down(self) -> str:
        verdict = self.standing()
        return verdict.why if isinstance(verdict, lifecycle.StandAside) else ""

    def accepts(
        self, node: str, declined: int, listing: Sequence[str]
    ) -> lifecycle.Accept | lifecycle.Decline:
        """Whether `node` takes the seat if it is first among the candidates of `listing`."""
        plan = self._term.view.plan
        return lifecycle.accepts(
            node, self.plan(), plan.version, declined, self.nodes_standing(listing)
        )

    @property
    def is_held(self) -> bool:
        """Frozen, or paused: what runs stays as it is, since nothing may start in its place."""
        return bool(self._view.desired.frozen_by) or self.is_paused

    @property
    def is_paused(self) -> bool:
        """As far as we know: where control cannot be read nothing starts either."""
        return self._term.view.control.paused

    def why_not_here(self, is_running: bool) -> str:
        """Why this node must not have it, whoever else could."""
        spec = self._view.spec
        if self.is_held:
            return ""
        if spec is None:
            return "" if is_running else self._view.problem  # another node may be able to read it
        if not spec.allows(self._term.node):
            return f"only {', '.join(spec.nodes)} may run it"
        return self.unfit() or ("" if is_running else self.why_restrained())

    def why_abdicate(self, accepted: int, listing: Sequence[str]) -> str:
        """A newer plan than the one under which it was accepted gives it to one that stands."""
        plan, version = self.plan(), self._term.view.plan.version
        if self.is_held or plan is None or plan.node == self._term.node or version <= accepted:
            return ""
        stands = plan.node in self.nodes_standing(listing)
        return f"plan {version} gives it to {plan.node}" if stands else ""

    def why_stop(self) -> str:
        """Why what runs is to be stopped while the seat is kept, however new it is."""
        if not self._view.desired.run:
            return "an operator stopped it"
        restraint = restraint_of(self._view.failures, self._view.program, self._name)
        if restraint is not None and restraint.what == "component":
            return restraint.why
        return ""

    def state_while_down(self, until: float | None) -> str:
        """What to call it while nothing of it runs and nothing may start (`until` then)."""
        if not self._view.desired.run:
            return "stopped"
        if self._view.desired.frozen_by:
            return "frozen"
        if restraint_of(self._view.failures, self._view.program, self._name) is not None:
            return "failed"
        return "waiting" if until is None else "backoff"

    def why_restrained(self) -> str:
        """Why its failures, or the node's, keep it from this node."""
        view, spec = self._view, self._view.spec
        if spec is None:
            return ""
        may = {name: facts for name, facts in self._term.view.nodes.items() if spec.allows(name)}
        out = kept_out(view.failures, view.program, may, self._term.clock.wall())
        return out.get(self._term.node, "")

    def restrained_until(self) -> float | None:
        """On CLOCK_BOOTTIME: when to look again, whatever happens."""
        wall, own = self._term.clock.wall(), self._term.presence.facts
        until = next_change(self._view.failures, wall)
        if holds(own.since, own.aside_until, wall):
            until = min(until or own.aside_until, own.aside_until)
        return None if until is None else self._term.clock.boottime() + until - wall

    def pause(self, pardoned_at: float) -> tuple[str, float]:
        """(the failure after which a start here has to wait, until when on CLOCK_BOOTTIME).

        A clock that was set back makes none twice as long as it was to be.
        """
        view, spec = self._view, self._view.spec
        if spec is None or view.failures.program != view.program:
            return "", 0.0
        rules, wall = Rules.of(spec), self._term.clock.wall()
        until, last = pause(view.failures, self._name, self._term.node, rules, since=pardoned_at)
        if last is None or not holds(last.at, until, wall):
            return "", 0.0
        return last.what, self._term.clock.boottime() + until - wall

    def plan(self) -> SeatPlan | None:
        return self._term.view.plan.seats.get(self._name)

    def nodes_standing(self, listing: Sequence[str]) -> list[str]:
        """Whose candidates these are, of the nodes that live."""
        nodes = self._term.view.session_nodes()
        return [nodes[key] for name in listing if (key := name.partition("-")[0]) in nodes]
