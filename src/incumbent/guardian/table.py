"""The guardian's decisions: an event and the time in, a list of actions out.

It holds what an agent must not take with it when it dies: the session's passport, the
lease, and the seats' trees. Two policies for a dead agent: `KEEP` starts the next one under
the next generation, which re-attaches to the same session, and the programs go on;
`RELEASE` stops the programs, proves them dead and ends the session.

    serving ──SHUTDOWN──► draining ──BYE──► leaving ──agent dead, all empty──► done
       │                     │ (late, or the agent died)
       │ gives up            ▼
       └─────────────────► ending ──agent dead, all empty──► closing ──► done

It gives up when: the policy says so, the agent crash-loops (3 deaths within one session
timeout), or a seat reaches its soft deadline before the new agent brought a lease.
How actions are carried out is the driver's contract in actions.py; this same code runs in
the simulated world.

Rule of this file: nothing is started unless everything of that seat is proven dead, its
epoch is new and its soft deadline ahead; no session is closed before every tree is empty.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from incumbent.guardian import messages as m
from incumbent.guardian.actions import (
    Action,
    AgentBroke,
    AgentDied,
    CloserFinished,
    Event,
    Exit,
    KillAgent,
    LinkClosed,
    MainExited,
    ProgramTold,
    Received,
    RunCloser,
    SeatStarted,
    Send,
    ShutdownAsked,
    SpawnAgent,
    SpawnFailed,
    SpawnSeat,
    Tick,
    TreeEmpty,
    WakeAt,
    WriteDeadline,
)
from incumbent.guardian.seat import Lease, Seat

__all__ = ["BYE_SLACK", "DEATHS_TO_GIVE_UP", "LEAVE_TIME", "Policy", "Table"]

DEATHS_TO_GIVE_UP: Final = 3
BYE_SLACK: Final = 5.0
"""Seconds beyond the longest stop grace that an agent has to say BYE."""
LEAVE_TIME: Final = 2.0
"""Seconds that an agent has to exit after its BYE, or after its link is closed."""


class Policy(Enum):
    """What becomes of the programs when only the agent dies."""

    KEEP = "keep"
    RELEASE = "release"


class _Phase(Enum):
    SERVING = "serving"
    DRAINING = "draining"
    LEAVING = "leaving"
    ENDING = "ending"
    CLOSING = "closing"
    DONE = "done"


class _Agent(Enum):
    SPAWNED = "spawned"  # no HELLO yet
    CONNECTED = "connected"
    DYING = "dying"  # told to die, or its link is gone
    DEAD = "dead"


class Table:
    """`begin` once, then `handle` every event; both return the actions, in order.

    `beat`: seconds between two ALIVE. `silence`: seconds without one after which the agent
    is killed; three beats, but never under a second, since a loaded machine may be that
    late. `session_timeout`: S until a passport tells the real one. `settings` goes to the
    agent as it is.
    """

    def __init__(
        self,
        *,
        policy: Policy = Policy.KEEP,
        beat: float = 1.0,
        session_timeout: float = 10.0,
        guardian_pid: int = 0,
        settings: Mapping[str, Any] | None = None,
        hello_timeout: float = 30.0,
    ) -> None:
        self.policy = policy
        self.beat = beat
        self.silence = max(3 * beat, 1.0)
        self.session_timeout = session_timeout
        self.guardian_pid = guardian_pid
        self.settings = dict(settings or {})
        self.hello_timeout = hello_timeout
        self.generation = 0
        self.seats: dict[str, Seat] = {}
        self.newest_epoch: dict[str, int] = {}
        self.passport: dict[str, Any] | None = None
        self.hosts = ""
        self._lease = Lease(0, -math.inf)
        self.is_paused = False
        self._pause_number = 0  # of this generation's newest PAUSED
        self._phase = _Phase.SERVING
        self._agent = _Agent.DEAD
        self._has_leased = False  # this generation
        self._quiet_since = 0.0  # spawn, or the newest sign of life
        self._deaths: deque[float] = deque(maxlen=DEATHS_TO_GIVE_UP)
        self._code = 0
        self._why = ""
        self._act_by = math.inf  # of draining and leaving
        self._kill_at = math.inf  # of an agent whose link is closed
        self._wake_at = -math.inf

    # ── in and out

    def begin(self, now: float) -> list[Action]:
        """Start the first agent."""
        return [*self._spawn_agent(now), self._next_wake()]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Decide on one event. Deadlines are looked at in every call, not only at Tick; but for a
        sign of life while nothing is due: it changes no seat's, and only puts off the agent's own.
        """
        if self.is_done:
            return []
        if now > self._wake_at + self.beat and self._wake_at > 0:
            self._quiet_since = max(self._quiet_since, now - self.beat)  # we slept, not it
        decided = self._decide(event, now)
        if _is_alive(event) and not decided and now < self._wake_at:
            return []  # at most we wake too early
        actions = [*decided, *self._look_at_clock(now), *self._proceed(now)]
        if self._agent is not _Agent.CONNECTED:
            actions = [each for each in actions if not isinstance(each, Send)]
        before, wake = self._wake_at, self._next_wake()
        return actions if self.is_done or wake.when == before else [*actions, wake]

    def _decide(self, event: Event, now: float) -> list[Action]:
        match event:
            case Received(generation, message):
                return self._receive(generation, message, now)
            case SeatStarted(name, epoch, pid, start_time, main):
                seat = self._find(name, epoch)
                return seat.started(pid, start_time, main) if seat else []
            case SpawnFailed(name, epoch, why, permanent):
                seat = self._find(name, epoch)
                return seat.failed(why, permanent, now) if seat else []
            case MainExited(name, epoch, code, signal, left):
                seat = self._find(name, epoch)
                return seat.main_exited(code, signal, left, now) if seat else []
            case ProgramTold(told):
                seat = self._find(told.seat, told.epoch)
                return seat.tell(told, now) if seat else []
            case TreeEmpty(name, epoch):
                seat = self._find(name, epoch)
                return seat.emptied(now) if seat else []
            case LinkClosed(generation) if generation == self.generation:
                return self._link_closed(now)
            case AgentBroke(generation, why) if generation == self.generation:
                return self._kill_agent(f"it broke the protocol: {why}")
            case AgentDied(generation, code, why) if generation == self.generation:
                return self._agent_died(code, why, now)
            case ShutdownAsked(why):
                return self._shutdown(why, now)
            case CloserFinished() if self._phase is _Phase.CLOSING:
                return self._exit()
            case Tick() | _:
                return []

    # ── the agent's messages

    def _receive(self, generation: int, message: m.FromAgent, now: float) -> list[Action]:
        if generation != self.generation or self._agent in (_Agent.DYING, _Agent.DEAD):
            return []
        if isinstance(message, m.Hello):
            return self._hello(message, now)
        if self._agent is not _Agent.CONNECTED:
            return self._kill_agent("it spoke before its HELLO")
        claimed = getattr(message, "generation", self.generation)
        if isinstance(message, m.Start):
            return self._start(message, now)
        if claimed != self.generation:
            return []
        match message:
            case m.Alive():
                self._quiet_since = now
            case m.Session():
                self._session(message)
            case m.Lease():
                return self._leased(message, now)
            case m.Stop(seat=name, epoch=epoch, grace=grace):
                return self._stop(name, epoch, grace, now)
            case m.Signal(seat=name, epoch=epoch, signo=signo):
                seat = self._find(name, epoch)
                return seat.signal(signo) if seat else []
            case m.Seen(seat=name, epoch=epoch):
                seat = self._find(name, epoch)
                return seat.seen() if seat else []
            case m.Paused(paused=paused, number=number):
                self.is_paused, self._pause_number = paused, number
                return self._write_deadlines()
            case m.Bye(code=code):
                return self._bye(code, now)
        return []

    def _hello(self, message: m.Hello, now: float) -> list[Action]:
        if message.generation not in (0, self.generation) or self._agent is _Agent.CONNECTED:
            return self._kill_agent("its HELLO is not the one awaited")
        self._agent = _Agent.CONNECTED
        self._quiet_since = now
        return [
            Send(
                m.Welcome(
                    generation=self.generation,
                    guardian_pid=self.guardian_pid,
                    passport=self.passport,
                    hosts=self.hosts,
                    lease=self.valid_until if math.isfinite(self.valid_until) else None,
                    paused=self.is_paused,
                    alive_every=self.beat,
                    seats=tuple(seat.report(now) for seat in self.seats.values()),
                    settings=self.settings,
                )
            )
        ]

    def _session(self, message: m.Session) -> None:
        """Keep the passport. Another session id: the trees of the old one keep their lease."""
        self.passport = dict(message.passport)
        self.hosts = message.hosts
        if self._session_id != self._lease.session_id:
            leases = (seat.lease for seat in self.seats.values())
            known = (each for each in leases if each.session_id == self._session_id)
            self._lease = next(known, Lease(self._session_id, -math.inf))
        smallest = self.passport.get("s_min_ms") or self.passport.get("timeout_ms")
        if isinstance(smallest, int) and smallest > 0:
            self.session_timeout = smallest / 1000

    def _leased(self, message: m.Lease, now: float) -> list[Action]:
        if self.passport is None:
            return self._kill_agent("it sent a LEASE before its SESSION")
        self._quiet_since = now
        self._has_leased = True
        self._lease.valid_until = message.valid_until
        zxid = self.passport.get("last_zxid", 0)
        self.passport["last_zxid"] = max(zxid, message.last_zxid)
        return [*self._write_deadlines(), self._lease_ack()]

    def _lease_ack(self) -> Send:
        return Send(m.LeaseAck(valid_until=self.valid_until, number=self._pause_number))

    def _write_deadlines(self) -> list[Action]:
        """Once for all that share one."""
        deadlines = {
            (seat.lease.session_id, seat.start.hard): seat.hard_at
            for seat in self.seats.values()
            if not seat.is_empty
        }
        return [
            WriteDeadline(whose, math.inf if self.is_paused else hard_at)
            for whose, hard_at in deadlines.items()
        ]

    def _start(self, start: m.Start, now: float) -> list[Action]:
        why = self._why_not(start, now)
        before = self.newest_epoch.get(start.seat, 0)
        self.newest_epoch[start.seat] = max(before, start.epoch)
        if why:
            return [Send(m.Refused(seat=start.seat, epoch=start.epoch, why=why))]
        if self._phase is _Phase.DRAINING and start.limit is not None:
            self._act_by = max(self._act_by, now + start.limit + BYE_SLACK)
        old = self.seats.pop(start.seat, None)
        seat = Seat(start=start, lease=self._lease, spawned_at=now)
        self.seats[start.seat] = seat
        soft_at, hard_at = seat.soft_at, seat.hard_at
        if self.is_paused:
            soft_at = hard_at = math.inf
        spawn = SpawnSeat(start, soft_at, hard_at, self._lease.session_id)
        return [*(old.reap_for_successor() if old else []), spawn]

    def _why_not(self, start: m.Start, now: float) -> str:
        """The reason to refuse a START, or ""."""
        seat = self.seats.get(start.seat)
        is_hook = start.beside is not None
        if self._phase is not _Phase.SERVING and not (is_hook and self._phase is _Phase.DRAINING):
            return "the guardian is ending"
        if start.generation != self.generation:
            return f"generation {start.generation} is over, this is {self.generation}"
        if self.is_paused and not is_hook:
            return "the cluster is paused, as far as this guardian was told"
        newest = self.newest_epoch.get(start.seat, 0)
        if start.epoch <= newest:
            return f"epoch {start.epoch} is not newer than {newest}"
        if seat is not None and not seat.is_empty:
            return f"epoch {seat.start.epoch} of it is not proven dead ({seat.state})"
        if now >= self.valid_until - start.soft:
            return "its soft deadline has passed"
        return self._why_not_beside(start)

    def _why_not_beside(self, start: m.Start) -> str:
        """Hooks and checks are part of an instance: none works for an older one, and no newer one
        starts while they live."""
        owner, _, _ = start.seat.partition("!")
        if start.beside is not None:
            newest = self.newest_epoch.get(owner, 0)
            return f"epoch {start.beside} of {owner} is over" if start.beside < newest else ""
        for name, seat in self.seats.items():
            is_alive = name.startswith(f"{owner}!") and not seat.is_empty
            if is_alive and seat.start.beside != start.epoch:
                return f"{name} of epoch {seat.start.beside} is not proven dead"
        return ""

    def _stop(self, name: str, epoch: int, grace: float, now: float) -> list[Action]:
        seat = self._find(name, epoch)
        if seat is None:
            return []
        if self._phase is _Phase.DRAINING:
            self._act_by = max(self._act_by, now + grace + BYE_SLACK)
        if seat.is_empty:
            return [Send(m.Empty(seat=name, epoch=epoch))]
        return seat.stop(now, grace, "ordered")

    def _bye(self, code: int, now: float) -> list[Action]:
        if self._phase not in (_Phase.SERVING, _Phase.DRAINING):
            return []
        self._phase, self._code, self._why = _Phase.LEAVING, code, "the agent said BYE"
        self._act_by = now + LEAVE_TIME
        return self._kill_trees(now, "the agent has said BYE")

    # ── the agent's life

    def _spawn_agent(self, now: float) -> list[Action]:
        self.generation += 1
        self._agent = _Agent.SPAWNED
        self._has_leased = False
        self._pause_number = 0
        self._quiet_since = now
        for seat in self.seats.values():
            seat.is_seen = False
        return [SpawnAgent(self.generation)]

    def _kill_agent(self, why: str) -> list[Action]:
        if self._agent in (_Agent.DYING, _Agent.DEAD):
            return []
        self._agent, self._kill_at = _Agent.DYING, math.inf
        return [KillAgent(why)]

    def _link_closed(self, now: float) -> list[Action]:
        """It is ending, most likely: let it, so that its own exit code is known."""
        if self._agent in (_Agent.SPAWNED, _Agent.CONNECTED):
            self._agent = _Agent.DYING
            self._kill_at = now + LEAVE_TIME
        return []

    def _agent_died(self, code: int | None, why: str, now: float) -> list[Action]:
        self._agent, self._kill_at = _Agent.DEAD, math.inf
        if self._phase is _Phase.DRAINING:
            return self._end(now, "the agent died while it drained", 1, at_once=False)
        if self._phase is not _Phase.SERVING:
            return []
        self._deaths.append(now)
        failed = code if code is not None and 0 < code < 128 else 1
        how = why or f"agent of generation {self.generation} died ({code})"
        if self.policy is Policy.RELEASE:
            return self._end(now, f"{how}; policy release", failed, at_once=False)
        recent = [each for each in self._deaths if now - each <= self.session_timeout]
        if len(recent) >= DEATHS_TO_GIVE_UP:
            return self._end(now, f"{how}; the agent crash-loops", failed, at_once=False)
        return self._spawn_agent(now)

    # ── the end

    def _shutdown(self, why: str, now: float) -> list[Action]:
        if self._phase is _Phase.SERVING and self._agent is _Agent.CONNECTED:
            self._phase, self._why = _Phase.DRAINING, why
            graces = [s.start.stop_grace for s in self.seats.values() if not s.is_empty]
            self._act_by = now + max(graces, default=0.0) + BYE_SLACK
            return [Send(m.Shutdown(why=why))]
        if self._phase is _Phase.SERVING:
            return self._end(now, f"{why}; no agent was there to drain", 0, at_once=False)
        if self._phase is _Phase.DRAINING:
            return self._end(now, f"{why}, again", 1, at_once=True)
        return self._kill_trees(now, f"{why}, again")

    def _end(self, now: float, why: str, code: int, *, at_once: bool) -> list[Action]:
        """Without the agent: stop or kill every tree; `_proceed` goes on when all are empty."""
        self._phase, self._why, self._code = _Phase.ENDING, why, code
        self._act_by = math.inf
        actions = self._kill_agent(why)
        if at_once:
            return [*actions, *self._kill_trees(now, why)]
        for seat in self.seats.values():
            actions += seat.stop(now, seat.start.stop_grace, why)
        return actions

    def _kill_trees(self, now: float, why: str) -> list[Action]:
        return [action for seat in self.seats.values() for action in seat.kill(now, why)]

    def _look_at_clock(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for seat in self.seats.values():
            actions += seat.tick(now, self.is_paused)
        if self._phase is _Phase.SERVING and not self._has_leased and self._is_past_soft(now):
            why = "the new agent brought no lease before the soft deadline"
            actions += self._end(now, why, 1, at_once=False)
        if self._agent is _Agent.CONNECTED and now >= self._quiet_since + self.silence:
            actions += self._kill_agent(f"no ALIVE for {self.silence:g} s")
        if self._agent is _Agent.SPAWNED and now >= self._quiet_since + self.hello_timeout:
            actions += self._kill_agent(f"no HELLO for {self.hello_timeout:g} s")
        if now >= self._kill_at:
            self._kill_at = math.inf
            actions.append(KillAgent("its link is closed and it lives on"))
        if now >= self._act_by and self._phase is _Phase.DRAINING:
            actions += self._end(now, "the agent said no BYE in time", 1, at_once=True)
        if now >= self._act_by and self._phase is _Phase.LEAVING:
            actions += self._kill_agent("it said BYE and did not leave")
        return actions

    def _is_past_soft(self, now: float) -> bool:
        return not self.is_paused and any(
            now >= seat.soft_at for seat in self.seats.values() if not seat.is_empty
        )

    def _proceed(self, now: float) -> list[Action]:
        """The next phase, once the agent and every tree are proven dead."""
        if self._agent is not _Agent.DEAD or not all(s.is_empty for s in self.seats.values()):
            return []
        if self._phase is _Phase.LEAVING:
            return self._exit()
        if self._phase is not _Phase.ENDING:
            return []
        if self.passport is None:
            return self._exit()
        self._phase = _Phase.CLOSING
        breadcrumbs = tuple(
            s.start.breadcrumb for s in self.seats.values() if s.start.breadcrumb is not None
        )
        return [RunCloser(self.passport, self.hosts, breadcrumbs)]

    def _exit(self) -> list[Action]:
        self._phase = _Phase.DONE
        return [Exit(self._code, self._why)]

    # ── small things

    @property
    def is_done(self) -> bool:
        """Exit was given out."""
        return self._phase is _Phase.DONE

    @property
    def valid_until(self) -> float:
        """Boottime seconds: the end of the newest session's lease; -inf: it has none."""
        return self._lease.valid_until

    @property
    def _session_id(self) -> int:
        return int(self.passport.get("session_id", 0)) if self.passport else 0

    def _find(self, name: str, epoch: int) -> Seat | None:
        seat = self.seats.get(name)
        return seat if seat is not None and seat.start.epoch == epoch else None

    def _next_wake(self) -> WakeAt:
        times = [self._kill_at, *(s.wake_at(self.is_paused) for s in self.seats.values())]
        if self._agent is _Agent.CONNECTED:
            times.append(self._quiet_since + self.silence)
        if self._agent is _Agent.SPAWNED:
            times.append(self._quiet_since + self.hello_timeout)
        if self._phase in (_Phase.DRAINING, _Phase.LEAVING) and self._agent is not _Agent.DEAD:
            times.append(self._act_by)
        self._wake_at = min(times, default=math.inf)
        return WakeAt(self._wake_at)


def _is_alive(event: Event) -> bool:
    return isinstance(event, Received) and isinstance(event.message, m.Alive)
