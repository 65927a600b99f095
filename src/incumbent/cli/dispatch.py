"""From the words of a command line to the code that carries them out.

Rule of this file: what stays running (`server`, `agent`, `elect`, `lock`, `once`, `work`, `up`) is
started without typer, rich or any other command's imports; only the commands that people read pay
for them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from incumbent.agent.exit_codes import CANNOT
from incumbent.cli.exits import DONE, USAGE, say
from incumbent.cli.stdio import shown

__all__ = ["LASTING", "Lasting", "dispatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A command that stays running: `module` has `main(argv) -> int`."""

    module: str
    help: str
    needs: str = ""
    """A package of the [agent] extra that it cannot work without."""
    usage: int = USAGE
    """Its exit code for a call that cannot work; COMMAND may have any of the smaller ones."""


LASTING = {
    "up": Lasting(
        module="incumbent.cli.up",
        help="Run the components of FILE on this machine, until Ctrl-C.",
        needs="msgspec",
    ),
    "agent": Lasting(
        module="incumbent.cli.agent",
        help="Make this machine a node: run here what the others don't run.",
        needs="msgspec",
    ),
    "demo": Lasting(
        module="incumbent.cli.demo",
        help="See it on this machine: three nodes, real programs, faults.",
        needs="msgspec",
    ),
    "server": Lasting(module="incumbent.server.main", help="A ZooKeeper server for one machine."),
    "elect": Lasting(
        module="incumbent.cli.elect",
        help="Stand in an election; run a command only while leading.",
        needs="msgspec",
    ),
    "lock": Lasting(
        module="incumbent.cli.lock",
        help="Run a command while holding a lock.",
        needs="msgspec",
        usage=CANNOT,
    ),
    "work": Lasting(
        module="incumbent.cli.work",
        help="Do each item of a list once, by commands on several machines.",
        needs="msgspec",
        usage=CANNOT,
    ),
    "once": Lasting(
        module="incumbent.cli.once",
        help="Run a command once, or once a period, on one of all machines.",
        needs="msgspec",
        usage=CANNOT,
    ),
}


def dispatch(argv: Sequence[str], *, loaded: Callable[[], None] = lambda: None) -> int:
    """Run one command; returns the exit code. `loaded` is called when it begins."""
    name = argv[0] if argv else "--help"
    if name in ("--version", "-V"):
        return shown(lambda: _print(f"incumbent {_version()}"))
    lasting = LASTING.get(name)
    usage = USAGE if lasting is None else lasting.usage
    is_help = name in ("--help", "-h", "help")
    if not (is_help or _has_folder()):
        say("the folder that this was started in is gone; cd to one that is there, and try again")
        return usage
    if lasting is not None:
        if lasting.needs and find_spec(lasting.needs) is None:
            return _without_extra(f"`incumbent {name}`", usage)
        run = importlib.import_module(lasting.module).main
        loaded()
        return int(run(list(argv[1:])))
    if find_spec("typer") is None or find_spec("msgspec") is None:
        if is_help:
            return shown(_plain_help)
        return _without_extra(f"`incumbent {name}`", usage)
    from incumbent.cli.commands import run_typer

    loaded()
    return run_typer(argv or ["--help"])


def _print(text: str) -> int:
    print(text)
    return DONE


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("incumbent")
    except PackageNotFoundError:
        return "(not installed)"


def _has_folder() -> bool:
    """Settings, programs and files are looked for from there."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _without_extra(what: str, usage: int) -> int:
    say(f"{what} needs packages that are not installed: pip install 'incumbent[agent]'")
    return usage


def _plain_help() -> int:
    """The help of an installation without the [agent] extra."""
    print("usage: incumbent COMMAND …\n\nwithout the [agent] extra there is:")
    for name, lasting in LASTING.items():
        if not lasting.needs:
            print(f"  {name:8}  {lasting.help}")
    print("\nfor all commands: pip install 'incumbent[agent]'")
    return DONE
