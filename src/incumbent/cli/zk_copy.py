"""`incumbent zk cp`: data between znodes and files.

    zk:/app → folder      a znode without children is a file; one with children is a folder, its
                          own data, if it has any, the file __data__ in it
    folder → zk:/app      the other way round; what is there already gets the new data
    zk:/app → zk:/other   the same, znode by znode

Rule of this file: it adds and replaces, and never deletes. A znode's name that cannot be a
file's name is an error before anything of that folder is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from incumbent.aio import Zk
from incumbent.cli.exits import No, Usage
from incumbent.cli.stdio import read_stdin, write_out
from incumbent.cli.zk_session import check_path
from incumbent.cli.zk_tree import Branch, read_tree
from incumbent.errors import NodeExists, NoNode

__all__ = ["Place", "copy", "places"]

OWN = "__data__"
"""The file with the data of a znode that is a folder."""
_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class Place:
    """An end of a copy: `znode` a path, or `file` one; neither: stdin or stdout."""

    znode: str | None = None
    file: Path | None = None


def places(source: str, target: str) -> tuple[Place, Place]:
    """Raises `Usage`."""
    start, end = _place(source), _place(target)
    if start.znode is None and end.znode is None:
        raise Usage(
            f"neither {source} nor {target} is a znode: write zk:/PATH for one, as in "
            f"`incumbent zk cp {source} zk:/PATH`"
        )
    return start, end


async def copy(
    zk: Zk, source: Place, target: Place, *, recursive: bool, say: Callable[[str], None]
) -> int:
    """How many znodes or files were written. Raises `No`, `Usage`, OSError, …"""
    if source.znode is None:
        if source.file is not None and source.file.is_dir():
            if not recursive:
                raise Usage(f"{source.file} is a folder: -r copies it with all that is in it")
            assert target.znode is not None
            return await _write_all(zk, _files(source.file, target.znode, say), say)
        assert target.znode is not None
        data = await read_stdin() if source.file is None else source.file.read_bytes()
        return await _write_all(zk, [(target.znode, data)], say)
    if not recursive:
        data, _ = await zk.get(source.znode)
        if target.znode is not None:
            return await _write_all(zk, [(target.znode, data)], say)
        _write(_into(target.file, source.znode), data)
        return 1
    if target == Place():
        raise Usage("-r needs a folder or a znode to copy to, not -")
    if target.znode is not None and f"{target.znode}/".startswith(f"{source.znode.rstrip('/')}/"):
        raise Usage(f"{target.znode} is below {source.znode}: it would be copied into itself")
    found = await _znodes(zk, await read_tree(zk, source.znode), say)
    if target.znode is not None:
        below = len(source.znode.rstrip("/"))
        moved = [(f"{target.znode.rstrip('/')}{b.path[below:]}", data) for b, data in found]
        return await _write_all(zk, moved, say)
    assert target.file is not None
    return _write_folder(source.znode, target.file, found)


def _place(text: str) -> Place:
    if text == "-":
        return Place()
    if not text.startswith("zk:"):
        return Place(file=Path(text))
    path = text.removeprefix("zk:")
    check_path(path)
    return Place(znode=path)


async def _znodes(zk: Zk, top: Branch, say: Callable[[str], None]) -> list[tuple[Branch, bytes]]:
    """What is to be copied, with its data, none before what is above it."""
    wanted: list[Branch] = []
    waiting = [top]
    left_out = 0
    while waiting:
        branch = waiting.pop(0)
        if branch.problem:
            raise No(f"{branch.path} cannot be read: {branch.problem}; nothing was copied")
        assert branch.stat is not None
        if branch.stat.ephemeralOwner > 0:
            left_out += 1
            continue
        wanted.append(branch)
        waiting += branch.below
    if left_out:
        say(f"{left_out} ephemeral znodes are left out")
    found: list[tuple[Branch, bytes]] = []
    for branch in wanted:
        try:
            found.append((branch, (await zk.get(branch.path))[0]))
        except NoNode:
            continue
    return found


async def _write_all(zk: Zk, znodes: list[tuple[str, bytes]], say: Callable[[str], None]) -> int:
    written = 0
    try:
        for path, data in znodes:
            if path != "/":
                await _write_znode(zk, path, data)
            elif data:
                await zk.set(path, data)
            written += 1
    finally:
        if 0 < written < len(znodes):
            say(f"{written} of {len(znodes)} znodes were written before that")
    return written


async def _write_znode(zk: Zk, path: str, data: bytes) -> None:
    check_path(path)
    try:
        await zk.create(path, data, parents=True)
    except NodeExists:
        await zk.set(path, data)


def _files(folder: Path, znode: str, say: Callable[[str], None]) -> list[tuple[str, bytes]]:
    """All that is in `folder`, as znodes below `znode`. What is no file is left out, and said."""
    left_out: list[Path] = []
    found = list(_read_folder(folder, znode, (), left_out))
    for path in left_out:
        say(f"{path} is left out: it is neither a file nor a folder")
    return found


def _read_folder(
    folder: Path, znode: str, above: tuple[Path, ...], left_out: list[Path]
) -> Iterator[tuple[str, bytes]]:
    real = folder.resolve()
    if real in above:
        raise No(f"{folder} leads back to {real}, which it is in; nothing was copied")
    own = folder / OWN
    yield znode, own.read_bytes() if own.is_file() else b""
    for entry in sorted(folder.iterdir()):
        path = f"{znode.rstrip('/')}/{entry.name}"
        if entry.name == OWN:
            continue
        if entry.is_dir():
            yield from _read_folder(entry, path, (*above, real), left_out)
        elif entry.is_file():
            yield path, entry.read_bytes()
        else:
            left_out.append(entry)


def _write_folder(top: str, target: Path, found: list[tuple[Branch, bytes]]) -> int:
    below = len(top.rstrip("/"))
    for branch, _ in found:
        name = branch.name
        if branch.path != top and (name == OWN or len(name.encode()) > _NAME_MAX):
            raise No(f"{branch.path} cannot be a file's name here; nothing was copied")
    parents = {branch.path for branch, _ in found if branch.below}
    for branch, data in found:
        place = target / branch.path[below:].lstrip("/")
        if branch.path in parents:
            place.mkdir(parents=True, exist_ok=True)
            if data:
                _write(place / OWN, data)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, data)
    return len(found)


def _into(file: Path | None, znode: str) -> Path | None:
    """A file of the znode's name, where `file` is a folder."""
    if file is not None and file.is_dir():
        return file / (znode[znode.rindex("/") + 1 :] or "root")
    return file


def _write(file: Path | None, data: bytes) -> None:
    if file is None:
        write_out(data)
    else:
        file.write_bytes(data)
