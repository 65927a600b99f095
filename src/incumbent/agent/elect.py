"""`incumbent elect`: stand in one election, say which role we have, run COMMAND while we lead.

    connect ─► stand ─► wait ─► lead (COMMAND runs) ─► COMMAND ended, or SHUTDOWN ─► close ─► BYE
                 ▲                 │ deposed: COMMAND proven dead
                 └─────────────────┘

Our znode is given up only after COMMAND is proven dead, and each run of COMMAND has a znode of
its own: its czxid is the run's epoch, so that the fencing token grows from run to run, here and
at everybody else who stands in this election.

Rule of this file: COMMAND runs only while we lead, and nobody can lead after us before it is
proven dead.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from incumbent.agent.custody import Custody, Pidfds, Processes
from incumbent.agent.instance import Instance
from incumbent.agent.lines import Lines
from incumbent.agent.link import GuardianLink
from incumbent.client import Client, State
from incumbent.clock import SYSTEM, Clock
from incumbent.errors import (
    ConnectTimeout,
    Deposed,
    IncumbentError,
    MixedDialects,
    NoNode,
    NumbersDontFit,
    SessionError,
)
from incumbent.guardian import messages as m
from incumbent.launch import went_background
from incumbent.lease import Numbers
from incumbent.recipes.dialects import Dialect, detect
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["Elect", "ElectSettings", "exit_code", "fitting", "serve_elect"]

T = TypeVar("T")

PLAIN = Dialect("node_")
"""How contenders are named where nobody stands yet: as the literature does."""
EVERY = 5.0
"""Seconds between two lines about an unchanged role."""
FIRST_REPORT, REPORT = 1.0, 5.0
"""Seconds of vain connecting after which it is said, and said again."""
SETTLE = 0.02
"""Seconds between being first and standing again, when that is the next thing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectSettings:
    """What WELCOME carries. `stop_grace` None: as much as the session's times allow, at most the
    default; `tick`: see `lease.Lease`; times in seconds."""

    path: str
    hosts: str
    name: str
    session_timeout: float
    tick: float | None = None
    stop_grace: float | None = None
    isolation: str = "sealed"
    command: Sequence[str] = ()
    every: float = EVERY

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ElectSettings:
        """Out of WELCOME's settings, which have other keys too."""
        return cls(**{key: given[key] for key in cls.__dataclass_fields__ if key in given})


async def serve_elect(link: GuardianLink, given: Mapping[str, Any]) -> int:
    """From WELCOME to BYE; the exit code. The rim: terminal, pidfds, randomness, clock."""
    elect = Elect(
        ElectSettings.of(given),
        link,
        Pidfds(),
        out=Lines(1),
        err=Lines(2, "elect: "),
        environ=os.environ,
        cwd=str(given["cwd"]),
        clock=SYSTEM,
        rng=random.SystemRandom(),
    )
    return await elect.run()


class _Stopped(Exception):
    """SHUTDOWN came while we waited for something else."""


