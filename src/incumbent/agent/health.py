"""What is known of an instance's health, and the verdict on it.

    running ──ready──► ready          without a `ready` check it stays "running"
       │                 │
       └─ not in time ───┴─ hangs ──► failed: it is stopped, and counts as one failure

Everything happens through functions of (what is known, an event, the time). Times are seconds of
boottime. Whoever keeps it was awake, or says for how long it was not (`slept`): a program is not
called dead for a time in which nobody could hear it.

Rule of this file: a verdict is a function of what was told and when, and says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from incumbent.guardian.messages import Told
from incumbent.spec.health import Check

__all__ = ["Health", "Verdict", "begin", "checked", "slept", "told", "verdict", "what_to_ask"]

FROZEN = "its main process was stopped by a signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Of one instance, since `began_at`: its start, or the moment since which we know of it.

    heard_at      of `live` by notify: its newest word, or since when one is awaited
    failures      noes of `live` in a row; `problem`: the newest no, also of `ready`
    more_until    until when it has asked to be waited for
    stopping_at   when it said that it is about to end
    """

    ready: Check | None
    live: Check | None
    stop_grace: float
    began_at: float
    ready_at: float | None = None
    heard_at: float = 0.0
    failures: int = 0
    problem: str = ""
    more_until: float = -math.inf
    stopping_at: float | None = None
    is_hung: bool = False
    is_frozen: bool = False
    status: str = ""

    @property
    def is_ready(self) -> bool:
        """Or has no way to say so."""
        return self.ready is None or self.ready_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`failed`: why it is to be stopped, "" to keep it. `until`: when to look again, whatever
    happens or does not."""

    state: str
    why: str = ""
    failed: str = ""
    until: float = math.inf


def begin(
    ready: Check | None,
    live: Check | None,
    stop_grace: float,
    now: float,
    *,
    was_ready: bool = False,
) -> Health:
    """`was_ready`: an agent before us has seen it ready."""
    at = now if was_ready else None
    return Health(
        ready=ready, live=live, stop_grace=stop_grace, began_at=now, heard_at=now, ready_at=at
    )


def told(health: Health, word: Told, now: float) -> Health:
    """The program, or the kernel, has said something."""
    is_new_ready = word.ready and not health.is_ready and _by_word(health.ready)
    return replace(
        health if not is_new_ready else _is_up(health, now),
        heard_at=now if word.alive or is_new_ready else health.heard_at,
        is_hung=health.is_hung or word.hung,
        stopping_at=now if word.stopping and health.stopping_at is None else health.stopping_at,
        more_until=now + word.extend if word.extend > 0 else health.more_until,
        status=health.status if word.status is None else word.status,
        is_frozen=health.is_frozen if word.frozen is None else word.frozen,
    )


def what_to_ask(health: Health) -> Check | None:
    """What is to be asked now, and again at its interval; None: nothing."""
    check = health.live if health.is_ready else health.ready
    if check is None or not check.asks or health.stopping_at is not None:
        return None
    return check


def checked(health: Health, check: Check, problem: str, now: float) -> Health:
    """`check` was asked; "" is a yes. An answer to what is asked no more says nothing."""
    if check is not what_to_ask(health):
        return health
    if health.is_frozen and not problem:
        problem = FROZEN  # the kernel accepts connections for it
    if not health.is_ready:
        return replace(health, problem=problem) if problem else _is_up(health, now)
    if problem:
        return replace(health, problem=problem, failures=health.failures + 1)
    return replace(health, problem="", failures=0)


def slept(health: Health, seconds: float) -> Health:
    """We could not have heard it for so long."""
    moved = None if health.stopping_at is None else health.stopping_at + seconds
    return replace(
        health,
        began_at=health.began_at + seconds,
        heard_at=health.heard_at + seconds,
        stopping_at=moved,
    )


def verdict(health: Health, now: float) -> Verdict:
    """Keep it, or not; and the sentence for operators."""
    state = "ready" if health.ready is not None and health.is_ready else "running"
    if health.is_hung:
        return Verdict(state=state, failed="it said that it hangs (WATCHDOG=trigger)")
    if health.stopping_at is not None:
        return _about_to_end(health, now)
    if not health.is_ready:
        return _not_ready(health, now)
    live = health.live
    if live is not None and not live.asks:
        until = health.heard_at + live.interval
        if now >= until:
            failed = f"no WATCHDOG=1 for {live.interval:g} s"
            return Verdict(
                state=state, failed=f"{FROZEN}: {failed}" if health.is_frozen else failed
            )
        return Verdict(state=state, why=_why(health), until=until)
    if live is not None and health.failures >= live.failures:
        times = "the check" if live.failures == 1 else f"{live.failures} checks in a row"
        return Verdict(state=state, failed=f"{times} failed: {health.problem}")
    return Verdict(state=state, why=_why(health))


def _about_to_end(health: Health, now: float) -> Verdict:
    assert health.stopping_at is not None
    until = max(health.stopping_at + health.stop_grace, health.more_until)
    if now >= until:
        after = now - health.stopping_at
        return Verdict(
            state="stopping", failed=f"it said STOPPING=1 {after:.0f} s ago and lives on"
        )
    return Verdict(
        state="stopping", why=health.status or "it says that it is about to end", until=until
    )


def _not_ready(health: Health, now: float) -> Verdict:
    assert health.ready is not None
    until = max(health.began_at + health.ready.within, health.more_until)
    problem = FROZEN if health.is_frozen else health.problem
    if now >= until:
        failed = f"not ready within {until - health.began_at:.0f} s"
        return Verdict(state="running", failed=f"{failed}: {problem}" if problem else failed)
    why = f"not ready yet: {problem}" if problem else health.status or "not ready yet"
    return Verdict(state="running", why=why, until=until)


def _why(health: Health) -> str:
    if health.is_frozen:
        return f"{FROZEN}; `kill -CONT` lets it go on"
    if health.failures and health.live is not None:
        return f"{health.failures} of {health.live.failures} checks failed: {health.problem}"
    return health.status


def _by_word(check: Check | None) -> bool:
    return check is not None and not check.asks


def _is_up(health: Health, now: float) -> Health:
    return replace(health, ready_at=now, heard_at=now, problem="", failures=0)
