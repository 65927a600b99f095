"""`incumbent pause`: ZooKeeper is away for longer than a session, and nothing is restarted."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

SLEEP = 'command = "sleep 1000"\n'


def test_zookeeper_is_worked_at_and_what_runs_goes_on(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        nodes.start("n1")
        nodes.start("n2")
        nodes.apply(f"[component.web]\n{SLEEP}[component.worker]\n{SLEEP}")
        before = [nodes.wait(name, "running") for name in ("web", "worker")]

        paused = nodes.cli("pause")
        refused = nodes.cli("restart", "web", "--wait")
        nodes.server.end(signal.SIGTERM)
        until = time.monotonic() + 4 * nodes.session
        alive = []
        while time.monotonic() < until:
            alive.append(all(is_alive(row["pid"]) for row in before))
            time.sleep(0.05)
        nodes.start_server()
        wait_until(nodes.named("n1").status, what="its agent to answer")
        nodes.named("n1").kill_agent()
        resumed = nodes.cli("resume")
        after = [nodes.wait(name, "running") for name in ("web", "worker")]
        there = nodes.named(before[0]["node"])
        wait_until(there.status, what="its agent to answer")
        there.kill()  # and from now on it is as ever
        moved = nodes.wait("web", "running", node="n2" if there.name == "n1" else "n1")

    assert paused.returncode == 0, paused.stderr
    assert paused.stdout.startswith("paused: n1, n2 have heard; ZooKeeper may be stopped now")
    assert "refused: the cluster is paused" in refused.stderr
    assert alive.count(False) == 0
    assert resumed.stdout == "resumed: n1, n2 go by their leases\n", resumed.stderr
    assert [row["pid"] for row in after] == [row["pid"] for row in before]
    assert moved["epoch"] == before[0]["epoch"] + 1


def test_pause_and_resume_tell_of_a_single_node_too(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        nodes.start("n1")

        paused, resumed = nodes.cli("pause"), nodes.cli("resume")

    assert paused.stdout.startswith("paused: n1 has heard; ZooKeeper may be stopped now")
    assert resumed.stdout == "resumed: n1 goes by its lease\n"
