"""The systemd unit of the documents is one that systemd takes without a word."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "incumbent-agent.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name  # its program is not installed on this machine
    here.write_text(UNIT.read_text().replace("/usr/local/bin/incumbent", "/bin/true"))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (ours, done.returncode) == ([], 0), done.stderr
