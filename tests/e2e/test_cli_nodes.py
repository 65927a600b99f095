"""Several nodes, killed one after another, and the commands that an operator uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.children import ends_with_us
from tests.e2e.nodes import INCUMBENT, Nodes, is_alive, run_cli
from tests.waiting import wait_until

from incumbent.agent.tree import Tree
from incumbent.cli import local

SLEEP = 'command = "sleep 1000"\n'


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as running:
        yield running


def test_a_component_runs_on_one_node_and_the_next_one_takes_over(nodes: Nodes) -> None:
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


def test_apply_says_what_changed_and_never_removes(nodes: Nodes) -> None:
    first = nodes.apply(f"[component.web]\n{SLEEP}[component.old]\n{SLEEP}")
    again = nodes.apply(f"[component.web]\n{SLEEP}")
    grown = nodes.apply('[component.web]\ncommand = "sleep 2000"\ncopies = 3\nenv = {A = "1"}\n')

    assert first.split() == ["COMPONENT", "WHAT", "web", "created", "old", "created"]
    assert "web        unchanged\n" in again
    assert "old        not in the file, goes on (`incumbent remove old` ends it)\n" in again
    assert "web        changed: command, env.A, copies\n" in grown
    assert {(row["component"], row["seat"]) for row in nodes.status()} == {
        ("web", 0),
        ("web", 1),
        ("web", 2),
        ("old", 0),
    }


def test_apply_makes_more_seats_than_fit_into_one_transaction(nodes: Nodes) -> None:
    nodes.apply(f"[component.many]\n{SLEEP}copies = 1000\n")

    assert len(nodes.status()) == 1000


def test_a_wrong_file_or_numbers_that_do_not_fit_write_nothing(nodes: Nodes) -> None:
    file = nodes.folder / "wrong.toml"
    file.write_text(f"[component.web]\n{SLEEP}cwd = 'here'\n")
    relative = nodes.cli("apply", file)
    file.write_text(f"[component.web]\n{SLEEP}stop_grace = 1.9\n")
    graceful = nodes.cli("apply", file)

    assert relative.returncode == 2
    assert f"{file}:3: component.web.cwd: expected an absolute path" in relative.stderr
    assert graceful.returncode == 2
    assert "component.web.stop_grace" in graceful.stderr
    assert "stop_grace can be at most" in graceful.stderr
    assert nodes.status() == []


def test_remove_stops_first_and_the_count_of_starts_goes_on(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.apply(f"[component.web]\n{SLEEP}[component.other]\n{SLEEP}")
    before = nodes.wait("web", "running")
    nodes.wait("other", "running")

    removed = nodes.cli("remove", "web")

    assert (removed.returncode, removed.stdout) == (0, "web is removed\n")
    assert not is_alive(before["pid"])
    assert [row["component"] for row in nodes.status()] == ["other"]
    assert "web        created" in nodes.apply(f"[component.web]\n{SLEEP}")
    assert nodes.wait("web", "running")["epoch"] == before["epoch"] + 1


def test_remove_of_what_is_not_there_is_a_no(nodes: Nodes) -> None:
    nothing = nodes.cli("remove", "web")
    nodes.apply(f"[component.other]\n{SLEEP}")
    mistyped = nodes.cli("remove", "web")

    assert (nothing.returncode, mistyped.returncode) == (1, 1)
    assert mistyped.stderr == "incumbent: there is no component web; there are: other\n"


def test_remove_times_out_while_nobody_proves_the_end(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.apply(f"[component.web]\n{SLEEP}isolation = 'swept'\n")
    nodes.wait("web", "running")
    nodes.named("n1").kill()
    nodes.wait("web", "unproven")

    done = nodes.cli("remove", "web", "--timeout", "0.3")

    assert done.returncode == 4
    assert "epoch 1 on n1" in done.stderr
    assert nodes.row("web")["state"] == "unproven"

    nodes.cli("node", "confirm-dead", "n1", "--yes", "n1")
    assert nodes.cli("remove", "web").returncode == 0


def test_confirm_dead_frees_what_a_swept_node_left_and_nothing_else(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.start("n2")
    nodes.apply(f"[component.web]\n{SLEEP}isolation = 'swept'\n")
    node = nodes.wait("web", "running")["node"]

    alive = nodes.cli("node", "confirm-dead", node, "--yes", node)
    nodes.named(node).kill()
    nodes.wait("web", "unproven", node=node)
    unasked = nodes.cli("node", "confirm-dead", node)
    mistyped = nodes.cli("node", "confirm-dead", node, "--yes", "other")
    listed = nodes.cli("node", "list").stdout
    confirmed = nodes.cli("node", "confirm-dead", node, "--yes", node)

    assert alive.returncode == 1
    assert f"{node} is alive" in alive.stderr
    assert unasked.returncode == 2
    assert mistyped.returncode == 1
    assert f"{node}    gone   web" in listed
    assert (confirmed.returncode, confirmed.stdout) == (0, "freed web (epoch 1)\n")
    nodes.wait("web", "running", epoch=2)
    again = nodes.cli("node", "confirm-dead", node, "--yes", node)
    assert again.returncode == 1
    assert f"{node} holds no seat" in again.stderr


def test_status_is_plain_when_piped_and_complete_as_json(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.apply(f"[component.web]\n{SLEEP}")
    nodes.wait("web", "running")

    text = nodes.cli("status")
    data = nodes.cli("status", "--output", "json")
    seat = nodes.cli("status", "web/0")
    one = nodes.cli("status", "nope")

    head, row = text.stdout.splitlines()
    assert head.split()[:4] == ["COMPONENT", "STATE", "NODE", "PID"]
    assert row.split()[:3] == ["web", "running", "n1"]
    assert "\x1b" not in text.stdout
    (web,) = json.loads(data.stdout)
    assert web["containment"] in ("sealed", "swept")
    assert 0 < web["time_to_fence"] < 1
    assert one.returncode == 1
    assert seat.stdout.splitlines()[1].split()[:3] == ["web", "running", "n1"]
    assert nodes.cli("status", "web/1").returncode == 1


def test_logs_are_followed_over_a_restart(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.apply(
        """[component.web]\ncommand = ["sh", "-c", "echo epoch $INCUMBENT_EPOCH; sleep 1000"]\n"""
    )
    row = nodes.wait("web", "running")
    log = nodes.named("n1").data / "logs" / "web-0.log"
    wait_until(lambda: log.exists() and "epoch 1" in log.read_text(), 10, "the first line")
    env = {"INCUMBENT_DATA": str(nodes.named("n1").data), "INCUMBENT_ZOOKEEPER": nodes.hosts}
    following = nodes.terminals.start("logs", [*INCUMBENT, "logs", "web", "-f"], env=env)
    following.wait_for("epoch 1")

    os.kill(row["pid"], signal.SIGKILL)

    following.wait_for("epoch 2")
    assert following.end(signal.SIGINT) == 130
    assert following.complaints() == []
    assert "there is no component db; there are: web" in nodes.cli("logs", "db").stderr
    hook = nodes.cli("logs", "web", "--hook", "on_fail")
    assert (hook.returncode, hook.stdout) == (0, "")
    assert "on_fail of web has written nothing yet" in hook.stderr
    nodes.server.kill()
    alone = nodes.cli("logs", "web", "-n", "1")
    assert "epoch 2" in alone.stdout
    assert "what follows is what this machine has of web" in alone.stderr


def test_a_node_name_used_twice_is_refused(nodes: Nodes) -> None:
    nodes.start("n1")

    twin = run_cli(
        *("agent", "--zookeeper", nodes.hosts, "--node", "n1", "--data", nodes.folder / "twin"),
        *("--tick", "0", "--session-timeout", "1", "--insecure"),
    )

    assert twin.returncode == 2
    assert "the node name n1 is taken" in twin.stderr


def test_a_data_directory_in_use_or_not_usable_is_refused(nodes: Nodes) -> None:
    node = nodes.start("n1")
    (nodes.folder / "file").touch()

    used = run_cli("agent", "--zookeeper", nodes.hosts, "--data", node.data)
    odd = run_cli("agent", "--zookeeper", nodes.hosts, "--data", nodes.folder / "file")

    assert used.returncode == 2
    assert f"is in use by pid {node.guardian.pid}" in used.stderr
    assert odd.returncode == 2
    assert "cannot be used" in odd.stderr


def test_an_agent_waits_for_zookeeper_and_says_so(tmp_path: Path) -> None:
    with Nodes(tmp_path) as nodes:
        nodes.server.end(signal.SIGTERM)
        command = [*INCUMBENT, "agent", "--zookeeper", nodes.hosts, "--node", "n1", "--insecure"]
        agent = nodes.terminals.start("early", [*command, "--data", tmp_path / "n1"])
        agent.wait_for_complaint("waiting for ZooKeeper", 30)

        nodes.start_server()

        wait_until(lambda: "n1" in nodes.cluster().nodes, 20, "n1 to be live")
        assert agent.end(signal.SIGTERM, 20) == 0


def test_an_agent_that_waits_ends_at_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*INCUMBENT, "agent", "--zookeeper", "127.0.0.1:1", "--data", tmp_path / "n1"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ends_with_us(),
    )
    assert process.stderr is not None
    assert "waiting for ZooKeeper" in process.stderr.readline()

    process.send_signal(signal.SIGINT)

    assert process.wait(20) == 130
    assert "Traceback" not in process.stderr.read()


def test_a_killed_node_comes_back_and_ends_what_it_left(nodes: Nodes) -> None:
    node = nodes.start("n1")
    nodes.apply(f"[component.web]\n{SLEEP}isolation = 'swept'\n")
    before = nodes.wait("web", "running")
    node.kill()
    nodes.wait("web", "unproven")

    node.start_again()

    after = nodes.wait("web", "running", epoch=2)
    assert not is_alive(before["pid"])
    assert is_alive(after["pid"])


def test_the_znodes_of_a_removed_component_keep_its_epochs(nodes: Nodes) -> None:
    nodes.apply(f"[component.web]\n{SLEEP}")
    nodes.cli("remove", "web")
    tree = Tree()

    data = nodes.ask(lambda client: client.get(tree.component("web")))[0]
    seat = nodes.ask(lambda client: client.get(tree.seat("web/0")))[0]

    assert data == b""
    assert json.loads(seat)["epoch"] == 0


def test_confirm_dead_asks_a_person_for_the_name_again(nodes: Nodes) -> None:
    nodes.start("n1")
    nodes.apply(f"[component.web]\n{SLEEP}isolation = 'swept'\n")
    nodes.wait("web", "running")
    nodes.named("n1").kill()
    nodes.wait("web", "unproven")
    terminal, keyboard = os.openpty()
    asked = subprocess.Popen(
        [*INCUMBENT, "node", "confirm-dead", "n1", "--zookeeper", nodes.hosts],
        stdin=keyboard,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asked.stderr is not None
    assert "web (epoch 1, swept) may still run on n1" in asked.stderr.readline()
    assert "type n1 again" in asked.stderr.readline()

    os.write(terminal, b"n1\n")

    said, _ = asked.communicate(timeout=20)
    os.close(terminal)
    os.close(keyboard)
    assert (asked.returncode, said) == (0, "freed web (epoch 1)\n")


def test_a_new_agent_says_of_its_programs_what_was_said_before(tmp_path: Path) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:  # it may have no spare yet, on a loaded machine
        node = nodes.start("n1")
        nodes.apply(f"[component.web]\n{SLEEP}")
        before = nodes.wait("web", "running")

        node.kill_agent()
        wait_until(lambda: node.status().get("generation", 0) >= 2, 15.0, "the next agent")
        nodes.apply(f"[component.web]\n{SLEEP}[component.more]\n{SLEEP}")
        nodes.wait("more", "running")

        kept = ("since", "pid", "epoch", "state")
        row = nodes.row("web")
        assert [row[key] for key in kept] == [before[key] for key in kept]


def test_an_agent_without_a_guardian_deletes_its_breadcrumbs_over_an_outage(tmp_path: Path) -> None:
    """As under systemd, which ends what is left of a unit by SIGTERM: it stays until they are."""
    with Nodes(tmp_path, session=8.0) as nodes:
        n1 = nodes.start("n1")
        nodes.apply(f"[component.web]\n{SLEEP}isolation = 'swept'\n")
        nodes.wait("web", "running", node="n1")
        nodes.start("n2")
        agent = n1.agent_pid

        nodes.server.kill()
        n1.kill_guardian()
        os.kill(agent, signal.SIGTERM)
        nodes.start_server()

        n1.guardian.wait_for_complaint("its programs are proven dead, the session is closed", 20)
        nodes.wait("web", "running", node="n2")
        assert not is_alive(agent)


def test_what_cannot_be_limited_here_is_said_and_what_can_be_is(nodes: Nodes) -> None:
    """Rlimits everywhere; memory where this machine's cgroups have a controller for it."""
    nodes.start("n1")
    nodes.apply(
        '[component.web]\ncommand = ["sh", "-c", "ulimit -n; cat /proc/self/cgroup; sleep 1000"]\n'
        'limits = { nofile = 99, memory = "64M" }\n'
    )

    row = nodes.wait("web", "running")

    log = nodes.named("n1").data / "logs" / "web-0.log"
    wait_until(lambda: log.exists() and "0::" in log.read_text(), 10, "what it says of itself")
    assert log.read_text().splitlines()[0].endswith(" 99")
    is_limited = any(
        file.read_text() == "67108864\n" for file in Path("/sys/fs/cgroup").glob("**/memory.max")
    )
    assert ("not limited on this node: memory (" in row["why"]) != is_limited


