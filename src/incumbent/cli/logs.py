"""`incumbent logs`: what a component wrote, wherever it runs.

Rule of this file: what this machine has is shown even if nobody else can be asked, and it is said
when that may not be all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from incumbent.cli import local
from incumbent.cli.exits import No, Usage, say
from incumbent.cli.following import Following
from incumbent.cli.node_logs import CannotRead
from incumbent.cli.options import Data, Hosts, Root
from incumbent.errors import IncumbentError
from incumbent.settings import resolve
from incumbent.spec.health import HOOKS

__all__ = ["logs"]


def logs(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A component, or a seat of it: web/1.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="How many of the last lines.")
    ] = 100,
    hook: Annotated[
        str, typer.Option("--hook", metavar="HOOK", help="What this hook of it wrote: on_fail, …")
    ] = "",
    data: Data = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """What a component wrote, each line with its time.

    Its stdout and stderr, from the node where it runs, or ran last: from this machine's files, or
    over the network where that node shows its logs. With -f it goes on over restarts, and over to
    the next node when it moves. --data: only from the files in DIR.
    """
    if hook and hook not in HOOKS:
        raise Usage(f"there is no hook {hook}; there are: {', '.join(HOOKS)}")
    settings = resolve({"zookeeper": zookeeper, "root": root, "data": data})
    ended = [] if data is not None else [Path.cwd() / ".incumbent" / "agent"]  # an `up`, here
    folders = list(dict.fromkeys([*settings.agent_folders, *ended]))
    show = _Show(flush=follow)
    what = f"{hook} of {name}" if hook else name
    if data is None and settings.zookeeper is not None:
        wanted = Following(
            settings,
            name,
            count=lines,
            follow=follow,
            hook=hook,
            show=lambda seat, text: show(seat, text, len(wanted.seats) == 1),
            say=say,
        )
        try:
            asyncio.run(wanted.run())
            if not show.has_shown and lines:
                say(f"{what} has written nothing yet where it runs, or ran last")
            return
        except IncumbentError as error:
            found = local.find_logs(folders, name, hook)
            if not found or (show.has_shown and isinstance(error, CannotRead)):
                raise
            say(f"{error}; what follows is what this machine has of {what}")
    found = local.find_logs(folders, name, hook)
    if not found:
        raise No(_why_none(folders, what))
    if not any(path.exists() for path in found.values()):
        say(f"{what} has written nothing yet on this node")
    try:
        local.show_logs(
            found,
            lambda seat, text: show(seat, text, len(found) == 1),
            count=lines,
            follow=follow,
        )
    except PermissionError as error:
        raise No(f"{error.filename} cannot be read: it belongs to the agent's user") from None


class _Show:
    """Prints lines; with their seats, where there are several."""

    def __init__(self, *, flush: bool) -> None:
        self.has_shown = False
        self._flush = flush

    def __call__(self, seat: str, text: str, is_one: bool) -> None:
        self.has_shown = True
        print(text if is_one else f"{seat} | {text}", flush=self._flush)


def _why_none(folders: Sequence[Path], what: str) -> str:
    looked = ", ".join(map(str, folders))
    others = ", ".join(local.logged(folders))
    there_are = f"there are logs of: {others}; " if others else ""
    return (
        f"no log of {what} on this node (looked in {looked}); {there_are}"
        "`incumbent status` shows on which node it runs, --data names another directory"
    )
