"""To end with the process that started us, however that one ends.

Rule of this file: the starter says which process it is. Whoever only asks the kernel for its
parent, and asks too late, is told of a stranger, and outlives the one that is meant.
"""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["end_with"]

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """SIGTERM to ourselves when our parent, the process `parent`, ends; at once if it has ended.

    The kernel tells of the end of the *thread* that started us (as SIGURG here, which does nothing
    by default): only then is looked whether the process is gone as well. Call it in the main
    thread. Linux only.
    """

    def look(*_: object) -> None:
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGURG, look)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGURG))
    look()
