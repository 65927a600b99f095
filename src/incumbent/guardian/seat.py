"""One seat's tree of processes, from START to the proof that it is empty.

    starting ──► running ──► stopping ──► killing ──► empty
        │           │           │            ▲ │
        └───────────┴───────────┴────────────┘ └─► stuck (5 s after SIGKILL) ──► empty

stopping: stop signal and SIGCONT are sent, SIGKILL follows after the grace. At soft the
stop begins by itself, at hard the killing does; neither while paused. An instance ends
when its main process ends: what is left is killed.

Rule of this file: only `emptied` and `failed`, which are told of a proof, lead to empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from signal import SIGCONT

from incumbent.guardian.actions import (
    Action,
    KillTree,
    Reap,
    Send,
    Signal,
)
from incumbent.guardian.messages import (
    Empty,
    Exited,
    Refused,
    SeatReport,
    Start,
    Started,
    Stopping,
    Stuck,
    Told,
)

__all__ = ["EXTENDED_AT_MOST", "KILL_EVERY", "STUCK_AFTER", "Lease", "Seat"]

KILL_EVERY = 0.1
"""Seconds between two rounds of SIGKILL to a tree that is not proven empty."""
SOFT = "soft deadline: no beat was acknowledged in time"
HARD = "hard deadline: the session's lease runs out"
"""Why a tree is killed at its hard deadline, or ended by its own first process then."""
EXTENDED_AT_MOST = 600.0
"""Seconds for which a program can put off the end of its stop by asking for more time."""
STUCK_AFTER = 5.0
"""Seconds of killing after which a tree is reported as STUCK."""


@dataclass(slots=True)
class Lease:
    """Of one session: all seats started in it share it, and no later session's counts for them."""

    session_id: int
    valid_until: float


