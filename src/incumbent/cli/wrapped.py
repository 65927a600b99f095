"""What `elect`, `lock` and `once` have in common: what is checked and found out before standing.

Rule of this file: whatever is wrong is said before anything stands or runs; from then on this
process is the guardian (it is its pid that the shell shows), so it imports little.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from incumbent.agent.exit_codes import LOST, NOT_FOUND
from incumbent.cli.exits import Parser, failed, interrupted, say
from incumbent.cli.process import module
from incumbent.cli.srvr import refuse_clear_text, times
from incumbent.clock import SYSTEM
from incumbent.errors import IncumbentError
from incumbent.guardian import words
from incumbent.guardian.actions import (
    Action,
    AgentDied,
    Event,
    Exit,
    KillAgent,
    Received,
    ShutdownAsked,
)
from incumbent.guardian.containment import probe
from incumbent.guardian.main import run
from incumbent.guardian.messages import Bye
from incumbent.guardian.table import Policy
from incumbent.settings import Settings, resolve

__all__ = [
    "CONNECT_TIME",
    "Wrapping",
    "add_common",
    "add_waiting",
    "read",
    "settings_of",
    "split",
    "wrap",
]

CONNECT_TIME = 5.0
"""Seconds in which ZooKeeper must be reached where nothing else is to be waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """One command to be wrapped; `path`: the znode below which one stands."""

    errand: str
    path: str
    command: Sequence[str]
    settings: Settings
    options: argparse.Namespace
    usage: int
    """The exit code of what is wrong before anything stands."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further settings for the agent."""


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and what stands behind the first `--`."""
    words = list(argv)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def read(parser: Parser, own: Sequence[str]) -> argparse.Namespace:
    """The options; ends the process if they are wrong."""
    options, unknown = parser.parse_known_args(own)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (COMMAND follows a `--`)")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    """Raises `SpecErrors`."""
    return resolve(
        {
            "zookeeper": options.zookeeper,
            "session_timeout": options.session_timeout,
            "tick": options.tick,
            "node": options.name,
            "root": getattr(options, "root", None),
        },
        called={"node": "--name"},
    )


def _program_problem(command: Sequence[str]) -> str:
    """Why COMMAND cannot be started here, "" if nothing is known of that."""
    if command and shutil.which(command[0]) is None:
        if "/" in command[0] and Path(command[0]).is_dir():
            inside = f"{command[0].rstrip('/')}/PROGRAM"
            return f"{command[0]} is a directory: name the program in it, as in {inside}"
        if "/" in command[0] and Path(command[0]).exists():
            return f"{command[0]} cannot be executed: `chmod +x {command[0]}`, or name what runs it"
        where = "here" if "/" in command[0] else f"in PATH ({os.environ.get('PATH', '')})"
        return f"{command[0]}: there is no such program {where}"
    return ""


def wrap(wrapping: Wrapping) -> int:
    """Stand, run COMMAND, and everything until its proven end; the exit code."""
    options, settings, command = wrapping.options, wrapping.settings, wrapping.command
    if wrong := _program_problem(command):
        say(wrong)
        return NOT_FOUND
    isolation, wrong = _isolation(options.isolation) if command else ("swept", "")
    if wrong:
        say(wrong)
        return wrapping.usage
    timeout = getattr(options, "timeout", None)
    began_at = SYSTEM.boottime()
    patience = math.inf if timeout is None else timeout or CONNECT_TIME
    try:
        hosts = settings.hosts()
        credentials = settings.credentials()
        tls = credentials.tls()
        refuse_clear_text(hosts, credentials)
        asked = settings.session_timeout, settings.tick
        seen = times(hosts, *asked, say, patience=patience, tls=tls)
    except IncumbentError as error:
        return failed(error, wrapping.usage)
    except KeyboardInterrupt:
        return interrupted()

    for name in ("INCUMBENT_TOKEN", "INCUMBENT_PERIOD"):
        os.environ.pop(name, None)  # of the wrapper that we ourselves run under
    voice = _Voice(tells_code=wrapping.errand == "elect")
    code = run(
        module("incumbent.agent", "--wrapped"),
        settings={
            "errand": wrapping.errand,
            "path": wrapping.path,
            "hosts": hosts,
            "name": settings.node,
            "session_timeout": seen.session_timeout,
            "tick": seen.tick,
            "stop_grace": options.stop_grace,
            "isolation": isolation,
            "command": list(command),
            "cwd": str(Path.cwd()),
            "give_up_at": None if timeout is None else began_at + patience,
            "waits": timeout != 0,
            "credentials": credentials.to_json(),
            "root": settings.root,
            **wrapping.more,
        },
        policy=Policy.RELEASE,
        beat=seen.session_timeout / 10,
        session_timeout=seen.session_timeout,
        tell=voice,
    )
    if wrapping.errand == "elect" or voice.has_bye:
        return code
    return 128 + voice.signal if voice.signal else LOST


class _Voice:
    """What the guardian says: what its agent cannot, which is its own end and what comes of it.

    `has_bye`: the agent has said what the exit code is; `signal`: by which we were told to stop.
    Told to stop before its agent was there at all, it has nothing to say.
    """

    def __init__(self, *, tells_code: bool) -> None:
        self.has_bye = self._is_alone = self._has_begun = False
        self._tells_code = tells_code
        self.signal = 0

    def __call__(self, thing: Event | Action) -> str:
        if isinstance(thing, Received) and isinstance(thing.message, Bye):
            self.has_bye = True
        self._has_begun = self._has_begun or isinstance(thing, Received)
        if isinstance(thing, AgentDied) and not self.has_bye:
            self._is_alone = True
        if isinstance(thing, ShutdownAsked):
            self.signal = self.signal or getattr(signal, thing.why, signal.SIGTERM)
        if isinstance(thing, Exit) and not self._tells_code:
            return "" if self.has_bye or self.signal else "what ran is proven dead"
        is_ours = isinstance(thing, KillAgent) and thing.why != "its link is closed"
        if self.signal and not self._has_begun:
            return ""
        return words.of(thing) if self._is_alone or is_ours else ""


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that all three have."""
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…", help="where ZooKeeper is")
    parser.add_argument(
        "--name", metavar="NAME", help="what our znode says who we are (default: the node's name)"
    )
    parser.add_argument(
        "--session-timeout",
        metavar="S",
        type=float,
        help="seconds out of touch after which somebody else may have it (default 10 on a single "
        "server, 30 on an ensemble)",
    )
    parser.add_argument(
        "--tick",
        metavar="S",
        type=float,
        help="the servers' tickTime in seconds, 0 for a single server (seen from it by default)",
    )
    parser.add_argument(
        "--isolation",
        choices=("sealed", "swept"),
        help="how COMMAND is contained (default: sealed where this system allows it)",
    )
    parser.add_argument(
        "--stop-grace",
        metavar="S",
        type=_seconds,
        help="seconds between SIGTERM and SIGKILL (default: as many as the session timeout "
        "leaves room for, at most 3 of 10 or 10 of 30)",
    )


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """What `lock` and `once` have besides."""
    parser.add_argument("--root", metavar="PATH", help="the znode of everything (/incumbent)")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        help="wait at most so many seconds, then exit with 124; 0: for nobody at all",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="say nothing where all is as it should be"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 0, got {text!r}")
    return seconds


def _isolation(wanted: str | None) -> tuple[str, str]:
    """The containment for COMMAND, and what is wrong with it."""
    found = probe()
    for name in (wanted,) if wanted else ("sealed", "swept"):
        if not found[name]:
            if wanted is None and name == "swept":
                say(f"COMMAND is swept, not sealed: {found['sealed']} (see --help)")
            return name, ""
    first = wanted or "swept"
    return first, f"--isolation {first} is impossible on this system: {found[first]}"
