"""What the agent knows of a seat's newest instance: the guardian's word, kept.

    ordered ─► starting ─► running ─► stopping ─► empty        (stuck: alive after SIGKILL)

Rule of this file: only the guardian's EMPTY, its REFUSED (nothing was executed), or the pidfd
of a sealed tree's init make an instance empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from incumbent.agent.tree import session_key
from incumbent.guardian import messages as m

__all__ = ["Instance"]


@dataclass(slots=True, kw_only=True)
class Instance:
    """One epoch of a seat. `pid` is 0 until the program runs (`start_time`: of
    that one); `breadcrumb` is its path.

    note     what operators should know while it runs
    words    what it said of itself and nobody has looked at yet
    failed   why it is being stopped as a failure; "" if it is not
    is_adopted   started by an agent before us
    beside   of a hook or a check (SEAT!WHAT): the epoch of the seat that it works for
    """

    seat: str
    epoch: int
    breadcrumb: str
    containment: str
    state: str = "starting"
    pid: int = 0
    main: int = 0
    start_time: int = 0
    exited: m.Exited | None = None
    refused: m.Refused | None = None
    why_stopping: str = ""
    cut_short: str = ""
    """Why its guardian stopped it, asked by nobody."""
    stop_ordered: bool = False
    note: str = ""
    words: list[m.Told] = field(default_factory=list)
    failed: str = ""
    is_adopted: bool = False
    beside: int | None = None
    session: str = ""
    """Key of the session in which it was started."""
    control: int = 0
    """Of its breadcrumb, as far as we know."""

    @classmethod
    def of(cls, report: m.SeatReport) -> Instance:
        """As a respawned agent finds it in WELCOME."""
        return cls(
            seat=report.seat,
            epoch=report.epoch,
            breadcrumb=report.breadcrumb or "",
            containment=report.containment,
            state=report.state if report.state != "killing" else "stopping",
            session=session_key(report.session_id),
            pid=report.pid,
            main=report.main or report.pid,
            start_time=report.start_time,
            exited=report.exited,
            why_stopping=report.exited.why if report.exited is not None else "",
            cut_short=report.exited.why if report.exited is not None else "",
            words=[report.told] if report.told is not None else [],
            is_adopted=True,
            beside=report.beside,
        )

    @property
    def mark(self) -> tuple[str, int]:
        """The seat and the epoch in the environment of its processes."""
        if self.beside is None:
            return self.seat, self.epoch
        return self.seat.partition("!")[0], self.beside

    @property
    def is_empty(self) -> bool:
        return self.state == "empty"

    def hear(self, message: m.FromGuardian) -> None:
        """Take in what the guardian says of it."""
        match message:
            case m.Started(pid=pid, main=main, start_time=start_time):
                self.pid, self.main, self.start_time = pid, main, start_time
                if self.state == "starting":
                    self.state = "running"
            case m.Refused():
                self.refused, self.state = message, "empty"
            case m.Told():
                self.words.append(message)
            case m.Stopping(why=why):
                self.state, self.why_stopping = "stopping", why
                self.cut_short = "" if self.stop_ordered else why
            case m.Exited(why=why):
                if not (self.stop_ordered or self.why_stopping):
                    self.cut_short = why
                self.exited, self.why_stopping = message, self.why_stopping or why
                if self.state != "empty":
                    self.state = "stopping"
            case m.Stuck():
                self.state = "stuck"
            case m.Empty():
                self.state = "empty"
