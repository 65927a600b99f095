"""`incumbent elect PATH -- COMMAND`: what is checked and found out before standing.

Rule of this file: whatever is wrong is said before anything stands or runs; from then on this
process is the guardian (it is its pid that the shell shows), so it imports little.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from incumbent.cli.exits import USAGE, failed, interrupted, say
from incumbent.cli.process import module
from incumbent.cli.srvr import times
from incumbent.errors import IncumbentError
from incumbent.guardian import words
from incumbent.guardian.actions import Action, AgentDied, Event, KillAgent, Received
from incumbent.guardian.containment import probe
from incumbent.guardian.main import run
from incumbent.guardian.messages import Bye
from incumbent.guardian.table import Policy
from incumbent.settings import resolve
from incumbent.wire import paths

__all__ = ["main"]

_NOT_STARTED = 127

_EPILOG = """\
Three terminals, the same command: one leads, each of the others watches the one before it. End
the leader and the next one takes over; the others hear nothing. Every 5 s and at each change one
line on stdout says which role this one has; everything else is on stderr.

COMMAND runs while this one leads, in this folder and environment, its output here and its input
empty. In its environment INCUMBENT_SEAT is PATH, INCUMBENT_NODE the --name, and INCUMBENT_EPOCH
a fencing token: larger at each new leader (the czxid of its znode). Leadership lost: COMMAND gets
SIGTERM, after the grace SIGKILL, and is dead before anyone else can lead. COMMAND ended: so has
elect, with its exit code, and the next one leads. Ctrl-C: COMMAND is stopped, and elect ends.

PATH may be the directory of an election made by other programs (znodes like node_0000000007 or
n_0000000007, or kazoo's locks): elect names itself as they do. Nobody there: node_.

killed with SIGKILL                    what happens
elect's process (the pid you see)      COMMAND dies with it, the next one leads at once
its agent (the python child)           COMMAND is stopped, the next one leads, exit code 1
both at once                           COMMAND dies at once, the next one leads when the session
                                       has timed out

sealed: COMMAND has a PID namespace of its own, all of it dies with elect. swept: without one;
killing both processes at once can leave COMMAND running beside the next leader's.

exit codes: COMMAND's, or 128 + its signal; 127 it could not be started; 0 ended by Ctrl-C or
SIGTERM (130 before a server was found); 1 it cannot go on; 2 usage
"""


def main(argv: Sequence[str]) -> int:
    """Stand until COMMAND has ended or we are told to stop; returns the exit code."""
    own, command = _split(argv)
    parser = _parser()
    options, unknown = parser.parse_known_args(own)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (COMMAND follows a `--`)")
    if wrong := _problem(options.path, command):
        say(wrong)
        return _NOT_STARTED if command and wrong.startswith(command[0]) else USAGE
    try:
        settings = resolve(
            {
                "zookeeper": options.zookeeper,
                "session_timeout": options.session_timeout,
                "tick": options.tick,
                "node": options.name,
            }
        )
        hosts = settings.hosts()
    except IncumbentError as error:
        return failed(error, USAGE)
    isolation, wrong = _isolation(options.isolation) if command else ("swept", "")
    if wrong:
        say(wrong)
        return USAGE
    try:
        seen = times(hosts, settings.session_timeout, settings.tick, say)
    except KeyboardInterrupt:
        return interrupted()

    return run(
        module("incumbent.agent", "--elect"),
        settings={
            "path": options.path,
            "hosts": hosts,
            "name": settings.node,
            "session_timeout": seen.session_timeout,
            "tick": seen.tick,
            "stop_grace": options.stop_grace,
            "isolation": isolation,
            "command": command,
            "cwd": str(Path.cwd()),
            "every": options.every,
        },
        policy=Policy.RELEASE,
        beat=seen.session_timeout / 10,
        session_timeout=seen.session_timeout,
        tell=_Voice(),
    )


class _Voice:
    """What the guardian says: what its agent cannot, which is its own end and what comes of it."""

    def __init__(self) -> None:
        self._is_alone = self._has_bye = False

    def __call__(self, thing: Event | Action) -> str:
        if isinstance(thing, Received) and isinstance(thing.message, Bye):
            self._has_bye = True
        if isinstance(thing, AgentDied) and not self._has_bye:
            self._is_alone = True
        is_ours = isinstance(thing, KillAgent) and thing.why != "its link is closed"
        return words.of(thing) if self._is_alone or is_ours else ""


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and what stands behind the first `--`."""
    words = list(argv)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="incumbent elect",
        usage="incumbent elect PATH [options] [-- COMMAND …]",
        description="Stand in an election; run COMMAND only while leading.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="the election's znode, such as /election")
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…", help="where ZooKeeper is")
    parser.add_argument(
        "--name", metavar="NAME", help="what our znode says who we are (default: the node's name)"
    )
    parser.add_argument(
        "--session-timeout",
        metavar="S",
        type=float,
        help="seconds out of touch after which another one leads (default 10 on a single server, "
        "30 on an ensemble)",
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
        type=float,
        help="seconds between SIGTERM and SIGKILL (default: as many as the session timeout "
        "leaves room for, at most 3 of 10 or 10 of 30)",
    )
    parser.add_argument("--every", metavar="S", type=float, default=5.0, help=argparse.SUPPRESS)
    return parser


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


def _problem(path: str, command: Sequence[str]) -> str:
    """What is wrong with the arguments, "" if nothing is."""
    if wrong := paths.problem(path):
        return f"{path!r} is no znode's path: {wrong}; expected one like /election"
    if command and shutil.which(command[0]) is None:
        where = "here" if "/" in command[0] else f"in PATH ({os.environ.get('PATH', '')})"
        return f"{command[0]}: there is no such program {where}"
    return ""
