"""The rim of a wrapped command: terminal, pidfds, randomness and clocks are handed to it here.

Rule of this file: it puts parts together and decides nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import Any

from incumbent.agent.custody import Pidfds
from incumbent.agent.deadline_file import DeadlineFile
from incumbent.agent.errand import Errand
from incumbent.agent.leading import Leading
from incumbent.agent.lines import Lines, Role
from incumbent.agent.link import GuardianLink
from incumbent.agent.locking import Limiting, Locking
from incumbent.agent.once import Once
from incumbent.agent.proc import OWNER
from incumbent.agent.working import Working
from incumbent.agent.wrapped import Wrapped
from incumbent.agent.wrapped_settings import WrappedSettings
from incumbent.clock import SYSTEM

__all__ = ["serve_wrapped"]


async def serve_wrapped(link: GuardianLink, given: Mapping[str, Any]) -> int:
    """From WELCOME to BYE; the exit code."""
    settings = WrappedSettings.of(given)
    guardian = link.welcome.result().guardian_pid
    owner = f"{settings.errand} {guardian}"
    say = Lines(2, f"{settings.errand}: ").news
    rng = random.SystemRandom()
    if settings.errand == "work":
        working = Working(
            settings,
            link,
            Pidfds(owner),
            say=say,
            environ={**os.environ, OWNER: owner},
            cwd=str(given["cwd"]),
            clock=SYSTEM,
            rng=rng,
        )
        return await working.run()
    errand: Errand
    match settings.errand:
        case "elect":
            errand = Leading(settings, Role(Lines(1), settings.every), rng)
        case "once":
            errand = Once(settings, say=say, pid=guardian, rng=rng, clock=SYSTEM)
        case _ if settings.limit:
            errand = Limiting(settings, say=say, pid=guardian, rng=rng)
        case _:
            errand = Locking(settings, say=say, pid=guardian, rng=rng)
    wrapped = Wrapped(
        settings,
        errand,
        link,
        Pidfds(owner),
        say=say,
        environ={**os.environ, OWNER: owner},
        cwd=str(given["cwd"]),
        deadline=DeadlineFile(os.environ),
        clock=SYSTEM,
        rng=rng,
    )
    return await wrapped.run()
