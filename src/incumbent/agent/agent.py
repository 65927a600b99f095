"""The agent: the process that decides. It lives from WELCOME to BYE, through many sessions.

    connect ─► term (one session) ─► lost: prove everything dead ─► the next session
                   │ SHUTDOWN: drain ─► close ─► BYE
    guardian dead: prove everything dead ─► delete breadcrumbs ─► close ─► exit

Rule of this file: a session ends, by us, only after every instance is proven dead. What is not
proven keeps us here, whatever signal arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from incumbent.agent.custody import Custody, Processes
from incumbent.agent.instance import Instance
from incumbent.agent.link import GuardianLink
from incumbent.agent.presence import NodeNameTaken
from incumbent.agent.steadiness import Loss
from incumbent.agent.term import Term
from incumbent.agent.tree import Observed, Tree, write
from incumbent.client import Client, Passport, State
from incumbent.clock import Clock
from incumbent.credentials import Credentials
from incumbent.errors import (
    AuthFailed,
    ConnectTimeout,
    FateUnknown,
    IncumbentError,
    NotSent,
    SessionClosed,
    SessionExpired,
)
from incumbent.guardian import messages as m
from incumbent.launch import Launch
from incumbent.spec import Spec
from incumbent.wire import Delete, MultiOp, SetData

__all__ = ["Agent", "AgentSettings", "Host", "give_up"]

CONNECT_REPORT = 5.0
"""Seconds of vain connecting after which it is said again."""
KEPT_LOSSES = 20
"""Losses of its connection that a node remembers."""
RETRY = 0.1
"""Seconds between two tries to write what an agent without a guardian has to write."""


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
    unable: Mapping[str, str] = field(default_factory=dict)
    """The other containments, each with the reason why this machine has none of its kind."""
    controllers: Sequence[str] = ()
    """What limits a program's cgroup can have; `no_controllers`: why not all."""
    no_controllers: str = ""
    stop_order: Sequence[str] = ()
    """Components in the order of their file; a drain stops them last to first."""
    credentials: Credentials = field(default_factory=Credentials)
    labels: Mapping[str, str] = field(default_factory=dict)
    logs: str = ""
    """Where its logs are served, for others to know."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> AgentSettings:
        """Out of WELCOME's settings, which have other keys too."""
        values = {key: given[key] for key in cls.__dataclass_fields__ if key in given}
        if "credentials" in values:
            values["credentials"] = Credentials.from_json(values["credentials"])
        return cls(**values)


