"""What a wrapped command is told, what may be promised with it, and what its exit code means.

Rule of this file: pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from incumbent.credentials import Credentials
from incumbent.guardian.messages import Exited
from incumbent.lease import Numbers

__all__ = ["EVERY", "OnceSettings", "WorkSettings", "WrappedSettings", "exit_code", "fitting"]

EVERY = 5.0
"""Seconds between two lines about an unchanged role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceSettings:
    """What only `once` is told."""

    key: str
    record: str
    """The znode with the key's runs."""
    period: str = ""
    """When the period began (`period.Every.start`); "" for once and never again."""
    length: float = 0.0
    """Seconds of a period; 0 for none."""
    every: str = ""
    """What the period is one of (`period.Every`)."""
    asked_at: float = 0.0
    """Wall time at which the period was chosen."""
    retry: bool = False
    """Run an interrupted one again."""
    if_done: int | None = None
    """The exit code where it was done before; None: the one of that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """What only `work run` is told; times in seconds, as in `zk.work` and `work.run`."""

    source: str = ""
    """A shell's command that prints items."""
    workers: int = 1
    tries: int = 5
    lag: float = 1.0
    keep_done: float = 600.0
    idle: float = 1.0
    until_empty: bool = False
    metrics_file: str = ""
    """Where the counters are written for Prometheus, whole each time; "": nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedSettings:
    """What WELCOME carries. `stop_grace` None: as much as the session's times allow, at most the
    default; `tick`: see `lease.Lease`; times in seconds."""

    errand: str = "elect"
    """elect, lock, once or work."""
    path: str
    hosts: str
    name: str
    session_timeout: float
    tick: float | None = None
    stop_grace: float | None = None
    isolation: str = "sealed"
    command: Sequence[str] = ()
    every: float = EVERY
    give_up_at: float | None = None
    """CLOCK_BOOTTIME from when on it is no longer waited; None: never."""
    waits: bool = True
    """False: if somebody else has it, give up at once."""
    quiet: bool = False
    shared: bool = False
    """Others may share the lock."""
    limit: int = 0
    """So many may have it at a time; 0: it is a lock."""
    root: str = ""
    """Of the supervisor's tree: what is made below it gets its ACLs."""
    credentials: Credentials = field(default_factory=Credentials)
    once: OnceSettings = field(default_factory=lambda: OnceSettings(key="", record=""))
    work: WorkSettings = field(default_factory=WorkSettings)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> WrappedSettings:
        """Out of WELCOME's settings, which have other keys too."""
        values = {key: given[key] for key in cls.__dataclass_fields__ if key in given}
        if "once" in values:
            values["once"] = OnceSettings(**values["once"])
        if "work" in values:
            values["work"] = WorkSettings(**values["work"])
        if "credentials" in values:
            values["credentials"] = Credentials.from_json(values["credentials"])
        return cls(**values)


def fitting(session: float, tick: float | None, stop_grace: float | None) -> Numbers:
    """A session's times, with as much stop grace as was asked for; without a wish, as much as
    fits, at most the default. Raises `NumbersDontFit`."""
    numbers = Numbers.of(session, tick=tick, stop_grace=stop_grace)
    numbers.fit()
    return numbers


def exit_code(exited: Exited) -> int:
    """As a shell gives it: the program's own, or 128 and the signal's number."""
    if exited.signal is not None:
        return 128 + exited.signal
    return exited.code or 0
