"""Readiness, liveness and hooks of real programs on real nodes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import free_port
from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

WELL = Path(__file__).parents[1] / "programs" / "well.py"
TURNS = ("before_start", "after_start", "before_stop", "after_stop", "on_fail")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, tick=0.5, session=6.0) as running:
        running.start("n1")
        yield running


def complaints(nodes: Nodes) -> str:
    """What the first node has said."""
    return "\n".join(nodes.nodes[0].guardian.complaints())


def well(folder: Path, *tables: str) -> str:
    return "\n".join(
        ["[component.web]", f'command = ["{sys.executable}", "{WELL}", "{folder}"]', *tables]
    )


def test_a_program_is_ready_when_it_says_so_and_stays_so_when_its_agent_is_killed(
    nodes: Nodes, tmp_path: Path
) -> None:
    nodes.apply(
        well(tmp_path, "ready = { notify = true }", "live = { notify = true, interval = 3 }")
    )
    loading = nodes.wait("web", "running")
    wait_until(lambda: nodes.wait("web", "running")["why"] == "loading")

    (tmp_path / "ready").touch()
    ready = nodes.wait("web", "ready")
    nodes.nodes[0].kill_agent()
    wait_until(lambda: nodes.nodes[0].status().get("generation") == 2)
    wait_until(lambda: nodes.nodes[0].status()["seats"].get("web/0", {}).get("state") == "ready")

    after = nodes.wait("web", "ready")
    assert (after["pid"], after["epoch"]) == (ready["pid"], ready["epoch"]) == (loading["pid"], 1)


def test_a_silent_watchdog_is_a_restart_in_place_within_its_interval(
    nodes: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "ready").touch()
    nodes.apply(
        well(tmp_path, "ready = { notify = true }", "live = { notify = true, interval = 1 }")
    )
    before = nodes.wait("web", "ready")

    (tmp_path / "hung").touch()
    hung_at = time.monotonic()
    wait_until(lambda: not is_alive(before["pid"]), what="the hung program to be ended")
    took = time.monotonic() - hung_at
    (tmp_path / "hung").unlink()

    after = nodes.wait("web", "ready")
    assert after["epoch"] > before["epoch"]
    assert "no WATCHDOG=1 for 1 s" in complaints(nodes)
    assert took < 4.0  # the interval, the program's own 0.25 s, a stop, on a busy machine


@pytest.mark.parametrize("way", ["http", "tcp"])
def test_a_program_that_is_stopped_by_a_signal_is_restarted_within_its_budget(
    nodes: Nodes, tmp_path: Path, way: str
) -> None:
    port = free_port()
    target = f'"http://127.0.0.1:{port}/"' if way == "http" else str(port)
    nodes.apply(
        f"""[component.web]
