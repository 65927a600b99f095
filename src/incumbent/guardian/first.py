"""The first process of a seat's tree: starts the program, stays its parent, ends with it.

A fork of the guardian, never executed anew. In order: PDEATHSIG; a go byte (end of file: the
guardian is dead already); namespaces; descriptors closed; the program forked; secrets wiped
(first of all, where a user namespace, or another user, could let others look into our memory).
Only the program becomes another user: that clears PDEATHSIG, which the first process needs.
Then it waits for the first of: main ended, an order, the guardian gone, the deadline. The
deadline is a timer of CLOCK_BOOTTIME that the guardian made and sets anew with each lease: the
kernel keeps it, so that it holds when guardian and agent are frozen or when the machine was
suspended, and a first process of which nothing is wanted never wakes.

On the channel, to the guardian: `main` (sent by main itself, before exec: the kernel adds its
pid), `up`, `failed <errno> <why>`, `told <json>` (what the program says of itself, see `ear`),
`ended <code> <signal> <left>`, `empty` (swept only).
From the guardian: `signal <number>` (to main), `kill`.

Rule of this file: whatever goes wrong, the way out is `_end`, which leaves nobody alive.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn

from incumbent.guardian import kernel
from incumbent.guardian.ear import Ear
from incumbent.guardian.messages import Start

__all__ = ["Job", "be_first"]

_GUARDIAN_DIED = signal.SIGUSR2  # to a swept first process, which has to sweep then
_SWEEP_EVERY, _SWEEP_PAUSE = 50, 0.005  # rounds of kills, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a first process is told. `deadline` is the guardian's, and only polled here; `user`:
    the guardian's; `kill_fd`: of the cgroup that it is in with its whole tree; `open_files`: the
    program's limits, soft and hard, unless it is given others."""

    start: Start
    soft_at: float
    deadline: kernel.BoottimeTimer
    channel: socket.socket
    go: int
    output: int | None
    secrets: tuple[bytes, ...]
    is_sealed: bool
    user: tuple[int, int]
    kill_fd: int | None = None
    open_files: tuple[int, int] | None = None

    @property
    def needs_user_namespace(self) -> bool:
        return self.is_sealed and self.user[0] != 0


def be_first(job: Job) -> NoReturn:
    """In the fresh child: live as the first process. Never returns, never raises."""
    first = _First(job)
    try:
        first.prepare()
        first.start_main()
        first.wipe()  # main's copy goes with its exec, and nobody may look into it until then
        first.watch()
    except BaseException as error:
        code = error.errno if isinstance(error, OSError) else 0
        why = error.strerror if isinstance(error, OSError) else repr(error)
        first.say(f"failed {code or 0} {job.start.containment}: {why}")
    finally:
        first.end()


