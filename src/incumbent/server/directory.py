"""The data directory: ours alone while we use it, and where the database in it is.

Rule of this file: a directory that holds something else than what we think is never written to.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["DATABASE", "CannotStart", "Directory"]

DATABASE = "zookeeper.db"


class CannotStart(Exception):
    """A sentence for the operator."""


class Directory:
    """A data directory, made if missing; locked while the context lasts. Raises `CannotStart`.

    With `log`, the database is kept in that directory, on a disk of its own, and a link to it
    stands in its place: the same database is found without the setting, too.
    """

    def __init__(self, path: Path, *, log: Path | None = None) -> None:
        self.path = path
        self.database = path / DATABASE
        self._log = log
        self._fd = -1

    def __enter__(self) -> Directory:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStart(
                f"cannot write to the data directory {self.path}: {error.strerror}; "
                "name another with --data, or give this user the right to write there"
            ) from None
        try:
            self._lock()
            self._refuse_apache()
            if self._log is not None:
                self._link(self._log)
            if self.database.is_symlink():
                self.database = self.database.resolve()
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def make_database(self) -> None:
        """An empty one, if there is none: nobody else may read it, nor the secret in it."""
        with suppress(OSError):  # who opens it next says why it cannot be made
            os.close(os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def sizes(self) -> tuple[int, int]:
        """Bytes in it, and where the log is: the same files, unless that has a directory."""
        own, log = _size(self.path), self.database.parent
        return own, own if log == self.path else _size(log)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            raise CannotStart(
                f"the data directory {self.path} is in use by the server with pid {pid}; "
                "stop that one, or name another directory with --data"
            ) from None
        with suppress(OSError):  # a full disk: the lock holds without the pid
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())

    def _refuse_apache(self) -> None:
        if (self.path / "version-2").is_dir() and not os.path.lexists(self.database):
            raise CannotStart(
                f"the data directory {self.path} holds Apache ZooKeeper's data, which this server "
                "does not read: it would begin empty; name another with --data"
            )

    def _link(self, log: Path) -> None:
        try:
            log.mkdir(parents=True, exist_ok=True)
            target = log.resolve() / DATABASE
            if not os.path.lexists(self.database):
                self.database.symlink_to(target)
        except OSError as error:
            raise CannotStart(
                f"cannot keep the database in {log}: {error.strerror}; "
                "name another directory with --data-log"
            ) from None
        if self.database.resolve() != target:
            raise CannotStart(
                f"the database is {self.database.resolve()}, not in {log}; "
                f"move it (with {DATABASE}-wal, if that is there) and remove "
                f"{self.database}, or leave out --data-log"
            )


def _size(directory: Path) -> int:
    with suppress(OSError):
        return sum(
            entry.stat(follow_symlinks=False).st_size
            for entry in os.scandir(directory)
            if entry.is_file(follow_symlinks=False)
        )
    return 0
