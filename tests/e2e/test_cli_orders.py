"""Stop, start and restart, by an operator and by somebody else's client."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import INCUMBENT, Nodes, is_alive
from tests.waiting import wait_until

from incumbent.agent.tree import Observed, Tree, read
from incumbent.cli import orders, wishes

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


def elections(nodes: Nodes) -> int:
    """How often a candidate came or went at web's seat, ever."""
    stat = nodes.ask(lambda client: client.exists(f"{TREE}/seats/0/election"))
    assert stat is not None
    return stat.cversion


def test_a_move_is_handed_over_in_order_and_moved_back_by_default(nodes: Nodes) -> None:
    before = nodes.wait("web", "running")
    to = "n2" if before["node"] == "n1" else "n1"

    there = nodes.cli("move", "web", "--to", to, "--wait")
    moved = nodes.wait("web", "running", node=to)
    back = nodes.cli("move", "web/0", "--wait")
    wrong = nodes.cli("move", "web", "--to", "n9")

    assert (there.stdout, there.stderr) == (f"web runs: on {to}\n", "")
    assert not is_alive(before["pid"])
    assert moved["epoch"] == before["epoch"] + 1
    assert moved["why"].startswith(f"web {before['node']} → {to} in ")
    assert back.stdout == f"web/0 runs: on {before['node']}\n"
    assert wrong.returncode == 1
    assert "there is no live node n9; live nodes: n1, n2 (`incumbent node list`)" in wrong.stderr


def test_what_is_frozen_runs_on_and_is_not_started_again(nodes: Nodes) -> None:
    before = nodes.wait("web", "running")

    frozen = nodes.cli("freeze", "web")
    refused = nodes.cli("restart", "web", "--wait")
    nodes.apply(f'[component.web]\n{SLEEP}env.NEW = "1"\n[component.worker]\n{SLEEP}')
    shown = nodes.wait("web", "running")
    os.kill(before["pid"], signal.SIGKILL)
    down = nodes.wait("web", "frozen")
    moved = nodes.cli("move", "web")
    ended = nodes.cli("unfreeze", "web")

    assert frozen.stdout == "web is frozen\n"
    assert "refused: frozen by " in refused.stderr
    assert (shown["pid"], shown["why"]) == (before["pid"], down["why"])
    assert "web is frozen by " in moved.stderr
    assert "it is not moved; `incumbent unfreeze web` first" in moved.stderr
    assert ended.stdout == "web is no longer frozen\n"
    assert nodes.wait("web", "running")["epoch"] == before["epoch"] + 1


def test_what_is_frozen_amid_a_restart_is_named_and_starts_when_that_is_over(
    tmp_path: Path,
) -> None:
    gate, tree = tmp_path / "gate", Tree()
    script = f"trap 'while [ ! -e {gate} ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done"
    with Nodes(tmp_path, tick=0.5, session=10.0) as nodes:
        nodes.start("n1")
        nodes.apply(
            f"[component.web]\nstop_grace = 4.0\ncommand = ['sh', '-c', \"{script}\"]\n"
            f"[component.nowhere]\n{SLEEP}nodes = ['n9']\n"
        )
        before = nodes.wait("web", "running")
        nodes.cli("restart", "web")
        nodes.wait("web", "stopping")

        nodes.ask(lambda client: wishes.want(client, tree, "web", frozen_by="me", now=1.0))
        amid = nodes.ask(lambda client: orders.not_up(client, tree, "web"))
        gate.touch()
        down = nodes.wait("web", "frozen")
        frozen = nodes.cli("freeze", "nowhere")
        nodes.cli("unfreeze", "web")
        after = nodes.wait("web", "running")

    assert amid == ["web/0"]
    assert "nothing is started or moved until `incumbent unfreeze web`" in down["why"]
    assert frozen.stdout == (
        "nowhere is frozen while it does not run (nowhere/0): `incumbent unfreeze nowhere` starts "
        "what is down\n"
    )
    assert after["epoch"] == before["epoch"] + 1


