"""A seat's processes as the guardian sees them: started, signalled, killed, proven empty.

Every containment has a first process (first.py), a fork of the guardian that starts the
program and stays its parent. *sealed*: it is the init of a PID namespace; when it ends, for
whatever reason, the kernel kills everything in the namespace before its pidfd becomes
readable: that is the proof. *swept*: it is a subreaper, so that nothing of its tree can be
adopted away while it lives; it kills its children until it has none, says so, and ends: word
and end together are the proof. If it is killed itself, its orphans fall to the guardian, which
is a subreaper too and does the same. *contained*: as swept, in a cgroup of its own, which is
killed as one and has to say besides that it is empty: so nobody is left who left the cgroup, and
nobody who left the tree. A sealed tree may have a cgroup too, for its limits.

Rule of this file: `TreeEmpty` is made here and only from such a proof.
"""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import struct
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from incumbent.guardian import kernel
from incumbent.guardian.actions import (
    Event,
    MainExited,
    ProgramTold,
    SeatStarted,
    SpawnFailed,
    SpawnSeat,
    TreeEmpty,
)
from incumbent.guardian.cgroup import Cgroup
from incumbent.guardian.first import Job, be_first
from incumbent.guardian.messages import Start, Told

__all__ = ["CONTAINMENTS", "PERMANENT", "Tree", "probe"]

CONTAINMENTS = ("sealed", "contained", "swept")
"""The strongest first."""
_PROBE_TIME = 5.0  # seconds
_SWEEP_ROUNDS = 50  # kills of orphans in a row, before others have their turn
_PATIENT_ROUNDS = 10  # kills of a swept tree before its first process is killed too
_CREDENTIALS = struct.Struct("iII")

PERMANENT = {
    errno.ENOENT,
    errno.EACCES,
    errno.ENOEXEC,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.E2BIG,
    errno.EINVAL,
    errno.EPERM,
    errno.ENOSPC,  # no more namespaces of this kind permitted
    errno.ENOSYS,
}


class Tree:
    """One tree. Poll `channel`, `pidfd` and, where there is one, `cgroup.changes`; when readable
    call `on_channel`, `on_death`, `on_cgroup`. `ours` (see there): what no orphan is."""

    def __init__(
        self,
        action: SpawnSeat,
        deadline: kernel.BoottimeTimer,
        secrets: Sequence[bytes],
        output: int | None,
        open_files: tuple[int, int] | None = None,
    ) -> None:
        """Start it; its first process ends itself when `deadline` rings. `output` is the write end
        for stdout and stderr (None: ours), `open_files` how many descriptors the program may
        have, soft and hard (None: as we may).

        Raises OSError if nothing could be started at all.
        """
        self.start = start = action.start
        self.whose_deadline = action.whose_deadline
        self.seat, self.epoch = start.seat, start.epoch
        self.is_sealed = start.containment == "sealed"
        if start.containment == "contained" and start.cgroup is None:
            raise OSError(errno.EINVAL, "no cgroup is named for it")
        self.main = 0
        self.is_silent = False  # its channel has ended: don't poll it
        self.is_reaped = False
        self._is_up = False
        self._is_killed = False
        self._is_swept = False
        self._failure = ""
        self._is_permanent = False
        self._is_buried = False  # `on_death` was called
        self._is_proven = False
        self._rounds = 0
        with ExitStack() as to_undo, ExitStack() as to_close:
            self.cgroup = Cgroup(start.cgroup, start.cgroup_limits) if start.cgroup else None
            to_undo.callback(self.leave_cgroup)
            with ExitStack() as childs:  # closed before more are needed: what may fail, fails first
                self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                to_undo.callback(self.channel.close)
                childs.callback(theirs.close)
                self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                self.channel.setblocking(False)
                go_read, go_write = os.pipe()
                childs.callback(os.close, go_read)
                to_close.callback(os.close, go_write)  # without the byte: the child ends
                job = Job(
                    start=start,
                    soft_at=action.soft_at,
                    deadline=deadline,
                    channel=theirs,
                    go=go_read,
                    output=output,
                    secrets=tuple(secrets),
                    is_sealed=self.is_sealed,
                    user=(os.geteuid(), os.getegid()),
                    kill_fd=self.cgroup.kill_fd if self.cgroup and not self.is_sealed else None,
                    open_files=open_files,
                )
                self.pid = _fork(job, go_write, self.cgroup.fd if self.cgroup else None)
            self.pidfd = os.pidfd_open(self.pid)
            to_undo.callback(os.close, self.pidfd)
            self.start_time = kernel.start_time(self.pid)  # ours until we reap it
            with suppress(BrokenPipeError):  # dead already: its pidfd says so
                os.write(go_write, b"g")
            to_undo.pop_all()

    # what comes back

    def on_channel(self) -> list[Event]:
        """Everything that its first process has to say."""
        events: list[Event] = []
        while True:
            try:
                data, extra, _, _ = self.channel.recvmsg(4096, socket.CMSG_SPACE(64))
            except BlockingIOError:
                return events
            except OSError:
                data = b""
            if not data:
                self.is_silent = True
                return events
            word, _, rest = data.decode(errors="replace").partition(" ")
            if word == "main":
                self.main = _sender(extra)
            elif word == "up":
                self._is_up = True
                started = SeatStarted(self.seat, self.epoch, self.pid, self.start_time, self.main)
                events.append(started)
            elif word == "failed":
                code, _, self._failure = rest.partition(" ")
                self._is_permanent = int(code) in PERMANENT
            elif word == "ended":
                status, signo, left = (int(each) for each in rest.split())
                ended = (None, signo, left) if signo else (status, None, left)
                events.append(MainExited(self.seat, self.epoch, *ended))
            elif word == "told":
                told = Told(seat=self.seat, epoch=self.epoch, **json.loads(rest))
                events.append(ProgramTold(told))
            elif word == "empty":
                self._is_swept = True

    def on_death(self, ours: Callable[[], Collection[int]]) -> list[Event]:
        """The pidfd is readable: the first process is dead."""
        events = self.on_channel()
        self._is_buried = True
        if self.is_sealed or self._is_swept:
            return [*events, *self.on_cgroup(ours)]
        # It was killed: what it left is ours now, and is swept.
        self._is_killed = True
        return [*events, MainExited(self.seat, self.epoch, None, None, 0), *self.on_cgroup(ours)]

    def on_cgroup(self, ours: Callable[[], Collection[int]]) -> list[Event]:
        """Its cgroup has changed, or is to be looked at: the proof, if everybody is gone."""
        is_empty = self.cgroup is None or self.cgroup.is_empty()
        if self._is_proven or not self._is_buried:
            return []
        if not self.is_sealed and not self._is_swept and not self._sweep_orphans(ours):
            return []
        if not self.is_sealed and not is_empty:
            return []
        self._is_proven = True
        self.leave_cgroup()
        return [self._proof()]

    def _sweep_orphans(self, ours: Callable[[], Collection[int]]) -> bool:
        """Whether nobody is left of those that a dead first process has left to us."""
        return any(kernel.kill_children(spare=ours()) == 0 for _ in range(_SWEEP_ROUNDS))

    def leave_cgroup(self) -> None:
        if self.cgroup is not None:
            self.cgroup.close()
            self.cgroup = None

    def _proof(self) -> Event:
        if self._is_up or self._is_killed:
            return TreeEmpty(self.seat, self.epoch)
        why = self._failure or "it ended before the program was executed"
        self.reap()
        return SpawnFailed(self.seat, self.epoch, why, self._is_permanent)

    @property
    def failure(self) -> str:
        """Why nothing was executed, once `on_death` was called; "" otherwise."""
        return self._failure

    @property
    def is_dead(self) -> bool:
        """Whether the first process has ended (not: whether the tree is empty)."""
        return self.is_reaped or kernel.is_readable(self.pidfd)

    # what is done to it

    def signal(self, signo: int) -> None:
        """To the main process, by its parent: no pid can be mistaken for another."""
        self._order(f"signal {signo}")

    def kill(self, ours: Callable[[], Collection[int]]) -> list[Event]:
        """SIGKILL everything. A tree that is not sealed and whose first process is dead has left
        its orphans to us: the children that are not `ours`. The proof comes back when there is
        none."""
        self._is_killed = True
        if self.is_sealed:
            kernel.kill(self.pidfd)
            return []
        if self.cgroup is not None:
            self.cgroup.kill()
        if self.is_dead:
            return self.on_cgroup(ours)
        if self.cgroup is None:
            self._order("kill")
            kernel.sweep(self.pid)
            self._rounds += 1
            if self._rounds > _PATIENT_ROUNDS:  # frozen: its orphans will be ours
                kernel.kill(self.pidfd)
        return []

    def reap(self) -> None:
        """Give up pid and descriptors of a dead first process."""
        if self.is_reaped or not self.is_dead:
            return
        self.is_reaped = True
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)
        self.channel.close()
        self.leave_cgroup()

    def _order(self, words: str) -> None:
        try:
            self.channel.send(words.encode())
        except OSError:
            return  # dead, or frozen with a full socket: SIGKILL and the deadline don't need it


