"""The agent: the process that decides. It lives from HELLO to BYE, through many sessions.

    connect ─► term (one session) ─► lost: prove everything dead ─► the next session
                   │ SHUTDOWN: drain ─► close ─► BYE
    guardian dead: prove everything dead ─► delete breadcrumbs ─► close ─► exit

Rule of this file: a session ends, by us, only after every instance is proven dead. What is not
proven keeps us here, whatever signal arrives.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from incumbent.agent.bell import Bell
from incumbent.agent.instance import Instance
from incumbent.agent.link import GuardianLink
from incumbent.agent.term import NodeNameTaken, Term
from incumbent.agent.tree import Observed, Tree, write
from incumbent.client import Client, Passport, State
from incumbent.clock import Clock
from incumbent.errors import (
    ConnectTimeout,
    FateUnknown,
    NotSent,
    Refused,
    SessionClosed,
    SessionExpired,
)
from incumbent.guardian import messages as m
from incumbent.launch import Launch
from incumbent.lease import Numbers
from incumbent.spec import Spec
from incumbent.wire import Delete, MultiOp, SetData

__all__ = ["Agent", "AgentSettings", "Host"]

CONNECT_REPORT = 5.0
"""Seconds of vain connecting after which it is said again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent is told once. `tick`: see `lease.Lease`; times in seconds."""

    node: str
    node_id: str
    boot_id: str
    hosts: str
    root: str = "/incumbent"
    session_timeout: float = 10.0
    tick: float | None = None
    containments: Sequence[str] = ("sealed", "swept")
    stop_order: Sequence[str] = ()
    """Components in the order of their file; a drain stops them last to first."""


class Host(Protocol):
    """What an agent needs of its machine: the rim, or a simulated host."""

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        """Raises `SpecErrors` where this node cannot do it."""

    def missing(self, spec: Spec) -> list[str]:
        """Files that the spec requires and this node lacks."""

    def log_path(self, seat: str) -> str | None: ...

    def death_of(self, pid: int) -> asyncio.Future[None]:
        """Done when the process is dead; opened while it certainly is ours."""

    def kill(self, pid: int) -> None:
        """SIGKILL to a process of which `death_of` was asked and is not done."""

    async def sweep(self, seat: str, epoch: int) -> None:
        """Kill what is left of a swept tree whose guardian is dead, until none is found twice."""

    def remember(self, instances: Mapping[str, Instance]) -> None:
        """Write down which trees there are, for the next life of this node."""


@dataclass(slots=True)
class _Deaths:
    """The pidfds that we hold: guardian and inits."""

    host: Host
    known: dict[int, asyncio.Future[None]] = field(default_factory=dict)

    def watch(self, pid: int) -> asyncio.Future[None]:
        if pid not in self.known:
            self.known[pid] = self.host.death_of(pid)
        return self.known[pid]

    def kill(self, pid: int) -> None:
        if pid in self.known and not self.known[pid].done():
            self.host.kill(pid)


class Agent:
    """One agent process. `run` returns the exit code."""

    def __init__(
        self,
        settings: AgentSettings,
        host: Host,
        link: GuardianLink,
        *,
        clock: Clock,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        """`link` has been welcomed."""
        welcome = link.welcome.result()
        self.settings = settings
        self.host = host
        self.clock = clock
        self.rng = rng
        self.say = say
        self.instances: dict[str, Instance] = {}
        self.generation = welcome.generation
        self.guardian_pid = welcome.guardian_pid
        self.drain_why = ""
        self.has_said_idle = False
        self.term: Term | None = None
        self.client: Client | None = None
        self._welcome = welcome
        self._deaths = _Deaths(host)
        self._bell = Bell(clock)
        self._link = link
        self._acked = -math.inf if welcome.lease is None else welcome.lease

    def send(self, message: m.FromAgent) -> None:
        self._link.send(message)

    def nonce(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    # ── the whole life

    async def run(self) -> int:
        """Until drained, or our guardian's death; returns the exit code."""
        self._deaths.watch(self.guardian_pid)
        for report in self._welcome.seats:
            instance = self.instances[report.seat] = Instance.of(report)
            self._see(instance)
        passport = self._welcome.passport
        resume = Passport.from_json(dict(passport)) if passport else None
        self._link.listen(self._hear)
        background = [
            asyncio.ensure_future(self._say_alive()),
            asyncio.ensure_future(self._enforce()),
        ]
        main = asyncio.ensure_future(self._serve(resume))
        try:
            ends: list[asyncio.Future[Any]] = [main, self._link.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                return main.result()
            main.cancel()
            await asyncio.wait([main])
            await self._outlive_guardian()
            return 1
        finally:
            main.cancel()
            for task in background:
                task.cancel()

    async def _serve(self, resume: Passport | None) -> int:
        """Session after session, until drained."""
        client = await self._first_session(resume)
        try:
            while client is not None and not await self._session(client):
                if not await self._next_session(client):
                    break
        except NodeNameTaken as error:
            self.say(str(error))
            return await self._leave(client, 2)
        return await self._leave(client, 0)

    async def _leave(self, client: Client | None, code: int) -> int:
        await self.prove_empty("leaving")
        if client is not None:
            await client.close()
        self.send(m.Bye(code=code))
        return code

    async def _first_session(self, resume: Passport | None) -> Client | None:
        """Connect, for ever, saying so. None: told to shut down first."""
        while not self.drain_why:
            client = self.client = self._new_client(resume)
            connecting = asyncio.ensure_future(client.connect(timeout=CONNECT_REPORT))
            connecting.add_done_callback(self._ring)
            while not connecting.done() and not self.drain_why:
                await self._bell.heard()
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait([connecting])
                return None
            try:
                await connecting
                return client
            except ConnectTimeout as error:
                self.say(str(error) if self.instances else f"nothing runs here: {error}")
        return None

    async def _next_session(self, client: Client) -> bool:
        """After a lost one: wait until the client has the next. False: shut down meanwhile."""
        forget = client.watch_state(self._ring)
        try:
            while client.state is not State.CONNECTED:
                if self.drain_why:
                    return False
                if client.state is State.CLOSED:
                    raise SessionClosed(client.session_id, "the client gave up")
                await self._bell.heard()
            return True
        finally:
            forget()

    def _new_client(self, resume: Passport | None) -> Client:
        return Client(
            self.settings.hosts,
            session_timeout=self.settings.session_timeout,
            clock=self.clock,
            rng=self.rng,
            tick=self.settings.tick,
            resume=resume,
            on_lost=self._lost,
            log=self.say,
        )

    async def _session(self, client: Client) -> bool:
        """One session, to its end. True: drained."""
        self.send(
            m.Session(
                generation=self.generation,
                passport=client.passport.to_json(),
                hosts=self.settings.hosts,
            )
        )
        forget = client.watch_beats(self._beat)
        term = self.term = Term(self, client)
        running = asyncio.ensure_future(term.run())
        session_id = client.session_id
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_state(state: State) -> None:
            if (state in (State.LOST, State.CLOSED)) and not over.done():
                over.set_result(None)

        forget_state = client.watch_state(on_state)
        try:
            await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
                return False
            error = running.exception()
            if error is None:
                return True
            if not _is_the_sessions_end(error):
                raise error
            return False
        finally:
            running.cancel()
            forget()
            forget_state()
            self.term = None
            if client.session_id == session_id and client.state is State.LOST:
                self.say("the session is lost: nothing of ours may run until the next one")

    # ── the session's truth, passed on

    def _beat(self, _sent_at: float) -> None:
        client = self.client
        assert client is not None
        if math.isfinite(client.lease.valid_until):
            self.send(
                m.Lease(
                    generation=self.generation,
                    valid_until=client.lease.valid_until,
                    last_zxid=client.last_zxid,
                )
            )
        self._ring()

    async def _say_alive(self) -> None:
        while True:
            self.send(m.Alive(generation=self.generation))
            await asyncio.sleep(self._welcome.alive_every)

    async def _enforce(self) -> None:
        """The third enforcer: at the hard deadline, kill what guardian and init have not."""
        while True:
            client = self.client
            numbers = Numbers.of(client.timeout if client else self.settings.session_timeout)
            await asyncio.sleep(numbers.beat / 2)
            if client is None or not any(not i.is_empty for i in self.instances.values()):
                continue
            now, valid_until = self.clock.boottime(), client.lease.valid_until
            is_deaf = self._acked < valid_until and now >= self._acked - numbers.hard
            if is_deaf and math.isfinite(self._acked):
                self.say("the guardian does not hear of the lease: killing it")
                self._deaths.kill(self.guardian_pid)
            if now >= max(valid_until, self._acked) - numbers.hard:
                for instance in self.instances.values():
                    if not instance.is_empty and instance.pid:
                        self._deaths.kill(instance.pid)

    async def _lost(self) -> None:
        """Before the old session is closed and a new one begins: proof of death."""
        await self.prove_empty("the session is lost")

    async def prove_empty(self, why: str) -> None:
        """Order every instance killed and wait for the proofs."""
        while True:
            alive = [each for each in self.instances.values() if not each.is_empty]
            if not alive:
                break
            for instance in alive:
                self.send(m.Stop(seat=instance.seat, epoch=instance.epoch, grace=0.0))
            self.say(f"{why}: waiting for the end of {', '.join(each.seat for each in alive)}")
            await self._bell.heard(self.clock.boottime() + 1.0)
        self.instances.clear()

    async def _outlive_guardian(self) -> None:
        """The guardian is dead: prove its trees dead, delete breadcrumbs, close the session."""
        noticed_at = self.clock.wall()
        self._deaths.kill(self.guardian_pid)
        await self._deaths.watch(self.guardian_pid)
        for instance in self.instances.values():
            if instance.is_empty:
                continue
            if instance.pid:
                self._deaths.kill(instance.pid)
                await self._deaths.watch(instance.pid)
            if instance.containment == "swept" or not instance.pid:
                await self.host.sweep(instance.seat, instance.epoch)
            instance.state = "empty"
        client = self.client
        if client is None or client.state is not State.CONNECTED:
            return  # the session ends by itself; nothing of ours is left
        tree, proved_at = Tree(self.settings.root), self.clock.wall()
        ops: list[MultiOp] = []
        for instance in self.instances.values():
            observed = Observed(
                epoch=instance.epoch,
                state="released",
                node=self.settings.node,
                since=proved_at,
                reason="its guardian died",
                noticed_at=noticed_at,
                proved_at=proved_at,
            )
            ops += [
                Delete(instance.breadcrumb),
                SetData(tree.observed(instance.seat), write(observed)),
            ]
        try:
            if ops:
                await client.multi(ops)
        except (Refused, NotSent, FateUnknown):
            pass  # sealed trees need no more than the session's end
        await client.close()
        self.say("the guardian died: its programs are proven dead, the session is closed")

    # ── what the guardian says

    def _hear(self, message: m.Message) -> None:
        match message:
            case m.LeaseAck(valid_until=valid_until):
                self._acked = valid_until
            case m.Shutdown(why=why):
                self.drain_why = self.drain_why or why
                self._ring()
            case m.Started() | m.Refused() | m.Stopping() | m.Exited() | m.Empty() | m.Stuck():
                instance = self.instances.get(message.seat)
                if instance is not None and instance.epoch == message.epoch:
                    instance.hear(message)
                    self._see(instance)
                self._ring()

    def _see(self, instance: Instance) -> None:
        """Hold the pidfd of its first process, then let the guardian reap it."""
        if instance.pid and instance.pid not in self._deaths.known:
            self._deaths.watch(instance.pid)
            self.send(m.Seen(seat=instance.seat, epoch=instance.epoch, pid=instance.pid))
        self.host.remember(self.instances)

    def _ring(self, *_: object) -> None:
        self._bell.ring()
        if self.term is not None:
            self.term.ring()


def _is_the_sessions_end(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_the_sessions_end(each) for each in error.exceptions)
    return isinstance(error, (SessionExpired, SessionClosed, asyncio.CancelledError))
