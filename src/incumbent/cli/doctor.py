"""`incumbent doctor`: would this machine be a good node, and of which ZooKeeper?

Rule of this file: everything is tried for real and nothing is changed: what works is said too, with
its figures; what does not, with what it costs and the next step.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Annotated

import typer

from incumbent.agent.home import HomeUnusable
from incumbent.agent.tree import Tree
from incumbent.cli import local
from incumbent.cli.cluster import connected, read_cluster
from incumbent.cli.exits import DONE, NO
from incumbent.cli.options import AsOutput, Data, Hosts, Output, Root
from incumbent.cli.screen import print_table
from incumbent.cli.srvr import ask_mode, host_of, times
from incumbent.errors import IncumbentError, NumbersDontFit
from incumbent.lease import Numbers
from incumbent.settings import Settings, resolve

__all__ = ["Finding", "doctor", "examine", "on_containments", "on_numbers"]

_FILES = 4096
"""Open files that a node with some hundred seats may need: four for each, and its sockets."""
_SPACE = 200 << 20
"""Bytes: two components' logs at their largest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`state` is ok, note (works, at a cost) or wrong."""

    state: str
    what: str
    found: str


def doctor(
    zookeeper: Hosts = None,
    root: Root = None,
    data: Data = None,
    stop_grace: Annotated[
        float | None,
        typer.Option("--stop-grace", metavar="SECONDS", help="Would this one fit the session?"),
    ] = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """What works here, and what does not.

    Containments, ZooKeeper's servers, a session and the sum of its times. Changes nothing. Exit
    code 1 if something is wrong.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root, "data": data})
    findings = list(examine(settings, stop_grace))
    if output is Output.JSON:
        print(json.dumps([asdict(each) for each in findings], indent=2, ensure_ascii=False))
    else:
        rows = [(each.what, each.state, each.found) for each in findings]
        print_table(("what", "state", "found"), rows)
    raise typer.Exit(NO if any(each.state == "wrong" for each in findings) else DONE)


def examine(settings: Settings, stop_grace: float | None) -> Iterator[Finding]:
    """One finding after the other, as they are made."""
    yield _python()
    yield from _machine()
    yield _files()
    yield from _data(settings)
    if settings.zookeeper is None:
        looked = "; ".join(f"{place}: {found}" for place, found in settings.looked)
        text = f"none is named ({looked}); --zookeeper HOST:PORT, or `incumbent up` here"
        yield Finding("wrong", "zookeeper", text)
        return
    yield from _servers(settings)
    yield from _session(settings, stop_grace)


def _python() -> Finding:
    extras = {"msgspec": "agent", "typer": "agent", "rich": "agent", "uvloop": "fast"}
    missing = sorted({extra for package, extra in extras.items() if find_spec(package) is None})
    text = f"{sys.version.split()[0]} on {sys.platform}, {os.cpu_count()} cores"
    if missing:
        text += f"; not installed: pip install 'incumbent[{','.join(missing)}]'"
    return Finding("note" if missing else "ok", "python", text)


def _machine() -> Iterator[Finding]:
    if not sys.platform.startswith("linux"):
        text = f"{sys.platform}: nodes are for Linux; the library, `zk` and `server` work here"
        yield Finding("wrong", "containment", text)
        return
    from incumbent.guardian.cgroup import find_own
    from incumbent.guardian.containment import probe

    try:
        yield from on_containments(probe(find_own()))
    except OSError as error:
        yield from on_containments({**probe(), "contained": error.strerror or str(error)})


def on_containments(probed: dict[str, str]) -> Iterator[Finding]:
    """`probed`: each containment, with why it does not work here or ""."""
    for name, why_not in probed.items():
        cost = ""
        if name == "sealed":
            cost = (
                "; without it, nobody takes over from this node after its death before it is back "
                "or confirmed dead. Run the agent as root, or allow user namespaces"
            )
        found = f"does not work here: {why_not}{cost}" if why_not else "works here"
        yield Finding("note" if why_not else "ok", f"containment {name}", found)
    if all(probed.values()):
        yield Finding("wrong", "containment", "none works: components cannot run on this machine")


def _files() -> Finding:
    """A guardian takes all that it may have, and its programs are started with what was usual."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{most} may be open ({usual} in each program)"
    if most < _FILES:
        how = f"`ulimit -H -n {_FILES}`, or LimitNOFILE={_FILES} in the unit"
        return Finding("note", "open files", f"{text}; for hundreds of seats: {how}")
    return Finding("ok", "open files", text)


def _data(settings: Settings) -> Iterator[Finding]:
    folder = settings.data
    running = local.ask(folder)
    if running is not None:
        seats = running.get("seats", {})
        yield Finding("ok", "agent", f"{running.get('node')} runs here, with {len(seats)} seats")
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "is not writable" if there.is_dir() else "is no directory"
        yield Finding("wrong", "data", str(HomeUnusable(folder, f"{there} {why}")))
        return
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free >> 20} MiB free"
    if free < _SPACE:
        text += "; a full disk stops no program, but lines of its log are lost"
        yield Finding("note", "data", text)
        return
    yield Finding("ok", "data", text)


def _servers(settings: Settings) -> Iterator[Finding]:
    origin = settings.origins.get("zookeeper", "")
    for address in settings.hosts().split(","):
        began_at = time.monotonic()
        try:
            mode = ask_mode(host_of(address), tls=settings.credentials().tls())
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            yield Finding("wrong", f"server {address}", f"{why} (named by {origin})")
            continue
        took = (time.monotonic() - began_at) * 1000
        found = f"{mode or 'answers, but not to `srvr`'}, in {took:.1f} ms (named by {origin})"
        yield Finding("ok" if mode else "note", f"server {address}", found)


def _session(settings: Settings, stop_grace: float | None) -> Iterator[Finding]:
    hosts, tls = settings.hosts(), settings.credentials().tls()
    seen = times(
        hosts, settings.session_timeout, settings.tick, lambda _line: None, patience=0.0, tls=tls
    )
    try:
        granted, took, nodes, problems = asyncio.run(_try_session(settings, seen.session_timeout))
    except (IncumbentError, OSError) as error:
        yield Finding("wrong", "session", str(error))
        return
    yield Finding(
        "ok", "session", f"{granted:g} s are granted; a `sync` takes {took * 1000:.1f} ms"
    )
    yield on_numbers(Numbers.of(granted, tick=seen.tick, stop_grace=stop_grace))
    names = ", ".join(nodes) or "none yet: `incumbent agent` makes one"
    yield Finding("ok" if nodes else "note", "nodes", names)
    for problem in problems:
        yield Finding("wrong", "tree", problem)


async def _try_session(
    settings: Settings, session_timeout: float
) -> tuple[float, float, list[str], tuple[str, ...]]:
    """What is granted, how long a `sync` takes, who is there, and what cannot be read."""
    async with connected(settings, session_timeout=session_timeout) as client:
        began_at = time.monotonic()
        await client.sync("/")
        took = time.monotonic() - began_at
        cluster = await read_cluster(client, Tree(settings.root))
        return client.timeout, took, sorted(cluster.nodes), cluster.problems


def on_numbers(numbers: Numbers) -> Finding:
    """The sum of a session's times, with this system's figures."""
    try:
        numbers.fit()
    except NumbersDontFit as error:
        return Finding("wrong", "times", str(error))
    outage = f"an outage of up to {numbers.tolerated_outage:.3g} s stops nothing"
    return Finding("ok", "times", f"{outage}: {numbers}")
