"""The commands that people read the answer of: arguments in, text out.

Rule of this file: nothing but arguments, calls and printing. What a command does stands in
`cluster`, `explain`, `orders`, `local`, `logs`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from incumbent.agent.tree import Tree
from incumbent.cli import apply_plan, local, orders, show
from incumbent.cli.cluster import connected, read_cluster
from incumbent.cli.config import config_app
from incumbent.cli.dispatch import LASTING, dispatch
from incumbent.cli.doctor import doctor
from incumbent.cli.exits import DONE, USAGE, No, Usage, failed, interrupted, say
from incumbent.cli.explain import node_rows, seat_rows, title
from incumbent.cli.init import init
from incumbent.cli.logs import logs
from incumbent.cli.options import AsOutput, Data, Hosts, Output, Root
from incumbent.cli.pausing import pause, resume
from incumbent.cli.screen import print_table
from incumbent.cli.srvr import times
from incumbent.cli.status import status
from incumbent.cli.stop_start import freeze, move, restart, retry, signal, start, stop, unfreeze
from incumbent.cli.together import barrier_app, queue_app
from incumbent.cli.why import RUNS, why
from incumbent.cli.zk import zk_app
from incumbent.errors import IncumbentError, NumbersDontFit, SpecError, SpecErrors
from incumbent.lease import Numbers
from incumbent.settings import Settings, resolve
from incumbent.spec import Spec, read_specs, settings_of

__all__ = ["app", "run_typer"]

WOULD_CHANGE = 2
"""Exit code of `apply --plan`."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Runs each of your programs on exactly one machine at a time.",
    epilog="Exit codes: 0 done or yes, 1 no, 2 usage, 3 ZooKeeper unreachable, 4 timed out.",
)
node_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The machines: list, confirm-dead."
)
app.add_typer(node_app, name="node")
app.add_typer(config_app, name="config")
app.add_typer(zk_app, name="zk")
app.add_typer(queue_app, name="queue")
app.add_typer(barrier_app, name="barrier")


def run_typer(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(list(argv), prog_name="incumbent", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return interrupted()
    except IncumbentError as error:
        return failed(error)
    except BrokenPipeError:
        sys.stdout = None  # whoever read us has gone: nothing to flush
        return DONE
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(usage())
            return USAGE
        say(_what_is_wrong(usage(), _where(error)))
        return USAGE
    return code if isinstance(code, int) else DONE


def _what_is_wrong(message: str, command: str) -> str:
    """What typer has to say, as a clause, and where to read on."""
    text = message.rstrip(".")
    end = "" if text.endswith("?") else ";"
    return f"{text[:1].lower()}{text[1:]}{end} `{command} --help` shows what there is"


def _where(error: Exception) -> str:
    """The command that was called wrongly, as it is typed."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "incumbent"


def _run(work: Coroutine[Any, Any, int]) -> None:
    raise typer.Exit(asyncio.run(work))


def _settings(hosts: str | None, root: str | None, data: Path | None = None) -> Settings:
    return resolve({"zookeeper": hosts, "root": root, "data": data})


@app.command("why")
def why_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A component, or a seat of it: web/1 (default: all but what runs)."
        ),
    ] = None,
    zookeeper: Hosts = None,
    root: Root = None,
    data: Data = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """Why it is so: cause, evidence, what is awaited, next.

    Without NAME: of everything that does not simply run. Exit code 1 if NAME is none of the
    components.
    """
    settings = _settings(zookeeper, root, data)
    tree = Tree(settings.root)

    async def work() -> int:
        async with connected(settings) as client:
            cluster = await read_cluster(client, tree)
        rows = seat_rows(cluster, local.ask_all(settings.agent_folders), now=time.time())
        if name is None:
            rows = [row for row in rows if row.case not in RUNS]
        else:
            rows = [row for row in rows if name in (row.component, f"{row.component}/{row.seat}")]
            if not rows:
                raise No(f"there is no component {name}; `incumbent status` lists all")
        told = [why(cluster, row, tree, time.time()) for row in rows]
        if output is Output.JSON:
            print(json.dumps([asdict(each) for each in told], indent=2, ensure_ascii=False))
        elif told:
            print("\n\n".join(map(str, told)))
        else:
            say("everything that there is runs; `incumbent why NAME` tells of one")
        return DONE

    _run(work())


@app.command()
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

    _run(work())


@app.command()
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
    settings = _settings(zookeeper, root)

    async def work() -> int:
        async with connected(settings) as client:
            await orders.remove(client, Tree(settings.root), name, timeout=timeout, say=say)
        print(f"{name} is removed")
        return DONE

    _run(work())


app.command()(init)

for _looking in (status, pause, resume):
    app.command()(_looking)
for _ordering in (stop, start, restart, signal, move, freeze, unfreeze, retry):
    app.command()(_ordering)
app.command()(doctor)
app.command()(logs)


@node_app.command("list")
def node_list(zookeeper: Hosts = None, root: Root = None, output: AsOutput = Output.TABLE) -> None:
    """The live nodes, and dead ones that may still run something."""
    settings = _settings(zookeeper, root)

    async def work() -> int:
        async with connected(settings) as client:
            rows = node_rows(await read_cluster(client, Tree(settings.root)), time.time())
        if output is Output.JSON:
            print(show.to_json(rows))
        elif rows:
            now = time.time()
            print_table(show.NODE_HEADS, [show.node_cells(row, now) for row in rows])
        else:
            say("there is no node; start one with `incumbent agent`")
        return DONE

    _run(work())


@node_app.command("confirm-dead")
def node_confirm_dead(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node that is gone.")],
    yes: Annotated[
        str | None, typer.Option("--yes", metavar="NODE", help="The name again, to not be asked.")
    ] = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Say that a machine is dead for certain: others take over.

    Only where its programs were `contained` or `swept` this is needed. If the machine still runs them, two
    instances will run: switch it off first. Refused while the node's session is alive.
    """
    settings = _settings(zookeeper, root)

    async def work() -> int:
        tree = Tree(settings.root)
        async with connected(settings) as client:
            cluster = await read_cluster(client, tree)
            crumbs = orders.breadcrumbs_of(cluster, node)
        for seat, crumb in crumbs:
            where = f"epoch {crumb.epoch}, {crumb.containment}"
            say(f"{title(cluster, seat)} ({where}) may still run on {node}")
        _certain(node, yes)
        async with connected(settings) as client:
            freed = await orders.confirm_dead(client, tree, await read_cluster(client, tree), node)
        for seat, crumb in freed:
            print(f"freed {title(cluster, seat)} (epoch {crumb.epoch})")
        return DONE

    _run(work())


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


def _certain(node: str, yes: str | None) -> None:
    """The operator says the name again. Raises `No`."""
    if yes is None:
        if not sys.stdin.isatty():
            raise Usage(f"there is nobody to ask; if {node} is dead, say so: --yes {node}")
        say(f"type {node} again if that machine is switched off or its programs are ended:")
        yes = sys.stdin.readline().strip()
    if yes != node:
        raise No(f"{yes or 'nothing'} is not {node}: nothing was changed")


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


def _stub(name: str) -> Callable[[typer.Context], None]:
    def lasting(context: typer.Context) -> None:
        raise typer.Exit(dispatch([name, *context.args]))

    return lasting


for _name, _lasting in LASTING.items():
    app.command(
        _name,
        help=_lasting.help,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_stub(_name))
