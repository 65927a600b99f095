"""The errand of `incumbent lock`: run COMMAND once while holding a lock.

Rule of this file: COMMAND runs at most once. A lock that is lost while it ran is an exit code,
never a second run.
"""

from __future__ import annotations

import asyncio
import random
import signal as signals
from collections.abc import Callable

from incumbent.agent.ending import Ended, Ending
from incumbent.agent.errand import Errand
from incumbent.agent.exit_codes import CANNOT, LOST, NOT_FOUND
from incumbent.agent.wrapped_settings import WrappedSettings
from incumbent.client import Client
from incumbent.errors import FateUnknown, IncumbentError, NotSent, SessionError
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["Locking"]


class Locking(Errand):
    """`say`: a line on stderr; `pid`: of the wrapper, for those who wait for us."""

    def __init__(
        self,
        settings: WrappedSettings,
        *,
        say: Callable[[str], None],
        pid: int,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._say = say
        self._rng = rng
        self._member = f"{settings.name} pid {pid}"
        self._holder = ""
        self._asking: asyncio.Task[None] | None = None
        self._has_told_loss = False

    @property
    def what(self) -> str:
        """What is waited for, for people."""
        return f"the lock {self._settings.path}"

    async def enter(self, client: Client, ledger: Ledger) -> Place:
        queue = Queue(client, self._settings.path, rng=self._rng, ledger=ledger)
        return await queue.enter(self._member.encode())

    def waits(self, place: Place) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._tell_whom(place))

    async def sees(self, place: Place) -> None:
        """Who is first: the holder, or who will be it at once."""
        ahead = place.ahead()
        if not ahead:
            return
        try:
            data = await place.data_of(ahead[0])
        except (FateUnknown, NotSent, SessionError):
            return
        if data is not None:
            self._holder = data.decode(errors="replace") or ahead[0]

    def has(self, place: Place) -> None:
        return

    def loses(self, place: Place, why: str) -> None:
        if not self._has_told_loss:
            self._has_told_loss = True
            self._say(f"{self.what} is lost: {why}")

    def drops_out(self, place: Place, why: str) -> None:
        self._say(f"{place.name} is out of the queue: {why}; standing again")

    def code(self, ending: Ending) -> int | None:
        match ending.how:
            case Ended.OWN | Ended.STOPPED:
                return ending.code
            case Ended.BACKGROUND:
                return CANNOT
            case Ended.UNSTARTABLE:
                return NOT_FOUND
            case Ended.LOST:
                return LOST
            case Ended.NOT_STARTED:
                self._has_told_loss = False
                return None

    def stopped(self, signal: str) -> int:
        return 128 + getattr(signals, signal, signals.SIGTERM)

    def failed(self, error: IncumbentError | ValueError) -> int:
        return CANNOT

    def late(self) -> str:
        held = f": {self._holder} has it" if self._holder else ""
        return f"{self.what} was not had in time{held}; nothing was run"

    async def _tell_whom(self, place: Place) -> None:
        before = self._holder
        await self.sees(place)
        if self._holder != before and not self._settings.quiet:
            self._say(f"waiting for {self.what}: {self._holder} has it")
