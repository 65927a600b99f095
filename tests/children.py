"""Processes that tests and benchmarks start, none of which outlives them.

Rule of this file: the kernel ends them, so that it does not matter how their starter ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["ends_with_us", "with_variable"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def ends_with_us() -> Callable[[], None]:
    """A `preexec_fn`: SIGKILL when the thread that starts it ends, or has ended by then.

    SIGHUP does what it does for others, also where `nohup` has us ignore it.
    """
    starter = os.getpid()

    def in_the_child() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:
            os._exit(1)

    return in_the_child


def with_variable(name: str, value: str) -> dict[int, str]:
    """The living processes that were started with this in their environment: pid → command."""
    found = {}
    mark = f"{name}={value}".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is another user's
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if command:  # else a zombie
                    found[int(entry.name)] = command
    return found
