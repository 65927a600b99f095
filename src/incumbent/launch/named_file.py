"""A file that a spec names and the agent reads for its program: opened once, judged as opened.

Who may write a spec names it, and who owns a folder above it may put another file there at any
moment: between a look at a name and its opening, too. So each step of the path is opened from the
one above it, and whatever is said of the file is said of the descriptor that it is read from.

Rule of this file: nothing is judged by its name. Nothing here waits: not for the other end of a
pipe, nor for the end of a file that has none.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from incumbent.launch.identity import Identity

__all__ = ["LARGEST", "NamedFile", "read_named"]

LARGEST = 1024 * 1024
"""Bytes: an agent's loop waits while it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """`real` is its path without links; `owner` and `mode` are of what was read."""

    real: Path
    owner: int
    mode: int
    data: bytes


def read_named(path: str, reader: Identity | None = None) -> NamedFile:
    """An ordinary file of at most `LARGEST` bytes. `reader`: who must be able to read it himself,
    besides us; None, and root, can read what we can.

    Raises OSError, whose strerror can stand in a sentence as it is.
    """
    try:
        return _read(path, reader)
    except OSError as error:
        if not error.errno:
            raise  # one of ours
        raise OSError(error.errno, os.strerror(error.errno).lower()) from None


def _read(path: str, reader: Identity | None) -> NamedFile:
    if reader is not None and reader.uid in (0, os.geteuid()):
        reader = None
    real = Path(os.path.realpath(path, strict=True))  # Path.resolve has its own error for a loop
    above = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        place = Path("/")
        for name in real.parts[1:-1]:
            _see(os.fstat(above), stat.S_IXOTH, reader, place)
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=above)
            os.close(above)
            above, place = below, place / name
        _see(os.fstat(above), stat.S_IXOTH, reader, place)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(real.name or ".", flags, dir_fd=above)
    finally:
        os.close(above)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a file; name an ordinary one")
        _see(found, stat.S_IROTH, reader, real)
        with open(opened, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1) or b""  # None: one of /proc that has nothing to say
    finally:
        os.close(opened)
    if len(data) > LARGEST:
        raise OSError(0, f"larger than {LARGEST} bytes, the most that it may have")
    return NamedFile(real=real, owner=found.st_uid, mode=found.st_mode, data=data)


def _see(found: os.stat_result, bit: int, reader: Identity | None, place: Path) -> None:
    """That the reader may pass, or read: by the classes of owner, group and others."""
    if reader is None:
        return
    shift = 0
    if found.st_uid == reader.uid:
        shift = 6
    elif found.st_gid in (reader.gid, *reader.groups):
        shift = 3
    if not found.st_mode & (bit << shift):
        raise OSError(0, f"not for {reader.name} to read: it is closed by {place}")