class _First:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.main = 0
        self.wake_read = self.exec_read = -1
        self.is_wiped = False
        self.ear: Ear

    def prepare(self) -> None:
        job = self.job
        kernel.reset_signals()
        kernel.die_with_parent(signal.SIGKILL if job.is_sealed else _GUARDIAN_DIED)
        if not os.read(job.go, 1):
            os._exit(0)
        os.setsid()
        if job.needs_user_namespace or job.start.uid is not None:
            self.wipe()
        if job.needs_user_namespace:
            kernel.map_user(*job.user)
        if job.is_sealed:
            kernel.mount_own_proc()
        else:
            kernel.become_subreaper()
        outputs = {1, 2} if job.output is None else {job.output}
        kept = {2, job.channel.fileno(), job.deadline.fd, *outputs}
        kernel.close_all_but(kept if job.kill_fd is None else {*kept, job.kill_fd})
        kernel.fill_standard_descriptors()
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for signo in (signal.SIGCHLD, _GUARDIAN_DIED):
            signal.signal(signo, _only_wake)
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(signo, signal.SIG_IGN)
        self.ear = Ear(job.start, is_sealed=job.is_sealed)

    def wipe(self) -> None:
        """It takes longer than all the rest: where only root could look, main need not wait."""
        if not self.is_wiped:
            kernel.wipe(self.job.secrets)
            self.is_wiped = True

    def start_main(self) -> None:
        self.exec_read, exec_write = os.pipe()
        first = os.getpid()
        self.main = os.fork()
        if self.main == 0:
            _be_main(self.job, self.ear, exec_write, first)
        os.close(exec_write)
        self.ear.keep_only_ours()
        if self.job.output is not None:
            os.close(self.job.output)

    def watch(self) -> None:
        """Until it is time to end."""
        poll = select.poll()
        deadline = self.job.deadline
        own = (self.wake_read, self.exec_read, deadline.fd, self.job.channel.fileno())
        for fd in (*own, *self.ear.descriptors()):
            poll.register(fd, select.POLLIN)
        while not deadline.has_rung():
            ready = {fd for fd, _ in poll.poll(self.patience())}
            if self.exec_read in ready:
                poll.unregister(self.exec_read)
                if not self.report_exec():
                    return
            ended = self.ear.hear(ready)
            if ended is not None:
                poll.unregister(ended)
            if self.exec_read < 0:
                self.pass_words_on()
            if self.job.channel.fileno() in ready and not self.obey():
                return
            if self.wake_read in ready and not self.reap():
                return

    def patience(self) -> float | None:
        """Milliseconds until there are words to be passed on; None: until something comes."""
        due_at = self.ear.words.due_at()
        if self.exec_read >= 0 or due_at == math.inf:
            return None
        return max(0.0, 1000 * (due_at - kernel.boottime()))

    def report_exec(self) -> bool:
        """Say whether the program was executed."""
        failure = os.read(self.exec_read, 4096).decode(errors="replace")
        os.close(self.exec_read)
        self.exec_read = -1
        self.say(f"failed {failure}" if failure else "up")
        return not failure

    def pass_words_on(self) -> None:
        """What the program has said of itself; not before the word that it was executed."""
        said = self.ear.words.passed_on(kernel.boottime())
        if said:
            self.say("told " + json.dumps(said))

    def obey(self) -> bool:
        """Carry out one order; False: end."""
        order = self.job.channel.recv(64).split()
        match order:
            case [b"signal", number]:
                os.kill(self.main, int(number))  # our child, not reaped yet
            case _:
                return False  # kill, or the guardian is gone
        return True

    def reap(self) -> bool:
        """Collect the dead; False: main is among them, or the guardian died."""
        if _GUARDIAN_DIED in os.read(self.wake_read, 4096):
            return False
        self.look_if_frozen()
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if found is None:
                return True
            if found.si_pid == self.main:
                if self.exec_read >= 0 and not self.report_exec():
                    return False
                self.report_end(found.si_code == os.CLD_EXITED, found.si_status)
                return False
            os.waitid(os.P_PID, found.si_pid, os.WEXITED)

    def look_if_frozen(self) -> None:
        """Was main stopped by a signal, or continued? It is ours: the kernel tells us alone."""
        while True:
            try:
                found = os.waitid(os.P_PID, self.main, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
            except ChildProcessError:
                return
            if found is None:
                return
            self.ear.words.add(frozen=found.si_code != os.CLD_CONTINUED)

    def report_end(self, exited: bool, status: int) -> None:
        seen = sum(not each.is_dead for each in kernel.descendants([os.getpid()]))
        left = max(seen, sum(not self.is_dead(pid) for pid in kernel.children()))
        self.say(f"ended {status} 0 {left}" if exited else f"ended 0 {status} {left}")

    def is_dead(self, pid: int) -> bool:
        """Is this child main, or was it dead? Then it is reaped."""
        return pid == self.main or os.waitpid(pid, os.WNOHANG)[0] != 0

    def say(self, words: str) -> None:
        try:
            self.job.channel.send(words.encode(errors="replace")[:4000])
        except OSError:
            return

    def end(self) -> NoReturn:
        """Nobody of the tree outlives this: sealed, by the kernel; else until we have no child
        at all. Children become ours as their parents die. Then whatever the cgroup has besides,
        and it has us."""
        rounds = 0
        while not self.job.is_sealed and kernel.kill_children() > 0:
            rounds += 1
            if rounds % _SWEEP_EVERY == 0:  # somebody is slow to die: look behind it
                kernel.sweep(os.getpid())
                time.sleep(_SWEEP_PAUSE)
        self.say("empty")
        if self.job.kill_fd is not None:
            os.write(self.job.kill_fd, b"1")
        os._exit(0)


def _be_main(job: Job, ear: Ear, exec_write: int, first: int) -> NoReturn:
    """In the program's own process: everything up to exec."""
    try:
        if not job.is_sealed:
            kernel.die_with_parent(signal.SIGKILL)
        os.setsid()
        job.channel.send(b"main")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        if job.output is not None:
            os.dup2(job.output, 1)
            os.dup2(job.output, 2)
        kernel.reset_signals()
        if job.start.ready_fd is not None:
            if exec_write == job.start.ready_fd:
                exec_write = fcntl.fcntl(exec_write, fcntl.F_DUPFD_CLOEXEC, exec_write + 1)
            os.dup2(ear.line_write, job.start.ready_fd)
            os.set_inheritable(job.start.ready_fd, True)
        if job.open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, job.open_files)
        _limit(job.start)
        if job.start.uid is not None:
            _become_user(job, job.start.uid)
        if not job.is_sealed and os.getppid() != first:
            raise OSError(errno.ESRCH, "its first process is gone")
        os.chdir(job.start.cwd)
        if kernel.boottime() >= job.soft_at:
            raise OSError(0, "its soft deadline has passed")
        env = {**job.start.env, **ear.environment}
        os.execvpe(job.start.argv[0], job.start.argv, env)
    except BaseException as error:
        os.write(exec_write, _why(error, job.start).encode(errors="replace")[:4000])
    finally:
        os._exit(127)


