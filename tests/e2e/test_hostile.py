"""An operator with root and a bad day: what real processes must stand, one test for each kind.

The same kinds strike the simulated cluster in tests/simulation/test_agent_vandals.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.children import ends_with_us
from tests.e2e.nodes import INCUMBENT, Nodes, is_alive
from tests.waiting import wait_until

from incumbent.agent.tree import Tree
from incumbent.client import Client

TREE = Tree()
WEB = '[component.web]\ncommand = "sleep 1000"\n'
TWO = f'{WEB}[component.other]\ncommand = "sleep 1000"\n'


def test_what_cannot_be_read_stops_no_agent_and_nothing_that_runs(tmp_path: Path) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        node = nodes.start("n1")
        nodes.apply(TWO)
        before = {name: nodes.wait(name, "running")["epoch"] for name in ("web", "other")}
        agent = node.agent_pid
        broken = (TREE.seat("web/0"), TREE.desired("web"), TREE.plan, TREE.control)
        right = {path: nodes.ask(lambda client, p=path: client.get(p))[0] for path in broken}

        for path in broken:
            nodes.ask(lambda client, p=path: client.set(p, b"garbage{"))
        os.kill(nodes.row("web")["pid"], signal.SIGKILL)  # it cannot start now, and says why
        nodes.wait("web", "unreadable")

        other = nodes.row("other")
        assert (other["state"], other["epoch"]) == ("running", before["other"])
        for path in (TREE.control, TREE.seat("web/0"), TREE.desired("web")):
            nodes.ask(lambda client, p=path: client.set(p, right[p]))
        assert nodes.wait("web", "running")["epoch"] > before["web"]
        assert node.agent_pid == agent


def test_what_is_deleted_of_our_own_is_made_again_and_restarts_nothing(tmp_path: Path) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        nodes.start("n1")
        nodes.apply(WEB)
        row = nodes.wait("web", "running")

        async def vandal(client: Client) -> list[str]:
            gone = [TREE.plan, TREE.node("n1")]
            for folder in (TREE.sessions, TREE.planner):
                gone += [f"{folder}/{name}" for name in await client.children(folder)]
            for path in gone:
                await client.delete(path)
            return gone[:3]  # the planner's candidate gets another name

        for path in nodes.ask(vandal):
            wait_until(lambda p=path: nodes.ask(lambda client: client.exists(p)), 10.0, path)
        time.sleep(3.0)  # longer than a lease without beats could last
        again = nodes.row("web")
        assert (again["state"], again["epoch"]) == ("running", row["epoch"])


def test_where_and_how_often_it_runs_is_no_reason_to_restart_it(tmp_path: Path) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        node = nodes.start("n1")
        nodes.apply(WEB)
        row = nodes.wait("web", "running")

        for more in ("copies = 2", 'nodes = ["n1"]', 'requires = ["/"]', 'on_unclean = "go"'):
            nodes.apply(f"{WEB}{more}\n")
        killed = node.kill_agent()
        wait_until(lambda: node.status().get("seats", {}).get("web/0") and killed, 10.0)
        nodes.apply(WEB)
        nodes.apply(f'{WEB}[component.last]\ncommand = "sleep 1000"\n')
        nodes.wait("last", "running")

        again = nodes.row("web")
        assert (again["state"], again["epoch"]) == ("running", row["epoch"])
        nodes.apply(f'{WEB}env = {{ "A" = "1" }}\n')
        nodes.wait("web", "running", epoch=row["epoch"] + 1)


def test_a_respawned_agent_does_not_lead_what_ended_here_long_ago(tmp_path: Path) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        first, second = nodes.start("n1"), nodes.start("n2")
        nodes.apply(WEB)
        owner = nodes.wait("web", "running")["node"]
        here, there = (first, second) if owner == "n1" else (second, first)
        wait_until(lambda: len(nodes.cluster().components[0].seats[0].contenders) == 2, 10.0)

        async def depose(client: Client) -> None:
            folder = TREE.election("web/0")
            head = min(await client.children(folder), key=lambda name: name[-10:])
            await client.delete(f"{folder}/{head}")

        nodes.ask(depose)
        nodes.wait("web", "running", node=there.name)
        killed = here.kill_agent()

        def says() -> str:
            try:
                is_new = here.agent_pid != killed
            except OSError:
                return ""
            seat = here.status().get("seats", {}).get("web/0", {}) if is_new else {}
            return str(seat.get("reason") or "")

        assert f"waits for {there.name}" in wait_until(says, 10.0)
        assert nodes.row("web")["state"] == "running"


def test_an_earlier_life_is_ended_and_not_another_clusters_programs(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with Nodes(folders[0], session=2.0) as ours, Nodes(folders[1], session=2.0) as theirs:
        node = ours.start("n1")
        theirs.start("n1")
        for nodes in (ours, theirs):
            nodes.apply('[component.web]\ncommand = "sleep 1000"\nisolation = "swept"\n')
        mine, stranger = (nodes.wait("web", "running")["pid"] for nodes in (ours, theirs))

        node.kill()
        node.start_again().connected()

        ours.wait("web", "running", epoch=2)
        assert not is_alive(mine)
        assert is_alive(stranger)


@pytest.mark.parametrize("after", [0.0, 0.1, 0.2])
def test_ctrl_c_while_up_starts_leaves_nothing(tmp_path: Path, after: float) -> None:
    (tmp_path / "incumbent.toml").write_text(WEB)
    up = subprocess.Popen(
        [*INCUMBENT, "up"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=ends_with_us(),
    )
    locked = tmp_path / ".incumbent" / "lock"
    wait_until(lambda: locked.exists() and locked.read_text().strip(), 20.0)
    time.sleep(after)

    up.send_signal(signal.SIGINT)
    _, said = up.communicate(timeout=30)

    assert b"Traceback" not in said
    assert not list(_alive_in(tmp_path)), "it has ended, and its children have not"


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2])
def test_up_killed_while_it_starts_leaves_nothing(tmp_path: Path, after: float) -> None:
    (tmp_path / "incumbent.toml").write_text(WEB)
    up = subprocess.Popen(
        [*INCUMBENT, "up"], cwd=tmp_path, start_new_session=True, preexec_fn=ends_with_us()
    )
    log = tmp_path / ".incumbent" / "agent.log"
    wait_until(log.exists, 20.0)
    time.sleep(after)

    up.kill()
    up.wait(10)

    wait_until(lambda: not list(_alive_in(tmp_path)), 30.0, "its children to end")


def _alive_in(folder: Path) -> list[int]:
    def mentions(pid: int) -> bool:
        try:
            return os.fsencode(folder / ".incumbent") in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    pids = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid in pids if mentions(pid) and is_alive(pid)]
