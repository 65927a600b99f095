"""Programs that fail, with real processes: what an operator sees of it, and `retry`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import Nodes
from tests.waiting import wait_until


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as running:
        running.start("n1").connected()
        running.start("n2").connected()
        yield running


def test_what_says_that_trying_again_is_vain_is_tried_again_by_retry_alone(
    nodes: Nodes, tmp_path: Path
) -> None:
    license_ = tmp_path / "license"
    script = f"test -e {license_} && exec sleep 1000; echo there is no license; exit 125"
    nodes.apply(f'[component.web]\ncommand = ["sh", "-c", "{script}"]\n')

    failed = nodes.wait("web", "failed")
    refused = nodes.cli("restart", "web", "--wait")
    license_.touch()
    retried = nodes.cli("retry", "web")
    nodes.wait("web", "running")
    again = nodes.cli("retry", "web")

    assert failed["epoch"] == 1
    assert "there is no license, which says that trying again is vain" in failed["why"]
    assert "`incumbent retry web`" in failed["why"]
    assert refused.returncode == 1
    assert retried.stdout.startswith("web is tried again: 1 failure is forgotten")
    assert again.stdout == "web has no failures to forget\n"


def test_a_component_that_cannot_run_on_one_node_moves_to_the_other(nodes: Nodes) -> None:
    script = "test $INCUMBENT_NODE = n2 && exec sleep 1000; echo no disk; exit 1"
    nodes.apply(
        f'[component.web]\ncommand = ["sh", "-c", "{script}"]\non_failure = "move"\n'
        "max_failures = 2\n"
    )

    nodes.wait("web", "running", node="n2")

    assert nodes.cli("stop", "web", "--wait").returncode == 0
    assert nodes.cli("start", "web", "--wait").returncode == 0
    assert nodes.wait("web", "running")["node"] == "n2"


def test_a_stop_is_not_fought_by_any_policy(nodes: Nodes) -> None:
    nodes.apply(
        '[component.web]\ncommand = ["sh", "-c", "sleep 0.05; exit 1"]\non_failure = "move"\n'
        "max_failures = 1\nbackoff = 0.05\nbackoff_most = 0.1\n"
    )
    wait_until(lambda: nodes.row("web")["epoch"] > 3, what="a few starts")

    stopped = nodes.cli("stop", "web", "--wait")
    epoch = nodes.wait("web", "stopped")["epoch"]
    nodes.cli("retry", "web")

    assert stopped.stdout == "web is stopped\n"
    assert nodes.wait("web", "stopped")["epoch"] == epoch


def test_an_end_that_is_a_success_is_not_counted(nodes: Nodes) -> None:
    nodes.apply(
        '[component.web]\ncommand = ["true"]\nsuccess_exit_codes = [0]\nbackoff = 0.05\n'
        'on_failure = "freeze"\nmax_failures = 1\n'
    )

    wait_until(lambda: nodes.row("web")["epoch"] > 3, what="a few runs")

    assert nodes.cli("retry", "web").stdout == "web has no failures to forget\n"


def test_without_zookeeper_status_says_what_this_machine_knows(nodes: Nodes) -> None:
    nodes.apply('[component.web]\ncommand = "sleep 1000"\nnodes = ["n1"]\n')
    nodes.wait("web", "running")
    data = nodes.named("n1").data

    nodes.server.send(signal.SIGKILL)
    wait_until(lambda: (data / "lost-sessions.json").exists(), what="the session to be lost")
    asked = nodes.cli("status", "--data", data)

    assert asked.returncode == 3
    assert (
        "node n1, on this machine: nothing of it runs; its connection was last lost for too long at "
        in (asked.stderr)
    )
    assert ", with web/0: soft deadline: no beat was acknowledged in time" in asked.stderr
