"""A Ctrl-C where a test wants it: after a time, or at one step of the code under test.

Rule of this file: an interruption never strikes outside the call it is meant for.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

from tests.waiting import wait_until

__all__ = ["interrupt", "interrupt_at_step"]


_STRIKER = """
import os, select, signal, sys, time
stdin = open(0, "rb", buffering=0)
for line in iter(stdin.readline, b""):
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGUSR1)
    while not select.select([stdin], [], [], 1)[0]:
        os.kill(os.getppid(), signal.SIGUSR1)
    stdin.readline()
    print(flush=True)
"""


@cache
def _striker() -> subprocess.Popen[str]:
    """Another process: a thread of this one could only strike where the main thread lets it run."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", _STRIKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def interrupt(
    seconds: float, function: Callable[[], object], then: Callable[[], object] = lambda: None
) -> None:
    """Call it in the main thread, and interrupt that after `seconds`, or behind its end, and again
    each second, as people do; `then` is called while the interruption is handled.

    Raises what the function raises, unless that is the interruption.
    """
    striker = _striker()
    assert striker.stdin is not None and striker.stdout is not None
    struck: list[bool] = []
    over: list[bool] = []

    def strike(*_: object) -> None:
        struck.append(True)
        if not over:
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, strike)
    try:
        print(seconds, file=striker.stdin, flush=True)
        function()
        wait_until(lambda: struck)
    except KeyboardInterrupt:
        over.append(True)
        then()
    else:
        raise AssertionError("the interruption was swallowed")
    finally:
        over.append(True)
        try:
            print(file=striker.stdin, flush=True)  # it may stop
            has_stopped = select.select([striker.stdout], [], [], 5)[0]
            assert has_stopped and striker.stdout.readline()
        except BaseException:  # the next test has another one
            _striker.cache_clear()
            striker.kill()
            raise
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