command = ["{sys.executable}", "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
cwd = "{tmp_path}"
ready = {{ {way} = {target}, interval = 0.2, timeout = 0.2 }}
live = {{ {way} = {target}, interval = 0.5, timeout = 0.5, failures = 2 }}
"""
    )
    before = nodes.wait("web", "ready")

    os.kill(before["pid"], signal.SIGSTOP)
    wait_until(lambda: not is_alive(before["pid"]), what="the stopped program to be ended")

    after = nodes.wait("web", "ready")
    assert after["epoch"] == before["epoch"] + 1
    assert "2 checks in a row failed" in complaints(nodes)


def test_without_a_check_status_says_that_a_program_is_stopped_by_a_signal(nodes: Nodes) -> None:
    nodes.apply('[component.web]\ncommand = "sleep 1000"\n')
    before = nodes.wait("web", "running")

    os.kill(before["pid"], signal.SIGSTOP)

    wait_until(lambda: "stopped by a signal" in nodes.wait("web", "running")["why"])
    os.kill(before["pid"], signal.SIGCONT)
    wait_until(lambda: "stopped by a signal" not in nodes.wait("web", "running")["why"])


def test_a_check_that_is_a_command_and_hangs_is_killed_and_counts(
    nodes: Nodes, tmp_path: Path
) -> None:
    marker = f"{tmp_path}/check"
    script = f"test -e {tmp_path}/well || exec sleep 7123"
    (tmp_path / "well").touch()
    nodes.apply(
        f"""[component.web]
command = "sleep 1000"
live = {{ command = ["sh", "-c", "{script}"], interval = 0.5, timeout = 0.4, failures = 2 }}
"""
    )
    before = nodes.wait("web", "running")

    (tmp_path / "well").unlink()
    wait_until(lambda: not is_alive(before["pid"]), what="the program to be ended")
    (tmp_path / "well").touch()

    wait_until(lambda: nodes.wait("web", "running")["epoch"] > before["epoch"])
    assert "2 checks in a row failed: took longer than 0.4 s" in complaints(nodes)
    assert not running("7123"), marker


def running(word: str) -> list[int]:
    """Pids of processes with this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0") and is_alive(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def hooks(log: Path, **own: str) -> str:
    """Each writes down its name, its epoch, and why."""
    says = f"echo $INCUMBENT_HOOK $INCUMBENT_EPOCH $INCUMBENT_WHY >> {log}"
    return "\n".join(f'{turn} = ["sh", "-c", "{own.get(turn, says)}"]' for turn in TURNS)


def said(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_hooks_are_run_at_each_turn_with_the_epoch_they_work_for(
    nodes: Nodes, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    nodes.apply(f'[component.web]\ncommand = "sleep 1000"\n{hooks(log)}\n')
    first = nodes.wait("web", "running")
    wait_until(lambda: "after_start 1" in [line.strip() for line in said(log)])

    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: "after_start 2" in [line.strip() for line in said(log)])
    assert nodes.cli("stop", "web", "--wait").returncode == 0

    lines = [line.strip() for line in said(log)]
    killed = "ended by signal 9 after"
    assert [line.partition(killed)[0].strip() for line in lines] == [
        "before_start 1",
        "after_start 1",
        "after_stop 1",
        "on_fail 1",
        "before_start 2",
        "after_start 2",
        "before_stop 2 an operator stopped it",
        "after_stop 2 an operator stopped it",
    ]
    assert all(killed in line for line in lines[2:4])


def test_the_next_node_starts_after_the_last_hook_of_the_one_before(
    nodes: Nodes, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    slow = f"sleep 0.5; echo after_stop $INCUMBENT_EPOCH >> {log}"
    nodes.apply(f'[component.web]\ncommand = "sleep 1000"\n{hooks(log, after_stop=slow)}\n')
    before = nodes.wait("web", "running")
    nodes.start("n2")

    nodes.nodes[0].stop()

    nodes.wait("web", "running", node="n2")
    names = [line.split()[:2] for line in said(log)]
    assert names.index(["after_stop", str(before["epoch"])]) < names.index(
        ["before_start", str(before["epoch"] + 1)]
    )


def test_a_failing_before_start_is_a_failed_start(nodes: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    own = hooks(log, before_start=f"test -e {tmp_path}/good")

    nodes.apply(f'[component.web]\ncommand = "sleep 1000"\n{own}\n')

    wait_until(lambda: any(line.startswith("on_fail 1") for line in said(log)))
    row = nodes.wait("web", "backoff")
    assert "before_start: exited with 1" in row["why"]
    assert not any(line.startswith("after_st") for line in said(log))
    (tmp_path / "good").touch()
    assert nodes.wait("web", "running")["epoch"] > 1


def test_hooks_have_their_time_and_no_more(nodes: Nodes, tmp_path: Path) -> None:
    slow = '{ command = "sleep 7124", limit = 0.3 }'
    nodes.apply(
        f'[component.web]\ncommand = "sleep 1000"\nafter_start = {slow}\nbefore_stop = {slow}\n'
    )
    nodes.wait("web", "running")
    wait_until(lambda: "after_start: took longer than 0.3 s" in complaints(nodes))

    stopped = nodes.cli("stop", "web", "--wait")

    assert stopped.stdout == "web is stopped\n"
    assert "before_stop: took longer than 0.3 s" in complaints(nodes)
    assert not running("7124")


def test_hooks_and_checks_die_with_agent_and_guardian(nodes: Nodes, tmp_path: Path) -> None:
    nodes.apply('[component.web]\ncommand = "sleep 1000"\nafter_start = "sleep 7125"\n')
    nodes.wait("web", "running")
    wait_until(lambda: running("7125"), what="the hook to run")

    nodes.nodes[0].kill()

    wait_until(lambda: not running("7125"), what="the hook to be dead")


def test_a_respawned_agent_ends_the_hooks_of_the_one_before(nodes: Nodes) -> None:
    nodes.apply('[component.web]\ncommand = "sleep 1000"\nafter_start = "sleep 7126"\n')
    before = nodes.wait("web", "running")
    wait_until(lambda: running("7126"), what="the hook to run")

    nodes.nodes[0].kill_agent()

    wait_until(lambda: not running("7126"), what="the hook to be dead")
    assert nodes.wait("web", "running")["pid"] == before["pid"]


def test_a_program_can_read_until_when_it_may_live(nodes: Nodes, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"while :; do cat $INCUMBENT_DEADLINE_FILE >> {out}; sleep 0.2; done"
    nodes.apply(f'[component.web]\ncommand = ["sh", "-c", "{script}"]\n')
    nodes.wait("web", "running")

    wait_until(lambda: out.exists() and len(set(out.read_text().split())) >= 3)

    deadlines = [float(each) for each in out.read_text().split()]
    assert deadlines == sorted(deadlines)
    assert 0.0 < deadlines[-1] - time.clock_gettime(time.CLOCK_BOOTTIME) < 6.0
