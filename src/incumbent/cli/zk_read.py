"""The `incumbent zk` commands that read: ls, tree, get, stat, watch.

Rule of this file: data goes to stdout as it is, and everything that is said about it to stderr,
so that pipes carry only data.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Annotated

import typer

from incumbent.aio import Zk
from incumbent.cli import znode
from incumbent.cli.exits import DONE, TimedOut, say
from incumbent.cli.options import AsOutput, Hosts, Output
from incumbent.cli.screen import print_table
from incumbent.cli.stdio import write_out
from incumbent.cli.zk_session import AuthFile, Chroot, Insecure, ZnodePath, do, print_json
from incumbent.cli.zk_tree import draw, read_tree
from incumbent.errors import NoNode

__all__ = ["get", "ls", "stat", "tree", "watch"]


def ls(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A znode; /.")] = "/",
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also children, bytes, version, owner, time.")
    ] = False,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """The names of a znode's children, a line each."""

    async def work(zk: Zk) -> int:
        names = await zk.children(path)
        if not long:
            if output is Output.JSON:
                print_json(names)
            else:
                print(*names, sep="\n", end="\n" if names else "")
            return DONE
        below = await asyncio.gather(*(zk.exists(f"{path.rstrip('/')}/{name}") for name in names))
        found = [(name, stat) for name, stat in zip(names, below, strict=True) if stat is not None]
        if output is Output.JSON:
            print_json([{"name": name, "stat": znode.as_stat(stat)} for name, stat in found])
        elif found:
            print_table(znode.LISTED, [znode.listed(name, stat) for name, stat in found])
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def tree(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A znode; /.")] = "/",
    depth: Annotated[
        int | None, typer.Option("--depth", min=0, metavar="N", help="How many levels below PATH.")
    ] = None,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """A znode and all that is below it."""

    async def work(zk: Zk) -> int:
        found = await read_tree(zk, path, depth)
        if output is Output.JSON:
            print_json(found.as_object())
        else:
            print("\n".join(draw(found)))
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def get(
    path: ZnodePath,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """The data of a znode, byte for byte; as JSON with its Stat."""

    async def work(zk: Zk) -> int:
        data, stat = await zk.get(path)
        if output is Output.JSON:
            print_json({"path": path, **znode.as_data(data), "stat": znode.as_stat(stat)})
            return DONE
        is_cut = bool(data) and not data.endswith(b"\n")
        if is_cut and sys.stdout.isatty():
            data += b"\n"  # for whoever looks; a pipe gets what is there
        write_out(data)
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def stat(
    path: ZnodePath,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """What ZooKeeper keeps about a znode; exit code 1: there is none."""

    async def work(zk: Zk) -> int:
        found = await zk.exists(path)
        if found is None:
            raise NoNode(path)
        if output is Output.JSON:
            print_json(znode.as_stat(found))
        else:
            print_table(("field", "value"), znode.stat_rows(found))
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def watch(
    path: ZnodePath,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Also all that is below it.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="End after N events.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.0, metavar="S", help="Wait S seconds at most."),
    ] = None,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """What happens to a znode, a line for each event, until Ctrl-C.

    It need not exist yet. "missed" says that some events may be missing, after a reconnect: look again.
    """

    async def work(zk: Zk) -> int:
        left = count
        try:
            async with asyncio.timeout(timeout), zk.watch(path, recursive=recursive) as events:
                say(f"watching {path}")
                async for event in events:
                    now = time.time()
                    if output is Output.JSON:
                        print(json.dumps(znode.event_object(event, now)), flush=True)
                    else:
                        print(znode.event_line(event, now), flush=True)
                    left = None if left is None else left - 1
                    if left == 0:
                        break
        except TimeoutError:
            raise TimedOut(f"{path}: watched for {timeout:g} s") from None
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)
