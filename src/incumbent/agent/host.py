"""The machine, as an agent sees it: programs, pidfds, its data directory.

Rule of this file: the rim. It does what it is told and decides nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

from incumbent.agent.home import Home
from incumbent.agent.instance import Instance
from incumbent.agent.proc import end_seat
from incumbent.launch import Launch, launch, missing_requirements
from incumbent.spec import Spec

__all__ = ["Machine"]


class Machine:
    """This machine. `environ` is what programs may inherit of (PATH, HOME, LANG)."""

    def __init__(self, home: Home, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._home = home
        self._say = say
        self._is_forgetful = False
        self._environ = dict(environ)
        self._pidfds: dict[int, int] = {}

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        return launch(spec, seat, node, epoch, self._environ)

    def missing(self, spec: Spec) -> list[str]:
        return missing_requirements(spec)

    def log_path(self, seat: str) -> str | None:
        return str(self._home.log_of(seat))

    def death_of(self, pid: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        dead: asyncio.Future[None] = loop.create_future()
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            dead.set_result(None)
            return dead
        self._pidfds[pid] = pidfd

        def readable() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            del self._pidfds[pid]
            if not dead.done():
                dead.set_result(None)

        loop.add_reader(pidfd, readable)
        return dead

    def kill(self, pid: int) -> None:
        try:
            signal.pidfd_send_signal(self._pidfds[pid], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            return

    async def sweep(self, seat: str, epoch: int) -> None:
        while not end_seat(seat, epoch, 1.0):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def remember(self, instances: Mapping[str, Instance]) -> None:
        try:
            self._home.remember(instances)
            self._is_forgetful = False
        except OSError as error:  # a full disk must stop nobody; sealed trees need no record
            if not self._is_forgetful:
                self._say(f"the trees running here cannot be written down: {error.strerror}")
            self._is_forgetful = True
