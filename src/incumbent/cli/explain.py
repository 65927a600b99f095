"""Each seat in one line: its state, where it runs, and one sentence why.

Rule of this file: pure. It goes by the tree as read, and by what agents on this machine say
(`local`); the agents' own decisions are asked, never repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from incumbent.agent import lifecycle
from incumbent.agent.sentences import frozen
from incumbent.agent.steadiness import kept_out, why_aside
from incumbent.agent.tree import Breadcrumb, NodeFacts, Observed, seat_name
from incumbent.cli.cluster import Cluster, ComponentState, SeatState, all_breadcrumbs
from incumbent.spec import program

__all__ = ["NodeRow", "Row", "node_rows", "proven_dead", "seat_rows", "title"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One seat, as `status` shows it. `since` is wall time; `fence` is in seconds. `case`: which
    of the situations it is that `why` knows (see `why.py`).
    """

    component: str
    seat: int
    copies: int
    state: str
    node: str = ""
    pid: int = 0
    epoch: int = 0
    containment: str = ""
    since: float = 0.0
    fence: float | None = None
    why: str = ""
    case: str = ""

    @property
    def name(self) -> str:
        """The component; with its seat where there are several."""
        return self.component if self.copies == 1 else seat_name(self.component, self.seat)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One machine: live, or gone with something that may still run there."""

    node: str
    state: str
    seats: tuple[str, ...] = ()
    containments: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    since: float = 0.0
    session: str = ""
    why: str = ""


_NOBODY = NodeFacts(node="", node_id="", boot_id="", session="")
"""Who looks from outside is none of the nodes."""


def seat_rows(
    cluster: Cluster, local: Iterable[Mapping[str, Any]] = (), *, now: float
) -> list[Row]:
    """A row for every seat that is wanted, or that something may still run on.

    `local`: the answers of agents on this machine (`agent.control.answer`). `now`: wall time.
    """
    agents = {str(each.get("session", "")).removeprefix("0x"): each for each in local}
    rows = []
    for component in cluster.components:
        copies = component.spec.copies if component.spec is not None else 0
        if component.problem and not any(seat.breadcrumbs for seat in component.seats):
            rows.append(
                Row(
                    component=component.name,
                    seat=0,
                    copies=1,
                    state="unreadable",
                    why=component.problem,
                )
            )
        for seat in component.seats:
            if (seat.number < copies and not component.problem) or seat.breadcrumbs:
                rows.append(_Look(cluster, component, seat, agents, now).row())
    return rows


def node_rows(cluster: Cluster, now: float) -> list[NodeRow]:
    """Live nodes, then those that are gone but left breadcrumbs; by name. `now`: wall time."""
    crumbs = list(all_breadcrumbs(cluster))
    rows = [
        NodeRow(
            node=name,
            state="live",
            seats=tuple(
                title(cluster, seat) for seat, crumb in crumbs if crumb.session == facts.session
            ),
            containments=tuple(facts.containments),
            labels=facts.labels,
            since=facts.since,
            session=facts.session,
            why=why_aside(facts, now),
        )
        for name, facts in sorted(cluster.nodes.items())
    ]
    lost: dict[str, list[tuple[str, Breadcrumb]]] = {}
    for seat, crumb in crumbs:
        facts = cluster.nodes.get(crumb.node)
        if facts is None or facts.session != crumb.session:
            lost.setdefault(crumb.node, []).append((seat, crumb))
    for name in sorted(lost):
        rows.append(
            NodeRow(
                node=name,
                state="gone",
                seats=tuple(title(cluster, seat) for seat, _ in lost[name]),
                session=lost[name][0][1].session,
                why=_why_gone(cluster, [crumb for _, crumb in lost[name]]),
            )
        )
    return rows


def proven_dead(cluster: Cluster, component: str) -> list[tuple[str, Breadcrumb]]:
    """(seat, breadcrumb) of a component's instances that are certainly dead, whoever says so."""
    spec = next((each.spec for each in cluster.components if each.name == component), None)
    on_unclean = spec.on_unclean if spec is not None else "wait"
    return [
        (seat, crumb)
        for seat, crumb in all_breadcrumbs(cluster)
        if seat.rpartition("/")[0] == component
        and isinstance(_verdict(cluster, crumb, on_unclean), lifecycle.ProvenDead)
    ]


