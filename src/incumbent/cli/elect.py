"""`incumbent elect PATH -- COMMAND`: run COMMAND while leading an election.

Rule of this file: arguments in; what happens then is `wrapped`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from incumbent.cli.exits import USAGE, Parser, failed, say
from incumbent.cli.wrapped import Wrapping, add_common, read, settings_of, split, wrap
from incumbent.errors import IncumbentError
from incumbent.wire import paths

__all__ = ["main"]

_EPILOG = """\
Three terminals, the same command: one leads, each of the others watches the one before it. End
the leader and the next one takes over; the others hear nothing. Every 5 s and at each change one
line on stdout says which role this one has; everything else is on stderr.

COMMAND runs while this one leads, in this folder and environment, its output here and its input
empty. In its environment INCUMBENT_SEAT is PATH, INCUMBENT_NODE the --name, and INCUMBENT_EPOCH
a fencing token: larger at each new leader (the czxid of its znode); INCUMBENT_TOKEN is the same, and
INCUMBENT_DEADLINE_FILE as under `incumbent lock`. Leadership lost: COMMAND gets SIGTERM, after the
grace SIGKILL, and is dead before anyone else can lead. COMMAND ended: so has elect, with its exit
code, and the next one leads. Ctrl-C: COMMAND is stopped, and elect ends.

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
    own, command = split(argv)
    options = read(_parser(), own)
    if wrong := paths.problem(options.path):
        say(f"{options.path!r} is no znode's path: {wrong}; expected one like /election")
        return USAGE
    try:
        settings = settings_of(options)
    except IncumbentError as error:
        return failed(error, USAGE)
    return wrap(
        Wrapping(
            errand="elect",
            path=options.path,
            command=command,
            settings=settings,
            options=options,
            usage=USAGE,
            more={"every": options.every},
        )
    )


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent elect",
        usage="incumbent elect PATH [options] [-- COMMAND …]",
        description="Stand in an election; run COMMAND only while leading.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="the election's znode, such as /election")
    add_common(parser)
    parser.add_argument("--every", metavar="S", type=float, default=5.0, help=argparse.SUPPRESS)
    return parser
