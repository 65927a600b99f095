"""The errand of `incumbent once`: run COMMAND at most once, ever or in each period, on any machine.

    read the key's runs: done? ─► its exit code
    stand in the key's line, be first
    one write: [we are first in line, the runs as read] ─► this run is running
    COMMAND runs, and is proven dead
    one write: [the runs as read] ─► done, with its exit code; or interrupted
    leave the line

Whoever is first in line after us reads what we wrote, since we leave it only then. If we never
wrote an end, our session is over: the next one finds a run that is running while nobody stands
before him, and so knows that it was interrupted, and that COMMAND is dead.

Rule of this file: COMMAND is started only after the claim is read or acknowledged, and a claim
whose answer was lost is read back by its nonce.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from incumbent.agent.ending import Ended, Ending
from incumbent.agent.exit_codes import INTERRUPTED
from incumbent.agent.locking import Locking
from incumbent.agent.runs import Run, Runs, Verdict, What, decide, read_runs
from incumbent.agent.view import patient
from incumbent.agent.wrapped_settings import WrappedSettings
from incumbent.client import Client
from incumbent.clock import Clock
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    NoNode,
    NotSent,
    SessionExpired,
)
from incumbent.recipes.flight import flight
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.place import Place
from incumbent.wire import Exists, SetData, Stat

__all__ = ["ClockWrong", "MixedKey", "Once", "clock_time"]


class ClockWrong(IncumbentError):
    """Our clock and the servers' differ by more than half a period."""

    def __init__(self, seconds: float, period: float) -> None:
        super().__init__(seconds, period)
        self.seconds, self.period = seconds, period

    def __str__(self) -> str:
        way = "ahead of" if self.seconds > 0 else "behind"
        return (
            f"this machine's clock is {abs(self.seconds):.0f} s {way} ZooKeeper's, more than half "
            f"of a period of {self.period:g} s: which period it is cannot be told. Set the clock; "
            "nothing was run"
        )


class MixedKey(IncumbentError):
    """A key that is used with --every and without, or with two of them."""

    def __init__(self, key: str, run: Run) -> None:
        super().__init__(key, run)
        self.key, self.run = key, run

    def __str__(self) -> str:
        every = f" of {self.run.every}" if self.run.every else ""
        before = (
            f"for {self.run.period}, with --every{every}" if self.run.period else "without --every"
        )
        return (
            f"{self.key} has been used before {before}: use another KEY, or forget its runs with "
            f"`incumbent once {self.key} --forget`; nothing was run"
        )


