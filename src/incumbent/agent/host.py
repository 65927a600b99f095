"""The machine, as an agent sees it: programs, pidfds, its data directory.

Rule of this file: the rim. It does what it is told and decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from incumbent.agent.custody import Pidfds
from incumbent.agent.deadline_file import DeadlineFile
from incumbent.agent.home import Home
from incumbent.agent.instance import Instance
from incumbent.agent.proc import OWNER
from incumbent.agent.steadiness import Loss
from incumbent.allowances import EVERYTHING, Allowances
from incumbent.errors import SpecError, SpecErrors
from incumbent.guardian.cgroup import end_cgroup, name_of
from incumbent.launch import (
    Launch,
    identity_of,
    launch,
    missing_requirements,
    read_named,
    refusal,
    user_problem,
)
from incumbent.spec import Spec
from incumbent.spec.template import render

__all__ = ["Machine", "last_line"]

_PATIENCE = 0.2
"""Seconds that the last line of a program that failed is waited for."""
_TAIL = 4096
"""Bytes."""


class Machine(Pidfds):
    """This machine.

    environ    what programs may inherit of (PATH, HOME, LANG)
    zookeeper  the hosts that the agent uses, for programs that use ZooKeeper themselves
    cgroups    where cgroups are made, if they can be
    allowed    what may run here, whatever the tree says
    """

    def __init__(
        self,
        home: Home,
        owner: str,
        environ: Mapping[str, str],
        zookeeper: str,
        say: Callable[[str], None],
        cgroups: Path | None = None,
        allowed: Allowances = EVERYTHING,
    ) -> None:
        super().__init__(owner)
        self._cgroups = cgroups
        self._home = home
        self._say = say
        self._is_forgetful = False
        self._environ = dict(environ)
        self._allowed = allowed
        self._ours = {OWNER: owner, "INCUMBENT_ZOOKEEPER": zookeeper}
        self._deadline = DeadlineFile(environ, name=owner)
        if self._deadline.path:
            self._ours["INCUMBENT_DEADLINE_FILE"] = self._deadline.path

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        launched = launch(spec, seat, node, epoch, self._environ, self._allowed, self._home.folder)
        return replace(launched, env={**launched.env, **self._ours})

    def tell_deadline(self, at: float) -> None:
        self._deadline.write(at)

    def forget_deadline(self) -> None:
        """Nothing of ours runs any more."""
        self._deadline.remove()

    def cgroup_of(self, seat: str, epoch: int) -> str | None:
        return f"{self._cgroups}/{name_of(self.owner, seat, epoch)}" if self._cgroups else None

    async def sweep(self, seat: str, epoch: int) -> None:
        cgroup = self.cgroup_of(seat, epoch)
        while cgroup is not None and not end_cgroup(Path(cgroup), 0.0):  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.05)
        await super().sweep(seat, epoch)

    def unfit(self, spec: Spec) -> str:
        missing = missing_requirements(spec)
        if missing:
            return f"{missing[0]} does not exist on this node"
        return user_problem(spec) or refusal(spec, self._environ, self._allowed)

    def write_config(self, spec: Spec, seat: str, name: str, value: str) -> str:
        identity = identity_of(spec)
        owner = (identity.uid, identity.gid) if identity is not None else None
        try:
            return str(self._home.write_config(seat, name, value, owner))
        except OSError as error:
            why = f"its file cannot be written: {(error.strerror or str(error)).lower()}"
            raise SpecErrors([SpecError(spec.name, 0, f"config.{name}", why)]) from None

    def forget_config(self, seat: str) -> None:
        self._home.forget_config(seat)

    def rendered(self, spec: Spec, name: str, path: str, variables: Mapping[str, str]) -> str:
        key = f"config.{name}"
        try:
            text = read_named(path, identity_of(spec)).data.decode()
        except UnicodeDecodeError:
            raise SpecErrors([SpecError(spec.name, 0, key, f"{path}: it is no text")]) from None
        except OSError as error:
            why = f"{path}: {error.strerror}"
            raise SpecErrors([SpecError(spec.name, 0, key, why)]) from None
        return render(text, variables, path)

    def log_path(self, seat: str) -> str | None:
        return str(self._home.log_of(seat))

    async def last_line(self, seat: str, within: float) -> str:
        """A disk that does not answer is waited for a moment, in a thread."""
        since = time.time() - within - 1.0
        path = self._home.log_of(seat)
        try:
            async with asyncio.timeout(_PATIENCE):
                line = await asyncio.to_thread(last_line, path, since)
                if not line:  # its writer may be behind
                    await asyncio.sleep(_PATIENCE / 4)
                    line = await asyncio.to_thread(last_line, path, since)
                return line
        except TimeoutError:
            return ""

    def losses(self) -> list[Loss]:
        return self._home.losses()

    def remember_losses(self, losses: Sequence[Loss]) -> None:
        try:
            self._home.remember_losses(losses)
        except OSError as error:
            self._say(f"the lost session cannot be written down: {error.strerror}")

    def remember(self, instances: Mapping[str, Instance]) -> None:
        try:
            self._home.remember(self.owner, instances, self._cgroups)
            self._is_forgetful = False
        except OSError as error:  # a full disk must stop nobody; sealed trees need no record
            if not self._is_forgetful:
                self._say(f"the trees running here cannot be written down: {error.strerror}")
            self._is_forgetful = True


def last_line(path: Path, since: float) -> str:
    """The last line of a log that has any text, without its time; "" if it is older than `since`
    (wall time), or cannot be read.
    """
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        stamp, _, text = line.partition(" ")
        try:
            at = datetime.fromisoformat(stamp).timestamp()
        except ValueError:
            continue  # the tail of a long one
        if at < since:
            return ""
        if text.strip():
            return text.strip()[:160]
    return ""
