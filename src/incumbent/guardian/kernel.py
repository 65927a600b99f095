"""What the guardian needs of Linux and Python 3.11 does not offer: namespaces, prctl, timers.

`clone` makes a child directly inside new namespaces. Unsharing a PID namespace, forking and
going back with setns would do too, but a process may unshare it only once at a time, and
user namespaces would need a fork in between, which would make PDEATHSIG that of the wrong
parent. clone3 has neither trap: the child's parent is whoever calls.

Rule of this file: one call, one wrapper; a failure is an OSError that names the call.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import select
import signal
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = [
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "BoottimeTimer",
    "Process",
    "allow_many_descriptors",
    "become_subreaper",
    "boottime",
    "children",
    "clone",
    "close_all_but",
    "descendants",
    "die_with_parent",
    "fill_standard_descriptors",
    "is_readable",
    "is_writable",
    "kill",
    "kill_children",
    "map_user",
    "mount_own_proc",
    "processes",
    "set_dumpable",
    "reset_signals",
    "start_time",
    "sweep",
    "unshare",
    "wipe",
]

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
_CLONE_INTO_CGROUP = 0x2_0000_0000

_SYS_CLONE3 = 435  # the same number on every architecture
_SIGCHLD = 17
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 1 << 14, 1 << 19
_CLOCK_BOOTTIME, _TFD_TIMER_ABSTIME = 7, 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc_holding_gil = ctypes.PyDLL(None, use_errno=True)
_libc.memmem.restype = ctypes.c_void_p
_libc.memmem.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_libc.timerfd_settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def _checked(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result


def _prctl(option: int, value: int, name: str) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {name}")


def die_with_parent(signo: int) -> None:
    """Get `signo` when the thread that made us ends. Look at getppid, or a pipe, afterwards."""
    _prctl(_PR_SET_PDEATHSIG, signo, "PDEATHSIG")


def set_dumpable(is_dumpable: bool) -> None:
    """Whether others of the same user may look into this process."""
    _prctl(_PR_SET_DUMPABLE, int(is_dumpable), "DUMPABLE")


def become_subreaper() -> None:
    """Orphans among our descendants become our children, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "CHILD_SUBREAPER")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _CloneArgs(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


def clone(flags: int, cgroup: int | None = None) -> int:
    """os.fork() into new namespaces: 0 in the child, the child's pid in the parent.

    `cgroup`: a descriptor of the cgroup's directory that the child is born in. The caller must
    have one thread only.
    """
    args = _CloneArgs(flags=flags, exit_signal=_SIGCHLD)
    if cgroup is not None:
        args.flags |= _CLONE_INTO_CGROUP
        args.cgroup = cgroup
    number, size = ctypes.c_long(_SYS_CLONE3), ctypes.c_size_t(ctypes.sizeof(args))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc_holding_gil.syscall(number, ctypes.byref(args), size)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _checked(pid, "clone3")


def mount_own_proc() -> None:
    """A /proc of this PID namespace, in a mount namespace that only receives (slave)."""
    unshare(CLONE_NEWNS)
    nothing = ctypes.c_void_p(0)
    result = _libc.mount(b"none", b"/", nothing, ctypes.c_ulong(_MS_REC | _MS_SLAVE), nothing)
    _checked(result, "mount / as slave")
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _checked(_libc.mount(b"proc", b"/proc", b"proc", flags, nothing), "mount /proc")


def map_user(uid: int, gid: int) -> None:
    """In a fresh user namespace: be the same user and group as outside.

    Its files under /proc belong to us only while dumpable: wipe secrets before.
    """
    set_dumpable(True)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    set_dumpable(False)


class BoottimeTimer:
    """A file descriptor that becomes readable at a time of CLOCK_BOOTTIME, suspend included.

    A child forked after it was made polls the same timer: it sees what is set later, too.
    """

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        created = _libc.timerfd_create(ctypes.c_int(_CLOCK_BOOTTIME), ctypes.c_int(flags))
        self.fd = _checked(created, "timerfd_create")
        self._at = math.inf
        self._spec = (ctypes.c_long * 4)()  # the interval, and the time

    def set(self, at: float) -> None:
        """Become readable at `at`, at once if that has passed; inf: never."""
        if at == self._at:
            return
        self._at = at
        ns = 0 if at == math.inf else max(int(at * 1e9), 1)
        self._spec[2], self._spec[3] = divmod(ns, 10**9)
        result = _libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, self._spec, None)
        _checked(result, "timerfd_settime")

    def has_rung(self) -> bool:
        """Whether its time has come, and it was neither set anew nor cleared since."""
        return is_readable(self.fd)

    def clear(self) -> None:
        """Acknowledge that it became readable."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return
        self._at = math.nan

    def close(self) -> None:
        os.close(self.fd)


def wipe(secrets: Sequence[bytes]) -> None:
    """Overwrite every copy of `secrets` in this process's private writable memory.

    For a forked child, which has inherited its parent's memory: Python leaves copies of what
    it parsed in freed blocks too, hence the search. Short secrets (under 4 bytes) are left.
    """
    needles = [each for each in secrets if len(each) >= 8]
    if not needles:
        return
    found: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *rest = line.split()
        if access != "rw-p" or rest[-1] in ("[vvar]", "[vsyscall]"):
            continue
        start, end = (int(each, 16) for each in span.split("-"))
        for needle in needles:
            at = start
            while at < end and (hit := _libc.memmem(at, end - at, needle, len(needle))):
                found.append((hit, len(needle)))
                at = hit + len(needle)
    for hit, length in found:
        ctypes.memset(hit, 0, length)


def reset_signals() -> None:
    """Every signal does what it does by default, none is blocked."""
    signal.set_wakeup_fd(-1)
    for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(signo, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # one that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def fill_standard_descriptors() -> None:
    """0, 1 and 2 are open, on /dev/null if they were not: no other may get these numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def allow_many_descriptors() -> tuple[int, int] | None:
    """As many as we may have, and our children; what was allowed before, soft and hard, None:
    nothing has changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a hard limit beyond fs.nr_open: it could not be set again
        return None
    return None if soft == hard else (soft, hard)


def close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor except `keep`."""
    low = 0
    for fd in sorted(set(keep)):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 20)


