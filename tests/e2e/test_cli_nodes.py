"""Several nodes, one after another killed, and the commands that an operator uses."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

SLEEP = 'command = "sleep 1000"\n'


def test_a_component_runs_on_one_node_and_the_next_one_takes_over(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        nodes.start("n1")
        nodes.start("n2")
        nodes.apply(f"[component.web]\n{SLEEP}")
        row = nodes.wait("web", "running")
        other = "n2" if row["node"] == "n1" else "n1"

        nodes.named(row["node"]).kill_guardian()

        then = nodes.wait("web", "running", node=other)
        assert then["epoch"] == row["epoch"] + 1
        assert not is_alive(row["pid"])
        assert is_alive(then["pid"])
