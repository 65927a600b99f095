"""An agent's data directory: its lock, its node id, its logs, and the trees it started.

Rule of this file: locked before anything else is read; never a secret in it. What an earlier
life left running is ended, and proven so, before any session begins.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from incumbent.agent.instance import Instance
from incumbent.agent.proc import end_process, end_seat
from incumbent.agent.steadiness import Loss
from incumbent.errors import IncumbentError
from incumbent.guardian.cgroup import end_cgroup, end_cgroups, name_of
from incumbent.runtime_file import boot_id, start_time

__all__ = ["Home", "HomeInUse", "HomeUnusable", "LeftoversRemain"]

_KEYS = {"seat", "epoch", "pid", "start_time", "boot_id", "owner", "folder"}
END_TIME = 10.0
"""Seconds that the leftovers of an earlier life have to die."""


class HomeInUse(IncumbentError):
    """Another agent runs on this data directory."""

    def __init__(self, folder: Path, pid: str) -> None:
        self.folder = folder
        self.pid = pid
        super().__init__(folder, pid)

    def __str__(self) -> str:
        return f"{self.folder} is in use by pid {self.pid or '?'}; stop that agent, or name another --data"


class HomeUnusable(IncumbentError):
    """The data directory cannot be made or written."""

    def __init__(self, folder: Path, why: str) -> None:
        self.folder = folder
        self.why = why
        super().__init__(folder, why)

    def __str__(self) -> str:
        return f"{self.folder} cannot be used: {self.why}; make it writable, or name another --data"


class LeftoversRemain(IncumbentError):
    """Programs of an earlier life cannot be ended: nothing may start here."""

    def __init__(self, seats: list[str]) -> None:
        self.seats = seats
        super().__init__(seats)

    def __str__(self) -> str:
        return (
            f"programs of an earlier life are still alive after SIGKILL: {', '.join(self.seats)}; "
            "end them, then start this agent again"
        )


class Home:
    """The directory. `lock` first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def socket(self) -> Path:
        return self.folder / "agent.sock"

    def losses(self) -> list[Loss]:
        """The losses that were written down, oldest first. What cannot be read is none."""
        try:
            return [
                Loss(at=float(each["at"]), why=str(each["why"]), ran=list(each["ran"]))
                for each in json.loads(self._losses_file.read_text())
            ]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def remember_losses(self, losses: Sequence[Loss]) -> None:
        """Raises OSError."""
        self._write(self._losses_file, json.dumps([asdict(each) for each in losses]))

    @property
    def _losses_file(self) -> Path:
        return self.folder / "lost-sessions.json"

    @property
    def _trees_file(self) -> Path:
        return self.folder / "trees.json"

    @property
    def _here(self) -> str:
        """What tells this folder from a copy of it."""
        return str(self.folder.stat().st_ino)

    def log_of(self, seat: str) -> Path:
        component, _, number = seat.rpartition("/")
        return self.logs / f"{component}-{number}.log"

    def lock(self) -> None:
        """Hold it for as long as this process lives. Raises `HomeInUse`, `HomeUnusable`."""
        try:
            self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeUnusable(self.folder, (error.strerror or str(error)).lower()) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(fd, 32).decode(errors="replace").strip()
            os.close(fd)
            raise HomeInUse(self.folder, pid) from None
        with suppress(OSError):  # a full disk: the lock holds without the pid
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        self._lock = fd

    def node_id(self, make: Callable[[], str]) -> str:
        """This node's id; made once for this folder. Raises `HomeUnusable`.

        A copy of the folder is another node: it neither is nor owns what the original started.
        """
        path = self.folder / "node-id"
        try:
            known = path.read_text().split() if path.exists() else []
            if known and known[1:] == [self._here]:
                return known[0]
            node_id = make()
            self._write(path, f"{node_id} {self._here}\n")
        except UnicodeDecodeError:
            raise HomeUnusable(self.folder, f"{path} is no text; delete it") from None
        except OSError as error:
            raise HomeUnusable(self.folder, (error.strerror or str(error)).lower()) from error
        return node_id

    def write_config(self, seat: str, name: str, value: str, owner: tuple[int, int] | None) -> Path:
        """A file of configuration, replaced as a whole; only `owner` (user, group) and we read it.
        Raises OSError."""
        folder = self._config_of(seat)
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder.parent.chmod(0o711)
        path = folder / name
        draft = path.with_name(f"{path.name}.new")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(value.encode())
            if owner is not None and owner[0] != os.geteuid():
                os.fchown(fd, *owner)
        return draft.replace(path)

    def forget_config(self, seat: str) -> None:
        """Nothing of the seat runs here any more: its files of configuration go."""
        shutil.rmtree(self._config_of(seat), ignore_errors=True)

    def _config_of(self, seat: str) -> Path:
        return self.folder / "config" / seat.replace("/", "-")

    def remember(
        self, owner: str, instances: Mapping[str, Instance], cgroups: Path | None = None
    ) -> None:
        """Write down every tree that may be alive: seat, epoch, first process, boot, and the
        cgroup that it has if it has one. `cgroups`: where those are made."""
        trees = [
            {
                "seat": each.mark[0],
                "epoch": each.mark[1],
                "pid": each.pid,
                "start_time": each.start_time or start_time(each.pid) or 0,
                "boot_id": boot_id(),
                "owner": owner,
                "folder": self._here,
                "cgroup": f"{cgroups}/{name_of(owner, each.seat, each.epoch)}" if cgroups else "",
            }
            for each in instances.values()
            if each.pid and not each.is_empty
        ]
        self._write(self._trees_file, json.dumps(trees))

    def end_leftovers(
        self, say: Callable[[str], None], *, owner: str = "", cgroups: Path | None = None
    ) -> None:
        """End what an earlier life left, and prove it. Raises `LeftoversRemain`.

        With `owner` and `cgroups` also what it had no time to write down.
        """
        remain = end_cgroups(cgroups, owner, END_TIME) if cgroups is not None else []
        for tree in self._trees():
            if (tree["boot_id"], tree["folder"]) != (boot_id(), self._here):
                continue
            if start_time(tree["pid"]) == tree["start_time"]:
                say(f"ending {tree['seat']} (pid {tree['pid']}), left by an earlier life")
            is_dead = end_process(tree["pid"], tree["start_time"], END_TIME)
            if tree.get("cgroup"):
                is_dead = end_cgroup(Path(tree["cgroup"]), END_TIME) and is_dead
            if not (is_dead and end_seat(tree["owner"], tree["seat"], tree["epoch"], END_TIME)):
                remain.append(tree["seat"])
        if remain:
            raise LeftoversRemain(remain)
        shutil.rmtree(self.folder / "config", ignore_errors=True)

    def _trees(self) -> list[dict[str, Any]]:
        try:
            trees = json.loads(self._trees_file.read_text())
        except (OSError, ValueError):
            return []
        if not isinstance(trees, list):
            return []
        return [each for each in trees if isinstance(each, dict) and each.keys() >= _KEYS]

    def _write(self, path: Path, text: str) -> None:
        draft = path.with_suffix(".new")
        draft.write_text(text)
        draft.replace(path)
