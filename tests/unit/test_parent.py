"""A process ends with the one that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SAY = "from incumbent.parent import end_with; import sys; end_with(int(sys.argv[1])); print('on')"
_SERVER = ("-m", "incumbent.server", "--data", "unused", "--listen", "127.0.0.1:0")
_AGENT = ("-m", "incumbent.cli", "agent", "--data", "unused", "--zookeeper", "127.0.0.1:1")


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *argv], capture_output=True, text=True, check=False, timeout=60
    )


def test_it_goes_on_while_its_parent_lives() -> None:
    assert run("-c", _SAY, str(os.getpid())).stdout == "on\n"


@pytest.mark.parametrize(
    "argv",
    [("-c", _SAY), (*_SERVER, "--parent-death"), (*_AGENT, "--parent-death")],
    ids=["any", "server", "agent"],
)
def test_a_parent_that_has_ended_before_it_asks_is_noticed(argv: tuple[str, ...]) -> None:
    somebody_else = str(os.getppid())

    done = run(*argv, somebody_else)

    assert done.returncode == -signal.SIGTERM
    assert not done.stdout


_IN_A_THREAD = """
import os, subprocess, sys, threading, time

def start():
    global child, line
    child = subprocess.Popen([*sys.argv[1:], str(os.getpid())], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    line = child.stdout.readline()

thread = threading.Thread(target=start)
thread.start()
thread.join()
print(child.pid, line, flush=True)
time.sleep(0.2)
print(child.poll(), flush=True)
time.sleep(3600)
"""
_GOES_ON = f"{_SAY}; sys.stdout.flush(); sys.stdin.read()"


@pytest.mark.parametrize("what", ["any", "server", "guardian"])
def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_its_parent(
    what: str, tmp_path: Path
) -> None:
    argv = {
        "any": ("-c", _GOES_ON),
        "server": (*_SERVER[:2], "--data", str(tmp_path), *_SERVER[4:], "--parent-death"),
        "guardian": (
            *_AGENT[:3],
            "--data",
            str(tmp_path),
            *_AGENT[5:],
            "--insecure",
            "--parent-death",
        ),
    }[what]
    parent = subprocess.Popen(
        [sys.executable, "-c", _IN_A_THREAD, sys.executable, "-P", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline().split()[0])
    pidfd = os.pidfd_open(pid)
    try:
        assert parent.stdout.readline() == "None\n", "it ended with the thread"
    finally:
        parent.kill()
        parent.communicate()
        assert select.select([pidfd], [], [], 10)[0], "it outlived its parent"
        os.close(pidfd)
