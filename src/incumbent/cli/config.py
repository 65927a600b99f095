"""`incumbent config get|set|edit|history|revert`: the cluster's configuration.

Rule of this file: a key's znode is written over the version that was read, with what was there
before in it; so nobody's change is lost without a trace, and each command may be repeated.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from incumbent.agent.tree import Config, ConfigEntry, Tree, read, write
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, No, Usage, say
from incumbent.cli.options import Hosts, Root
from incumbent.cli.orders import again, make_skeleton
from incumbent.cli.screen import print_table
from incumbent.cli.show import age
from incumbent.cli.stdio import read_data
from incumbent.cli.stop_start import me
from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.settings import name_problem, resolve

__all__ = ["BIGGEST", "KEPT", "config_app", "put", "values"]

KEPT = 20
"""Values before the present one that are kept: see `_kept`."""
BIGGEST = 16 * 1024
"""Bytes of one value, so that a key with all that is kept fits into a znode."""

config_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Configuration for components: get, set, edit, history, revert.",
)
Key = Annotated[str, typer.Argument(metavar="KEY", help="Its name, like web.level.")]


@config_app.command()
def get(
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Without it: all keys.")] = None,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Print a value as it is, or a table of all."""

    async def work(client: Client, tree: Tree) -> None:
        found = await values(client, tree)
        if key is None:
            if not found:
                say("no key is set; `incumbent config set KEY VALUE` sets one")
            now = time.time()
            rows = [
                [name, _short(c.now.value), f"{age(now - c.now.at)} ago", c.now.by]
                for name, c in found
            ]
            if rows:
                print_table(["KEY", "VALUE", "SET", "BY"], rows)
            return
        value = _of(dict(found), key).now.value
        print(value, end="" if value.endswith("\n") else "\n")

    _run(work, zookeeper, root)


@config_app.command("set")
def set_(
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="- reads standard input, as it is.")
    ],
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Set a key. Components that use it are restarted, or told, once it has settled."""
    text = _text(read_data(value))

    async def work(client: Client, tree: Tree) -> None:
        print(f"{key} {await put(client, tree, key, text)}")

    _run(work, zookeeper, root)


@config_app.command()
def edit(key: Key, zookeeper: Hosts = None, root: Root = None) -> None:
    """Open a value in $EDITOR, and set it to what was saved."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise Usage(f"$EDITOR is not set; `incumbent config set {key} VALUE` needs none")

    async def work(client: Client, tree: Tree) -> None:
        found = dict(await values(client, tree)).get(key)
        before = found.now.value if found is not None else ""
        text = await asyncio.get_running_loop().run_in_executor(None, _edited, editor, before)
        print(f"{key} {await put(client, tree, key, text, over=before if found else None)}")

    _run(work, zookeeper, root)


@config_app.command()
def history(key: Key, zookeeper: Hosts = None, root: Root = None) -> None:
    """The newest values of a key, newest first; number 0 is the present one."""

    async def work(client: Client, tree: Tree) -> None:
        found = _of(dict(await values(client, tree)), key)
        now = time.time()
        rows = [
            [str(number), _short(entry.value), f"{age(now - entry.at)} ago", entry.by]
            for number, entry in enumerate([found.now, *found.before])
        ]
        print_table(["NUMBER", "VALUE", "SET", "BY"], rows)

    _run(work, zookeeper, root)


@config_app.command()
def revert(
    key: Key,
    to: Annotated[
        int, typer.Option("--to", metavar="NUMBER", min=1, help="Of `history`; the one before.")
    ] = 1,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Set a key to an earlier value of it."""

    async def work(client: Client, tree: Tree) -> None:
        found = _of(dict(await values(client, tree)), key)
        if to > len(found.before):
            there = len(found.before)
            raise No(f"{key} has {there} earlier values; `incumbent config history {key}`")
        value = found.before[to - 1].value
        print(f"{key} {await put(client, tree, key, value, over=found.now.value)}")

    _run(work, zookeeper, root)


async def values(client: Client, tree: Tree) -> list[tuple[str, Config]]:
    """All keys, by name. Raises `UnreadableZnode`."""
    try:
        names = await client.children(tree.config)
    except NoNode:
        return []
    found = await asyncio.gather(*(_read(client, tree, name) for name in sorted(names)))
    return [(name, c) for name, c in zip(sorted(names), found, strict=True) if c is not None]


async def put(client: Client, tree: Tree, key: str, value: str, *, over: str | None = None) -> str:
    """Set it; what came of it, in words. With `over` only if that is its value: `No` if not."""
    if problem := name_problem(key):
        raise Usage(f"{key!r} is no key: {problem}")
    size = len(value.encode())
    if "\0" in value or size > BIGGEST:
        what = "has a null character" if "\0" in value else f"has {size:,} bytes"
        raise Usage(f"the value {what}; expected text of at most {BIGGEST:,} bytes")
    await make_skeleton(client, tree)
    path = tree.config_key(key)

    async def turn() -> str:
        entry = ConfigEntry(value=value, at=time.time(), by=me())
        try:
            data, stat = await client.get(path)
        except NoNode:
            await client.create(path, write(Config(now=entry)))
            return "set"
        before = read(Config, data, path)
        if over is not None and before.now.value != over:
            raise No(
                f"{key} was changed by {before.now.by or 'somebody'} meanwhile, and is left so; "
                f"`incumbent config history {key}`"
            )
        if before.now.value == value:
            return "unchanged"
        kept = _kept(entry, [before.now, *before.before])
        await client.set(path, write(Config(now=entry, before=kept)), stat.version)
        return "changed"

    return await again(turn)


def _kept(now: ConfigEntry, before: list[ConfigEntry]) -> list[ConfigEntry]:
    """What is remembered of those before: the newest, and else those that stood longest. Many rapid
    changes push out each other, and not what one would go back to.
    """
    while len(before) > KEPT:
        later = [now, *before]
        stood = [later[k].at - each.at for k, each in enumerate(before)]
        shortest = min(range(1, len(before)), key=stood.__getitem__)
        before = [each for k, each in enumerate(before) if k != shortest]
    return before


async def _read(client: Client, tree: Tree, key: str) -> Config | None:
    path = tree.config_key(key)
    try:
        data, _stat = await client.get(path)
    except NoNode:
        return None
    return read(Config, data, path)


def _text(data: bytes) -> str:
    """Raises `Usage`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Usage(
            f"the value is no UTF-8 text (byte {error.start} is {data[error.start]:#04x}); nothing "
            "was set. base64 makes text of anything"
        ) from None


def _of(found: dict[str, Config], key: str) -> Config:
    if key not in found:
        known = ", ".join(found) or "none"
        raise No(f"{key} is not set; there are: {known}")
    return found[key]


def _edited(editor: str, before: str) -> str:
    with tempfile.TemporaryDirectory(prefix="incumbent-") as folder:
        file = Path(folder) / "value"
        file.write_text(before)
        code = subprocess.call([*shlex.split(editor), str(file)])
        if code != 0:
            raise No(f"{editor} ended with {code}; nothing was changed")
        text = file.read_text()
    return text if before.endswith("\n") else text.removesuffix("\n")


def _short(value: str) -> str:
    line, _, rest = value.partition("\n")
    return f"{line[:57]}…" if rest or len(line) > 58 else line


def _run(
    work: Callable[[Client, Tree], Awaitable[None]], zookeeper: str | None, root: str | None
) -> None:
    settings = resolve({"zookeeper": zookeeper, "root": root})

    async def main() -> int:
        async with connected(settings) as client:
            await work(client, Tree(settings.root))
        return DONE

    raise typer.Exit(asyncio.run(main()))
