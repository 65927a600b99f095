"""What goes into the guardian's table and what comes out of it.

Events say what happened, actions say what to do about it. Between them stands `Table`
(table.py), which does nothing itself; a `ProcessTable` carries the actions out: the real
one forks and kills, the simulated world's moves entries in a dict.

The driver's contract:

 1. Call `table.begin(now)` once, then `table.handle(event, now)` for each event; `now` is
    CLOCK_BOOTTIME, read after the event was received, and never goes back.
 2. Carry out the actions in the order given and completely before the next event;
    `carry_out` does the dispatch. An action never calls back into the table: what it
    finds out becomes a later event.
 3. After SpawnAgent(g): messages of that agent as `Received(g, message)`, in order; then
    `LinkClosed(g)` when its link ends, `AgentBroke(g, why)` if it broke the protocol, and
    `AgentDied(g, …)` exactly once, when its process is *proven* dead. All that it sent
    before is delivered first. A failed spawn is an AgentDied too.
 4. After SpawnSeat: exactly one of `SeatStarted` (the program was executed) or
    `SpawnFailed` (nothing of it is left alive), or, if it was killed meanwhile, TreeEmpty
    alone. The forked child checks `soft_at` itself, as the last thing before exec.
 5. After SeatStarted: `MainExited` once, when main ended by itself or by a signal (it may
    be missing if the tree was killed), then `TreeEmpty` once, only on proof (containment.py
    has them). KillTree is repeated until then; each call kills whatever lives now.
 6. The tree's first process is not reaped, so that its pid names nothing else, before
    Reap; a Reap of something alive, or done already, does nothing.
 7. WakeAt(t) replaces any earlier one; at t (or later, or too early, without harm)
    deliver `Tick()`. Deliver what is readable before a Tick, so that a message which
    waits while the guardian itself was asleep counts.
 8. After RunCloser: `CloserFinished` once, within its time limit. After Exit: no more.

Rule of this file: data only; an action is complete in itself, so that whoever carries it
out decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from incumbent.guardian.messages import FromAgent, FromGuardian, Start, Told

__all__ = [
    "Action",
    "AgentBroke",
    "AgentDied",
    "CloserFinished",
    "Event",
    "Exit",
    "KillAgent",
    "KillTree",
    "LinkClosed",
    "MainExited",
    "ProcessTable",
    "ProgramTold",
    "Reap",
    "Received",
    "RunCloser",
    "SeatStarted",
    "Send",
    "ShutdownAsked",
    "Signal",
    "SpawnAgent",
    "SpawnFailed",
    "SpawnSeat",
    "Tick",
    "TreeEmpty",
    "WakeAt",
    "WriteDeadline",
    "carry_out",
]


# events


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the agent of `generation`."""

    generation: int
    message: FromAgent


@dataclass(frozen=True, slots=True)
class LinkClosed:
    generation: int


@dataclass(frozen=True, slots=True)
class AgentBroke:
    """It sent something that is not the protocol."""

    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class AgentDied:
    """Proven dead. `code` is its exit code, negative: the signal; None: it was never spawned."""

    generation: int
    code: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class SeatStarted:
    """The program was executed. `pid`: the tree's first process; `main`: the program's own."""

    seat: str
    epoch: int
    pid: int
    start_time: int
    main: int = 0


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """Nothing was executed and nothing is left. `permanent`: it would fail again."""

    seat: str
    epoch: int
    why: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class MainExited:
    seat: str
    epoch: int
    code: int | None
    signal: int | None
    left: int


@dataclass(frozen=True, slots=True)
class ProgramTold:
    """What a program said of itself. After SeatStarted, any number of times."""

    told: Told


@dataclass(frozen=True, slots=True)
class TreeEmpty:
    """Proof that no process of the tree lives."""

    seat: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """SIGTERM, SIGINT, or our parent died. Asked twice: at once."""

    why: str


@dataclass(frozen=True, slots=True)
class CloserFinished:
    is_closed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    Received
    | LinkClosed
    | AgentBroke
    | AgentDied
    | SeatStarted
    | SpawnFailed
    | MainExited
    | ProgramTold
    | TreeEmpty
    | ShutdownAsked
    | CloserFinished
    | Tick
)


# actions


@dataclass(frozen=True, slots=True)
class SpawnAgent:
    generation: int


@dataclass(frozen=True, slots=True)
class KillAgent:
    """SIGKILL it; its death comes back as AgentDied."""

    why: str


@dataclass(frozen=True, slots=True)
class Send:
    """To the agent; lost without harm if its link is gone."""

    message: FromGuardian


@dataclass(frozen=True, slots=True)
class SpawnSeat:
    """Start the program contained; not after `soft_at`, and dead by `hard_at`, which moves with
    `whose_deadline`: that of its session, and of its margin before the session's end."""

    start: Start
    soft_at: float
    hard_at: float
    session_id: int

    @property
    def whose_deadline(self) -> tuple[int, float]:
        return self.session_id, self.start.hard


@dataclass(frozen=True, slots=True)
class Signal:
    """To the main process only."""

    seat: str
    epoch: int
    signo: int


@dataclass(frozen=True, slots=True)
class KillTree:
    """SIGKILL to every process of the tree. `why` on the first, "" on the repetitions."""

    seat: str
    epoch: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class WriteDeadline:
    """The first process of each tree with this `whose_deadline` ends itself at `hard_at` (inf:
    never)."""

    whose: tuple[int, float]
    hard_at: float


@dataclass(frozen=True, slots=True)
class Reap:
    seat: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RunCloser:
    """Delete the breadcrumbs and close the session, in a child, within a time limit."""

    passport: Mapping[str, Any] = field(repr=False)
    hosts: str
    breadcrumbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    why: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Boottime seconds; inf: nothing is awaited."""

    when: float


Action: TypeAlias = (
    SpawnAgent
    | KillAgent
    | Send
    | SpawnSeat
    | Signal
    | KillTree
    | WriteDeadline
    | Reap
    | RunCloser
    | Exit
    | WakeAt
)


class ProcessTable(Protocol):
    """What can be done to processes: the real guardian's, or a stand-in's."""

    def spawn_agent(self, action: SpawnAgent) -> None: ...
    def kill_agent(self, action: KillAgent) -> None: ...
    def send(self, action: Send) -> None: ...
    def spawn_seat(self, action: SpawnSeat) -> None: ...
    def signal(self, action: Signal) -> None: ...
    def kill_tree(self, action: KillTree) -> None: ...
    def write_deadline(self, action: WriteDeadline) -> None: ...
    def reap(self, action: Reap) -> None: ...
    def run_closer(self, action: RunCloser) -> None: ...
    def exit(self, action: Exit) -> None: ...
    def wake_at(self, action: WakeAt) -> None: ...


def carry_out(action: Action, processes: ProcessTable) -> None:
    """Dispatch one action to the method that does it."""
    match action:
        case SpawnAgent():
            processes.spawn_agent(action)
        case KillAgent():
            processes.kill_agent(action)
        case Send():
            processes.send(action)
        case SpawnSeat():
            processes.spawn_seat(action)
        case Signal():
            processes.signal(action)
        case KillTree():
            processes.kill_tree(action)
        case WriteDeadline():
            processes.write_deadline(action)
        case Reap():
            processes.reap(action)
        case RunCloser():
            processes.run_closer(action)
        case Exit():
            processes.exit(action)
        case WakeAt():
            processes.wake_at(action)
