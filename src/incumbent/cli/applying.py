"""`incumbent apply` and `remove`: which components there are.

Rule of this file: nothing but arguments, calls and printing; what is done stands in `orders`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import apply_plan, orders
from incumbent.cli.cluster import connected, read_cluster
from incumbent.cli.exits import DONE, No, Usage, say
from incumbent.cli.options import AsOutput, Hosts, Output, Root
from incumbent.cli.screen import print_table
from incumbent.cli.srvr import times
from incumbent.errors import NumbersDontFit, SpecError, SpecErrors
from incumbent.lease import Numbers
from incumbent.settings import resolve
from incumbent.spec import Spec, read_specs, settings_of

__all__ = ["apply", "remove"]

WOULD_CHANGE = 2
"""Exit code of `apply --plan`."""


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A component file, or Procfile.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Then remove the components that FILE lacks.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: do not ask.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Change nothing: print what would change."),
    ] = False,
    zookeeper: Hosts = None,
    root: Root = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """Declare the components of FILE; prints what changed.

    What the tree has and FILE lacks is listed, and goes on, but with --prune: then it is stopped, by
    proof, and removed. Relative paths are not allowed in FILE, since the nodes have other folders;
    for the FILE of a running `incumbent up` they are, as there.

    With --plan the exit code is 0 if FILE would change nothing, 2 if it would.
    """
    settings = settings_of(file, {"zookeeper": zookeeper, "root": root})
    runs_it = settings.runtime is not None and settings.runtime.file == str(file.absolute())
    specs = read_specs(file, folder=file.absolute().parent if runs_it else None)
    hosts = settings.hosts()

    async def work() -> int:
        asked = settings.session_timeout, settings.tick
        tls = settings.credentials().tls()
        seen = times(hosts, *asked, say, patience=5.0, tls=tls)
        async with connected(settings, session_timeout=seen.session_timeout) as client:
            numbers = _fit(file, specs, client.timeout, seen.tick)
            if plan:
                cluster = await read_cluster(client, Tree(settings.root))
                return _print_plan(apply_plan.planned(cluster, specs, prune=prune), output)
            extra = await orders.absent(client, Tree(settings.root), specs) if prune else []
            _certain_to_remove(extra, yes)
            changes = await orders.apply(client, Tree(settings.root), specs)
            for name in extra:
                await orders.remove(client, Tree(settings.root), name, timeout=60.0, say=say)
            changes = [orders.removed(c) if c.component in extra else c for c in changes]
        if output is Output.JSON:
            print(json.dumps([_change_object(each) for each in changes], indent=2))
        else:
            print_table(("component", "what"), [_change_cells(each) for each in changes])
        hint = "" if seen.tick is not None else "; longer, once `tick` (their tickTime) is set"
        say(
            f"with sessions of {numbers.session:g} s an outage of ZooKeeper up to "
            f"{numbers.tolerated_outage:.1f} s stops nothing{hint}"
        )
        return DONE

    raise typer.Exit(asyncio.run(work()))


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A component.")],
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for its end.")
    ] = 60.0,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Stop a component everywhere, by proof, and remove it.

    Its count of starts is kept: a component of that name goes on counting.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root})

    async def work() -> int:
        async with connected(settings) as client:
            await orders.remove(client, Tree(settings.root), name, timeout=timeout, say=say)
        print(f"{name} is removed")
        return DONE

    raise typer.Exit(asyncio.run(work()))


def _print_plan(plans: Sequence[apply_plan.Planned], output: Output) -> int:
    if output is Output.JSON:
        print(json.dumps([asdict(each) for each in plans], indent=2, ensure_ascii=False))
    else:
        for each in plans:
            print(apply_plan.text(each))
    is_change = any(each.is_change for each in plans)
    if not is_change:
        say("nothing would change")
    return WOULD_CHANGE if is_change else DONE


def _certain_to_remove(names: Sequence[str], yes: bool) -> None:
    """The operator has seen what is removed. Raises `No`, `Usage`."""
    if not names or yes:
        return
    say(f"FILE lacks: {', '.join(names)}; they are stopped and removed")
    if not sys.stdin.isatty():
        raise Usage("there is nobody to ask: say --yes, or leave --prune out. Nothing was changed")
    say("type yes to go on:")
    if sys.stdin.readline().strip() != "yes":
        raise No("nothing was changed")


def _fit(file: Path, specs: Sequence[Spec], session: float, tick: float | None) -> Numbers:
    """The system's numbers; a stop_grace that doesn't fit them is refused with the sum."""
    problems = []
    for spec in specs:
        try:
            Numbers.of(session, tick=tick, stop_grace=spec.stop_grace).fit()
        except NumbersDontFit as error:
            key = f"component.{spec.name}.stop_grace"
            problems.append(SpecError(str(file), 0, key, str(error)))
    if problems:
        raise SpecErrors(problems)
    return Numbers.of(session, tick=tick)


def _change_cells(change: orders.Change) -> tuple[str, str]:
    texts = {
        "changed": f"changed: {', '.join(change.keys)}",
        "absent": f"not in the file, goes on (`incumbent remove {change.component}` ends it)",
    }
    text = texts.get(change.what, change.what)
    return change.component, f"{text} (an operator stopped it)" if change.is_stopped else text


def _change_object(change: orders.Change) -> dict[str, Any]:
    return {"component": change.component, "what": change.what, "keys": list(change.keys)}
