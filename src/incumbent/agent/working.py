"""`incumbent work run`: handlers that are programs, each under a claim on one item.

    source ─► ids ─► claims ─► one HANDLER each, several at a time ─► exit code 0: done
                                     │ claim lost, or told to stop: SIGTERM, SIGKILL, proven dead
                                     └ any other exit code: a failure, tried again, then parked

The source and each handler is a tree of the guardian's, so that it is dead by the hard deadline
of the session that its claim is of. A claim is ended, or its session closed, only when its
handler is proven dead; a claim is lost as long before the end of its session as a handler may
need to stop and to be killed.

The guardian starts nothing under a lease that nobody renews: a znode of ours among the workers is
what we beat on while we have no claim.

Rule of this file: a handler is started under a believed claim, and outlived by it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from incumbent import aio
from incumbent.agent.custody import Custody, Processes
from incumbent.agent.ending import Ended, ending
from incumbent.agent.exit_codes import CANNOT, NOT_FOUND
from incumbent.agent.instance import Instance
from incumbent.agent.link import GuardianLink
from incumbent.agent.wrapped_settings import WrappedSettings, fitting
from incumbent.client import Client, State
from incumbent.clock import Clock
from incumbent.errors import ConnectTimeout, IncumbentError
from incumbent.guardian import messages as m
from incumbent.lease import Numbers
from incumbent.work import Claim, Counters, GiveBack, Work

__all__ = ["HandlerFailed", "Working", "argv_for"]

FIRST_REPORT, REPORT = 1.0, 5.0
"""Seconds of vain connecting after which it is said, and said again."""
METRICS = 5.0
"""Seconds between two times that the counters are written for Prometheus."""
CLOSING = 2.0
"""Seconds that the end of our session may take; then it simply expires."""


class HandlerFailed(IncumbentError):
    """A handler ended otherwise than with exit code 0; the sentence says how."""


class Working:
    """From WELCOME to BYE. `run` returns the exit code."""

    def __init__(
        self,
        settings: WrappedSettings,
        link: GuardianLink,
        processes: Processes,
        *,
        say: Callable[[str], None],
        environ: Mapping[str, str],
        cwd: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._plan = settings.work
        self._say = say
        self._environ = environ
        self._cwd = cwd
        self._clock = clock
        self._rng = rng
        self._custody = Custody(link, processes, clock=clock, say=say)
        self._client: Client | None = None
        self._numbers: Numbers | None = None
        self._work: Work | None = None
        self._beat: AbstractContextManager[None] | None = None
        self._beats_in = 0  # the session that has it
        self._listings = 0
        self._slots = [f"{settings.path} {number}" for number in range(self._plan.workers, 0, -1)]
        self._told_at = self._measured_at = 0.0
        self._is_over = False
        self._fatal = ""

    async def run(self) -> int:
        with self._custody as custody:
            custody.draining.add_done_callback(lambda _: self._drain())
            main = asyncio.ensure_future(self._serve())
            ends: list[asyncio.Future[Any]] = [main, custody.link.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                return main.result()
            self._is_over = True
            await custody.outlive_guardian()
            custody.bell.ring()
            main.cancel()
            await asyncio.wait([main])
            await self._close()
            self._say(
                "the guardian was killed: every handler is proven dead, the session is closed"
            )
            return 1

    async def _serve(self) -> int:
        try:
            code = await self._do_work()
        except (IncumbentError, ValueError, OSError) as error:
            self._say(str(error))
            code = CANNOT
        await self._custody.prove_empty("ending")
        await self._close()
        self._custody.link.send(m.Bye(code=code))
        return code

    async def _do_work(self) -> int:
        client = await self._connected()
        if client is None:
            return 0
        self._client = client
        self._numbers = fitting(client.timeout, self._settings.tick, self._settings.stop_grace)
        zk = aio.Zk(client, rng=self._rng, log=self._say)
        plan = self._plan
        name = f"{self._settings.name}-{self._custody.guardian_pid}"
        work = zk.work(
            self._settings.path, lag=plan.lag, keep_done=plan.keep_done, grace=self._numbers.soft
        )
        async with zk.group(f"{self._settings.path}/workers").join(name=name) as member, work:
            self._work = work
            self._member = member
            self._say(f"working on {self._settings.path}, up to {plan.workers} handlers at a time")
            counters = Counters()
            if not self._custody.draining.done():
                counters = await work.run(
                    self._list,
                    self._handle,
                    workers=plan.workers,
                    tries=plan.tries,
                    idle=plan.idle,
                    until_empty=plan.until_empty,
                    progress=self._tell,
                )
        if self._plan.metrics_file:
            self._write_metrics(counters)
        if self._fatal:
            self._say(self._fatal)
            return NOT_FOUND
        self._say(f"ended: {counters}")
        return int(plan.until_empty and (counters.parked or counters.parked_now) > 0)

    def _drain(self) -> None:
        """We are told to stop: nothing more is begun, and what runs gets its stop signal."""
        if self._work is not None:
            self._work.stop()
        for instance in self._custody.instances.values():
            if not instance.is_empty:
                self._order_stop(instance)

    async def _close(self) -> None:
        if self._client is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self._client.close()

    # ── the session

    async def _connected(self) -> Client | None:
        """The first session, however long it takes; None if we are told to stop before."""
        patience = FIRST_REPORT
        while not self._custody.draining.done():
            client = self._new_client()
            try:
                await client.connect(patience)
                return client
            except ConnectTimeout as error:
                self._say(f"{error}. Still trying")
            patience = REPORT
        return None

    def _new_client(self) -> Client:
        client = Client(
            self._settings.hosts,
            session_timeout=self._settings.session_timeout,
            clock=self._clock,
            rng=self._rng,
            tick=self._settings.tick,
            **self._settings.credentials.for_client(),
            on_lost=lambda: self._custody.prove_empty("the session is lost"),
            log=self._say,
        )

        def on_state(state: State) -> None:
            if state is State.CONNECTED and client.session_id != told[-1]:
                told.append(client.session_id)
                self._custody.session(client, self._settings.hosts)
            self._custody.bell.ring()

        told = [0]
        client.watch_state(on_state)
        return client

    async def _leased(self) -> None:
        """Return when the guardian may start something: our beats have proven the session."""
        client, numbers = self._client, self._numbers
        assert client is not None and numbers is not None
        while True:
            if self._beats_in != client.session_id:
                await self._member.settled()
                self._beat = client.beat(self._member.path)
                self._beat.__enter__()
                self._beats_in = client.session_id
            if client.lease.valid_until - numbers.soft > self._clock.boottime():
                self._custody.tell_lease()
                return
            await self._custody.bell.heard(self._clock.boottime() + numbers.beat)

    # ── the source

    async def _list(self) -> Sequence[str]:
        """One item a line; empty lines are none. Raises `HandlerFailed` if the source failed."""
        await self._leased()
        path = _new_file()
        try:
            self._listings += 1
            script = ("/bin/sh", "-c", 'exec >"$1"; eval "$2"', "source", path, self._plan.source)
            instance = self._start(f"{self._settings.path} source", self._listings, script, {})
            await self._end_of(instance)
            ended = ending(instance, script, is_lost=False)
            if ended.how is not Ended.OWN or ended.code != 0:
                raise HandlerFailed(ended.why or f"it was stopped, exit code {ended.code}")
            return _lines(path)
        finally:
            _remove(path)

    # ── a handler

    async def _handle(self, claim: Claim) -> None:
        slot = self._slots.pop()
        try:
            await self._handle_in(slot, claim)
        finally:
            self._slots.append(slot)

    async def _handle_in(self, slot: str, claim: Claim) -> None:
        await self._leased()
        claim.ensure()
        argv = argv_for(self._settings.command, claim.item)
        own = {
            "INCUMBENT_ITEM": claim.item,
            "INCUMBENT_KEY": claim.key,
            "INCUMBENT_TOKEN": str(claim.fencing_token),
            "INCUMBENT_EPOCH": str(claim.fencing_token),
            "INCUMBENT_TRY": str(claim.record.tries),
            "INCUMBENT_SEAT": self._settings.path,
            "INCUMBENT_NODE": self._settings.name,
        }
        instance = self._start(slot, claim.fencing_token, argv, own)
        await self._end_of(instance)
        ended = ending(instance, argv, is_lost=claim.lost.is_set())
        if ended.how is Ended.UNSTARTABLE:
            self._fatal = f"{self._settings.command[0]} cannot be started: {ended.why}"
            assert self._work is not None
            self._work.stop()
        if ended.how in (Ended.UNSTARTABLE, Ended.NOT_STARTED):
            raise GiveBack(ended.why)
        if ended.how in (Ended.STOPPED, Ended.LOST) and ended.code != 0:
            raise GiveBack("it was stopped")
        if ended.how is Ended.BACKGROUND or ended.code != 0:
            raise HandlerFailed(ended.why)

    def _start(
        self, seat: str, epoch: int, argv: Sequence[str], own: Mapping[str, str]
    ) -> Instance:
        numbers = self._numbers
        assert numbers is not None
        instance = Instance(
            seat=seat, epoch=epoch, breadcrumb="", containment=self._settings.isolation
        )
        if self._is_over or self._custody.draining.done():
            raise asyncio.CancelledError  # nothing is begun any more
        self._custody.order_start(
            instance,
            m.Start(
                generation=self._custody.generation,
                seat=seat,
                epoch=epoch,
                soft=numbers.soft,
                hard=numbers.hard,
                argv=tuple(argv),
                env={**self._environ, **own},
                cwd=self._cwd,
                stop_signal=signal.SIGTERM,
                stop_grace=numbers.stop_grace,
                containment=self._settings.isolation,
            ),
        )
        return instance

    async def _end_of(self, instance: Instance) -> None:
        """Return when it is proven dead. Cancelled, it is stopped, and dead before that is raised."""
        cancelled: asyncio.CancelledError | None = None
        while not instance.is_empty:
            try:
                await self._custody.bell.heard()
            except asyncio.CancelledError as error:
                cancelled = error
                self._order_stop(instance)
        if cancelled is not None:
            raise cancelled

    def _order_stop(self, instance: Instance) -> None:
        assert self._numbers is not None
        if not instance.stop_ordered:
            self._custody.order_stop(instance, self._numbers.stop_grace)

    def _tell(self, counters: Counters) -> None:
        now = self._clock.boottime()
        if self._plan.metrics_file and now - self._measured_at >= METRICS:
            self._measured_at = now
            self._write_metrics(counters)
        if not self._settings.quiet and now - self._told_at >= self._settings.every:
            self._told_at = now
            self._say(str(counters))

    def _write_metrics(self, counters: Counters) -> None:
        """Whole or not at all; a folder that cannot be written stops no work."""
        file = Path(self._plan.metrics_file)
        whole = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            whole.write_text(counters.metrics(self._settings.path))
            whole.replace(file)
        except OSError as error:
            self._say(f"--metrics-file: {error}")


def _new_file() -> str:
    descriptor, path = tempfile.mkstemp(".items", "incumbent-")
    os.close(descriptor)
    return path


def _lines(path: str) -> list[str]:
    """Items are lines; a last one that is not ended counts. What is no UTF-8 is replaced."""
    return [line for line in Path(path).read_text(errors="replace").split("\n") if line]


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def argv_for(command: Sequence[str], item: str) -> tuple[str, ...]:
    """HANDLER's arguments: {id} is the item, wherever it stands."""
    return tuple(word.replace("{id}", item) for word in command)
