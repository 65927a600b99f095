"""A process ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