@dataclass(slots=True)
class Seat:
    """The record of a seat's newest tree."""

    start: Start
    lease: Lease
    spawned_at: float
    state: str = "starting"
    pid: int = 0
    start_time: int = 0
    main: int = 0
    exited: Exited | None = None
    is_seen: bool = False
    is_reaped: bool = False
    ended_at: float = math.inf
    told: Told | None = None
    kill_at: float = math.inf
    stopping_since: float = math.inf
    killing_since: float = math.inf
    kill_again_at: float = math.inf
    overdue: str = ""  # the deadline that it ran into
    key: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.start.seat, self.start.epoch)

    @property
    def is_empty(self) -> bool:
        return self.state == "empty"

    @property
    def soft_at(self) -> float:
        return self.lease.valid_until - self.start.soft

    @property
    def hard_at(self) -> float:
        return self.lease.valid_until - self.start.hard

    @property
    def limit_at(self) -> float:
        return math.inf if self.start.limit is None else self.spawned_at + self.start.limit

    def report(self, now: float) -> SeatReport:
        """The seat's entry in WELCOME."""
        return SeatReport(
            seat=self.start.seat,
            epoch=self.start.epoch,
            pid=0 if self.is_reaped else self.pid,
            start_time=self.start_time,
            state=self.state,
            breadcrumb=self.start.breadcrumb,
            containment=self.start.containment,
            uptime=min(now, self.ended_at) - self.spawned_at,
            exited=self.exited,
            main=self.main,
            told=self.told,
            beside=self.start.beside,
            session_id=self.lease.session_id,
        )

    # what happens to it

    def started(self, pid: int, start_time: int, main: int) -> list[Action]:
        self.pid, self.start_time, self.main = pid, start_time, main or pid
        seat, epoch = self.key
        if self.state == "starting":
            self.state = "running"
        return [
            Send(Started(seat=seat, epoch=epoch, pid=pid, start_time=start_time, main=self.main))
        ]

    def failed(self, why: str, permanent: bool, now: float) -> list[Action]:
        """Nothing was executed: the tree is empty, and was never anything else."""
        self._end(now)
        self.is_reaped = True
        seat, epoch = self.key
        return [Send(Refused(seat=seat, epoch=epoch, why=why, permanent=permanent))]

    def tell(self, told: Told, now: float) -> list[Action]:
        """The program's own word. One that is being stopped may ask for more time, before soft."""
        if self.is_empty:
            return []
        before = self.told or told
        self.told = replace(
            told,
            ready=before.ready or told.ready,
            stopping=before.stopping or told.stopping,
            extend=0.0,
            status=before.status if told.status is None else told.status,
            frozen=before.frozen if told.frozen is None else told.frozen,
        )
        if self.state == "stopping" and told.extend > 0 and now < self.soft_at:
            latest = self.stopping_since + EXTENDED_AT_MOST
            self.kill_at = max(self.kill_at, min(now + told.extend, latest))
        return [Send(told)]

    def main_exited(
        self, code: int | None, signal: int | None, left: int, now: float
    ) -> list[Action]:
        """Main ended: tell it, and kill what it left behind."""
        if self.is_empty or self.exited is not None:
            return []
        return [self._tell_exited(code, signal, left, now), *self.kill(now, "its main ended")]

    def emptied(self, now: float) -> list[Action]:
        """The proof has come."""
        if self.is_empty:
            return []
        actions: list[Action] = []
        if self.exited is None and self.pid:
            is_late = self.state in ("running", "stopping") and now >= self.hard_at
            why = HARD if is_late else ""  # its first process keeps the deadline, too
            actions.append(self._tell_exited(None, None, 0, now, why))
        seat, epoch = self.key
        self._end(now)
        actions.append(Send(Empty(seat=seat, epoch=epoch)))
        return [*actions, *self.reap_if_allowed()]

    def seen(self) -> list[Action]:
        self.is_seen = True
        return self.reap_if_allowed()

    def reap_if_allowed(self) -> list[Action]:
        if not (self.is_empty and self.is_seen) or self.is_reaped:
            return []
        self.is_reaped = True
        return [Reap(*self.key)]

    def reap_for_successor(self) -> list[Action]:
        """A newer epoch starts: nobody will ask for this empty tree's pid again."""
        self.is_seen = True
        return self.reap_if_allowed()

    # what is done to it

    def stop(self, now: float, grace: float, why: str) -> list[Action]:
        """The ladder: stop signal, SIGCONT, and SIGKILL `grace` seconds later.

        A second stop can only shorten the grace. A program that was not executed yet has
        nothing to put in order and is killed at once, as is one with no grace.
        """
        if self.state in ("killing", "stuck", "empty"):
            return []
        if grace <= 0 or self.state == "starting":
            return self.kill(now, why)
        self.kill_at = min(self.kill_at, now + grace)
        if self.state == "stopping":
            return []
        self.state = "stopping"
        self.stopping_since = now
        seat, epoch = self.key
        return [
            Send(Stopping(seat=seat, epoch=epoch, why=why)),
            Signal(seat, epoch, self.start.stop_signal),
            Signal(seat, epoch, SIGCONT),
        ]

    def signal(self, signo: int) -> list[Action]:
        """By an operator's order: only to a program that runs and is not being stopped."""
        return [Signal(*self.key, signo)] if self.state == "running" else []

    def kill(self, now: float, why: str) -> list[Action]:
        if self.state in ("killing", "stuck", "empty"):
            return []
        self.state = "killing"
        self.killing_since = now
        self.kill_again_at = now + KILL_EVERY
        return [KillTree(*self.key, why)]

    def tick(self, now: float, paused: bool) -> list[Action]:
        """What the clock demands."""
        if self.is_empty:
            return []
        actions: list[Action] = []
        if not paused and now >= self.hard_at:
            actions += self._expire(now, 0.0, HARD)
        elif not paused and now >= self.soft_at:
            actions += self._expire(now, self.start.stop_grace, SOFT)
        if self.state == "stopping" and now >= self.kill_at:
            actions += self.kill(now, "still alive after its grace")
        if now >= self.limit_at:
            actions += self.kill(now, f"it took longer than {self.start.limit:g} s")
        if self.state in ("killing", "stuck") and now >= self.kill_again_at:
            self.kill_again_at = now + KILL_EVERY
            actions.append(KillTree(*self.key))
        if self.state == "killing" and now >= self.killing_since + STUCK_AFTER:
            self.state = "stuck"
            seat, epoch = self.key
            actions.append(Send(Stuck(seat=seat, epoch=epoch)))
        return actions

    def _expire(self, now: float, grace: float, why: str) -> list[Action]:
        if self.state in ("starting", "running"):
            self.overdue = why
        return self.stop(now, grace, why)

    def wake_at(self, paused: bool) -> float:
        """When `tick` has something to do next."""
        deadline = math.inf if paused else self.hard_at
        if self.state in ("starting", "running"):
            return self.limit_at if paused else min(self.soft_at, self.hard_at, self.limit_at)
        if self.state == "stopping":
            return min(self.kill_at, deadline, self.limit_at)
        if self.state in ("killing", "stuck"):
            return self.kill_again_at
        return math.inf

    def _tell_exited(
        self, code: int | None, signal: int | None, left: int, now: float, why: str = ""
    ) -> Send:
        seat, epoch = self.key
        self.ended_at = now
        self.exited = Exited(
            seat=seat,
            epoch=epoch,
            code=code,
            signal=signal,
            uptime=now - self.spawned_at,
            left=left,
            why=why or self.overdue,
        )
        return Send(self.exited)

    def _end(self, now: float) -> None:
        self.state = "empty"
        self.ended_at = min(self.ended_at, now)
        self.kill_at = self.killing_since = self.kill_again_at = math.inf
