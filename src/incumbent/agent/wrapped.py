"""One command under something that only we have: a leadership, a lock, a share of one.

    connect ─► stand ─► wait ─► have it (COMMAND runs) ─► COMMAND ended, or SHUTDOWN ─► close ─► BYE
                 ▲                 │ lost: COMMAND proven dead
                 └─────────────────┘ if the errand is to go on

What is stood for, and what is said and made of an end, is the business of an `errand`. Our znode
is given up only after COMMAND is proven dead, and each run of COMMAND has a znode of its own: its
czxid is the run's epoch, so that the fencing token grows from run to run, here and at everybody
else who stands there.

Rule of this file: COMMAND runs only while we have it, and nobody can have it after us before
COMMAND is proven dead.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from incumbent.agent.admission import dress
from incumbent.agent.custody import Custody, Processes
from incumbent.agent.deadline_file import DeadlineFile
from incumbent.agent.ending import Ended, Ending, ending
from incumbent.agent.errand import Errand
from incumbent.agent.exit_codes import LATE
from incumbent.agent.instance import Instance
from incumbent.agent.link import GuardianLink
from incumbent.agent.patience import IN_TIME, Late, Patience, Stopped
from incumbent.agent.tree import Tree
from incumbent.agent.wrapped_settings import WrappedSettings, fitting
from incumbent.client import Client, State
from incumbent.clock import Clock
from incumbent.errors import ConnectTimeout, IncumbentError, NoNode, SessionError
from incumbent.guardian import messages as m
from incumbent.lease import Numbers
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.place import Place

__all__ = ["Wrapped"]

FIRST_REPORT, REPORT = 1.0, 5.0
"""Seconds of vain connecting after which it is said, and said again."""
CLOSING = 2.0
"""Seconds that the end of our session may take; then it simply expires."""
RELEASING = 0.5
"""Seconds that the end of our session waits for that of our znode."""


class Wrapped:
    """One command, from WELCOME to BYE. `run` returns the exit code."""

    def __init__(
        self,
        settings: WrappedSettings,
        errand: Errand,
        link: GuardianLink,
        processes: Processes,
        *,
        say: Callable[[str], None],
        environ: Mapping[str, str],
        cwd: str,
        deadline: DeadlineFile,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """`environ` and `cwd` are COMMAND's, as in the terminal; `deadline` is told to it."""
        self._settings = settings
        self._errand = errand
        self._clock = clock
        self._rng = rng
        self._say = say
        self._environ = environ
        self._cwd = cwd
        self._deadline = deadline
        self._custody = Custody(link, processes, clock=clock, say=say)
        self._patience = Patience(self._custody.draining, clock, settings.give_up_at)
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
        self._errand.rests()
        what = [f"{self._command} is proven dead"] if self._custody.instances else []
        await self._custody.outlive_guardian()
        was_live = self._client is not None and self._client.state is State.CONNECTED
        what += ["the session is closed"] if await self._close() and was_live else []
        self._say(f"the guardian was killed: {', '.join(what) or 'nothing was started'}")

    async def _serve(self) -> int:
        try:
            code = await self._stand_until_over()
        except Stopped:
            code = self._errand.stopped(self._custody.draining.result())
        except Late:
            self._say(self._errand.late())
            if self._client is None or self._client.state is not State.CONNECTED:
                hosts = self._settings.hosts
                self._say(f"there was no connection to ZooKeeper: does a server listen at {hosts}?")
            code = LATE
        except (IncumbentError, ValueError) as error:
            self._say(str(error))
            code = self._errand.failed(error)
        self._errand.rests()
        await self._custody.prove_empty("ending")
        await self._close()
        self._custody.link.send(m.Bye(code=code))
        return code

    async def _close(self) -> bool:
        """Whether no session of ours is left to expire."""
        self._deadline.remove()
        if self._client is not None:
            try:
                async with asyncio.timeout(CLOSING):
                    return await self._client.close()
            except TimeoutError:
                return False
        return True

    # ── sessions

    async def _stand_until_over(self) -> int:
        """Stand, and stand again if the errand is to go on, until there is an exit code."""
        client = await self._patience.waiting(self._connect())
        ledger = Ledger(client, log=self._say)
        pause = Pause()
        while True:
            await self._patience.waiting(self._connected(client))
            code = await self._stand(client, ledger)
            if code is not None:
                return code
            await self._patience.unless_stopped(pause.take())

    async def _connect(self) -> Client:
        """The first session, however long it takes; says so."""
        patience = FIRST_REPORT
        while True:
            client = self._new_client()
            try:
                await client.connect(patience)
                if self._settings.path.startswith(f"{self._settings.root}/"):
                    await dress(client, Tree(self._settings.root))
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
            **self._settings.credentials.for_client(),
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
        client.watch_beats(lambda _sent_at: self._tell_deadline())
        return client

    async def _connected(self, client: Client) -> None:
        """Wait for the next session after a lost one, and for the connection; says so."""
        say_at = self._clock.boottime() + REPORT
        while (state := client.state) is not State.CONNECTED:
            if state is State.CLOSED:
                raise SessionError(client.session_id, "the client has failed; start it again")
            await self._custody.bell.heard(say_at)
            if self._clock.boottime() >= say_at:
                self._say(f"no connection to {self._settings.hosts}. Still trying")
                say_at = self._clock.boottime() + REPORT

    # ── one stand

    async def _stand(self, client: Client, ledger: Ledger) -> int | None:
        """From our znode's creation to its end. None: stand again."""
        numbers = fitting(client.timeout, self._settings.tick, self._settings.stop_grace)
        try:
            if (code := await self._patience.waiting(self._errand.before(client))) is not None:
                return code
            place = await self._patience.waiting(self._errand.enter(client, ledger))
        except SessionError:
            return None
        try:
            if not (self._settings.waits or self._errand.is_admitted(place)):
                await self._patience.unless_stopped(self._errand.sees(place))
                raise Late
            hold = await self._patience.waiting(self._first(place, numbers))
            code = await self._have(client, place, hold, numbers)
        except (SessionError, NoNode) as error:
            if not place.gone.is_set() and self._is_live(place):
                raise
            is_deleted = isinstance(error, NoNode)
            why = "its znode was deleted" if is_deleted else "its session is over"
            self._errand.drops_out(place, why)
        assert all(each.is_empty for each in self._custody.instances.values())
        await self._leave(place)
        return code

    async def _first(self, place: Place, numbers: Numbers) -> Hold:
        await self._errand.admitted(place)
        hold = self._errand.hold(place, numbers.soft)
        await hold.begin()
        return hold

    # ── having it

    async def _have(self, client: Client, place: Place, hold: Hold, numbers: Numbers) -> int | None:
        """Until COMMAND has ended or we are to stop. COMMAND is proven dead when this returns,
        however long that takes. The exit code, or None: stand again."""
        self._errand.has(place)
        try:
            code = await self._patience.to_the_end(self._errand.claim(client, place))
            if code is not None:
                return code
            ended = await self._run_command(place, hold, numbers)
            patience = IN_TIME if self._custody.draining.done() else client.timeout
            await self._errand.ended(client, ended, patience)
            return self._errand.code(ended)
        finally:
            if self._is_live(place):  # otherwise its beats have ended with the session
                hold.end()

    async def _run_command(self, place: Place, hold: Hold, numbers: Numbers) -> Ending:
        bell, draining = self._custody.bell, self._custody.draining
        forget = [each.listen(bell.ring) for each in (hold.lost, place.gone)]
        draining.add_done_callback(bell.ring)
        instance: Instance | None = None
        try:
            while True:
                if (error := hold.lost.error) is not None:
                    self._errand.loses(place, getattr(error, "why", str(error)))
                is_over = error is not None or draining.done()
                if instance is None and (is_over or not self._settings.command):
                    if is_over:
                        break
                elif instance is None:
                    instance = self._start(place, numbers)
                elif instance.is_empty:
                    break
                elif is_over:
                    self._stop(instance, 0.0 if place.gone.is_set() else numbers.stop_grace)
                elif instance.pid:
                    self._tell_started(instance)
                await bell.heard()
        finally:
            draining.remove_done_callback(bell.ring)
            for each in forget:
                each()
        ended = ending(instance, self._settings.command, is_lost=hold.lost.is_set())
        self._report(place, instance, ended)
        return ended

    def _start(self, place: Place, numbers: Numbers) -> Instance:
        path, epoch = self._settings.path, place.czxid
        instance = Instance(
            seat=path, epoch=epoch, breadcrumb="", containment=self._settings.isolation
        )
        self._tell_deadline(begins=True)
        own = {
            "INCUMBENT_SEAT": path,
            "INCUMBENT_NODE": self._settings.name,
            "INCUMBENT_EPOCH": str(epoch),
            **self._errand.environment(epoch),
        }
        if self._deadline.path:
            own["INCUMBENT_DEADLINE_FILE"] = self._deadline.path
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
            self._tell(f"started {self._command}: {how}")

    def _stop(self, instance: Instance, grace: float) -> None:
        """`grace` 0: our znode is gone, so that somebody else may have it by now. Until then, and
        until the session can be over, COMMAND may end in order."""
        if not instance.stop_ordered:
            self._say(f"stopping {self._command}")
        if not instance.stop_ordered or grace == 0:
            self._custody.order_stop(instance, grace)

    def _report(self, place: Place, instance: Instance | None, ended: Ending) -> None:
        command = self._command if self._settings.command else ""
        if ended.how is Ended.OWN:
            self._tell(f"{command} {ended.why.removeprefix('it ')}")
        elif ended.how is Ended.BACKGROUND:
            self._say(ended.why)
        elif ended.how is Ended.LOST and ended.why:  # the guardian's doing, not by our order
            self._errand.loses(place, ended.why)
            self._say(f"{command} is proven dead")
        elif ended.why:
            self._say(f"{command} {ended.why.removeprefix('it ')}")
        if instance is not None and instance.stop_ordered and instance.is_empty:
            self._say(f"{command} is proven dead")

    async def _leave(self, place: Place) -> None:
        """Give our place up. The end of the session does it too, which is not waited for: where
        ZooKeeper is gone, nobody tells us of it."""
        bell, left = self._custody.bell, place.release()
        left.add_done_callback(bell.ring)
        if self._client is not None and self._client.state is State.CONNECTED:
            # Whoever is next need not wait for our session's end.
            await asyncio.wait([left], timeout=RELEASING)
        while not (left.done() or self._custody.draining.done()) and self._is_live(place):
            await bell.heard()

    def _is_live(self, place: Place) -> bool:
        client = self._client
        assert client is not None
        is_over = client.state in (State.LOST, State.CLOSED)
        return client.session_id == place.session_id and not is_over

    @property
    def _command(self) -> str:
        return PurePath(self._settings.command[0]).name

    # ── small things

    def _tell(self, text: str) -> None:
        if self._errand.tells_all:
            self._say(text)

    def _tell_deadline(self, *, begins: bool = False) -> None:
        """Until when COMMAND may live, for COMMAND."""
        client = self._client
        if client is not None and (begins or self._deadline.path):
            self._deadline.write(client.lease.valid_until - Numbers.of(client.timeout).hard)