def _limit(start: Start) -> None:
    """Its umask and rlimits; soft and hard ones are the same, so that nobody has to raise them."""
    if start.umask is not None:
        os.umask(start.umask)
    for name, value in start.limits.items():
        wanted = resource.RLIM_INFINITY if value < 0 else value
        try:
            resource.setrlimit(getattr(resource, name), (wanted, wanted))
        except (OSError, ValueError) as error:
            raise OSError(errno.EPERM, f"{name} cannot be {value} here: {error}") from None


def _become_user(job: Job, uid: int) -> None:
    """Be somebody else, for good. PDEATHSIG is lost by that, and has to be asked for anew; the
    pipe of the output is theirs, so that /dev/stdout can be opened."""
    gid = uid if job.start.gid is None else job.start.gid
    if job.output is not None:
        os.fchown(1, uid, gid)
    os.setgroups(job.start.groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(False)  # until exec, nobody of theirs may look into it
    if not job.is_sealed:
        kernel.die_with_parent(signal.SIGKILL)


def _why(error: BaseException, start: Start) -> str:
    program = start.argv[0]
    if not isinstance(error, OSError):
        return f"{errno.EINVAL} {program}: {error}"
    why, file = error.strerror, os.fsdecode(error.filename or "")  # bytes, of a search in PATH
    named = f": {file}" if file not in ("", program) else ""
    if error.errno == errno.ENOENT and file and os.access(file, os.F_OK):
        why, named = "it is there, but not the interpreter that its first line names", ""
    if error.errno == errno.ENOEXEC:
        why = "it is no program for this machine; a script begins with a line such as #!/bin/sh"
    return f"{error.errno} {program}: {why}{named}"


def _only_wake(signo: int, frame: object) -> None:
    """The wakeup descriptor has its number."""
