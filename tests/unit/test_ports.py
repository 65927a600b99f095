"""Ports of test servers: whoever was given one keeps it, also while its server is away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tests.apache
from tests.apache import free_port

ROOT = Path(__file__).parents[2]
_TRY = "import sys; from tests import apache; print(apache._reserve(int(sys.argv[1])))"


def test_no_other_test_is_given_the_port_of_a_server_that_is_away() -> None:
    port = free_port()

    done = subprocess.run(
        [sys.executable, "-c", _TRY, str(port)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout == "False\n"
    assert not tests.apache._reserve(port), "nor this one again"
