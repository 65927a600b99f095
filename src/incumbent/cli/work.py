"""`incumbent work run --source COMMAND --path PATH -- HANDLER {id}`, and what is done by hand.

Rule of this file: arguments in; what runs is `agent.working`'s, what is read or written by hand is
the library's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from incumbent.agent.exit_codes import CANNOT
from incumbent.cli.exits import DONE, NO, USAGE, Parser, failed, interrupted, say
from incumbent.cli.stdio import shown
from incumbent.cli.wrapped import (
    CONNECT_TIME,
    Wrapping,
    add_common,
    read,
    settings_of,
    split,
    wrap,
)
from incumbent.errors import IncumbentError, MalformedValue, SpecError
from incumbent.wire import paths

if TYPE_CHECKING:
    from incumbent.sync import Work

__all__ = ["main"]

_EPILOG = """\
The source is a shell's command that prints items, one a line; it is called again and again, and may
print what is done already or somebody else's. For each item that is ours HANDLER is started, with
{id} in its arguments in place of the item (no shell is between). In its environment:

INCUMBENT_ITEM   the item
INCUMBENT_KEY    an idempotency key: the same for every try of this item, on every machine
INCUMBENT_TOKEN  a fencing token: larger for each later claim on the item
INCUMBENT_TRY    how often it was begun, this time included

Exit code 0: done, and nobody begins the item again for --keep-done seconds. Any other: a failure,
tried again after 1, 2, 4, … 60 s by whoever comes first, and after --tries failures parked:
`incumbent work parked` shows why, `work retry` frees it, `work done` marks it as done.

HANDLER must read again whether its item is still to be done: the list may be old. A claim is lost:
HANDLER gets SIGTERM, after the grace SIGKILL, and is dead before anyone else can begin the item.
SIGTERM or Ctrl-C to work: nothing more is begun, handlers are stopped so, their items given back.

