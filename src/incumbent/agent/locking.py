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
from incumbent.agent.view import patient
from incumbent.agent.wrapped_settings import WrappedSettings
from incumbent.client import Client
from incumbent.errors import (
    BadContent,
    FateUnknown,
    IncumbentError,
    NoNode,
    NotSent,
    SessionError,
)
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.recipes.semaphore import HELD, Semaphore, Wait

__all__ = ["Limiting", "Locking", "UsedOtherwise"]

_NAMED = 3
"""So many of those before us are named."""


class UsedOtherwise(IncumbentError):
    """A lock's znode is a semaphore's, or the other way round."""

    def __init__(self, path: str, how: str) -> None:
        super().__init__(path, how)
        self.path, self.how = path, how

    def __str__(self) -> str:
        return (
            f"{self.path} is used {self.how}: those who use it so and those who don't would not "
            "keep each other out. Say the same everywhere, or use another NAME"
        )


class Locking(Errand):
    """A lock, or a share of one. `say`: a line on stderr; `pid`: of the wrapper, for those who
    wait for us."""

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
        self._before_us = ""
        self._asking: asyncio.Task[None] | None = None
        self._has_told_loss = False
        self._has_told_size = False
        self.is_fencing = not (settings.shared or settings.limit)

    @property
    def what(self) -> str:
        """What is waited for, for people."""
        return f"the lock {self._settings.path}"

    async def enter(self, client: Client, ledger: Ledger) -> Place:
        queue = Queue(client, self._settings.path, rng=self._rng, ledger=ledger)
        place = await queue.enter(self._member.encode(), is_reader=self._settings.shared)
        data, _ = await patient(lambda: client.get(self._settings.path))
        if data:
            raise UsedOtherwise(self._settings.path, "with --limit")
        return place

    def waits(self, place: Place) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._tell_whom(place))

    async def sees(self, place: Place) -> None:
        """Who is before us: the first of them have it."""
        ahead = place.ahead()
        names = []
        for name in ahead[:_NAMED]:
            try:
                data = await place.data_of(name)
            except (FateUnknown, NotSent, SessionError):
                return
            if data is not None:
                names.append(data.removesuffix(HELD).decode(errors="replace") or name)
        if names:
            more = f" and {len(ahead) - _NAMED} more" if len(ahead) > _NAMED else ""
            self._before_us = f"{', '.join(names)}{more}"

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
        held = f": behind {self._before_us}" if self._before_us else ""
        return f"{self.what} was not had in time{held}; nothing was run"

    async def _tell_whom(self, place: Place) -> None:
        before = self._before_us
        await self.sees(place)
        if self._before_us != before and not self._settings.quiet:
            self._say(f"waiting for {self.what} behind {self._before_us}")


class Limiting(Locking):
    """One of so many at a time."""

    async def enter(self, client: Client, ledger: Ledger) -> Place:
        """The size that is there counts; ours is for the first one who comes."""
        path, limit = self._settings.path, self._settings.limit
        try:
            size = await patient(Semaphore(client, path, rng=self._rng).size)
        except NoNode:
            size = limit
        except BadContent as error:
            if error.data:
                raise
            raise UsedOtherwise(path, "without --limit") from error
        if size != limit and not self._has_told_size:
            self._has_told_size = True
            self._say(f"{path} has a limit of {size}; `incumbent zk set {path} {limit}` changes it")
        semaphore = Semaphore(client, path, limit, rng=self._rng, ledger=ledger)
        return await semaphore.queue.enter(self._member.encode())

    def is_admitted(self, place: Place) -> bool:
        return Wait(self._settings.path, place).is_inside

    async def admitted(self, place: Place) -> None:
        wait = Wait(self._settings.path, place)
        if not wait.is_inside:
            self.waits(place)
        await wait.inside()

    def hold(self, place: Place, grace: float) -> Hold:
        return Wait(self._settings.path, place).hold(grace)
