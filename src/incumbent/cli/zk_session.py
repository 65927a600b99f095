"""One session for one `incumbent zk` command: where, below which znode, as whom.

Rule of this file: `--auth-file` takes the place of the setting `auth`; nothing is shown but one.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from incumbent import aio
from incumbent.agent.admission import dress
from incumbent.agent.tree import Tree
from incumbent.aio import Zk
from incumbent.cli.cluster import CONNECT_TIME, SESSION
from incumbent.cli.exits import No, Usage
from incumbent.cli.stdio import write_out
from incumbent.client import split_chroot
from incumbent.credentials import Credentials, read_auth
from incumbent.errors import NoNode
from incumbent.settings import resolve
from incumbent.wire import paths

__all__ = [
    "AuthFile",
    "Chroot",
    "Insecure",
    "Where",
    "ZnodePath",
    "check_path",
    "chosen",
    "do",
    "do_there",
    "lets_go",
    "missing",
    "print_json",
]

ZnodePath = Annotated[str, typer.Argument(metavar="PATH", help="A znode.")]
Chroot = Annotated[
    str | None, typer.Option("--chroot", metavar="PATH", help="The znode that is / here.")
]
AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth-file",
        metavar="FILE",
        help="Lines of SCHEME:CREDENTIAL, as digest:name:password; default: the setting auth.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Show a digest's password to a server elsewhere.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """`hosts` with its chroot, as `aio.connect` takes it; `root`: the supervisor's znode."""

    hosts: str
    root: str
    tick: float | None
    credentials: Credentials

    @property
    def chroot(self) -> str:
        return split_chroot(self.hosts)[1]


def chosen(
    zookeeper: str | None,
    chroot: str | None,
    auth_file: Path | None,
    *,
    insecure: bool,
) -> Where:
    """`zookeeper` may end in a chroot, as connection strings do. Raises `SettingMissing`, …"""
    hosts, inner = split_chroot(zookeeper) if zookeeper else (None, "")
    settings = resolve({"zookeeper": hosts})
    if chroot is not None:
        check_path(chroot)
        if inner and chroot != inner:
            raise Usage(f"--chroot {chroot} and the {inner} in --zookeeper: give one of them")
        inner = chroot.rstrip("/")
    credentials = settings.credentials()
    if auth_file is not None:
        credentials = replace(credentials, auth=read_auth(auth_file))
    return Where(
        hosts=f"{settings.hosts()}{inner}",
        root=settings.root,
        tick=settings.tick,
        credentials=replace(credentials, insecure=insecure or credentials.insecure),
    )


def check_path(path: str) -> None:
    """Raises `Usage` for what is no znode's path."""
    if wrong := paths.problem(path):
        raise Usage(f"{path!r} is no znode's path: {wrong}")


def print_json(value: Any) -> None:
    """For programs, and readable: UTF-8 whatever stdout is said to take."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_out(f"{text}\n".encode(errors="backslashreplace"))


def do(
    zookeeper: str | None,
    chroot: str | None,
    auth_file: Path | None,
    insecure: bool,
    path: str,
    work: Callable[[Zk], Awaitable[int]],
) -> None:
    """Do `work` about `path` in a session of its own; ends the command with its exit code."""
    do_there(chosen(zookeeper, chroot, auth_file, insecure=insecure), path, work)


def do_there(where: Where, path: str, work: Callable[[Zk], Awaitable[int]]) -> None:
    """The same, `where` being known already."""
    check_path(path)

    async def connected() -> int:
        connecting = aio.connect(
            where.hosts,
            timeout=CONNECT_TIME,
            session_timeout=SESSION,
            request_timeout=CONNECT_TIME,
            tick=where.tick,
            **where.credentials.for_client(),
            log=lambda _line: None,
        )
        async with connecting as zk:
            await dress(zk.client, Tree(where.root))
            try:
                return await work(zk)
            except NoNode as error:
                raise await missing(zk, where, error.path or path) from None

    raise typer.Exit(asyncio.run(connected()))


@contextmanager
def lets_go() -> Iterator[None]:
    """In a task: SIGTERM and SIGHUP end it as Ctrl-C does, so that what it has is given back."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    told: list[int] = []

    def stop(signum: int) -> None:
        if not told:  # the second one would disturb the giving back
            told.append(signum)
            task.cancel()

    heeded = [
        each
        for each in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(each) is signal.SIG_DFL  # else: ignored, as under nohup
    ]
    for each in heeded:
        loop.add_signal_handler(each, stop, each)
    try:
        yield
    except asyncio.CancelledError:
        if not told:
            raise
        raise typer.Exit(128 + told[0]) from None
    finally:
        for each in heeded:
            loop.remove_signal_handler(each)


async def missing(zk: Zk, where: Where, path: str) -> No:
    """That there is no `path`, and where to look for what there is."""
    above = path
    while above != "/":
        above = above.rpartition("/")[0] or "/"
        if await zk.exists(above) is not None:
            return No(f"there is no {path}; `incumbent zk ls {above}` shows what there is")
    if where.chroot:
        return No(f"there is no {where.chroot}, which --chroot or --zookeeper makes the / here")
    return No(f"there is no {path}")
