"""Ctrl-C at any moment of a command ends it, and nobody sees a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.e2e.nodes import INCUMBENT

_HOOK = """\
import os, signal, sys

class AtAnImport:
    left = int(os.environ["CTRL_C_AT"])

    def find_spec(self, name, path=None, target=None):
        if "incumbent.cli.dispatch" in sys.modules or name == "incumbent.cli.dispatch":
            if AtAnImport.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
            AtAnImport.left -= 1

sys.meta_path.insert(0, AtAnImport())
"""
"""A sitecustomize: Ctrl-C at the n-th import after our own code was reached."""


def ended(folder: Path, at: int, *words: str) -> subprocess.CompletedProcess[str]:
    """The command `words`, interrupted at its import number `at`."""
    (folder / "sitecustomize.py").write_text(_HOOK)
    (folder / "incumbent.toml").write_text('[component.web]\ncommand = "sleep 1000"\n')
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [*INCUMBENT, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(paths), "CTRL_C_AT": str(at)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


COMMANDS = {
    "status": ("status", "--zookeeper", "127.0.0.1:1"),
    "elect": ("elect", "/election", "--zookeeper", "127.0.0.1:1"),
    "agent": ("agent", "--zookeeper", "127.0.0.1:1", "--data", "agent"),
    "server": ("server", "--data", "server", "--listen", "127.0.0.1:0"),
    "up": ("up",),
    "demo": ("demo",),
}


@pytest.mark.parametrize("at", [0, 40, 90])
@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_while_a_command_loads_is_no_traceback(
    command: str, at: int, tmp_path: Path
) -> None:
    done = ended(tmp_path, at, *COMMANDS[command])

    assert done.stderr == ""
    assert done.returncode in (-signal.SIGINT, 130), done
    assert not (tmp_path / ".incumbent" / "runtime.json").exists()
