"""`incumbent once KEY -- COMMAND`: run COMMAND once, ever or in each period, on one of N machines.

Rule of this file: arguments in; what happens then is `wrapped`'s, or `once_history`'s. The period
is chosen here, at the start, by this machine's clock: what comes later changes nothing about it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from incumbent.agent.exit_codes import CANNOT
from incumbent.agent.period import DAY, Every, duration
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
from incumbent.clock import SYSTEM
from incumbent.errors import IncumbentError
from incumbent.settings import name_problem

__all__ = ["main"]

_EPILOG = """\
The same line on every machine, in cron too:

  0 * * * *  /usr/local/bin/incumbent once report --every 1h --quiet -- /usr/local/bin/report

The first one to come runs COMMAND. The others wait for its end, and then exit with the code that
it had; whoever comes later does so at once. If the machine that runs it dies, the run is
interrupted: that is written down, and by default nothing is run again, since nobody knows how far
it came. With --if-interrupted retry one of those that wait, or the next to come, runs it again.

Without --every: once, and never again. With it: once in each period, which begin where the clock
says (--every 1h on the hour, 1d at midnight UTC or that of --zone, 1w on Monday). This machine's
clock says at the start which period it is. Clocks may differ by up to half a period; a period that
is older than one that has been run is never run any more.

COMMAND runs as under `incumbent lock`, with the same environment, and INCUMBENT_PERIOD: the period's
begin, such as 2026-11-27T23:00:00Z. Stopped by SIGTERM to once, or because ZooKeeper is gone, it is
interrupted. With any exit code of its own, it is done.

exit codes: COMMAND's, whoever ran it, or 128 + its signal; with --if-done CODE that where it was
done before; 120 COMMAND was stopped, since ZooKeeper was gone; 121 it was interrupted before, and
nothing is run; 124 not done by the others within --timeout; 125 usage, or it cannot go on; 127
COMMAND could not be started; 128 + the signal that ended us before COMMAND was started
"""


def main(argv: Sequence[str]) -> int:
    """Run it, or find it done; returns the exit code."""
    own, command = split(argv)
    parser = _parser()
    options = read(parser, own)
    is_asked = options.history or options.forget
    if wrong := name_problem(options.key):
        say(f"{options.key!r} is no key: {wrong}")
        return CANNOT
    if options.history and options.forget:
        parser.error("--history shows the runs, --forget forgets them: give one of them")
    if not (command or is_asked):
        parser.error(f"a COMMAND is missing: incumbent once {options.key} -- COMMAND …")
    now = SYSTEM.wall()
    try:
        every = _every(options)
        period = every.start(now) if every is not None else ""
        settings = settings_of(options)
    except IncumbentError as error:
        return failed(error, CANNOT)
    except ValueError as error:
        say(str(error))
        return CANNOT
    if is_asked:
        from incumbent.cli.once_history import ask

        return ask(settings, options.key, is_json=options.output == "json", forget=options.forget)
    record = f"{settings.root}/once/{options.key}"
    return wrap(
        Wrapping(
            errand="once",
            path=f"{record}/line",
            command=command,
            settings=settings,
            options=options,
            usage=CANNOT,
            more={
                "quiet": options.quiet,
                "once": {
                    "key": options.key,
                    "record": record,
                    "period": period,
                    "length": float(every.seconds) if every is not None else 0.0,
                    "every": str(every) if every is not None else "",
                    "retry": options.if_interrupted == "retry",
                    "if_done": options.if_done,
                },
            },
        )
    )


def _every(options: argparse.Namespace) -> Every | None:
    """Raises ValueError, with what was expected."""
    if options.every is None:
        if options.zone is not None:
            raise ValueError("--zone says where the days of --every begin: give --every 1d as well")
        return None
    try:
        seconds = duration(options.every)
    except ValueError as error:
        raise ValueError(f"--every: {error}") from None
    if options.zone is None:
        return Every(seconds)
    if seconds % DAY:
        raise ValueError(f"--zone is for periods of whole days, --every {options.every} is none")
    try:
        ZoneInfo(options.zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"--zone {options.zone}: this machine knows no such time zone; expected a name such "
            "as Europe/Berlin (on Debian they come with the package tzdata)"
        ) from None
    return Every(seconds, options.zone)


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 256):
        raise argparse.ArgumentTypeError(f"expected an exit code from 0 to 255, got {text!r}")
    return int(text)


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent once",
        usage="incumbent once KEY [options] -- COMMAND …",
        description="Run COMMAND once, ever or in each period, on one of all machines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_code = CANNOT
    parser.add_argument("key", metavar="KEY", help="what it is, the same name on all machines")
    parser.add_argument(
        "--every", metavar="PERIOD", help="once in each period: 30s, 15m, 1h, 1d, 1w, …"
    )
    parser.add_argument(
        "--zone", metavar="NAME", help="where days begin, such as Europe/Berlin (UTC)"
    )
    parser.add_argument(
        "--if-interrupted",
        choices=("fail", "retry"),
        default="fail",
        help="whether a run of which no end is known is run again (fail: exit with 121)",
    )
    parser.add_argument(
        "--if-done",
        metavar="CODE",
        type=_code,
        help="exit with CODE if it was done before (default: as it did)",
    )
    parser.add_argument(
        "--history", action="store_true", help="show the newest runs, and run nothing"
    )
    parser.add_argument("--forget", action="store_true", help="forget the runs, and run nothing")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="of --history"
    )
    add_waiting(parser)
    add_common(parser)
    return parser
