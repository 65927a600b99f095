"""The commands that people read the answer of: which there are, and how one of them is run.

Whoever waits for `incumbent status` does not wait for what the other thirty commands import: a command
line is parsed by an app that has only the command that it names. Its help, and what it says of a
name that is none, is that of all.

Rule of this file: no command's module is imported before it is known to be needed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import typer

from incumbent.cli.dispatch import LASTING, dispatch
from incumbent.cli.exits import DONE, USAGE, failed, interrupted, say
from incumbent.cli.stdio import shown
from incumbent.errors import IncumbentError

__all__ = ["GROUPS", "SINGLE", "app_of", "run_typer"]

GROUPS = {
    "node": "nodes:node_app",
    "config": "config:config_app",
    "zk": "zk:zk_app",
    "queue": "together:queue_app",
    "barrier": "together:barrier_app",
}
SINGLE = {
    "why": "why_command:why",
    "apply": "applying:apply",
    "remove": "applying:remove",
    "init": "init:init",
    "status": "status:status",
    "pause": "pausing:pause",
    "resume": "pausing:resume",
    "stop": "stop_start:stop",
    "start": "stop_start:start",
    "restart": "stop_start:restart",
    "signal": "stop_start:signal",
    "move": "stop_start:move",
    "freeze": "stop_start:freeze",
    "unfreeze": "stop_start:unfreeze",
    "retry": "stop_start:retry",
    "doctor": "doctor:doctor",
    "logs": "logs:logs",
}
"""In the order of the help; each with its module in this package, and its name in it."""


def run_typer(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    return shown(partial(_run, argv))


def _run(argv: Sequence[str]) -> int:
    known = GROUPS.keys() | SINGLE.keys()
    app = app_of(argv[:1] if argv[0] in known else known | LASTING.keys())
    try:
        code = app(list(argv), prog_name="incumbent", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return interrupted()
    except IncumbentError as error:
        return failed(error)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer's way with a reader who has gone
            raise end.__context__ from None
        raise  # of a command that parses its own options
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(usage())
            return USAGE
        say(_what_is_wrong(usage(), _where(error), _belonging(error)))
        return USAGE
    return code if isinstance(code, int) else DONE


def app_of(names: Collection[str]) -> typer.Typer:
    """An app with these commands."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="Runs each of your programs on exactly one machine at a time.",
        epilog="Exit codes: 0 done or yes, 1 no, 2 usage, 3 ZooKeeper unreachable, 4 timed out.",
    )
    app.callback()(lambda: None)  # else an app of one command takes its name for an argument
    for name in (each for each in GROUPS if each in names):
        app.add_typer(_found(GROUPS[name]), name=name)
    for name in (each for each in SINGLE if each in names):
        app.command(name)(_found(SINGLE[name]))
    for name in (each for each in LASTING if each in names):
        app.command(
            name,
            help=LASTING[name].help,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_stub(name))
    return app


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"incumbent.cli.{module}"), name)


def _stub(name: str) -> Callable[[typer.Context], None]:
    def lasting(context: typer.Context) -> None:
        raise typer.Exit(dispatch([name, *context.args]))

    return lasting


def _what_is_wrong(message: str, command: str, belonging: str) -> str:
    """What typer has to say, as a clause, and where to read on. `belonging`: a command below
    this one that has the option which this one lacks."""
    text = message.rstrip(".")
    if re.match(r"no such option: -\d", text, re.IGNORECASE):
        text += " (before a value that begins with -, write --)"
    elif belonging:
        text += f" (it goes behind a command, as in `{belonging} …`)"
    end = "" if text.endswith("?") else ";"
    return f"{text[:1].lower()}{text[1:]}{end} `{command} --help` shows what there is"


def _where(error: Exception) -> str:
    """The command that was called wrongly, as it is typed."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "incumbent"


def _belonging(error: Exception) -> str:
    """Of a group that was given an option of its commands: how one of them has it."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    for name, command in getattr(getattr(context, "command", None), "commands", {}).items():
        if any(option in parameter.opts for parameter in command.params):
            return f"{_where(error)} {name} {option}"
    return ""
