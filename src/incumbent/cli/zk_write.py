"""The `incumbent zk` commands that write: set, create, rm, acl, cp.

Rule of this file: what is printed is what is so afterwards: a version, a path, an ACL.
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from incumbent.aio import Zk
from incumbent.cli import znode
from incumbent.cli.exits import DONE, No, Usage, say
from incumbent.cli.options import AsOutput, Hosts, Output
from incumbent.cli.stdio import read_data
from incumbent.cli.zk_copy import copy, places
from incumbent.cli.zk_session import (
    AuthFile,
    Chroot,
    Insecure,
    ZnodePath,
    chosen,
    do,
    do_there,
    lets_go,
    print_json,
)
from incumbent.client import State
from incumbent.errors import (
    BadVersion,
    IncumbentError,
    InvalidACL,
    NodeExists,
    NoNode,
    NotEmpty,
    Unimplemented,
)
from incumbent.wire import ANY_VERSION, OPEN_ACL

__all__ = ["acl", "cp", "create", "rm", "set_"]

Version = Annotated[
    int,
    typer.Option("--version", metavar="N", show_default=False, help="Only if this is its version."),
]


def set_(
    path: ZnodePath,
    data: Annotated[str, typer.Argument(metavar="DATA", help="The new data; - for stdin's.")],
    version: Version = ANY_VERSION,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
) -> None:
    """Replace the data of a znode; prints its new version."""
    new = read_data(data)

    async def work(zk: Zk) -> int:
        try:
            stat = await zk.set(path, new, version)
        except BadVersion:
            raise await _other_version(zk, path, version) from None
        print(stat.version)
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def create(
    path: ZnodePath,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Its data; - for stdin's.")] = "",
    parents: Annotated[
        bool,
        typer.Option("--parents", "-p", help="Make what is missing above it; there: no error."),
    ] = False,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Append the next number of its parent.")
    ] = False,
    ephemeral: Annotated[
        bool,
        typer.Option("--ephemeral", help="Keep it until Ctrl-C, or until stdin is at its end."),
    ] = False,
    container: Annotated[
        bool, typer.Option("--container", help="The server deletes it after its last child.")
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl", min=0.001, metavar="S", help="Deleted S seconds after its last change."
        ),
    ] = None,
    acl: Annotated[
        list[str] | None,
        typer.Option("--acl", metavar="SCHEME:ID:PERMS", help="Who may do what; again for more."),
    ] = None,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
) -> None:
    """Make a znode; prints its path."""
    if sum([ephemeral, container, ttl is not None]) > 1:
        raise Usage("a znode is one of: --ephemeral, --container, --ttl")
    if container and sequential:
        raise Usage("ZooKeeper numbers no containers: give --container or --sequential")
    if ephemeral and data == "-":
        raise Usage("--ephemeral waits for the end of stdin, so that DATA cannot be `-`")
    new, entries = read_data(data), znode.parse_acl(acl or []) or list(OPEN_ACL)

    async def work(zk: Zk) -> int:
        try:
            made = await zk.create(
                path,
                new,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl=ttl,
                acl=entries,
                parents=parents,
            )
        except NodeExists:
            if parents and not (new or ephemeral):  # as `mkdir -p`
                print(path)
                return DONE
            raise No(
                f"{path} exists already; nothing was changed. `incumbent zk set` replaces its data"
            ) from None
        except NoNode:
            above = path.rpartition("/")[0]
            if parents or not above:
                raise
            raise No(f"there is no {above} to make it in; -p makes what is missing") from None
        except InvalidACL as error:
            raise _no_acl(error, acl or []) from None
        except Unimplemented:
            if ttl is None:
                raise
            raise No(
                "this server allows no znodes with a time to live: start it with "
                "`incumbent server --ttl-znodes true` (Apache: extendedTypesEnabled)"
            ) from None
        print(made.path, flush=True)
        if not ephemeral:
            return DONE
        with lets_go():
            return await _keep(zk, made.path)

    do(zookeeper, chroot, auth_file, insecure, f"{path}0" if sequential else path, work)


def rm(
    path: ZnodePath,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="With all that is below it.")
    ] = False,
    version: Version = ANY_VERSION,
    yes: Annotated[
        str | None,
        typer.Option(
            "--yes", metavar="PATH", help="PATH again, where the supervisor's znodes are."
        ),
    ] = None,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
) -> None:
    """Delete a znode."""
    where = chosen(zookeeper, chroot, auth_file, insecure=insecure)
    whole = f"{where.chroot}{path}".rstrip("/") or "/"
    if path == "/":
        raise Usage("/ cannot be deleted: name a znode below it")

    async def work(zk: Zk) -> int:
        ours = where.root == whole or f"{whole}/".startswith(f"{where.root}/")
        if (ours or where.root.startswith(f"{whole}/")) and yes != path:
            raise Usage(
                f"{whole} has what `incumbent` itself keeps: what is deleted there can make two "
                f"instances run; if that is meant, say so: --yes {path}"
            )
        try:
            await zk.delete(path, version, recursive=recursive)
        except NotEmpty:
            below = await zk.descendants(path)
            what = (
                "1 znode below it; -r deletes it"
                if below == 1
                else (f"{below} znodes below it; -r deletes them")
            )
            raise No(f"{path} has {what} too") from None
        except BadVersion:
            raise await _other_version(zk, path, version) from None
        return DONE

    do_there(where, path, work)


def acl(
    path: ZnodePath,
    replace: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SCHEME:ID:PERMS", help="Its whole new ACL; again for more."),
    ] = None,
    version: Annotated[
        int,
        typer.Option(
            "--version", metavar="N", show_default=False, help="Only if this is its ACL's version."
        ),
    ] = ANY_VERSION,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
    output: AsOutput = Output.TABLE,
) -> None:
    """Who may do what with a znode.

    SCHEME:ID:PERMISSIONS, of the letters cdrwa (create, delete, read, write, admin).
    """
    entries = znode.parse_acl(replace or [])

    async def work(zk: Zk) -> int:
        if entries:
            try:
                await zk.set_acl(path, entries, version)
            except InvalidACL as error:
                raise _no_acl(error, replace or []) from None
        found, stat = await zk.get_acl(path)
        if output is Output.JSON:
            print_json({"path": path, "acl": znode.acl_text(found), "aversion": stat.aversion})
        else:
            print("\n".join(znode.acl_text(found)))
        return DONE

    do(zookeeper, chroot, auth_file, insecure, path, work)


def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="zk:/PATH, a file, or -.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="zk:/PATH, a file, or -.")],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="With all that is below it.")
    ] = False,
    zookeeper: Hosts = None,
    chroot: Chroot = None,
    auth_file: AuthFile = None,
    insecure: Insecure = False,
) -> None:
    """Copy data between znodes and files.

    `zk:` stands before a znode's path; - is stdin or stdout. A znode with children is a folder, its own data the file __data__ there. ACLs are not copied,
    ephemeral znodes are left out.
    """
    start, end = places(source, target)

    async def work(zk: Zk) -> int:
        try:
            number = await copy(zk, start, end, recursive=recursive, say=say)
        except OSError as error:
            if error.filename is None:  # stdout's
                raise
            raise No(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
        if recursive:
            say(f"copied {number}")
        return DONE

    do(zookeeper, chroot, auth_file, insecure, "/", work)


def _no_acl(error: InvalidACL, asked: list[str]) -> IncumbentError:
    """Mostly it is that nothing was shown."""
    if not any(each.startswith("auth:") for each in asked):
        return error
    return No(
        "`auth` stands for whom this session has shown that it is, which is nobody: name a file of "
        "SCHEME:CREDENTIAL with --auth-file; nothing was changed"
    )


async def _other_version(zk: Zk, path: str, version: int) -> No:
    stat = await zk.exists(path)
    now = "it is gone" if stat is None else f"its version is {stat.version}"
    return No(f"{path}: {now}, not {version}; nothing was changed")


async def _keep(zk: Zk, path: str) -> int:
    """Until stdin is at its end (Ctrl-D, or a pipe closed), or the znode is lost."""
    lost = asyncio.Event()
    forget = zk.on_state(lambda state: lost.set() if state in (State.LOST, State.CLOSED) else None)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def readable() -> None:
        if not os.read(0, 4096):
            ended.set()

    with_stdin = True
    try:
        loop.add_reader(0, readable)
    except (OSError, PermissionError):  # /dev/null, or a file: it waits for Ctrl-C
        with_stdin = False
    try:
        waiting = [asyncio.ensure_future(each.wait()) for each in (lost, ended)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
    finally:
        forget()
        if with_stdin:
            loop.remove_reader(0)
    if lost.is_set():
        raise No(f"the session is over, and {path} with it")
    return DONE
