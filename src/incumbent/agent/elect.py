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
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any, TypeVar

from incumbent.agent.custody import Custody, Pidfds, Processes
from incumbent.agent.elect_settings import ElectSettings, exit_code, fitting
from incumbent.agent.instance import Instance
from incumbent.agent.lines import Lines, Role
from incumbent.agent.link import GuardianLink
from incumbent.agent.proc import OWNER
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

__all__ = ["Elect", "serve_elect"]

T = TypeVar("T")

PLAIN = Dialect("plain", "node_")
"""How contenders are named where nobody stands yet: as the literature does."""
FIRST_REPORT, REPORT = 1.0, 5.0
"""Seconds of vain connecting after which it is said, and said again."""
CLOSING = 2.0
"""Seconds that the end of our session may take; then it simply expires."""


async def serve_elect(link: GuardianLink, given: Mapping[str, Any]) -> int:
    """From WELCOME to BYE; the exit code. The rim: terminal, pidfds, randomness, clock."""
    owner = f"elect {link.welcome.result().guardian_pid}"
    elect = Elect(
        ElectSettings.of(given),
        link,
        Pidfds(owner),
        out=Lines(1),
        err=Lines(2, "elect: "),
        environ={**os.environ, OWNER: owner},
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
        self._role = Role(out, settings.every)
        self._say = err.news
        self._environ = environ
        self._cwd = cwd
        self._custody = Custody(link, processes, clock=clock, say=self._say)
        self._client: Client | None = None
        self._told = 0  # the epoch of which we said that it has started

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
        self._role.play("")
        what = [f"{self._command} is proven dead"] if self._custody.instances else []
        await self._custody.outlive_guardian()
        if self._client is not None:
            what += ["the session is closed"] if self._client.state is State.CONNECTED else []
            await self._close()
        self._say(f"the guardian was killed: {', '.join(what) or 'nothing was started'}")

    async def _serve(self) -> int:
        try:
            code = await self._stand_until_over()
        except _Stopped:
            code = 0
        except (IncumbentError, ValueError) as error:
            self._say(str(error))
            code = 2 if isinstance(error, NumbersDontFit | ValueError) else 1
        self._role.play("")
        await self._custody.prove_empty("ending")
        await self._close()
        self._custody.link.send(m.Bye(code=code))
        return code

    async def _close(self) -> None:
        if self._client is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self._client.close()

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
            if not place.gone.is_set() and self._is_live(place):
                raise
            why = "its znode was deleted" if isinstance(error, NoNode) else "its session is over"
            self._role.play(f"{place.name} is out of the election: {why}", lasts=False)
        assert all(each.is_empty for each in self._custody.instances.values())
        await self._unless_stopped(place.leave())
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

    def _waits(self, place: Place) -> None:
        self._role.play(f"{place.name} is not the leader, watching {place.watching}")

    # ── leading

    async def _lead(self, place: Place, hold: Hold, numbers: Numbers) -> int | None:
        """Until COMMAND has ended or we are to stop (an exit code), or deposed (None).

        COMMAND is proven dead when this returns, however long that takes.
        """
        bell, draining = self._custody.bell, self._custody.draining
        forget = [each.listen(bell.ring) for each in (hold.lost, place.gone)]
        draining.add_done_callback(bell.ring)
        instance: Instance | None = None
        self._role.play(f"{place.name} is the leader")
        try:
            while True:
                is_empty = instance is None or instance.is_empty
                if hold.lost.error is not None:
                    self._deposed(place, hold.lost.error)
                if hold.lost.is_set() or draining.done():
                    if is_empty:
                        return None if hold.lost.is_set() else 0
                    self._stop(instance, 0.0 if place.gone.is_set() else numbers.stop_grace)
                elif instance is None and self._settings.command:
                    instance = self._start(place, numbers)
                elif instance is not None and instance.is_empty:
                    return self._after(place, instance)
                elif instance is not None and instance.pid:
                    self._tell_started(instance)
                await bell.heard()
        finally:
            draining.remove_done_callback(bell.ring)
            for each in forget:
                each()
            if self._is_live(place):  # otherwise its beats have ended with the session
                hold.end()
            if instance is not None and instance.stop_ordered and instance.is_empty:
                self._say(f"{self._command} is proven dead")

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

    def _tell_started(self, instance: Instance) -> None:
        if self._told != instance.epoch:
            self._told = instance.epoch
            how = f"pid {instance.main}, {instance.containment}, token {instance.epoch}"
            self._say(f"started {self._command}: {how}")

    def _stop(self, instance: Instance | None, grace: float) -> None:
        """`grace` 0: our znode is gone, so that somebody else may lead by now. Until then, and
        until the session can be over, COMMAND may end in order."""
        assert instance is not None
        if not instance.stop_ordered:
            self._say(f"stopping {self._command}")
        if not instance.stop_ordered or grace == 0:
            self._custody.order_stop(instance, grace)

    def _after(self, place: Place, instance: Instance) -> int | None:
        """COMMAND is dead, and we had not ordered it."""
        if instance.refused is not None:
            self._say(f"{self._command} was not started: {instance.refused.why}")
            return 127 if instance.refused.permanent else None
        exited = instance.exited
        if instance.why_stopping or exited is None or (exited.code, exited.signal) == (None, None):
            why = instance.why_stopping or "hard deadline: the session's lease ran out"
            self._role.play(f"{place.name} is no longer the leader: {why}", lasts=False)
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

    def _is_live(self, place: Place) -> bool:
        client = self._client
        assert client is not None
        is_over = client.state in (State.LOST, State.CLOSED)
        return client.session_id == place.session_id and not is_over

    def _deposed(self, place: Place, error: IncumbentError) -> None:
        if self._role.lasts:
            why = error.why if isinstance(error, Deposed) else str(error)
            self._role.play(f"{place.name} is no longer the leader: {why}", lasts=False)

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