def title(cluster: Cluster, seat: str) -> str:
    """A seat as people call it: its component, where that has only one."""
    component, _, number = seat.rpartition("/")
    for each in cluster.components:
        if each.name == component and each.spec is not None and each.spec.copies > 1:
            return seat
    return component if number == "0" else seat


def _why_gone(cluster: Cluster, crumbs: Iterable[Breadcrumb]) -> str:
    for crumb in crumbs:
        verdict = _verdict(cluster, crumb, "wait")
        if isinstance(verdict, lifecycle.StillWaiting):
            return verdict.why
    return "what it ran is proven dead"


def _verdict(
    cluster: Cluster, crumb: Breadcrumb, on_unclean: str
) -> lifecycle.ProvenDead | lifecycle.StillWaiting:
    return lifecycle.breadcrumb_verdict(
        crumb,
        session_lives=crumb.session in cluster.sessions,
        nodes=cluster.nodes,
        me=_NOBODY,
        mine_running=False,
        on_unclean=on_unclean,
        control=cluster.control_zxid,
    )


class _Look:
    """At one seat."""

    def __init__(
        self,
        cluster: Cluster,
        component: ComponentState,
        seat: SeatState,
        agents: Mapping[str, Mapping[str, Any]],
        now: float,
    ) -> None:
        self.cluster = cluster
        self.component = component
        self.seat = seat
        self.name = seat_name(component.name, seat.number)
        self.agents = agents
        self.now = now

    def row(self) -> Row:
        spec = self.component.spec
        row = self._running() or self._waiting()
        problem = self.component.problem or self.seat.problem
        if problem:
            state = row.state if self.seat.breadcrumbs else "unreadable"
            return replace(row, state=state, case="unreadable", why=problem)
        is_extra = spec is None or self.seat.number >= spec.copies
        if is_extra:
            return replace(row, case="removing", why=row.why or "it is being removed")
        return row if row.case else replace(row, case=row.state)

    def _running(self) -> Row | None:
        """The newest instance, if its session lives."""
        if not self.seat.breadcrumbs:
            return None
        crumb = self.seat.breadcrumbs[-1]
        if crumb.session not in self.cluster.sessions:
            return None
        observed = self.seat.observed
        agent = self.agents.get(crumb.session, {})
        row = replace(
            self._row("starting"),
            node=crumb.node,
            epoch=crumb.epoch,
            containment=crumb.containment,
            fence=agent.get("time_to_fence"),
        )
        if observed is None or observed.epoch != crumb.epoch:
            return replace(row, case="begins", why=f"epoch {crumb.epoch} begins")
        is_rolling = self.component.is_rolling and observed.state in ("running", "ready")
        return replace(
            row,
            state=observed.state,
            pid=observed.pid,
            since=observed.since,
            case="rolling" if is_rolling else "",
            why=self._why_so(observed) or self._by_plan(crumb.node),
        )

    def _why_so(self, observed: Observed) -> str:
        """What comes before where it is planned to be."""
        if observed.reason:
            return observed.reason
        if self.component.desired.frozen_by:
            return frozen(self.component.name, self.component.desired)
        plan = self.cluster.plan.seats.get(self.name)
        if plan is not None and plan.taken_from and plan.node != observed.node:
            return self._why_not_there(plan.node)
        return observed.receipt

    def _why_not_there(self, node: str) -> str:
        """It was moved to `node`, and is not there."""
        agents = {each.get("node"): each for each in self.agents.values()}
        said = agents.get(node, {}).get("seats", {}).get(self.name, {})
        spec = self.component.spec
        facts = self.cluster.nodes.get(node)
        if said.get("state") == "aside":
            why = str(said.get("reason"))
        elif facts is not None and (aside := why_aside(facts, self.now)):
            why = aside
        elif spec is not None and spec.requires:
            why = f"it may lack {' or '.join(spec.requires)}; `incumbent status` there tells"
        else:
            why = "it does not stand for it yet"
        return f"an operator moved it to {node}: {why}"

    def _by_plan(self, node: str) -> str:
        plan = self.cluster.plan.seats.get(self.name)
        if plan is None or plan.node != node:
            return ""
        if plan.taken_from:
            return f"an operator moved it here from {plan.taken_from}"
        return f"plan {self.cluster.plan.version} gives it to {node}"

    def _waiting(self) -> Row:
        """Nothing of it runs, as far as anyone knows."""
        row = replace(self._row("waiting"), epoch=self.seat.record.epoch)
        on_unclean = self.component.spec.on_unclean if self.component.spec else "wait"
        for crumb in self.seat.breadcrumbs:
            verdict = _verdict(self.cluster, crumb, on_unclean)
            if isinstance(verdict, lifecycle.StillWaiting):
                return replace(
                    row, state="unproven", node=crumb.node, epoch=crumb.epoch, why=verdict.why
                )
        if not self.component.desired.run:
            return replace(row, state="stopped", why="an operator stopped it")
        if self.component.desired.frozen_by:
            return replace(
                row, state="frozen", why=frozen(self.component.name, self.component.desired)
            )
        if self.cluster.control.paused:
            return replace(row, state="paused", why="the cluster is paused: nothing starts")
        for agent in self.agents.values():
            here = agent.get("seats", {}).get(self.name, {})
            if here.get("state") == "baffled":
                why = f"{agent.get('node')}: {here.get('reason')}"
                return replace(row, case="baffled", why=why)
        if not self.seat.contenders:
            case, why = self._why_nobody()
            return replace(row, case=case, why=why)
        head = self.cluster.session_nodes.get(self.seat.contenders[0].partition("-")[0], "")
        said = self._said_by(head)
        if said is not None:
            return replace(row, state=said.state, node=head, since=said.since, why=said.reason)
        why = f"{head or 'whoever is first in line'} is to start it"
        return replace(row, node=head, case="first", why=why)

    def _said_by(self, node: str) -> Observed | None:
        """The last word of the one who leads now, if it is about now."""
        observed = self.seat.observed
        if (
            observed is None
            or observed.node != node
            or observed.state in ("released", "running", "ready")
        ):
            return None
        return observed if observed.epoch == self.seat.record.epoch else None

    def _why_nobody(self) -> tuple[str, str]:
        """Why no node stands for it: the case, and the sentence."""
        spec = self.component.spec
        live = sorted(self.cluster.nodes)
        if not live:
            return "no node", "there is no node: start one with `incumbent agent`"
        if spec is None:
            return "removing", "it is being removed"
        if not any(spec.allows(node) for node in live):
            only = ", ".join(spec.nodes)
            return "no such node", f"only {only} may run it, and there is no such node now"
        for agent in self.agents.values():
            said = agent.get("seats", {}).get(self.name, {})
            if said.get("state") == "aside":
                return "aside", f"{agent.get('node')}: {said.get('reason')}"
        may = {node: self.cluster.nodes[node] for node in live if spec.allows(node)}
        out = kept_out(self.component.failures, program(spec), may, self.now)
        if len(out) == len(may):
            return "kept out", "; ".join(out.values())
        could = [node for node in may if node not in out]
        if spec.requires:
            return "lacks", (
                f"no node stands for it: {', '.join(could)} may lack {' or '.join(spec.requires)}; "
                "`incumbent status` there tells"
            )
        return "nobody", f"no node stands for it yet; {', '.join(could)} may"

    def _row(self, state: str) -> Row:
        copies = self.component.spec.copies if self.component.spec is not None else 1
        return Row(
            component=self.component.name,
            seat=self.seat.number,
            copies=max(copies, self.seat.number + 1),
            state=state,
        )
