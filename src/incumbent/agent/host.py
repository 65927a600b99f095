"""The machine, as an agent sees it: programs, pidfds, its data directory.

Rule of this file: the rim. It does what it is told and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from incumbent.agent.custody import Pidfds
from incumbent.agent.home import Home
from incumbent.agent.instance import Instance
from incumbent.agent.proc import OWNER
from incumbent.launch import Launch, launch, missing_requirements
from incumbent.spec import Spec

__all__ = ["Machine"]


class Machine(Pidfds):
    """This machine.

    environ    what programs may inherit of (PATH, HOME, LANG)
    zookeeper  the hosts that the agent uses, for programs that use ZooKeeper themselves
    """

    def __init__(
        self,
        home: Home,
        owner: str,
        environ: Mapping[str, str],
        zookeeper: str,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(owner)
        self._home = home
        self._say = say
        self._is_forgetful = False
        self._environ = dict(environ)
        self._ours = {OWNER: owner, "INCUMBENT_ZOOKEEPER": zookeeper}

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        launched = launch(spec, seat, node, epoch, self._environ)
        return replace(launched, env={**launched.env, **self._ours})

    def missing(self, spec: Spec) -> list[str]:
        return missing_requirements(spec)

    def log_path(self, seat: str) -> str | None:
        return str(self._home.log_of(seat))

    def remember(self, instances: Mapping[str, Instance]) -> None:
        try:
            self._home.remember(self.owner, instances)
            self._is_forgetful = False
        except OSError as error:  # a full disk must stop nobody; sealed trees need no record
            if not self._is_forgetful:
                self._say(f"the trees running here cannot be written down: {error.strerror}")
            self._is_forgetful = True
