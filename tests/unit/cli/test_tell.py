"""What is said of a success, and what of a command that cannot be started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from incumbent.cli.wrapped import _program_problem

_TELL = [sys.executable, "-c", "from incumbent.cli.exits import tell; tell('1 item put')"]


def test_a_success_is_told_to_a_terminal_and_not_to_a_script() -> None:
    ours, terminal = os.openpty()
    try:
        subprocess.run(_TELL, stderr=terminal, check=True)
        assert b"incumbent: 1 item put" in os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(terminal)

    script = subprocess.run(_TELL, stderr=subprocess.PIPE, check=True)
    assert script.stderr == b""


def test_a_command_that_cannot_be_started_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("script").write_text("echo\n")

    assert "name the program in it, as in ./folder/PROGRAM" in _program_problem(["./folder/"])
    assert "`chmod +x ./script`" in _program_problem(["./script"])
    assert "no such program here" in _program_problem(["./nothing"])
    assert "no such program in PATH" in _program_problem(["no-such-program"])
    assert _program_problem(["sh", "-c", "exit"]) == ""
