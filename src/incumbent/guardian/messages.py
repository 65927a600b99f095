"""What guardian and agent say to each other: one JSON object a line, over a socket pair.

The guardian owns the programs, the agent decides. Each message is a frozen dataclass; its line
is the business of `codec`.
Times are seconds of CLOCK_BOOTTIME; `soft` and `hard` are offsets, seconds before
`valid_until`; secrets inside a passport are hex text.

Rule of this file: data only, and each field of a type that `codec` can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

__all__ = [
    "Alive",
    "Bye",
    "Empty",
    "Exited",
    "FromAgent",
    "FromGuardian",
    "Hello",
    "Lease",
    "LeaseAck",
    "Message",
    "Paused",
    "Refused",
    "SeatReport",
    "Seen",
    "Session",
    "Shutdown",
    "Start",
    "Started",
    "Signal",
    "Stop",
    "Stopping",
    "Stuck",
    "Told",
    "Welcome",
]

# agent → guardian


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of an agent. `generation` 0: not known yet, WELCOME tells it."""

    tag: ClassVar[str] = "HELLO"
    generation: int = 0
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A new or re-attached session: what the next agent, or the closer, needs to use it."""

    tag: ClassVar[str] = "SESSION"
    generation: int
    passport: Mapping[str, Any] = field(repr=False)
    hosts: str
    control: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The agent's loop turns: once per beat interval, with or without a lease."""

    tag: ClassVar[str] = "ALIVE"
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The session's lease after an acknowledged beat."""

    tag: ClassVar[str] = "LEASE"
    generation: int
    valid_until: float
    last_zxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a seat's program under a new epoch, once its breadcrumb is written.

    `notify`, `ready_fd`: listen to what it says of itself (`ear.py`). A hook or a check of a seat
    is a tree of its own, named SEAT!NAME and counted by itself: `beside` is the epoch of the
    seat that it works for, `limit` how many seconds it may live.
    `uid`, `gid`, `groups`: who the program is, where it is somebody else than the guardian.
    `limits`: by name of the rlimit; -1 is none. `cgroup`: where its cgroup is to be made, with
    `cgroup_limits` (file → text).
    """

    tag: ClassVar[str] = "START"
    generation: int
    seat: str
    epoch: int
    soft: float
    hard: float
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    stop_signal: int = 15
    stop_grace: float = 3.0
    containment: str = "sealed"
    breadcrumb: str | None = None
    log: str | None = None
    notify: bool = False
    ready_fd: int | None = None
    beside: int | None = None
    limit: float | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    umask: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    cgroup: str | None = None
    cgroup_limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An ordered stop; `grace` seconds between stop signal and SIGKILL, 0: kill at once."""

    tag: ClassVar[str] = "STOP"
    seat: str
    epoch: int
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal to the main process, as an operator wants it; lost where none runs."""

    tag: ClassVar[str] = "SIGNAL"
    seat: str
    epoch: int
    signo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The agent holds a pidfd of the tree's first process: it may be reaped when it dies."""

    tag: ClassVar[str] = "SEEN"
    seat: str
    epoch: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """While paused, deadlines are not enforced, and nothing is started. `number`: see LEASE_ACK."""

    tag: ClassVar[str] = "PAUSED"
    paused: bool
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye:
    """The agent has drained and closed its session: end what is left, exit with `code`."""

    tag: ClassVar[str] = "BYE"
    code: int


# guardian → agent


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatReport:
    """One seat in WELCOME.

    `state`: starting, running, stopping, killing, stuck or empty (proven; its breadcrumb
    may still be in the tree). `pid` is 0 once the process is reaped. `exited` is the
    EXITED that an earlier agent may have missed. `main`: as in STARTED. `told`: all that the
    program has said of itself so far. `beside`: as in START. `session_id`: of the session in which
    it was started.
    """

    seat: str
    epoch: int
    pid: int
    start_time: int
    state: str
    breadcrumb: str | None = None
    containment: str = "sealed"
    uptime: float = 0.0
    exited: Exited | None = None
    main: int = 0
    told: Told | None = None
    beside: int | None = None
    session_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to HELLO. `alive_every`: send ALIVE this often (seconds)."""

    tag: ClassVar[str] = "WELCOME"
    generation: int
    guardian_pid: int
    passport: Mapping[str, Any] | None = field(default=None, repr=False)
    hosts: str = ""
    lease: float | None = None
    paused: bool = False
    alive_every: float = 1.0
    seats: tuple[SeatReport, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The program runs. `pid` (host) is the tree's first process: init, or swept's main."""

    tag: ClassVar[str] = "STARTED"
    seat: str
    epoch: int
    pid: int
    start_time: int
    main: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A START was not carried out and nothing of it runs. `permanent`: trying again is vain."""

    tag: ClassVar[str] = "REFUSED"
    seat: str
    epoch: int
    why: str
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the program says of itself: that it is ready, alive, hung, about to end; that it needs
    `extend` seconds more from now; how it is. `frozen`: its main process was stopped by a signal
    (True), or continued (False); the kernel says that. What was not said is as by default.
    """

    tag: ClassVar[str] = "TOLD"
    seat: str
    epoch: int
    ready: bool = False
    alive: bool = False
    hung: bool = False
    stopping: bool = False
    extend: float = 0.0
    status: str | None = None
    frozen: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The stop ladder has begun."""

    tag: ClassVar[str] = "STOPPING"
    seat: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The main process ended; `left` descendants lived at that moment (they are killed).

    `code` and `signal` are both None where the tree was killed before main could be asked;
    `why` says so where that was no accident.
    """

    tag: ClassVar[str] = "EXITED"
    seat: str
    epoch: int
    code: int | None
    signal: int | None
    uptime: float
    left: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """The whole tree is proven dead: the only message that means so."""

    tag: ClassVar[str] = "EMPTY"
    seat: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Alive 5 s after SIGKILL; killing goes on, and the tree is not called empty."""

    tag: ClassVar[str] = "STUCK"
    seat: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAck:
    """Every deadline now follows this lease; or none is kept, if the newest PAUSED says so, whose
    `number` this is (0: this generation has sent none).
    """

    tag: ClassVar[str] = "LEASE_ACK"
    valid_until: float
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Stop everything in order, delete the breadcrumbs, close the session, say BYE."""

    tag: ClassVar[str] = "SHUTDOWN"
    why: str


FromAgent: TypeAlias = Hello | Session | Alive | Lease | Start | Stop | Signal | Seen | Paused | Bye
FromGuardian: TypeAlias = (
    Welcome | Started | Refused | Told | Stopping | Exited | Empty | Stuck | LeaseAck | Shutdown
)
Message: TypeAlias = FromAgent | FromGuardian
