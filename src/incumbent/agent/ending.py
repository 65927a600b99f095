"""How a run of COMMAND came to its end, concluded from what the guardian said of it.

Rule of this file: pure. "By itself" is only what nobody had ordered and what has an exit code.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from incumbent.agent.instance import Instance
from incumbent.agent.wrapped_settings import exit_code
from incumbent.launch import went_background

__all__ = ["Ended", "Ending", "ending"]


class Ended(Enum):
    """How it ended."""

    OWN = "by itself"
    BACKGROUND = "it put itself in the background"
    UNSTARTABLE = "it cannot be started here"
    NOT_STARTED = "nothing was started"
    LOST = "what it ran under was lost"
    STOPPED = "we were told to stop"


@dataclass(frozen=True, slots=True)
class Ending:
    """`code`: COMMAND's, as a shell gives it, where it has one; `why` for people."""

    how: Ended
    code: int = 0
    why: str = ""


def ending(instance: Instance | None, command: Sequence[str], *, is_lost: bool) -> Ending:
    """Of an instance that is proven dead, or None if it was never ordered. `is_lost`: what it
    ran under is."""
    if instance is None:
        return Ending(Ended.NOT_STARTED)
    if instance.refused is not None:
        is_vain = instance.refused.permanent
        how = Ended.UNSTARTABLE if is_vain else Ended.NOT_STARTED
        return Ending(how, why=f"it was not started: {instance.refused.why}")
    exited = instance.exited
    if exited is not None and (exited.code, exited.signal) == (None, None):
        exited = None  # killed before it could be asked
    killed = 128 + signal.SIGKILL
    if instance.stop_ordered:
        code = killed if exited is None else exit_code(exited)
        return Ending(Ended.LOST if is_lost else Ended.STOPPED, code)
    if instance.why_stopping or exited is None:
        why = instance.why_stopping or "hard deadline: the session's lease ran out"
        return Ending(Ended.LOST, killed if exited is None else exit_code(exited), why)
    if background := went_background(command, exited.code, exited.uptime, exited.left):
        return Ending(Ended.BACKGROUND, why=background)
    how_it_went = f"code {exited.code}" if exited.signal is None else f"signal {exited.signal}"
    why = f"it ended with {how_it_went} after {exited.uptime:.1f} s"
    return Ending(Ended.OWN, exit_code(exited), why)