class Host(Processes, Protocol):
    """What an agent needs of its machine: the rim, or a simulated host."""

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        """Raises `SpecErrors` where this node cannot do it."""

    def cgroup_of(self, seat: str, epoch: int) -> str | None:
        """Where an instance's cgroup is made, if it needs one; None: there are none here."""

    def unfit(self, spec: Spec) -> str:
        """Why this machine cannot run it, in a sentence that names what it lacks; "": it can."""

    def log_path(self, seat: str) -> str | None: ...

    async def last_line(self, seat: str, within: float) -> str:
        """The last line of its log, if it was written within so many seconds."""

    def losses(self) -> list[Loss]:
        """What was remembered of losses; nothing is as good as none."""

    def remember_losses(self, losses: Sequence[Loss]) -> None:
        """For the next agent, and for `status` while nobody can be asked."""

    def write_config(self, spec: Spec, seat: str, name: str, value: str) -> str:
        """The path of a file with `value`, whole at every moment. Raises `SpecErrors`."""

    def forget_config(self, seat: str) -> None:
        """Nothing of it runs here any more: what was written for it goes."""

    def rendered(self, spec: Spec, name: str, path: str, variables: Mapping[str, str]) -> str:
        """What a template at `path` is with these. Raises `SpecErrors`."""

    def remember(self, instances: Mapping[str, Instance]) -> None:
        """Write down which trees there are, for the next life of this node."""


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
        self.settings = settings
        self.host = host
        self.clock = clock
        self.rng = rng
        self.say = say
        self.custody = Custody(link, host, clock=clock, say=say, remember=host.remember)
        self.client: Client | None = None
        self.term: Term | None = None
        self.has_said_idle = False
        self.losses = host.losses()
        """The sessions that this node has lost, oldest first: also those of earlier agents."""
        self.cut_short: dict[str, str] = {}
        """Seat → why the guardian stopped what ran there, since nothing was started there again."""
        self.is_back = False
        """Whether this session follows a lost one of this agent."""
        self._passport = link.welcome.result().passport

    @property
    def instances(self) -> dict[str, Instance]:
        return self.custody.instances

    @property
    def drain_why(self) -> str:
        """Why everything is to be given up; "" while it is not."""
        draining = self.custody.draining
        return draining.result() if draining.done() else ""

    def nonce(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    async def run(self) -> int:
        """Until drained, or our guardian's death; returns the exit code."""
        resume = Passport.from_json(dict(self._passport)) if self._passport else None
        link = self.custody.link
        with self.custody:
            serving = asyncio.ensure_future(self._serve(resume))
            ends: list[asyncio.Future[Any]] = [serving, link.closed]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    return serving.result()
                serving.cancel()
                await asyncio.wait([serving])
                await self._outlive_guardian()
                return 1
            finally:
                serving.cancel()

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
        await self._prove_empty("leaving")
        if client is not None:
            await client.close()
        self.custody.link.send(m.Bye(code=code))
        return code

    async def _first_session(self, resume: Passport | None) -> Client | None:
        """Connect, for ever, saying so. None: told to shut down first."""
        while not self.drain_why:
            client = self.client = self._new_client(resume)
            client.hold_on(self.custody.is_paused)
            connecting = asyncio.ensure_future(client.connect(timeout=CONNECT_REPORT))
            ends: list[asyncio.Future[Any]] = [connecting, self.custody.draining]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait([connecting])
                return None
            try:
                await connecting
                return client
            except (ConnectTimeout, AuthFailed) as error:
                self.say(str(error) if self.instances else f"nothing runs here: {error}")
                if isinstance(error, AuthFailed):
                    await asyncio.wait([self.custody.draining], timeout=CONNECT_REPORT)
        return None

    async def _next_session(self, client: Client) -> bool:
        """After a lost one: wait until the client has the next. False: shut down meanwhile."""
        forget = client.watch_state(self.custody.bell.ring)
        try:
            while client.state is not State.CONNECTED:
                if self.drain_why:
                    return False
                if client.state is State.CLOSED:
                    raise SessionClosed(client.session_id, "the client gave up")
                await self.custody.bell.heard()
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
            **self.settings.credentials.for_client(),
            resume=resume,
            on_lost=self._lost,
            log=self.say,
        )

    async def _session(self, client: Client) -> bool:
        """One session, to its end. True: drained."""
        try:
            self.custody.session(client, self.settings.hosts)
        except SessionExpired:  # we were asleep since it began
            return False
        term = self.term = Term(self, client)
        running = asyncio.ensure_future(term.run())
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_state(state: State) -> None:
            if state in (State.LOST, State.CLOSED) and not over.done():
                over.set_result(None)

        forget_state = client.watch_state(on_state)
        try:
            ends: list[asyncio.Future[Any]] = [running, over]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
                return False
            error = running.exception()
            if error is not None and not _is_the_sessions_end(error):
                raise error
            return error is None
        finally:
            running.cancel()
            forget_state()
            self.term = None
            if client.state is State.LOST and not self.custody.is_paused:
                self.say("the session is lost: nothing of ours may run until the next one")

    async def _lost(self) -> None:
        """Before the old session is closed and a new one begins: proof of death. What was lost is
        kept on this machine: nobody else can be told now. In a pause the programs go on: nobody
        concludes anything from that session's end.
        """
        if self.custody.is_paused:
            self.say("the session is lost, in a pause: what runs here goes on")
            return
        for instance in self.instances.values():
            self.cut_short.setdefault(instance.seat, instance.why_stopping)
        self.is_back = True
        self.count_loss()
        await self._prove_empty("the session is lost")

    def count_loss(self) -> None:
        """Of what cut short whatever ran here: a lost session, or an outage nearly as long."""
        ran = sorted(self.cut_short)
        stopped = [why for why in self.cut_short.values() if why]
        why = stopped[0] if stopped else "no beat was acknowledged in time, or the server ended it"
        self.cut_short.clear()
        self.losses = [*self.losses, Loss(at=self.clock.wall(), why=why, ran=ran)][-KEPT_LOSSES:]
        self.host.remember_losses(self.losses)

    async def _prove_empty(self, why: str) -> None:
        await self.custody.prove_empty(why)
        for seat in self.instances:
            self.host.forget_config(seat)
        self.instances.clear()

    async def _outlive_guardian(self) -> None:
        """The guardian is dead: prove its trees dead, delete breadcrumbs, close the session."""
        noticed_at = self.clock.wall()
        ran = [each for each in self.instances.values() if not each.is_empty]
        await self.custody.outlive_guardian()
        client = self.client
        if client is None or client.state not in (State.CONNECTED, State.SUSPENDED):
            return  # the session is over, and nothing of ours is left
        tree, proved_at = Tree(self.settings.root), self.clock.wall()
        ops: list[MultiOp] = []
        for instance in {each.mark: each for each in ran}.values():
            observed = Observed(
                epoch=instance.mark[1],
                state="released",
                node=self.settings.node,
                since=proved_at,
                reason="its guardian died",
                noticed_at=noticed_at,
                proved_at=proved_at,
            )
            seat, epoch = instance.mark
            ops += [
                Delete(tree.breadcrumb(seat, epoch)),
                SetData(tree.observed(seat), write(observed)),
            ]
        client.hold_on(False)
        await give_up(client, ops)
        is_closed = await client.close()
        how = "the session is closed" if is_closed else "the session is left to expire"
        self.say(f"the guardian died: its programs are proven dead, {how}")


async def give_up(client: Client, ops: Sequence[MultiOp]) -> None:
    """Carry out `ops`, which delete breadcrumbs, however long it takes while the session lives.

    What was swept or contained waits for it; what was sealed needs no more than the session's end.
    """
    while ops and client.state in (State.CONNECTED, State.SUSPENDED):
        try:
            await client.multi(ops)
        except (NotSent, FateUnknown):
            await asyncio.sleep(RETRY)  # the next one waits for a connection
            continue
        except IncumbentError:
            pass  # the session is over; or they are gone, by the try of unknown fate
        return


def _is_the_sessions_end(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_the_sessions_end(each) for each in error.exceptions)
    return isinstance(error, (SessionExpired, SessionClosed, asyncio.CancelledError))