def test_a_data_directory_may_have_a_long_path(nodes: Nodes) -> None:
    folder = nodes.folder / ("long" * 30)
    node = nodes.start("n1", "--data", str(folder))

    wait_until(lambda: local.ask(folder) is not None, what="the agent to answer on its socket")
    assert not [line for line in node.guardian.complaints() if "control socket" in line]


def test_an_agent_that_waits_for_its_name_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with Nodes(tmp_path, tick=0.5, session=8.0) as nodes:
        node = nodes.start("n1")
        before = nodes.cluster().nodes["n1"].session
        node.kill()
        node.start_again()
        node.guardian.wait_for_complaint("waiting for this node's old session")

        code = node.stop()
        after = nodes.cluster().nodes["n1"].session

    assert (code, after) == (0, before)


def test_what_a_vanished_node_had_can_be_removed_and_declared_again(nodes: Nodes) -> None:
    """Nothing of the old life is in the way, and its epochs go on."""
    for name in ("n1", "n2"):
        nodes.start(name)
    web = '[component.web]\ncommand = "sleep 1000"\n'
    nodes.apply(web)
    row = nodes.wait("web", "running")

    nodes.named(row["node"]).kill()
    removed = nodes.cli("remove", "web")
    nodes.apply(web)

    assert removed.returncode == 0, removed.stderr
    again = nodes.wait("web", "running", timeout=30.0)
    assert again["node"] != row["node"]
    assert again["epoch"] > row["epoch"]
