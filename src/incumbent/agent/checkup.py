"""The health of one instance, kept: it is asked at its interval, and heard when it speaks.

Rule of this file: what is known goes through `health`, which decides; here is only when.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from incumbent.agent import health
from incumbent.agent.asking import ask
from incumbent.agent.health import Health, Verdict
from incumbent.agent.instance import Instance
from incumbent.spec import Check

if TYPE_CHECKING:
    from incumbent.agent.beside import Beside
    from incumbent.agent.edition import Edition
    from incumbent.agent.term import Term

__all__ = ["Checkup"]

LATE = 0.5
"""Seconds by which we may wake late before it counts as having slept."""


class Checkup:
    """From `begin` until its seat cancels what goes on beside (`Beside.end`)."""

    def __init__(
        self, term: Term, instance: Instance, edition: Edition, beside: Beside, *, was_ready: bool
    ) -> None:
        spec = edition.spec
        self.instance = instance
        self._term = term
        self._clock = term.clock
        self._spec = spec
        self._edition = edition
        self._beside = beside
        grace = term.numbers.stop_grace if spec.stop_grace is None else spec.stop_grace
        now = self._clock.boottime()
        self._health: Health = health.begin(spec.ready, spec.live, grace, now, was_ready=was_ready)
        self._expected_at = now
        self._waiting: asyncio.Future[None] | None = None
        if spec.ready is not None or spec.live is not None:
            beside.begin(self._keep_asking())

    @property
    def is_ready(self) -> bool:
        return self._health.is_ready

    @property
    def uptime(self) -> float:
        """Seconds that it was up for; 0 if it never was."""
        up_at = self._health.began_at if self._spec.ready is None else self._health.ready_at
        return 0.0 if up_at is None else self._clock.boottime() - up_at

    def verdict(self) -> Verdict:
        """As things are now."""
        now = self._clock.boottime()
        words, self.instance.words = self.instance.words, []
        for word in words:
            self._health = health.told(self._health, word, now)
        if words and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)  # perhaps there is something else to ask now
        return health.verdict(self._health, now)

    async def _keep_asking(self) -> None:
        """The check that is due, at its interval; and a look at whether we slept meanwhile."""
        while True:
            check = health.what_to_ask(self._health)
            began_at = self._clock.boottime()
            if check is not None:
                problem = await self._answer(check)
                self._health = health.checked(self._health, check, problem, self._clock.boottime())
                self._beside.ring()
            tick = self._health.live if self._health.is_ready else self._health.ready
            await self._wait(began_at + (tick.interval if tick is not None else 1.0))

    async def _wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(max(0.0, until - self._clock.boottime()), _finish, self._waiting)
        try:
            await self._waiting
        finally:
            timer.cancel()
        late = self._clock.boottime() - until
        if late > LATE:
            self._health = health.slept(self._health, late)

    async def _answer(self, check: Check) -> str:
        if check.way != "command":
            return await ask(check)
        what = "live" if self._health.is_ready else "ready"
        return await self._beside.run(
            self._edition, what, check.command, check.timeout, self.instance.epoch
        )


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
