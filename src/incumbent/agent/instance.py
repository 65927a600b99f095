"""What the agent knows of a seat's newest instance: the guardian's word, kept.

    ordered ─► starting ─► running ─► stopping ─► empty        (stuck: alive after SIGKILL)

Rule of this file: only the guardian's EMPTY, its REFUSED (nothing was executed), or the pidfd
of a sealed tree's init make an instance empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from incumbent.guardian import messages as m

__all__ = ["Instance"]


@dataclass(slots=True, kw_only=True)
class Instance:
    """One epoch of a seat. `pid` is 0 until the program runs (`start_time`: of that one); `breadcrumb` is its path; `note`:
    what operators should know while it runs."""

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
    stop_ordered: bool = False
    note: str = ""

    @classmethod
    def of(cls, report: m.SeatReport) -> Instance:
        """As a respawned agent finds it in WELCOME."""
        return cls(
            seat=report.seat,
            epoch=report.epoch,
            breadcrumb=report.breadcrumb or "",
            containment=report.containment,
            state=report.state if report.state != "killing" else "stopping",
            pid=report.pid,
            main=report.main or report.pid,
            start_time=report.start_time,
            exited=report.exited,
            why_stopping=report.exited.why if report.exited is not None else "",
        )

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
            case m.Stopping(why=why):
                self.state, self.why_stopping = "stopping", why
            case m.Exited(why=why):
                self.exited, self.why_stopping = message, self.why_stopping or why
                if self.state != "empty":
                    self.state = "stopping"
            case m.Stuck():
                self.state = "stuck"
            case m.Empty():
                self.state = "empty"