exit codes: 0 stopped in order, or with --until-empty all is done; 1 with --until-empty something
was parked, or the guardian was killed; 125 usage, or it cannot go on; 127 HANDLER cannot be started
"""


def main(argv: Sequence[str]) -> int:
    """`run`, `parked`, `retry` or `done`; returns the exit code."""
    verb = argv[0] if argv else "--help"
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        "run": _run,
        "parked": _parked,
        "retry": _retry,
        "done": _done,
    }
    if verb in verbs:
        return verbs[verb](argv[1:])
    if verb in ("--help", "-h", "help"):
        print(
            "usage: incumbent work run|parked|retry|done …\n\n"
            "  run     do each item that a command prints once, by a command\n"
            "  parked  the items that failed too often, and why\n"
            "  retry   let parked items be begun again\n"
            "  done    mark items as done\n\n"
            "each has --help"
        )
        return DONE
    say(f"{verb!r} is not one of run, parked, retry, done; `incumbent work --help` shows them")
    return USAGE


def _run(argv: Sequence[str]) -> int:
    own, command = split(argv)
    parser = Parser(
        prog="incumbent work run",
        usage="incumbent work run --source COMMAND --path PATH [options] -- HANDLER {id} …",
        description="Do each item that a command prints once, on one of all machines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_code = CANNOT
    parser.add_argument(
        "--source", metavar="COMMAND", required=True, help="a shell's command that prints items"
    )
    _add_path(parser)
    parser.add_argument(
        "-j", "--workers", metavar="N", type=_number, default=1, help="handlers at a time (1)"
    )
    parser.add_argument(
        "--tries", metavar="N", type=_number, default=5, help="failures until it is parked (5)"
    )
    parser.add_argument(
        "--lag",
        metavar="S",
        type=_seconds,
        default=1.0,
        help="seconds by which what HANDLER reads may be behind (1)",
    )
    parser.add_argument(
        "--keep-done",
        metavar="S",
        type=_seconds,
        default=600.0,
        help="seconds for which a done item is remembered (600)",
    )
    parser.add_argument(
        "--idle",
        metavar="S",
        type=_seconds,
        default=1.0,
        help="seconds between two looks at a source with nothing to begin (1)",
    )
    parser.add_argument(
        "--until-empty", action="store_true", help="end when all that is printed is done or parked"
    )
    parser.add_argument(
        "--metrics-file",
        metavar="FILE",
        default="",
        help="write counters there for Prometheus, as in node_exporter's textfile folder",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of how it goes on")
    add_common(parser)
    options = read(parser, own)
    if not command:
        parser.error("a HANDLER is missing: incumbent work run … -- HANDLER {id}")
    if options.keep_done < 2 * options.lag or options.idle <= 0:
        parser.error("--keep-done must be at least twice --lag, and --idle more than 0")
    try:
        settings = settings_of(options)
    except IncumbentError as error:
        return failed(error, CANNOT)
    return wrap(
        Wrapping(
            errand="work",
            path=options.path,
            command=command,
            settings=settings,
            options=options,
            usage=CANNOT,
            more={
                "quiet": options.quiet,
                "work": {
                    "source": options.source,
                    "workers": options.workers,
                    "tries": options.tries,
                    "lag": options.lag,
                    "keep_done": options.keep_done,
                    "idle": options.idle,
                    "until_empty": options.until_empty,
                    "metrics_file": options.metrics_file
                    and str(Path(options.metrics_file).absolute()),
                },
            },
        )
    )


def _parked(argv: Sequence[str]) -> int:
    parser = Parser(prog="incumbent work parked", description="The items that failed too often.")
    _add_by_hand(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = read(parser, argv)

    def show(work: Work) -> int:
        found = work.parked()
        if options.output == "json":
            keys = ("item", "failures", "tries", "why")
            print(json.dumps([{key: getattr(each, key) for key in keys} for each in found]))
        elif not found:
            say(f"nothing is parked at {options.path}")
        for each in found if options.output == "table" else ():
            print(f"{each.item}\t{each.failures} failures\t{each.why}")
        return DONE

    return _by_hand(options, show)


def _retry(argv: Sequence[str]) -> int:
    parser = Parser(prog="incumbent work retry", description="Let items be begun as if new.")
    _add_by_hand(parser)
    parser.add_argument("item", metavar="ITEM", nargs="*", help="which (or --parked)")
    parser.add_argument("--parked", action="store_true", help="all that are parked")
    options = read(parser, argv)
    if bool(options.item) == options.parked:
        parser.error("give items, or --parked for all that are")

    def retry(work: Work) -> int:
        items = [each.item for each in work.parked()] if options.parked else options.item
        unknown = [item for item in items if work.look(item) is None]
        for item in items:
            if item not in unknown:
                work.retry(item)
        say(f"{len(items) - len(unknown)} can be begun again")
        if unknown:
            say(
                f"nothing is known of {', '.join(unknown)} at {options.path}; `incumbent work parked "
                f"--path {options.path}` lists what is parked"
            )
            return NO
        return DONE

    return _by_hand(options, retry)


def _done(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="incumbent work done", description="Mark items as done, so that nobody begins them."
    )
    _add_by_hand(parser)
    parser.add_argument("item", metavar="ITEM", nargs="+", help="which")
    options = read(parser, argv)

    def done(work: Work) -> int:
        for item in options.item:
            work.done(item)
        say(f"{len(options.item)} marked as done")
        return DONE

    return _by_hand(options, done)


def _by_hand(options: argparse.Namespace, act: Callable[[Work], int]) -> int:
    """With a session of our own; the exit code."""
    from incumbent import sync

    try:
        settings = settings_of(options)
        credentials = settings.credentials()
        with sync.connect(settings.hosts(), timeout=CONNECT_TIME, **credentials.for_client()) as zk:
            return shown(lambda: act(zk.work(options.path)))
    except (MalformedValue, ValueError) as error:
        say(str(error))
        return NO
    except SpecError as error:
        return failed(error, USAGE)
    except IncumbentError as error:
        return failed(error)
    except KeyboardInterrupt:
        return interrupted()


def _add_by_hand(parser: Parser) -> None:
    _add_path(parser)
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…", help="where ZooKeeper is")
    parser.set_defaults(session_timeout=None, tick=None, name=None)


def _add_path(parser: Parser) -> None:
    parser.add_argument(
        "--path", metavar="PATH", type=_path, required=True, help="the work's znode, as /settlement"
    )


def _path(text: str) -> str:
    if wrong := paths.problem(text) or ("it is everybody's" if text == "/" else ""):
        raise argparse.ArgumentTypeError(f"{text!r} is no znode's path: {wrong}")
    return text


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10_000):
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 0, got {text!r}")
    return seconds
