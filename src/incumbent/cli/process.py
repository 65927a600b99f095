"""Starting our own modules as processes, and the child's own part: to end with its parent.

Rule of this file: small, since every lasting command imports it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["die_with_parent", "module"]

_PR_SET_PDEATHSIG = 1


def module(name: str, *arguments: str) -> list[str]:
    """The command line of one of our own modules: the folder we are in is not searched for it."""
    return [sys.executable, "-P", "-m", name, *arguments]


def die_with_parent() -> None:
    """SIGTERM when the process that started this one ends, however it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