class Once(Locking):
    """As `Locking`, with the key's runs around it."""

    def __init__(
        self,
        settings: WrappedSettings,
        *,
        say: Callable[[str], None],
        pid: int,
        rng: random.Random,
        clock: Clock,
    ) -> None:
        super().__init__(settings, say=say, pid=pid, rng=rng)
        self._once = settings.once
        self._clock = clock
        self._pid = pid
        self._nonce = ""
        self._entered_at = (0.0, 0.0)  # wall time, before and after

    @property
    def what(self) -> str:
        return self._title

    @property
    def _title(self) -> str:
        """The key, with its period if it has one."""
        period = self._once.period
        return f"{self._once.key} of {period}" if period else self._once.key

    async def before(self, client: Client) -> int | None:
        """One read: mostly it is done already."""
        runs, _ = await self._read(client)
        verdict = self._decide(runs, is_first=False)
        return None if verdict.what is What.CLAIM else self._without_run(verdict)

    async def enter(self, client: Client, ledger: Ledger) -> Place:
        before = self._clock.wall()
        place = await super().enter(client, ledger)
        self._entered_at = (before, self._clock.wall())
        return place

    async def claim(self, client: Client, place: Place) -> int | None:
        await self._compare_clocks(client, place)
        before, self._nonce = self._nonce, f"{self._rng.getrandbits(64):016x}"
        while True:
            runs, version = await self._read(client)
            if runs.with_nonce(self._nonce) is not None:
                return None  # the answer to our write was lost
            runs = runs.without(before)  # of a session that ended before anything was started
            verdict = self._decide(runs, is_first=True)
            left = verdict.run
            if verdict.what is What.CLAIM:
                claimed = runs.put(self._run(place, 1 if left is None else left.attempt + 1))
                if left is not None:
                    self._say(f"{self._interrupted(left)}; it is run again")
                if await self._write(client, place, claimed, version):
                    return None
            elif verdict.what is What.INTERRUPTED and left is not None and left.state == "running":
                found = left.interrupted()
                if await self._write(client, place, runs.put(found), version):
                    return self._without_run(Verdict(What.INTERRUPTED, found))
            else:
                return self._without_run(verdict)

    async def ended(self, client: Client, ending: Ending, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._write_end(client, ending)
        except (TimeoutError, IncumbentError) as error:
            why = str(error) or f"no answer within {patience:g} s"
            self._say(
                f"the end of {self._title} could not be written down ({why}): to others it will "
                "be interrupted"
            )

    def environment(self, token: int) -> dict[str, str]:
        return {**super().environment(token), "INCUMBENT_PERIOD": self._once.period}

    def late(self) -> str:
        held = f": {self._runner} runs it" if self._before_us else ""
        return f"{self._title} was not done in time{held}; nothing was run here"

    async def _tell_whom(self, place: Place) -> None:
        before = self._before_us
        await self.sees(place)
        if self._before_us != before and not self._settings.quiet:
            self._say(f"{self._title} is run by {self._runner}; waiting for its end")

    @property
    def _runner(self) -> str:
        """The first in line runs it; the others wait as we do."""
        return self._before_us.partition(",")[0]

    def _decide(self, runs: Runs, *, is_first: bool) -> Verdict:
        once = self._once
        return decide(runs, once.period, every=once.every, retry=once.retry, is_first=is_first)

    # ── what is said where nothing is run

    def _without_run(self, verdict: Verdict) -> int:
        run = verdict.run
        assert run is not None
        if verdict.what is What.MIXED:
            raise MixedKey(self._once.key, run)
        if verdict.what is What.INTERRUPTED:
            self._say(
                f"{self._interrupted(run)}, and how far it came is not known. Nothing is run. "
                "See what it left; --if-interrupted retry runs it again, "
                f"`incumbent once {self._once.key} --forget` forgets it"
            )
            return INTERRUPTED
        if not self._settings.quiet:
            if verdict.what is What.OVER:
                newest = f"{run.node} has run that of {run.period}"
                self._say(f"{self._title} is over: {newest} already")
            else:
                self._say(
                    f"{self._title} is done: {run.node} (pid {run.pid}) ran it from "
                    f"{clock_time(run.started)} to {clock_time(run.ended)}, exit code {run.code}"
                )
        if self._once.if_done is not None:
            return self._once.if_done
        return run.code if verdict.what is What.DONE else 0

    def _interrupted(self, run: Run) -> str:
        return (
            f"{self._title} was interrupted on {run.node} (pid {run.pid}, started "
            f"{clock_time(run.started)}): {run.why or 'its end was never written down'}"
        )

    # ── reading and writing

    def _run(self, place: Place, attempt: int) -> Run:
        return Run(
            period=self._once.period,
            state="running",
            node=self._settings.name,
            pid=self._pid,
            nonce=self._nonce,
            token=place.czxid,
            started=self._clock.wall(),
            attempt=attempt,
            every=self._once.every,
        )

    async def _read(self, client: Client) -> tuple[Runs, int]:
        """The runs, and the version of their znode (that of a new one if there is none)."""
        try:
            data, stat = await patient(lambda: client.get(self._once.record))
        except NoNode:
            return Runs(), 0
        return read_runs(data, self._once.record), stat.version

    async def _write(self, client: Client, place: Place, runs: Runs, version: int) -> bool:
        """Only while we are first in line. False: look again, it may or may not be written.

        Whatever was lost under way is behind a later request of ours, so that what is read
        next is what came of it.
        """
        write = SetData(self._once.record, runs.write(), version)
        try:
            await client.multi([place.check_own(), write])
        except BadVersion:
            return False
        except NoNode as error:
            if error.index == 0:
                place.gone.set(NoNode(place.path))
            raise
        except (FateUnknown, NotSent):
            await place.refresh()
            return False
        return True

    async def _write_end(self, client: Client, ending: Ending) -> None:
        """By the nonce and the version alone: it holds in a later session of ours as well."""
        pause = Pause()
        while True:
            try:
                runs, version = await self._read(client)
                run = runs.with_nonce(self._nonce)
                if run is None or run.state != "running":
                    return
                await client.set(self._once.record, self._after(runs, run, ending).write(), version)
                return
            except BadVersion:
                continue
            except (FateUnknown, NotSent, SessionExpired):
                await pause.take()

    def _after(self, runs: Runs, run: Run, ending: Ending) -> Runs:
        now = self._clock.wall()
        match ending.how:
            case Ended.OWN:
                return runs.put(
                    msgspec.structs.replace(run, state="done", ended=now, code=ending.code)
                )
            case Ended.NOT_STARTED | Ended.UNSTARTABLE if run.attempt == 1:
                return runs.without(run.nonce)
            case Ended.NOT_STARTED | Ended.UNSTARTABLE:
                why = "it was interrupted, and could not be started again"
            case Ended.STOPPED:
                why = f"it was stopped there, exit code {ending.code}"
            case Ended.BACKGROUND | Ended.LOST:
                why = ending.why or "what it ran under was lost, and it was stopped"
        return runs.put(
            msgspec.structs.replace(run, state="interrupted", ended=now, why=why, code=ending.code)
        )

    async def _compare_clocks(self, client: Client, place: Place) -> None:
        """Raises `ClockWrong`. The servers' clock is seen in the znode that we have just made."""
        length = self._once.length
        if not length:
            return
        (stat,) = await flight(client, Exists(place.path))
        if not isinstance(stat, Stat):
            return  # whatever it is, the claim will tell
        made = stat.ctime / 1000
        before, after = self._entered_at
        off = before - made if made < before else after - made if made > after else 0.0
        if abs(off) > length / 2:
            raise ClockWrong(off, length)


def clock_time(wall: float) -> str:
    """2026-11-27 23:15:27Z."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
