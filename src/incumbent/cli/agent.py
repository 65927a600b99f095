"""`incumbent agent`: what a node does before it becomes a guardian.

    settings ─► lock the data directory ─► end what an earlier life left ─► see the servers
             ─► guardian (which starts the agent), for as long as it lives

Rule of this file: whatever is wrong is said before anything runs, in a sentence with the next
step; from then on this process is the guardian, so it imports little.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from incumbent.agent.home import Home, HomeInUse
from incumbent.cli.exits import NO, USAGE, Parser, failed
from incumbent.cli.process import module
from incumbent.cli.srvr import refuse_clear_text, times
from incumbent.errors import IncumbentError, SpecError, SpecErrors
from incumbent.log_service import LogService
from incumbent.parent import end_with
from incumbent.runtime_file import boot_id, start_time
from incumbent.settings import KEYS, SYSTEM, resolve

__all__ = ["main"]

_HANDED_ON = 10.0
"""Seconds in which the processes of a dead guardian let go of its data directory."""


def main(argv: Sequence[str]) -> int:
    """Be a node until told to stop; returns the exit code."""
    options = _parser().parse_args(argv)
    if options.parent_death is not None:
        end_with(options.parent_death)
    try:
        node_file = options.node_file.absolute()
        _see_limits(node_file)
        settings = resolve({key: getattr(options, key) for key in KEYS}, system=node_file)
        hosts = settings.hosts()
        credentials = settings.credentials()
        tls = credentials.tls()
        logs = settings.served_logs()
        if logs is not None:
            _see_certificates(logs, node_file)
        refuse_clear_text(hosts, credentials)
        home = Home(settings.data)
        _lock(home)
        node_id = home.node_id(lambda: f"{random.SystemRandom().getrandbits(64):016x}")
    except IncumbentError as error:
        return failed(error, USAGE)
    from incumbent.guardian.cgroup import find_own, hand_down

    cgroups, controllers, why_none, why_unlimited = None, frozenset[str](), "", ""
    try:
        cgroups = find_own()
        controllers, why_unlimited = hand_down(cgroups)
    except OSError as error:
        why_none = why_unlimited = error.strerror or str(error)
    try:
        home.end_leftovers(_say, owner=node_id, cgroups=cgroups)
    except IncumbentError as error:
        return failed(error, NO)
    if options.after_fd is not None and not os.read(options.after_fd, 1):
        return NO  # whoever was to say when is gone
    seen = times(hosts, settings.session_timeout, settings.tick, _say, tls=tls)

    from incumbent.guardian.containment import CONTAINMENTS, probe
    from incumbent.guardian.main import run
    from incumbent.guardian.table import Policy

    unable = {"contained": why_none, **probe(cgroups)}
    return run(
        module("incumbent.agent"),
        settings={
            "node": settings.node,
            "node_id": node_id,
            "boot_id": boot_id(),
            "hosts": hosts,
            "root": settings.root,
            "session_timeout": seen.session_timeout,
            "tick": seen.tick,
            "containments": [each for each in CONTAINMENTS if not unable[each]],
            "unable": {each: why for each, why in unable.items() if why},
            "cgroups": str(cgroups) if cgroups is not None else "",
            "controllers": sorted(controllers),
            "no_controllers": why_unlimited,
            "stop_order": [name for name in options.stop_order.split(",") if name],
            "data": str(settings.data),
            "credentials": credentials.to_json(),
            "allowances": settings.allowances.to_json(),
            "labels": dict(settings.labels),
            "logs": logs.url if logs is not None else "",
            "log_service": logs.to_json() if logs is not None else None,
        },
        policy=Policy.KEEP,
        beat=seen.session_timeout / 10,
        session_timeout=seen.session_timeout,
        parent=options.parent_death,
    )


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent agent",
        description="Make this machine a node: components run here, unless another node runs them.",
        epilog="Each setting is looked for in: flag, INCUMBENT_… in the environment, "
        "./incumbent.toml, a running `incumbent up`, ~/.config/incumbent/agent.toml, "
        "/etc/incumbent/agent.toml.",
    )
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…", help="where ZooKeeper is")
    parser.add_argument("--node", metavar="NAME", help="this node's name (default: the hostname)")
    parser.add_argument("--data", metavar="DIR", type=Path, help="where it keeps its data and logs")
    parser.add_argument("--root", metavar="PATH", help="the znode of everything (/incumbent)")
    parser.add_argument(
        "--session-timeout",
        metavar="SECONDS",
        type=float,
        help="how long this node may be out of touch (default 10 on a single server, "
        "30 on an ensemble)",
    )
    parser.add_argument(
        "--tick",
        metavar="SECONDS",
        type=float,
        help="the servers' tickTime, 0 for a single server (seen from the server by default)",
    )
    parser.add_argument(
        "--auth",
        metavar="FILE",
        type=Path,
        help="what this node shows to ZooKeeper: lines of SCHEME:CREDENTIAL, mode 0600",
    )
    for name, what in (
        ("ca", "the certificates that sign the servers' ones, PEM: encrypt"),
        ("cert", "this node's own certificate, PEM"),
        ("key", "its key, PEM (default: in the certificate's file)"),
    ):
        parser.add_argument(f"--tls-{name}", metavar="FILE", type=Path, help=what)
    parser.add_argument(
        "--insecure",
        action="store_const",
        const=True,
        help="take orders even from a tree that anybody may write, and show a digest's password in "
        "clear text to another machine",
    )
    parser.add_argument(
        "--node-file",
        metavar="FILE",
        type=Path,
        default=SYSTEM,
        help=f"this node's own settings and limits, in place of {SYSTEM}",
    )
    parser.add_argument(
        "--parent-death",
        metavar="PID",
        type=int,
        help="stop in order when the process that started this one, PID, ends",
    )
    parser.add_argument("--stop-order", metavar="NAME,…", default="", help=argparse.SUPPRESS)
    parser.add_argument("--after-fd", metavar="N", type=int, help=argparse.SUPPRESS)
    return parser


def _see_limits(file: Path) -> None:
    """What limits this node must be readable, and nobody else's to change. Raises `SpecErrors`."""
    try:
        mode = file.stat().st_mode
        os.close(os.open(file, os.O_RDONLY))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        why = f"it has this node's limits, and cannot be read: {(error.strerror or '').lower()}"
        raise SpecErrors([SpecError(str(file), 0, "", why)]) from None
    if mode & 0o022:
        why = f"it has this node's limits, and others can change it: chmod go-w {file}"
        raise SpecErrors([SpecError(str(file), 0, "", why)])


def _see_certificates(logs: LogService, file: Path) -> None:
    """What they are shown with can be used. Raises `SpecErrors`."""
    try:
        logs.tls()
    except OSError as error:
        raise SpecErrors([SpecError(str(file), 0, "logs", str(error))]) from None


def _lock(home: Home) -> None:
    """Lock the data directory. A dead guardian's children need a moment to let go of it."""
    until = time.monotonic() + _HANDED_ON
    while True:
        try:
            home.lock()
            return
        except HomeInUse as error:
            is_dead = error.pid.isdigit() and start_time(int(error.pid)) is None
            if not is_dead or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _say(text: str) -> None:
    stamp = time.strftime("%H:%M:%S", time.localtime())
    sys.stderr.write(f"{stamp} agent: {text}\n")
    sys.stderr.flush()
