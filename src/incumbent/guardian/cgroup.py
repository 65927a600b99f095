"""A cgroup for a tree: found, made, limited, killed as one, proven empty, removed.

cgroup v2 only. `cgroup.kill` (Linux 5.14) ends everything in it at once, however fast it forks;
`cgroup.events` says `populated 0` when nothing that lives is in it or below it. Ours are made
beside the guardian, in the cgroup that it was started in, so that systemd, which ends what is
left of a unit, ends them too. For limits the cgroup that they are made in hands controllers
down, and may then have no process of its own: the guardian steps aside into one more.

Rule of this file: a cgroup is called empty only by `populated 0`, or because it is not there
(the kernel removes none that is populated).
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["CONTROLLERS", "Cgroup", "end_cgroup", "end_cgroups", "find_own", "hand_down", "name_of"]

CONTROLLERS = frozenset({"cpu", "memory", "pids"})
_ASIDE = "incumbent-guardian"
_POLL = 0.002  # seconds between two looks at what is being killed


class Cgroup:
    """One cgroup of ours, open. `fd` is for clone3; poll `changes`: readable, it may be empty."""

    def __init__(self, path: str, limits: Mapping[str, str]) -> None:
        """Make it and write `limits` (file → text) into it. Raises OSError, and leaves none."""
        self.path = Path(path)
        self.path.mkdir(exist_ok=True)  # an earlier probe's; what runs in it has its own name
        opened: list[int] = []
        try:
            for file, text in limits.items():
                (self.path / file).write_text(text)
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            opened.append(self.fd)
            self.kill_fd = os.open(self.path / "cgroup.kill", os.O_WRONLY)
            opened.append(self.kill_fd)
            self._events = os.open(self.path / "cgroup.events", os.O_RDONLY)
            opened.append(self._events)
            self.changes = select.epoll()
            self.changes.register(self._events, select.EPOLLPRI)
        except OSError:
            for fd in opened:
                os.close(fd)
            self._remove()
            raise

    def kill(self) -> None:
        """SIGKILL to everything in it and below it, and to what is being forked there."""
        with suppress(OSError):
            os.write(self.kill_fd, b"1")

    def is_empty(self) -> bool:
        """Whether nothing that lives is in it or below it; asking makes `changes` unreadable."""
        return b"populated 0" in os.pread(self._events, 4096, 0)

    def close(self) -> None:
        """Let go of it, and remove it if it is empty."""
        self.changes.close()
        for fd in (self._events, self.kill_fd, self.fd):
            os.close(fd)
        self._remove()

    def _remove(self) -> None:
        for path in [*_below(self.path), self.path]:
            with suppress(OSError):  # not empty, or gone
                path.rmdir()


def name_of(owner: str, seat: str, epoch: int) -> str:
    """The name of an instance's cgroup: the next life of `owner` finds it by that."""
    return f"incumbent-{owner}-{seat.replace('/', '-')}-{epoch}"


def find_own(process: Path = Path("/proc/self")) -> Path:
    """The directory of our own cgroup. Raises OSError, whose strerror says why there is none."""
    own = ""
    for line in (process / "cgroup").read_text().splitlines():
        if line.startswith("0::"):
            own = line.removeprefix("0::")
    if not own:
        raise OSError(errno.ENOENT, "this process is in no cgroup of version 2")
    why = "no file system of type cgroup2 is mounted"
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if not kind.startswith("cgroup2 "):
            continue
        root, point = (_unescaped(each) for each in mount.split()[3:5])
        if not f"{own}/".startswith(root.rstrip("/") + "/"):
            why = f"the cgroup {own} is not shown below {point}"
            continue
        found = Path(point) / own[len(root.rstrip("/")) :].lstrip("/")
        if os.access(found, os.W_OK) and os.access(found / "cgroup.procs", os.W_OK):
            return found
        why = f"{found} cannot be written (a systemd unit needs Delegate=yes)"
    raise OSError(errno.ENOENT, why)


def hand_down(own: Path) -> tuple[frozenset[str], str]:
    """Let the cgroups below `own` have our `CONTROLLERS`: those that they have, and why not all.

    The kernel wants no process in a cgroup that hands controllers down: if we are alone in it,
    we go aside.
    """
    available = CONTROLLERS & _words(own / "cgroup.controllers")
    wanted = available - _words(own / "cgroup.subtree_control")
    why = f"{own} has no cgroup controller for it" if available != CONTROLLERS else ""
    if wanted:
        order = " ".join(f"+{each}" for each in sorted(wanted))
        try:
            _write_or_step_aside(own, order)
        except OSError as error:
            why = f"{own}: {error.strerror}"
    return CONTROLLERS & _words(own / "cgroup.subtree_control"), why


def _write_or_step_aside(own: Path, order: str) -> None:
    try:
        (own / "cgroup.subtree_control").write_text(order)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        if _words(own / "cgroup.procs") != {str(os.getpid())}:
            why = "other processes are in it (a systemd unit of its own has none)"
            raise OSError(errno.EBUSY, why) from None
        aside = own / _ASIDE
        aside.mkdir(exist_ok=True)
        (aside / "cgroup.procs").write_text(str(os.getpid()))
        (own / "cgroup.subtree_control").write_text(order)


def end_cgroup(path: Path, timeout: float) -> bool:
    """Kill everything in a cgroup that an earlier life left, and remove it; False: somebody in
    it is alive after `timeout` seconds."""
    until = time.monotonic() + timeout
    while True:
        try:
            (path / "cgroup.kill").write_text("1")
            is_empty = "populated 0" in (path / "cgroup.events").read_text()
        except (FileNotFoundError, NotADirectoryError):
            return not path.exists()
        except OSError:
            is_empty = not path.exists()  # removed just now
        if is_empty:
            for each in [*_below(path), path]:
                with suppress(OSError):
                    each.rmdir()
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)


def end_cgroups(own: Path, owner: str, timeout: float) -> list[str]:
    """End every cgroup that `owner` has left in `own`; the names of those that remain."""
    found = sorted(own.glob(f"incumbent-{owner}-*"))
    return [path.name for path in found if not end_cgroup(path, timeout)]


def _below(path: Path) -> Iterator[Path]:
    """The cgroups that programs have made below it, deepest first."""
    with suppress(OSError):
        for each in sorted(path.iterdir()):
            if each.is_dir():
                yield from _below(each)
                yield each


def _words(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text().split())
    except OSError:
        return frozenset()


def _unescaped(text: str) -> str:
    """A field of mountinfo: space, tab, newline and backslash are octal there."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
