"""Stop, start and restart, by an operator and by somebody else's client."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

SLEEP = 'command = "sleep 1000"\n'
TREE = "/incumbent/components/web"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as running:
        running.start("n1")
        running.start("n2")
        running.apply(f"[component.web]\n{SLEEP}[component.worker]\n{SLEEP}")
        running.wait("web", "running")
        running.wait("worker", "running")
        wait_until(lambda: len(candidates(running)) == 2, what="both nodes to stand")
        yield running


def candidates(nodes: Nodes) -> list[str]:
    return sorted(nodes.ask(lambda client: client.children(f"{TREE}/seats/0/election")))


def test_a_restart_is_a_new_process_on_the_same_node_and_no_election(nodes: Nodes) -> None:
    before, standing = nodes.wait("web", "running"), candidates(nodes)

    done = nodes.cli("restart", "web", "--wait")

    after = nodes.wait("web", "running")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"web restart done: epoch {before['epoch'] + 1}\n"
    assert (after["node"], after["epoch"]) == (before["node"], before["epoch"] + 1)
    assert not is_alive(before["pid"])
    assert candidates(nodes) == standing


def test_a_stop_lasts_and_a_start_ends_it(nodes: Nodes) -> None:
    before = nodes.wait("web", "running")

    stopped = nodes.cli("stop", "w*", "--wait")
    nodes.wait("web", "stopped")
    refused = nodes.cli("restart", "web", "--wait")
    started = nodes.cli("start", "web", "--wait")

    assert stopped.stdout == "web is stopped\nworker is stopped\n"
    assert not is_alive(before["pid"])
    assert refused.returncode == 1
    assert "web: web/0: refused: an operator stopped it" in refused.stderr
    assert started.stdout == "web runs\n"
    assert nodes.wait("web", "running")["node"] == before["node"], "a stop gives no seat up"
    assert nodes.wait("worker", "stopped")
    assert nodes.cli("start", "web").stdout == "web was not stopped\n"


def test_a_signal_reaches_the_program(nodes: Nodes, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = f"trap 'echo hup > {heard}' HUP; while :; do sleep 0.05; done"
    nodes.apply(f'[component.deaf]\n{SLEEP}[component.trap]\ncommand = ["sh", "-c", "{script}"]\n')
    before = nodes.wait("trap", "running")
    wait_until(lambda: "HUP" in caught(before["pid"]), what="the program to set its trap")

    done = nodes.cli("signal", "HUP", "trap", "--wait")

    assert done.stdout == f"trap signal HUP done: epoch {before['epoch']}\n"
    wait_until(heard.exists)
    assert nodes.wait("trap", "running")["pid"] == before["pid"]
    assert nodes.cli("signal", "BANG", "trap").returncode == 2


def caught(pid: int) -> set[str]:
    """The signals that a process has a handler for."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    mask = int(status["SigCgt"], 16)
    return {each.name.removeprefix("SIG") for each in signal.Signals if mask >> (each - 1) & 1}


def test_an_order_for_what_is_not_there_names_what_is(nodes: Nodes) -> None:
    done = nodes.cli("restart", "wbe")

    assert done.returncode == 1
    assert done.stderr.strip().endswith("there is no component wbe; there are: web, worker")


def test_zkcli_can_order_a_restart(nodes: Nodes) -> None:
    command = shutil.which("zkCli.sh") or "/usr/share/zookeeper/bin/zkCli.sh"
    if not Path(command).exists():
        pytest.skip("no zkCli.sh (apt-get install zookeeper)")
    before = nodes.wait("web", "running")

    done = subprocess.run(
        [command, "-server", nodes.hosts, "create", f"{TREE}/commands/now", "restart"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "Created" in done.stdout + done.stderr
    wait_until(lambda: nodes.wait("web", "running")["epoch"] == before["epoch"] + 1)
