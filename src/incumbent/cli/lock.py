"""`incumbent lock NAME -- COMMAND`: run COMMAND while holding a lock.

Rule of this file: arguments in; what happens then is `wrapped`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from incumbent.agent.exit_codes import CANNOT
from incumbent.cli.exits import Parser, failed, say
from incumbent.cli.wrapped import (
    Wrapping,
    add_common,
    add_waiting,
    read,
    settings_of,
    split,
    wrap,
)
from incumbent.errors import IncumbentError
from incumbent.settings import name_problem
from incumbent.wire import paths

__all__ = ["main"]

_EPILOG = """\
NAME is a name, or a znode's path that begins with / (kazoo's Lock of that path is the same one).
COMMAND runs while we have the lock, in this folder and environment, its output here and its input
empty. In its environment:

INCUMBENT_TOKEN          a fencing token: larger at each new holder (the czxid of its znode)
INCUMBENT_DEADLINE_FILE  a file with one number, renewed with each beat: seconds on the clock of
                         /proc/uptime at which COMMAND is killed if ZooKeeper is not heard again
INCUMBENT_SEAT, INCUMBENT_NODE, INCUMBENT_EPOCH
                         the lock's path, the --name, a number that no other run here has

--shared: several may have it, as long as nobody has it alone; who asks for it alone waits for them,
and those who come later wait for him. --limit N: N at a time, in the order of arrival. The first one
to use NAME says how many; later the number in its znode counts, which `incumbent zk set` changes,
for those who wait too. Neither has a fencing token: there is no INCUMBENT_TOKEN.

The lock is lost: COMMAND gets SIGTERM, after the grace SIGKILL, and is dead before anyone else can
have it. SIGTERM or Ctrl-C to lock: COMMAND is stopped, proven dead, and the lock released, in this
order. Killed: as `incumbent elect --help` has it in its table.

exit codes: COMMAND's, or 128 + its signal; 120 the lock was lost and COMMAND stopped; 124 not had
within --timeout; 125 usage, or it cannot go on; 127 COMMAND could not be started; 128 + the signal
that ended us before COMMAND was started
"""


def main(argv: Sequence[str]) -> int:
    """Wait for the lock, run COMMAND; returns the exit code."""
    own, command = split(argv)
    parser = _parser()
    options = read(parser, own)
    if options.shared and options.limit:
        parser.error("--shared has no number, and --limit is shared by nature: give one of them")
    if not command:
        parser.error(f"a COMMAND is missing: incumbent lock {options.lock} -- COMMAND …")
    try:
        settings = settings_of(options)
    except IncumbentError as error:
        return failed(error, CANNOT)
    path = options.lock
    if path.startswith("/"):
        wrong = paths.problem(path) or ("it is everybody's" if path == "/" else "")
    else:
        wrong = name_problem(path) or ""
        path = f"{settings.root}/locks/{path}"
    if wrong:
        say(
            f"{options.lock!r} is no lock's name: {wrong}; or a znode's path, such as /locks/backup"
        )
        return CANNOT
    return wrap(
        Wrapping(
            errand="lock",
            path=path,
            command=command,
            settings=settings,
            options=options,
            usage=CANNOT,
            more={"quiet": options.quiet, "shared": options.shared, "limit": options.limit},
        )
    )


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent lock",
        usage="incumbent lock NAME [options] -- COMMAND …",
        description="Run COMMAND while holding a lock: nowhere else does another one run under it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_code = CANNOT
    parser.add_argument("lock", metavar="NAME", help="the lock's name, or its znode's path")
    parser.add_argument(
        "--shared", action="store_true", help="beside others that share it, but nobody else"
    )
    parser.add_argument(
        "--limit", metavar="N", type=_limit, default=0, help="so many may have it at a time"
    )
    add_waiting(parser)
    add_common(parser)
    return parser


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 999999, got {text!r}")
    return int(text)
