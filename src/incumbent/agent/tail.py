"""A program's log as it grows: from its last lines, from a time, or from a place known before.

The log-writer renames the file when it is full and begins a new one under the old name; the
file stays the same over restarts of the program and of the agent.

Rule of this file: only whole lines are given, each once, and none is left out between two files
or before following begins; where files went faster than they were read, or one was emptied, that is
said. A file is known by its open descriptor; where none was kept, by its inode and how it begins, for
an inode is given to a new file too. It holds a chunk and a line in memory, however large the files are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from incumbent.guardian.logwriter import FILES

__all__ = ["Tail"]

_CHUNK = 64 * 1024
_LONGEST = 1 << 20  # bytes of a line that are waited for; a longer one comes in pieces
_STAMP = len("2026-01-31T12:00:00.123Z")
_GAP = "[incumbent: lines are missing here: files went faster than they were read]"
_EMPTIED = "[incumbent: lines may be missing here: the file was emptied]"
_AFTER_A_GAP = 100  # lines
_HEAD = 64  # bytes by which a file is known: the stamp of its first line, and more


class Tail:
    """One log, from its oldest line on, unless one of `begin_…` is called first. Everything may
    raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[int] = []  # the one that is read, then those after it, oldest first
        self._rest = b""
        self._since = b""
        self._has_begun = False
        self._mark = ""  # to be given before the next line
        self._end: tuple[tuple[int, int], int] | None = None  # a file, and how much of it is given

    def end_here(self) -> None:
        """Give nothing that is written from now on. Call it before `begin_…`."""
        self._end = (0, 0), 0
        files = self._newest_first()  # the newest one is missing for a moment when it is full
        if files:
            self._end = _identity(files[0]), os.fstat(files[0]).st_size
        _close(files)

    def begin_at_last(self, count: int) -> None:
        """At the last `count` lines that there are now, over older files too."""
        files, offset, place = self._newest_first(), 0, 0
        if self._end is not None and self._end[0] in map(_identity, files):
            while _identity(files[0]) != self._end[0]:  # it has come since
                os.close(files.pop(0))
        while place < len(files):
            offset, count = _back(files[place], self._size(files[place]), count)
            if count <= 0:
                break
            place += 1
        self._begin(files, min(place, len(files) - 1), offset)

    def begin_at_time(self, at: str) -> None:
        """At the first line that is stamped so or later, as the log-writer stamps."""
        files, place = self._newest_first(), 0
        self._since = at.encode()
        while place < len(files) - 1 and os.pread(files[place], _STAMP, 0) >= self._since:
            place += 1
        self._begin(files, place, 0)

    def begin_after(self, place: tuple[int, int]) -> None:
        """Behind the `place` of an earlier Tail. Where that is gone, it is said."""
        known, offset = place
        files = self._newest_first()
        for n, fd in enumerate(files):
            if os.fstat(fd).st_size >= offset and _known_by(fd, offset) == known:
                self._begin(files, n, offset)
                return
        _close(files)
        self.begin_at_last(_AFTER_A_GAP)
        self._mark = _GAP

    @property
    def place(self) -> tuple[int, int]:
        """(what the file is known by, offset) behind what was given so far; zeros while there is no
        file."""
        if not self._files:
            return 0, 0
        fd = self._files[0]
        offset = max(0, os.lseek(fd, 0, os.SEEK_CUR) - len(self._rest))
        return _known_by(fd, offset), offset

    def batch(self) -> list[str]:
        """Some of the whole lines that come next; none: there are no more as yet."""
        if self._end == ((0, 0), 0):
            return []
        if not self._has_begun:
            files = self._newest_first()
            self._begin(files, len(files) - 1, 0)
        while self._mark or self._files or self._open():
            self._see_emptied()
            if self._mark:
                said, self._mark = self._mark, ""
                return [said]
            has_next = len(self._files) > 1 or self._is_renamed()  # nobody writes to it any more
            lines, is_at_end = self._take()
            if lines:
                return lines
            if is_at_end and self._is_last(self._files[0]):
                return []
            if is_at_end and not (has_next and self._go_over()):
                return []
        return []

    def read(self) -> Iterator[str]:
        """All of them."""
        while lines := self.batch():
            yield from lines

    def close(self) -> None:
        _close(self._files)
        self._files = []

    def _see_emptied(self) -> None:
        """A file that is shorter than what was read of it begins anew."""
        if not self._files:
            return
        fd = self._files[0]
        if os.fstat(fd).st_size < os.lseek(fd, 0, os.SEEK_CUR):
            os.lseek(fd, 0, os.SEEK_SET)
            self._rest, self._mark = b"", _EMPTIED

    def _take(self) -> tuple[list[str], bool]:
        """The whole lines within the next chunk, and whether the file has come to its end."""
        fd = self._files[0]
        room = self._size(fd) - os.lseek(fd, 0, os.SEEK_CUR) if self._is_last(fd) else _CHUNK
        chunk = os.read(fd, max(0, min(room, _CHUNK)))
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines.append(self._rest)
            self._rest = b""
        if self._since:
            first = next((n for n, line in enumerate(lines) if line >= self._since), None)
            del lines[:first]
            self._since = self._since if first is None else b""
        return [line.decode(errors="replace") for line in lines], not chunk

    def _is_last(self, fd: int) -> bool:
        return self._end is not None and _identity(fd) == self._end[0]

    def _size(self, fd: int) -> int:
        """Of what is given of it, as far as it is there."""
        size = os.fstat(fd).st_size
        return size if self._end is None or not self._is_last(fd) else min(size, self._end[1])

    def _go_over(self) -> bool:
        """To the file after this one, which is at its end; False: it cannot be found as yet."""
        if len(self._files) == 1:
            self._files += reversed(self._newest_first(until=self._files[0]))
        if len(self._files) == 1:
            return False
        os.close(self._files.pop(0))
        return True

    def _newest_first(self, until: int = -1) -> list[int]:
        """The files of this log, open; only those after the open file `until`, if it is one of
        them. What is renamed meanwhile is met a second time, under an older name.
        """
        end = _identity(until) if until >= 0 else None
        found: list[int] = []
        try:
            for n in range(FILES):
                path = self._path.with_name(f"{self._path.name}.{n}") if n else self._path
                with suppress(FileNotFoundError):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    if _identity(fd) == end:
                        os.close(fd)
                        return found
                    if any(_identity(fd) == _identity(each) for each in found):
                        os.close(fd)
                    else:
                        found.append(fd)
        except OSError:
            _close(found)
            raise
        if end is not None and len(found) == FILES:
            self._mark = _GAP
        return found

    def _begin(self, files: list[int], place: int, offset: int) -> None:
        """In the file at this place of those `files`, newest first."""
        self._has_begun = True
        _close(files[place + 1 :])
        self._files = files[place::-1] if files else []
        if files:
            os.lseek(self._files[0], offset, os.SEEK_SET)

    def _open(self) -> bool:
        with suppress(FileNotFoundError):
            self._files = [os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)]
        return bool(self._files)

    def _is_renamed(self) -> bool:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # the next one is not there yet
        return (now.st_dev, now.st_ino) != _identity(self._files[0])


def _back(fd: int, at: int, count: int) -> tuple[int, int]:
    """Where the last `count` whole lines of a file's first `at` bytes begin, and how many of them it
    does not have."""
    wanted = count + 1
    while at > 0:
        block = os.pread(fd, min(_CHUNK, at), max(0, at - _CHUNK))
        at = max(0, at - _CHUNK)
        end = len(block)
        while (end := block.rfind(b"\n", 0, end)) >= 0:
            wanted -= 1
            if wanted == 0:
                return at + end + 1, 0
    return 0, wanted - 1 if count else 0


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _known_by(fd: int, offset: int) -> int:
    """What tells a file, of which so much was read, from others, also once it is closed here."""
    head = os.pread(fd, min(offset, _HEAD), 0)
    known = b"%d %b" % (os.fstat(fd).st_ino, head)
    return int.from_bytes(hashlib.blake2b(known, digest_size=6).digest())


def _close(files: Iterable[int]) -> None:
    for fd in files:
        os.close(fd)
