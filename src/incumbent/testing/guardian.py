"""The guardian's stand-in: the real decisions (guardian/table.py) over simulated processes.

It runs as a process on a host, spawns the agent as another, and speaks the real messages with it
over a simulated socket pair. What an agent is, the caller says: a coroutine over its socket.

Rule of this file: it decides nothing. Events go into the table one at a time, each after all
actions of the one before (the driver's contract in guardian/actions.py).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from incumbent.errors import RemoteWireError
from incumbent.guardian import actions as a
from incumbent.guardian.codec import Splitter, encode
from incumbent.guardian.messages import FromAgent
from incumbent.guardian.table import Policy, Table
from incumbent.testing.hosts import Host, Process
from incumbent.testing.processes import Processes
from incumbent.testing.sockets import SimSocket

__all__ = ["AgentMain", "Closer", "SimGuardian"]

AgentMain = Callable[[SimSocket, int], Coroutine[Any, Any, int]]
"""(its end of the link, its pid) -> the agent's main coroutine, which returns its exit code."""

Closer = Callable[[Mapping[str, Any], str, tuple[str, ...]], Coroutine[Any, Any, None]]
"""(passport, hosts, breadcrumbs) -> delete those and close the session."""

_CLOSER_TIME = 5.0


class _Link(asyncio.Protocol):
    """The guardian's end of the link to the agent of one generation."""

    def __init__(self, guardian: SimGuardian, generation: int) -> None:
        self._guardian = guardian
        self._generation = generation
        self._splitter = Splitter()
        self.transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._splitter.feed(data):
                self._guardian.take(a.Received(self._generation, cast(FromAgent, message)))
        except RemoteWireError as error:
            self._guardian.take(a.AgentBroke(self._generation, str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._guardian.take(a.LinkClosed(self._generation))
        self._guardian.look_at_agent(self._generation)


class SimGuardian:
    """One guardian process. `start` runs it; `process.wait()` gives its exit code."""

    def __init__(
        self,
        processes: Processes,
        agent: AgentMain,
        *,
        closer: Closer | None = None,
        policy: Policy = Policy.KEEP,
        beat: float = 1.0,
        session_timeout: float = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.processes = processes
        self.host: Host = processes.host
        self.process: Process
        self.agent: Process | None = None
        self.said: list[str] = []
        self._agent_main = agent
        self._closer = closer
        self._settings = settings or {}
        self._policy, self._beat, self._session_timeout = policy, beat, session_timeout
        self._link: _Link | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Process:
        self.process = self.host.run(self._main(), "guardian")
        self.process.on_child = self.take
        return self.process

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self.table = Table(
            policy=self._policy,
            beat=self._beat,
            session_timeout=self._session_timeout,
            guardian_pid=self.process.pid,
            settings=self._settings,
        )
        self._carry_out(self.table.begin(self.host.clock.boottime()))
        return await self._exited

    def take(self, event: a.Event) -> None:
        """One event, and everything that follows from it."""
        self._carry_out(self.table.handle(event, self.host.clock.boottime()))

    def shutdown(self, why: str = "SIGTERM") -> None:
        """As a signal would: from outside, at any time."""
        if self.process.alive:
            context = self.host.world.loop.enter(self.process.domain)
            self.host.world.loop.call_soon(self.take, a.ShutdownAsked(why), context=context)

    def look_at_agent(self, generation: int) -> None:
        """Its death is told when its process is dead and all that it sent has been read."""
        agent, link = self.agent, self._link
        if generation != self.table.generation or agent is None or link is None:
            return
        if not agent.alive and link.is_lost:
            self.agent = None
            self.take(a.AgentDied(generation, agent.exit_code, repr(agent.failure or "")))

    def _carry_out(self, actions: list[a.Action]) -> None:
        for action in actions:
            a.carry_out(action, self)

    # -- what actions do (a.ProcessTable) ------------------------------------------------------

    def spawn_agent(self, action: a.SpawnAgent) -> None:
        near, far = self.host.stack.pair()
        near.owner = self.process.domain
        generation = action.generation
        link = self._link = _Link(self, generation)
        pid = self.host.peek_pid()
        agent = self.host.run(self._agent_main(SimSocket(far), pid), f"agent{generation}")
        assert agent.pid == pid
        far.owner = agent.domain
        agent.looked_at = True  # by this guardian
        self.agent = agent
        context = self.host.world.loop.enter(self.process.domain)

        def ended() -> None:
            if self.process.alive:
                self._loop.call_soon(self.look_at_agent, generation, context=context)

        agent.at_end.append(ended)
        self.process.spawn(
            self.host.world.loop.create_connection(lambda: link, sock=SimSocket(near)), "link"
        )

    def kill_agent(self, action: a.KillAgent) -> None:
        self.host.world.record("guardian kills the agent", why=action.why)
        if self.agent is not None:
            self.agent.kill()

    def send(self, action: a.Send) -> None:
        link = self._link
        if link is not None and link.transport is not None and not link.is_lost:
            link.transport.write(encode(action.message))

    def spawn_seat(self, action: a.SpawnSeat) -> None:
        self.processes.spawn(action, self.process)

    def signal(self, action: a.Signal) -> None:
        tree = self.processes.find(action.seat, action.epoch)
        if tree is not None:
            self.processes.signal(tree, action.signo)

    def kill_tree(self, action: a.KillTree) -> None:
        tree = self.processes.find(action.seat, action.epoch)
        if tree is not None:
            if action.why:
                self.host.world.record("guardian kills", seat=action.seat, why=action.why)
            self.processes.kill(tree)

    def write_deadline(self, action: a.WriteDeadline) -> None:
        self.processes.write_deadline(action, self.process)

    def reap(self, action: a.Reap) -> None:
        tree = self.processes.find(action.seat, action.epoch)
        if tree is not None and tree.is_empty:
            tree.is_reaped = True
            del self.processes.trees[(action.seat, action.epoch)]

    def run_closer(self, action: a.RunCloser) -> None:
        if self._closer is None:
            self._loop.call_soon(self.take, a.CloserFinished(False, "there is no closer"))
            return
        coroutine = self._closer(action.passport, action.hosts, action.breadcrumbs)
        closer = self.host.run(asyncio.wait_for(coroutine, _CLOSER_TIME), "closer")
        closer.looked_at = True
        context = self.host.world.loop.enter(self.process.domain)

        def ended() -> None:
            if self.process.alive:
                event = a.CloserFinished(closer.failure is None, repr(closer.failure or ""))
                self._loop.call_soon(self.take, event, context=context)

        closer.at_end.append(ended)

    def exit(self, action: a.Exit) -> None:
        self.host.world.record("guardian exits", code=action.code, why=action.why)
        if not self._exited.done():
            self._exited.set_result(action.code)

    def wake_at(self, action: a.WakeAt) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if action.when < math.inf:
            wait = max(0.0, action.when - self.host.clock.boottime())
            self._timer = self._loop.call_later(wait, self._wake, action.when)

    def _wake(self, when: float) -> None:
        """A timer is a hint: too early, or after a sleep far too late."""
        if self.host.clock.boottime() < when:
            self.wake_at(a.WakeAt(when))
        else:  # what is readable goes first
            self._loop.call_soon(self._loop.call_soon, self.take, a.Tick())