class Elect:
    """One contender, from WELCOME to BYE. `run` returns the exit code."""

    def __init__(
        self,
        settings: ElectSettings,
        link: GuardianLink,
        processes: Processes,
        *,
        out: Lines,
        err: Lines,
        environ: Mapping[str, str],
        cwd: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """`environ` and `cwd` are COMMAND's, as in the terminal."""
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._out = out
        self._say = err.news
        self._environ = environ
        self._cwd = cwd
        self._custody = Custody(link, processes, clock=clock, say=self._say)
        self._client: Client | None = None
        self._role = ""
        self._reminder: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        with self._custody as custody:
            main = asyncio.ensure_future(self._serve())
            ends: list[asyncio.Future[Any]] = [main, custody.link.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not main.done():
                main.cancel()
                await asyncio.wait([main])
                await self._without_guardian()
                return 1
            return main.result()

    async def _without_guardian(self) -> None:
        self._play("")
        what = [f"{self._command} is proven dead"] if self._custody.instances else []
        await self._custody.outlive_guardian()
        if self._client is not None:
            what += ["the session is closed"] if self._client.state is State.CONNECTED else []
            await self._client.close()
        self._say(f"the guardian was killed: {', '.join(what) or 'nothing was started'}")

    async def _serve(self) -> int:
        try:
            code = await self._stand_until_over()
        except _Stopped:
            code = 0
        except (IncumbentError, ValueError) as error:
            self._say(str(error))
            code = 2 if isinstance(error, NumbersDontFit | ValueError) else 1
        self._play("")
        await self._custody.prove_empty("ending")
        if self._client is not None:
            await self._client.close()
        self._custody.link.send(m.Bye(code=code))
        return code

    # ── sessions

    async def _stand_until_over(self) -> int:
        """Stand, and stand again when deposed, until there is an exit code."""
        client = await self._unless_stopped(self._connect())
        ledger = Ledger(client, log=self._say)
        pause = Pause()
        while True:
            await self._unless_stopped(self._connected(client))
            code = await self._stand(client, ledger)
            if code is not None:
                return code
            await self._unless_stopped(pause.take())

    async def _connect(self) -> Client:
        """The first session, however long it takes; says so."""
        patience = FIRST_REPORT
        while True:
            client = self._new_client()
            try:
                await client.connect(patience)
                return client
            except ConnectTimeout as error:
                self._say(f"{error}. Still trying")
            patience = REPORT

    def _new_client(self) -> Client:
        client = Client(
            self._settings.hosts,
            session_timeout=self._settings.session_timeout,
            clock=self._clock,
            rng=self._rng,
            tick=self._settings.tick,
            on_lost=lambda: self._custody.prove_empty("the session is lost"),
            log=self._say,
        )

        def on_state(state: State) -> None:
            if state is State.CONNECTED and client.session_id != told[-1]:
                told.append(client.session_id)
                self._client = client
                self._custody.session(client, self._settings.hosts)
            self._custody.bell.ring()

        told = [0]
        client.watch_state(on_state)
        return client

    async def _connected(self, client: Client) -> None:
        """Wait for the next session after a lost one, and for the connection; says so."""
        say_at = self._clock.boottime() + REPORT
        while (state := client.state) is not State.CONNECTED:
            if state is State.CLOSED:
                raise SessionError(client.session_id, "the client has failed; start elect again")
            await self._custody.bell.heard(say_at)
            if self._clock.boottime() >= say_at:
                self._say(f"no connection to {self._settings.hosts}. Still trying")
                say_at = self._clock.boottime() + REPORT

    # ── one stand

    async def _stand(self, client: Client, ledger: Ledger) -> int | None:
        """From our znode's creation to its end. None: stand again."""
        numbers = fitting(client.timeout, self._settings.tick, self._settings.stop_grace)
        try:
            place = await self._unless_stopped(self._enter(client, ledger))
        except SessionError:
            return None
        code: int | None = None
        try:
            await self._unless_stopped(place.first(self._waits))
            hold = Hold(place, grace=numbers.soft, error=Deposed)
            await self._unless_stopped(hold.begin())
            code = await self._lead(place, hold, numbers)
        except (SessionError, NoNode) as error:
            if not place.gone.is_set() and client.session_id == place.session_id:
                raise
            why = "its znode was deleted" if isinstance(error, NoNode) else "its session is over"
            self._play(f"{place.name} is out of the election: {why}", lasts=False)
        await self._give_up(place)
        return code

    async def _enter(self, client: Client, ledger: Ledger) -> Place:
        """Stand in the dialect of those who stand there."""
        tries = 10
        while True:
            try:
                children = await client.children(self._settings.path)
            except NoNode:
                children = []
            dialect = detect(self._settings.path, children, PLAIN)
            queue = Queue(client, self._settings.path, dialect, rng=self._rng, ledger=ledger)
            try:
                return await queue.enter(self._settings.name.encode())
            except MixedDialects:  # somebody came between the look and our create
                tries -= 1
                if not tries:
                    raise

    async def _give_up(self, place: Place) -> None:
        assert all(each.is_empty for each in self._custody.instances.values())
        await place.leave()

    def _waits(self, place: Place) -> None:
        self._play(f"{place.name} is not the leader, watching {place.watching}")

    # ── leading

    async def _lead(self, place: Place, hold: Hold, numbers: Numbers) -> int | None:
        """Until COMMAND has ended or we are to stop (an exit code), or deposed (None).

        COMMAND is proven dead when this returns; it returns nothing before, whatever happens.
        """
        custody = self._custody
        custody.draining.add_done_callback(custody.bell.ring)
        forget = hold.lost.listen(custody.bell.ring)
        is_told = False
        try:
            self._play(f"{place.name} is the leader")
            instance = self._start(place, numbers) if self._settings.command else None
            while True:
                if hold.lost.error is not None:
                    self._deposed(place, hold)
                    await self._stop(instance, self._grace_left(place, numbers))
                    return None
                if custody.draining.done():
                    await self._stop(instance, numbers.stop_grace)
                    return 0
                if instance is not None and instance.is_empty:
                    return self._after(place, instance)
                if instance is not None and instance.pid and not is_told:
                    is_told = True
                    how = f"pid {instance.main}, {instance.containment}, token {instance.epoch}"
                    self._say(f"started {self._command}: {how}")
                await custody.bell.heard()
        finally:
            forget()
            custody.draining.remove_done_callback(custody.bell.ring)
            hold.end()

    def _start(self, place: Place, numbers: Numbers) -> Instance:
        path, epoch = self._settings.path, place.czxid
        instance = Instance(
            seat=path, epoch=epoch, breadcrumb="", containment=self._settings.isolation
        )
        own = {
            "INCUMBENT_SEAT": path,
            "INCUMBENT_NODE": self._settings.name,
            "INCUMBENT_EPOCH": str(epoch),
        }
        self._custody.tell_lease()  # of the proof just made, before a START that goes by it
        self._custody.order_start(
            instance,
            m.Start(
                generation=self._custody.generation,
                seat=path,
                epoch=epoch,
                soft=numbers.soft,
                hard=numbers.hard,
                argv=tuple(self._settings.command),
                env={**self._environ, **own},
                cwd=self._cwd,
                stop_signal=signal.SIGTERM,
                stop_grace=numbers.stop_grace,
                containment=self._settings.isolation,
            ),
        )
        return instance

    async def _stop(self, instance: Instance | None, grace: float) -> None:
        """Stop COMMAND; return when it is proven dead, however long that takes."""
        while instance is not None and not instance.is_empty:
            if not instance.stop_ordered:
                self._say(f"stopping {self._command}")
                self._custody.order_stop(instance, grace)
            await self._custody.bell.heard()
        if instance is not None:
            self._say(f"{self._command} is proven dead")

    def _grace_left(self, place: Place, numbers: Numbers) -> float:
        """Our znode still stands until the session can be over: until then COMMAND may end
        in order. If it is gone already, somebody else may lead by now."""
        return 0.0 if place.gone.is_set() else numbers.stop_grace

    def _after(self, place: Place, instance: Instance) -> int | None:
        """COMMAND is dead, and we had not ordered it."""
        if instance.refused is not None:
            self._say(f"{self._command} was not started: {instance.refused.why}")
            return 127 if instance.refused.permanent else None
        exited = instance.exited
        if instance.why_stopping or exited is None or exited.code is exited.signal is None:
            why = instance.why_stopping or "hard deadline: the session's lease ran out"
            self._play(f"{place.name} is no longer the leader: {why}", lasts=False)
            self._say(f"{self._command} is proven dead")
            return None
        background = went_background(
            self._settings.command, exited.code, exited.uptime, exited.left
        )
        if background:
            self._say(background)
            return 1
        how = f"code {exited.code}" if exited.signal is None else f"signal {exited.signal}"
        self._say(f"{self._command} ended with {how} after {exited.uptime:.1f} s")
        return exit_code(exited)

    def _deposed(self, place: Place, hold: Hold) -> None:
        assert isinstance(hold.lost.error, Deposed)
        self._play(f"{place.name} is no longer the leader: {hold.lost.error.why}", lasts=False)

    @property
    def _command(self) -> str:
        return PurePath(self._settings.command[0]).name

    # ── small things

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; raises `_Stopped` if SHUTDOWN comes first. Nothing runs here."""
        task = asyncio.ensure_future(work)
        ends: list[asyncio.Future[Any]] = [task, self._custody.draining]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if self._custody.draining.done():
            if task.done() and not task.cancelled():
                task.exception()
            raise _Stopped
        return task.result()

    def _play(self, line: str, *, lasts: bool = True) -> None:
        """Say a change of role now, and, while it lasts, again and again."""
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None
        self._role = line if lasts else ""
        if line:
            self._out.news(line)
        if self._role:
            loop = asyncio.get_running_loop()
            self._reminder = loop.call_later(self._settings.every, self._remind)

    def _remind(self) -> None:
        self._out.reminder(self._role)
        loop = asyncio.get_running_loop()
        self._reminder = loop.call_later(self._settings.every, self._remind)


def fitting(session: float, tick: float | None, stop_grace: float | None) -> Numbers:
    """A session's times, with as much stop grace as was asked for; without a wish, as much as
    fits, at most the default. Raises `NumbersDontFit`."""
    numbers = Numbers.of(session, tick=tick, stop_grace=stop_grace)
    if stop_grace is None:
        spare = numbers.room - numbers.needed
        numbers = Numbers.of(
            session, tick=tick, stop_grace=max(0.0, numbers.stop_grace + min(0.0, spare))
        )
    numbers.fit()
    return numbers


def exit_code(exited: m.Exited) -> int:
    """As a shell gives it: the program's own, or 128 and the signal's number."""
    if exited.signal is not None:
        return 128 + exited.signal
    return exited.code or 0
