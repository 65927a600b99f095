"""A Ctrl-C where a test wants it: after a time, or at one step of the code under test.

Rule of this file: an interruption never strikes outside the call it is meant for.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.waiting import wait_until

__all__ = ["interrupt", "interrupt_at_step"]


def interrupt(seconds: float, function: Callable[[], object]) -> None:
    """Call it in the main thread, and interrupt that after `seconds`, or behind its end.

    Raises what the function raises, unless that is the interruption.
    """
    main = threading.main_thread().ident
    assert main is not None
    struck: list[bool] = []
    over: list[bool] = []

    def strike(*_: object) -> None:
        struck.append(True)
        if not over:
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, strike)
    timer = threading.Timer(seconds, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    try:
        timer.start()
        function()
        wait_until(lambda: struck)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the interruption was swallowed")
    finally:
        over.append(True)
        timer.join()
        signal.signal(signal.SIGUSR1, old)


def interrupt_at_step(
    step: int, where: Callable[[str], bool], function: Callable[[], object]
) -> bool:
    """Call it and interrupt this thread at the given opcode of the files that `where` names.

    False if it came to its end before that. What is interrupted here is more than what a signal
    can interrupt: Python looks for signals at calls and jumps only.
    """
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if event == "call":
            if not where(frame.f_code.co_filename):
                return None
            frame.f_trace_opcodes = True
        elif event == "opcode":
            steps += 1
            if steps == step:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    assert steps < step, "the interruption was swallowed"
    return False