class Process:
    """A line of /proc: `state` as ps shows it; `start_time` in clock ticks since boot."""

    __slots__ = ("parent", "pid", "start_time", "state")

    def __init__(self, pid: int) -> None:
        """Raises OSError when there is no such process."""
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.start_time = int(fields[19])

    @property
    def is_dead(self) -> bool:
        return self.state in ("Z", "X")


def start_time(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; 0 if there is no such process."""
    try:
        return Process(pid).start_time
    except OSError:
        return 0


def processes() -> list[Process]:
    """Every process that this /proc shows, zombies too."""
    found = []
    for name in sorted(each.name for each in os.scandir("/proc")):
        if name.isdigit():
            try:
                found.append(Process(int(name)))
            except OSError:
                continue
    return found


def children() -> list[int]:
    """Pids of our own children, zombies too."""
    me = os.getpid()
    try:
        return [int(each) for each in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [each.pid for each in processes() if each.parent == me]


def is_readable(fd: int, timeout: float = 0.0) -> bool:
    """Whether `fd` becomes readable within `timeout` seconds (a pidfd: is dead)."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def is_writable(fd: int) -> bool:
    """Whether a short write to `fd` would not block."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))


def descendants(roots: Iterable[int]) -> list[Process]:
    """Everything below `roots` (not they themselves), zombies too, parents before children."""
    by_parent: dict[int, list[Process]] = {}
    for process in processes():
        by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(roots)
    while waiting:
        children = by_parent.pop(waiting.pop(), [])
        found += children
        waiting += [child.pid for child in children]
    return found


def kill_children(spare: Collection[int] = ()) -> int:
    """SIGKILL every child but `spare`, reap the dead among them; how many there were.

    For a subreaper 0 is proof that no descendant is left, however fast they fork and die:
    only we reap, so the top of every line of descent is in our list, alive or dead.
    """
    found = [pid for pid in children() if pid not in spare]
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)  # our child, not reaped: the pid is still its own
    for pid in found:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return len(found)


def sweep(root: int) -> None:
    """SIGKILL what can be seen of the descendants of `root`, once. Proves nothing.

    A pid is pinned by a pidfd and compared by start time before the kill, so that a number
    that was given to somebody else meanwhile is spared.
    """
    for process in descendants([root]):
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            continue
        if start_time(process.pid) == process.start_time:
            kill(pidfd)
        os.close(pidfd)


def kill(pidfd: int) -> None:
    """SIGKILL; nothing if it is dead, or not ours to kill (the caller looks again anyway)."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return
