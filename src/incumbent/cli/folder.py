"""The folder `.incumbent` beside FILE: everything that an `up` keeps.

    .incumbent/  lock  runtime.json  server/  server.log  agent/  agent.log
                 operators.auth  agents.auth

Rule of this file: one `up` at a time, and not before everything of an earlier one has let go.
What `--fresh` deletes is named here one by one; nothing that we did not make is touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from incumbent.agent.home import Home
from incumbent.cli.files import Files
from incumbent.errors import IncumbentError

__all__ = ["Folder", "FolderUnusable", "UpRuns"]

_OURS = (
    "runtime.json",
    "server",
    "server.log",
    "server.log.1",
    "agent",
    "agent.log",
    "agent.log.1",
    "operators.auth",
    "agents.auth",
)
_LOG_SIZE = 1_000_000
_PATIENCE = 60.0
"""Seconds in which an earlier life stops in order: longer than most programs' grace."""


class UpRuns(IncumbentError):
    """Another `up` runs here."""

    def __init__(self, folder: Path, pid: str) -> None:
        self.folder = folder
        self.pid = pid
        super().__init__(folder, pid)

    def __str__(self) -> str:
        return (
            f"an `incumbent up` runs here already (pid {self.pid or '?'}, {self.folder}); "
            "`incumbent status` shows what it runs, Ctrl-C or SIGTERM stops it"
        )


class FolderUnusable(IncumbentError):
    """The folder cannot be made, written or taken over. A whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class Folder:
    """`lock` first, then `await_earlier`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    @property
    def credentials(self) -> Files:
        return Files(self.path)

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def agent(self) -> Path:
        return self.path / "agent"

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def lock(self) -> None:
        """Hold it while this process lives. Raises `UpRuns`, `FolderUnusable`."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.path.chmod(0o700)
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderUnusable(
                f"{self.path} cannot be used: {(error.strerror or str(error)).lower()}; "
                "it has to be a folder that this user may write"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(fd, 32).decode(errors="replace").strip()
            os.close(fd)
            raise UpRuns(self.path, pid) from None
        with suppress(OSError):  # a full disk: the lock holds without the pid
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        self._lock = fd

    def await_earlier(self, say: Callable[[str], None]) -> None:
        """Wait until server and guardian of an earlier `up` have ended. Raises `FolderUnusable`."""
        for what, place in (("guardian", self.agent), ("server", self.server)):
            began_at = time.monotonic()
            is_said = False
            while (pid := _holder(place / "lock")) is not None:
                waited = time.monotonic() - began_at
                if waited > _PATIENCE:
                    raise FolderUnusable(
                        f"the {what} of an earlier `incumbent up` (pid {pid}) does not end; "
                        "end it, then try again"
                    )
                if waited > 0.3 and not is_said:
                    is_said = True
                    say(f"waiting for the {what} of an earlier `up` to stop (pid {pid})")
                time.sleep(0.02)

    def empty(self, say: Callable[[str], None]) -> None:
        """End what an earlier life left running, then delete all that it kept.

        Raises `LeftoversRemain`, `FolderUnusable`.
        """
        Home(self.agent).end_leftovers(say)
        try:
            for name in _OURS:
                path = self.path / name
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FolderUnusable(f"{error.filename} cannot be deleted: {why}") from None

    def rotate(self, name: str) -> None:
        """Put a log that has grown aside, before anybody writes to it."""
        path = self.log(name)
        try:
            if path.stat().st_size > _LOG_SIZE:
                path.replace(path.with_name(f"{path.name}.1"))
        except FileNotFoundError:
            return


def _holder(lock: Path) -> str | None:
    """The pid of the process that holds a lock file; None if nobody does."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None  # there is none, or whoever needs it will say what is wrong with it
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return os.read(fd, 32).decode(errors="replace").strip() or "?"
    finally:
        os.close(fd)
