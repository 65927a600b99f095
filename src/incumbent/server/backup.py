"""`incumbent server backup FILE` and `incumbent server restore FILE`.

Rule of this file: FILE is whole or not there, and readable to its owner only: it holds all data
and the secret that session passwords are made from. What is restored begins at the next zxid
epoch (the upper 32 bits, plus one), so that no client sees zxids go back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from incumbent.server.config import Parser, add_data
from incumbent.server.control import CONTROL
from incumbent.server.copying import Piece, build, sync_directory, unpack_pieces
from incumbent.server.directory import DATABASE, CannotStart, Directory
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import StoreFailed
from incumbent.server.tree import Transaction
from incumbent.unix_socket import socket_name

__all__ = ["COMMANDS", "run_command"]

_EPOCH_BITS = 32
_MOST_EPOCHS = 2**31


def run_command(argv: Sequence[str]) -> str:
    """Carry out `backup …` or `restore …`; returns the line to print. Raises `CannotStart`."""
    parser = Parser(prog=f"incumbent server {argv[0]}")
    parser.add_argument("file", metavar="FILE", type=Path)
    add_data(parser)
    if argv[0] == "backup":
        options = parser.parse_args(argv[1:])
        return _backup(options.file, options.data)
    parser.add_argument(
        "--replace", action="store_true", help="put the database that is there aside"
    )
    parser.add_argument(
        "--epoch", metavar="N", type=int, default=0, help="begin at this zxid epoch or a later one"
    )
    options = parser.parse_args(argv[1:])
    return _restore(options.file, options.data, options.replace, options.epoch)


def _backup(file: Path, data: Path) -> str:
    if not os.path.lexists(data / DATABASE):
        raise CannotStart(f"there is no database in {data}; name the data directory with --data")
    part = file.with_name(f"{file.name}.part-{os.getpid()}")
    try:
        with _copy(data) as copy:
            build(part, copy)
        part.replace(file)
        sync_directory(file.absolute().parent)
    except (OSError, sqlite3.Error, ValueError, StoreFailed) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotStart(f"no backup was written to {file}: {why}") from None
    return f"backup of {data} written to {file}, {file.stat().st_size} bytes"


@contextlib.contextmanager
def _copy(data: Path) -> Iterator[Iterator[Piece]]:
    """From the server that runs, else from its database."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            with socket_name(data / CONTROL) as name:
                server.connect(name)
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
        else:
            server.sendall(b"backup\n")
            yield unpack_pieces(iter(lambda: server.recv(1 << 18), b""))
            return
    with Directory(data) as directory:
        store = SqliteStore(directory.database)
        try:
            with store.copying() as copy:
                yield copy
        finally:
            store.close()


def _restore(file: Path, data: Path, replace: bool, epoch: int) -> str:
    if not file.is_file():
        raise CannotStart(f"there is no backup {file}")
    if not 0 <= epoch < _MOST_EPOCHS:
        raise CannotStart(f"{epoch} is no zxid epoch; there are 0 to {_MOST_EPOCHS - 1}")
    with Directory(data) as directory:
        database = directory.database
        is_there = database.exists()
        if is_there and not replace:
            raise CannotStart(
                f"{data} holds a database already; name another directory with --data, "
                "or put that database aside with --replace"
            )
        part = database.with_name(f"{DATABASE}.part")
        _remove(part)
        try:
            old = _zxid(database, epoch) if is_there else 0
            shutil.copyfile(file, part)
            part.chmod(0o600)
            znodes, zxid = _begin_epoch(part, max(old >> _EPOCH_BITS, epoch - 1))
            with part.open("rb") as whole:
                os.fsync(whole.fileno())
            if is_there:
                aside = database.with_name(f"{DATABASE}.before-{zxid >> _EPOCH_BITS}")
                _put_aside(database, aside)
            part.replace(database)
            sync_directory(database.parent)
        except (OSError, StoreFailed) as error:
            _remove(part)
            why = getattr(error, "strerror", None) or error
            raise CannotStart(f"{file} was not restored to {data}: {why}") from None
    kept = f"; what was there before is {aside}" if is_there else ""
    return f"restored {znodes} znodes to {data}; zxids go on after {zxid:#x}{kept}"


def _begin_epoch(path: Path, over: int) -> tuple[int, int]:
    """Number of znodes, and the zxid from which on they go on: of an epoch over `over`."""
    store = SqliteStore(path)
    try:
        tree = store.load().tree
        zxid = (max(tree.zxid >> _EPOCH_BITS, over) + 1) << _EPOCH_BITS
        store.add((Transaction(zxid, int(time.time() * 1000), ()),))
        return len(tree.nodes), zxid
    finally:
        store.close()


def _zxid(database: Path, epoch: int) -> int:
    """How far a database came; where nobody can tell, `epoch` must say."""
    try:
        store = SqliteStore(database)
        try:
            return store.load().tree.zxid
        finally:
            store.close()
    except StoreFailed as error:
        if not epoch:
            raise CannotStart(
                f"the database that is there cannot be read ({error.why}), so that nobody knows "
                "how far its zxids went; name an epoch above all that were used with --epoch N"
            ) from None
        return 0


def _put_aside(database: Path, aside: Path) -> None:
    """Under both names until the new one takes its place: there is a database at every instant."""
    try:
        aside.hardlink_to(database)
    except OSError:  # not every file system can
        database.rename(aside)
    with contextlib.suppress(FileNotFoundError):  # there only if it could not be read
        Path(f"{database}-wal").rename(f"{aside}-wal")


def _remove(part: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{part}{suffix}").unlink()


COMMANDS = ("backup", "restore")
