"""What an agent needs of /proc: processes by their true name, and those that carry our mark.

Rule of this file: a pid alone names nobody. A process is meant by pid, start time and boot id;
a stranger that has the pid by now is left alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from incumbent.guardian import kernel
from incumbent.runtime_file import start_time

__all__ = ["OWNER", "end_process", "end_seat", "marked", "parse_mark"]


OWNER = "INCUMBENT_OWNER"
"""In a program's environment: who started it. Another cluster's node on this machine may well
have the same seat in the same epoch, and is a stranger."""


def marked(owner: str, seat: str, epoch: int) -> list[int]:
    """Pids of living processes whose environment has this owner, seat and epoch (host's view)."""
    mark = {
        f"{OWNER}={owner}".encode(),
        f"INCUMBENT_SEAT={seat}".encode(),
        f"INCUMBENT_EPOCH={epoch}".encode(),
    }
    return [pid for pid in _pids() if mark <= parse_mark(pid) and start_time(pid) is not None]


def parse_mark(pid: int) -> set[bytes]:
    """The INCUMBENT_… variables that a process was started with; empty if it cannot be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return set()
    return {entry for entry in raw.split(b"\0") if entry.startswith(b"INCUMBENT_")}


def end_seat(owner: str, seat: str, epoch: int, timeout: float) -> bool:
    """SIGKILL every process with this mark until none is found twice; False if some remain."""
    until = time.monotonic() + timeout
    found_none = 0
    while found_none < 2:
        pids = marked(owner, seat, epoch)
        found_none = 0 if pids else found_none + 1
        for pid in pids:
            _kill(pid)
        if pids and time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def end_process(pid: int, started: int, timeout: float) -> bool:
    """SIGKILL one process and wait for its death; False if it is still there after `timeout`."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if start_time(pid) != started:
            return True  # somebody else's pid by now, or a zombie
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return kernel.is_readable(pidfd, timeout)
    except ProcessLookupError:
        return True
    finally:
        os.close(pidfd)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pids() -> Iterator[int]:
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != own:
            yield int(entry.name)