def _fork(job: Job, close_in_child: int, cgroup: int | None) -> int:
    """The pid of a child that is first in its tree."""
    flags = kernel.CLONE_NEWPID if job.is_sealed else 0
    flags |= kernel.CLONE_NEWUSER if job.needs_user_namespace else 0
    pid = kernel.clone(flags, cgroup) if flags or cgroup is not None else os.fork()
    if pid == 0:
        try:
            os.close(close_in_child)
            be_first(job)
        finally:
            os._exit(1)  # whatever comes: nothing of ours is undone there
    return pid


def _sender(extra: list[tuple[int, int, bytes]]) -> int:
    """The sender's pid as we see it: the kernel translates it between namespaces."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0


def probe(cgroups: Path | None = None) -> dict[str, str]:
    """Which containments work on this machine, for this user: each with "" or why not.

    Tries each one for real, up to the point where a program would be executed. `cgroups`: where
    they are made; without it *contained* is not tried.
    """
    tried = [each for each in CONTAINMENTS if each != "contained" or cgroups is not None]
    return {containment: _try(containment, cgroups) for containment in tried}


def _try(containment: str, cgroups: Path | None) -> str:
    start = Start(
        generation=0,
        seat="probe",
        epoch=1,
        soft=0.0,
        hard=0.0,
        argv=("/",),  # a directory: never executed
        env={},
        cwd="/",
        containment=containment,
        cgroup=f"{cgroups}/incumbent-probe-{os.getpid()}" if containment == "contained" else None,
    )
    try:
        with closing(kernel.BoottimeTimer()) as never:
            tree = Tree(SpawnSeat(start, math.inf, math.inf, 0), never, (), None)
    except OSError as error:
        return error.strerror or str(error)
    died = kernel.is_readable(tree.pidfd, _PROBE_TIME)
    if not died:
        kernel.kill(tree.pidfd)
        kernel.is_readable(tree.pidfd, _PROBE_TIME)
    tree.on_death(lambda: kernel.children())
    tree.reap()
    if not died:
        return f"its first process did not end within {_PROBE_TIME:g} s"
    prefix, _, why = tree.failure.partition(": ")
    return why if prefix == containment else ""
