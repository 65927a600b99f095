"""What this node would start a spec as: the orders to start, and the breadcrumbs for them.

Rule of this file: nothing is started, written to the tree or waited for here; what this node cannot
do for a spec is said, or raised, before anything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from incumbent.agent.edition import Edition
from incumbent.agent.tree import Breadcrumb
from incumbent.guardian import messages as m
from incumbent.lease import Numbers
from incumbent.spec import Spec
from incumbent.spec.limits import LIMITS

if TYPE_CHECKING:
    from incumbent.agent.agent import AgentSettings
    from incumbent.agent.term import Term

__all__ = ["Launcher"]


class Launcher:
    """On one node, within one session."""

    def __init__(self, term: Term, settings: AgentSettings) -> None:
        self._term = term
        self._settings = settings

    def start_of(self, edition: Edition, seat: str) -> m.Start:
        """The order to start this, to be `numbered`. Raises `NumbersDontFit`, `SpecErrors`: this
        node cannot.
        """
        spec = edition.spec
        numbers, checks = self._numbers_for(spec), (spec.ready, spec.live)
        launched = self._term.host.launch(spec, seat, self._term.node, 0)
        env = {**launched.env, **self._configured(edition, seat, launched.env)}
        if spec.live is not None and spec.live.way == "notify":
            env["WATCHDOG_USEC"] = str(round(spec.live.interval * 1e6))
        containment, identity = self.containment(spec), launched.identity
        enforced = {f: text for f, text in launched.cgroup_limits.items() if self._enforces(f)}
        has_cgroup = bool(enforced) or containment == "contained"
        return m.Start(
            generation=self._term.generation,
            seat=seat,
            epoch=0,
            soft=numbers.soft,
            hard=numbers.hard,
            argv=launched.argv,
            env=env,
            cwd=launched.cwd,
            stop_signal=spec.stop_signal,
            stop_grace=numbers.stop_grace,
            containment=containment,
            cgroup=self._term.host.cgroup_of(seat, 0) if has_cgroup else None,
            cgroup_limits=enforced,
            uid=identity.uid if identity else None,
            gid=identity.gid if identity else None,
            groups=identity.groups if identity else (),
            umask=launched.umask,
            limits=launched.limits,
            log=self._term.host.log_path(seat),
            notify=any(check is not None and check.way == "notify" for check in checks),
            ready_fd=int(spec.ready.target) if spec.ready and spec.ready.way == "fd" else None,
        )

    def start_beside(
        self,
        edition: Edition,
        name: str,
        number: int,
        epoch: int,
        command: tuple[str, ...],
        limit: float,
        more: Mapping[str, str],
    ) -> m.Start:
        """The order to start a hook or a check, named SEAT!WHAT, for `epoch` of its seat. Raises as
        `start_of`.
        """
        seat, _, what = name.partition("!")
        spec = msgspec.structs.replace(edition.spec, command=command, ready=None, live=None)
        start = self.start_of(replace(edition, spec=spec), seat)
        env = {**start.env, "INCUMBENT_EPOCH": str(epoch), "INCUMBENT_HOOK": what, **more}
        return replace(
            start,
            seat=name,
            epoch=number,
            env=env,
            cgroup=start.cgroup and self._term.host.cgroup_of(name, number),
            log=self._term.host.log_path(name),
            beside=epoch,
            limit=limit,
        )

    def numbered(self, start: m.Start, epoch: int) -> m.Start:
        """The same start as that of `epoch`."""
        return replace(
            start,
            epoch=epoch,
            env={**start.env, "INCUMBENT_EPOCH": str(epoch)},
            breadcrumb=self._term.tree.breadcrumb(start.seat, epoch),
            cgroup=start.cgroup and self._term.host.cgroup_of(start.seat, epoch),
        )

    def breadcrumb_of(self, edition: Edition, epoch: int, nonce: str) -> Breadcrumb:
        """What is written before this may run. Raises `NumbersDontFit`."""
        spec = edition.spec
        return Breadcrumb(
            epoch=epoch,
            node=self._term.node,
            node_id=self._term.presence.facts.node_id,
            boot_id=self._term.presence.facts.boot_id,
            session=self._term.session_key,
            s_min=self._term.client.timeout,
            containment=self.containment(spec),
            stop_budget=self._numbers_for(spec).soft,
            nonce=nonce,
            program=edition.program,
            config=edition.digests,
            control=self._term.view.control_zxid,
        )

    def containment(self, spec: Spec) -> str:
        return spec.isolation or self._term.presence.facts.containments[0]

    def write_config(self, edition: Edition, seat: str) -> None:
        """Its files of configuration, anew. Raises `SpecErrors`."""
        launched = self._term.host.launch(edition.spec, seat, self._term.node, 0)
        self._configured(edition, seat, launched.env)

    def unfit(self, spec: Spec) -> str:
        """Why this node cannot run it, "" if it can."""
        if (
            spec.isolation is not None
            and spec.isolation not in self._term.presence.facts.containments
        ):
            why = self._settings.unable.get(spec.isolation)
            return f"nothing can be {spec.isolation} on this node{f': {why}' if why else ''}"
        return self._term.host.unfit(spec)

    def unenforced(self, spec: Spec) -> str:
        """Which of its limits nothing on this node enforces, in a sentence; "" if all are."""
        lacking = [k for k in spec.limits if LIMITS[k].file and not self._enforces(LIMITS[k].file)]
        why = self._settings.no_controllers
        return f"not limited on this node: {', '.join(lacking)} ({why})" if lacking else ""

    def _configured(self, edition: Edition, seat: str, env: Mapping[str, str]) -> dict[str, str]:
        """Variables, and the files that some of them name; those made of templates last. `env`: of
        the program without them."""
        there, spec, host = edition.values, edition.spec, self._term.host
        found = {
            name: host.write_config(spec, seat, name, there[use.key])
            if use.file
            else there[use.key]
            for name, use in spec.config.items()
            if use.key in there
        }
        known = {name: value for name, value in env.items() if name != "INCUMBENT_EPOCH"} | found
        templates = [(n, use.template) for n, use in spec.config.items() if use.template]
        for name, path in templates:
            found[name] = host.write_config(
                spec, seat, name, host.rendered(spec, name, path, known)
            )
        return found

    def _enforces(self, file: str) -> bool:
        """Whether cgroups have it here; its controller is the first part of its name."""
        return file.partition(".")[0] in self._settings.controllers

    def _numbers_for(self, spec: Spec) -> Numbers:
        numbers = Numbers.of(
            self._term.client.timeout, tick=self._term.numbers.tick, stop_grace=spec.stop_grace
        )
        numbers.fit()
        return numbers