def test_upgrades_en_masse_go_one_by_one_hold_no_election_and_end_at_the_first_failure(
    nodes: Nodes,
) -> None:
    nodes.apply(
        f'[component.a]\n{SLEEP}labels.team = "x"\n[component.web]\n{SLEEP}labels.team = "x"\n'
        f'copies = 2\n[component.z]\n{SLEEP}labels.team = "x"\n[component.worker]\n{SLEEP}'
    )
    for name, seat in (("a", 0), ("web", 0), ("web", 1), ("z", 0)):
        nodes.wait(name, "running", seat=seat)
    wait_until(lambda: len(candidates(nodes)) == 2, what="both nodes to stand")
    held, before = elections(nodes), nodes.row("web", 0)["epoch"]

    done = nodes.cli("restart", "--label", "team=x", "--max-parallel", "1")
    nodes.cli("stop", "web", "--wait")
    failed = nodes.cli("restart", "--label", "team=x", "--max-parallel", "1")
    there = nodes.row("a")["node"]
    only = nodes.cli("restart", "--node", there, "a", "z", "--wait")
    nothing = nodes.cli("restart", "--label", "team=y")

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["a", "web/0", "web/1", "z"]
    assert elections(nodes) == held, "a restart held an election"
    assert nodes.cluster().components[1].seats[0].record.epoch == before + 1
    assert failed.returncode == 1
    assert "not begun: web/1, z" in failed.stderr
    assert "a restart done" in only.stdout
    assert nothing.stderr.strip().endswith(
        "no component here has team=y; labels there are: team=x (`labels` in the component file)"
    )


def test_what_the_file_lacks_is_removed_only_if_that_is_said_and_certain(nodes: Nodes) -> None:
    before = nodes.wait("worker", "running")
    file = nodes.folder / "fewer.toml"
    file.write_text(f"[component.web]\n{SLEEP}env.NEW = '1'\n")

    unasked = nodes.cli("apply", file, "--prune", stdin="")
    untouched = nodes.row("worker"), nodes.cli("apply", file, "--output", "json").stdout
    pruned = nodes.cli("apply", file, "--prune", "--yes")

    assert unasked.returncode == 2
    assert "FILE lacks: worker; they are stopped and removed" in unasked.stderr
    assert untouched[0]["pid"] == before["pid"]
    assert '"changed"' in untouched[1], "nothing was changed before it was certain"
    assert pruned.returncode == 0, pruned.stderr
    assert "worker     removed" in pruned.stdout
    assert not is_alive(before["pid"])


def test_status_goes_on_to_show_what_changes(nodes: Nodes) -> None:
    nodes.wait("web", "running")
    watching = nodes.terminals.start(
        "watching",
        [*INCUMBENT, "status", "web", "--watch", "--output", "json", "--zookeeper", nodes.hosts],
    )
    watching.wait_for('"state": "running"')

    nodes.cli("stop", "web")

    watching.wait_for('"state": "stopped"')
    watching.send(signal.SIGINT)
    assert watching.ends(10.0) == 130


def test_of_many_that_are_stopped_one_that_hangs_holds_up_no_other(nodes: Nodes) -> None:
    hangs = '[component.hangs]\ncommand = ["sh", "-c", "trap : TERM; while :; do sleep 1; done"]\n'
    names = [f"c{n}" for n in range(5)]
    nodes.apply(hangs + "".join(f"[component.{name}]\n{SLEEP}" for name in names))
    for name in ("hangs", *names):
        nodes.wait(name, "running", timeout=60.0)

    done = nodes.cli("stop", "c*", "hangs", "--wait")

    assert done.returncode == 0, done.stderr
    ends = {name: _stopped_at(nodes, name) for name in ("hangs", *names)}
    assert max(ends, key=lambda name: ends[name]) == "hangs"


def _stopped_at(nodes: Nodes, name: str) -> float:
    path = Tree().observed(f"{name}/0")
    data, _stat = nodes.ask(lambda client: client.get(path))
    return read(Observed, data, path).since
