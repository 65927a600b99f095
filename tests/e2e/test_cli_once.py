"""`incumbent once` as cron on several machines uses it, with everything killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.nodes import run_cli
from tests.e2e.terminals import Terminal, Terminals, our_server
from tests.e2e.wrappers import Wrappers, agent_of
from tests.waiting import wait_until

from incumbent import sync
from incumbent.cli.dispatch import dispatch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


@pytest.fixture
def machines(server: str, tmp_path: Path) -> Iterator[Wrappers]:
    with Terminals(tmp_path) as terminals:
        yield Wrappers(terminals, server, tmp_path)


def history(machines: Wrappers, key: str) -> list[dict[str, Any]]:
    done = run_cli("once", key, "--history", "-o", "json", "--zookeeper", machines.hosts)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def one_runs_another_waits(
    machines: Wrappers, key: str, *options: str, flags: tuple[str, ...] = ()
) -> tuple[Terminal, Terminal]:
    first = machines.witness("first", "once", key, *options, flags=flags)
    machines.runs(first)
    second = machines.witness("second", "once", key, *options, flags=flags)
    second.wait_for_complaint(f"{key} is run by first pid {first.pid}; waiting for its end")
    return first, second


def test_six_machines_one_runs_it_and_all_have_its_exit_code(machines: Wrappers) -> None:
    script = 'echo "ran on $INCUMBENT_NODE for $INCUMBENT_PERIOD"; exit 3'
    flags = ("--every", "1w", "--quiet")
    command = ("sh", "-c", script)
    six = [machines.start(f"n{i}", "once", "report", *command, flags=flags) for i in range(6)]

    codes = [terminal.ends(20) for terminal in six]

    (line,) = [line for terminal in six for line in terminal.lines()]
    (run,) = history(machines, "report")
    assert line == f"ran on {run['node']} for {run['period']}"
    assert codes == [3] * 6
    assert (run["state"], run["code"]) == ("done", 3)
    assert [terminal.complaints() for terminal in six] == [[]] * 6


def test_what_was_done_before_is_said_and_may_have_an_exit_code_of_its_own(
    machines: Wrappers,
) -> None:
    done = machines.start("n1", "once", "before", "sh", "-c", "exit 4")
    assert done.ends() == 4
    again = machines.start("n2", "once", "before", "echo", "no")
    own = machines.start("n3", "once", "before", "echo", "no", flags=("--if-done", "0", "-q"))

    codes = again.ends(), own.ends()

    assert codes == (4, 0)
    again.wait_for_complaint(f"before is done: n1 (pid {done.pid}) ran it from ")
    again.wait_for_complaint("exit code 4")
    assert (again.lines(), own.lines(), own.complaints()) == ([], [], [])


@pytest.mark.parametrize("kill", ["guardian", "agent", "both"])
def test_who_dies_is_followed_by_one_that_waits_if_it_is_to_be_run_again(
    kill: str, machines: Wrappers
) -> None:
    retry = ("--if-interrupted", "retry")
    key = f"retry-{kill}"
    first, second = one_runs_another_waits(machines, key, "--fork", "--ignore-term", flags=retry)

    agent = agent_of(first)
    if kill in ("agent", "both"):
        os.kill(agent, signal.SIGKILL)
    if kill in ("guardian", "both"):
        first.send(signal.SIGKILL)
    machines.runs(second)

    second.wait_for_complaint("was interrupted on first")
    (run,) = history(machines, key)
    assert (run["state"], run["node"], run["attempt"]) == ("running", "second", 2)
    second.send(signal.SIGTERM)
    second.ends()
    machines.judge()


def test_who_is_killed_leaves_it_interrupted_and_nobody_runs_it_again(machines: Wrappers) -> None:
    first, second = one_runs_another_waits(machines, "fail")

    first.send(signal.SIGKILL)

    assert second.ends() == 121
    second.wait_for_complaint("how far it came is not known. Nothing is run.")
    third = machines.witness("third", "once", "fail")
    assert third.ends() == 121
    assert machines.starts() == 1
    (run,) = history(machines, "fail")
    assert (run["state"], run["node"]) == ("interrupted", "first")


def test_sigterm_stops_it_writes_that_down_and_then_lets_the_next_one(machines: Wrappers) -> None:
    first, second = one_runs_another_waits(machines, "term", "--stop-takes", "0.1")

    assert first.end(signal.SIGTERM) == 0  # its own way to stop

    assert second.ends() == 121
    second.wait_for_complaint("it was stopped there, exit code 0")
    machines.judge()


def test_who_waits_only_so_long_says_who_runs_it(machines: Wrappers) -> None:
    first, _second = one_runs_another_waits(machines, "late")
    late = machines.start("late", "once", "late", "true", flags=("--timeout", "0"))

    assert late.ends() == 124

    late.wait_for_complaint(f"first pid {first.pid} runs it; nothing was run here")


def test_what_cannot_be_started_here_is_left_to_the_others(
    machines: Wrappers, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    assert machines.start("n1", "once", "start", str(script)).ends() == 127
    assert machines.start("n2", "once", "start", "true").ends() == 0

    (run,) = history(machines, "start")
    assert run["node"] == "n2"


def test_a_period_is_run_once_and_history_shows_it(machines: Wrappers) -> None:
    every = ("--every", "1s", "-q")
    wait_until(
        lambda: (
            machines.start("n1", "once", "every", "true", flags=every).ends() == 0
            and len(history(machines, "every")) == 2
        ),
        what="two periods to have been run",
    )

    shown = run_cli("once", "every", "--history", "--zookeeper", machines.hosts).stdout

    head, *rows = shown.splitlines()
    assert head.split() == ["PERIOD", "STATE", "NODE", "STARTED", "TOOK", "CODE", "WHY"]
    assert [row.split()[1:3] for row in rows] == [["done", "n1"]] * 2
    assert rows == sorted(rows)


def test_what_is_forgotten_runs_again_but_never_while_it_runs(machines: Wrappers) -> None:
    first, second = one_runs_another_waits(machines, "forget")
    forget = ("once", "forget", "--forget", "--zookeeper", machines.hosts)
    busy = run_cli(*forget)
    first.end(signal.SIGTERM)
    assert second.ends() == 121

    done = run_cli(*forget)

    assert busy.returncode == 1
    assert "is being run or waited for" in busy.stderr
    assert done.returncode == 0
    assert machines.start("n3", "once", "forget", "true").ends() == 0


def test_a_record_that_cannot_be_read_is_shown_as_that_and_can_be_forgotten(server: str) -> None:
    with sync.connect(server) as zk:
        zk.create("/incumbent/once/unreadable", b"?", parents=True)
    command = ("once", "unreadable", "--zookeeper", server)

    shown, forgotten = run_cli(*command, "--history"), run_cli(*command, "--forget")

    assert shown.returncode == 1
    assert "cannot be read" in shown.stderr
    assert forgotten.returncode == 0
    assert "nothing is known of unreadable" in run_cli(*command, "--history").stderr


def test_a_run_whose_machine_is_gone_is_shown_as_interrupted_before_anybody_comes(
    machines: Wrappers,
) -> None:
    alone = machines.witness("alone", "once", "gone")
    machines.runs(alone)
    (under_way,) = history(machines, "gone")

    alone.send(signal.SIGKILL)
    assert alone.ends() == -signal.SIGKILL

    wait_until(lambda: history(machines, "gone")[0]["state"] != "running")
    (run,) = history(machines, "gone")
    assert (under_way["state"], under_way["ended"], under_way["code"]) == ("running", None, None)
    assert (run["state"], run["why"]) == ("interrupted", "its end was never written down")
    assert (run["ended"], run["code"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a/b", "--", "true"), "'a/b' is no key"),
        (("key",), "a COMMAND is missing"),
        (("key", "--every", "1y", "--", "true"), "--every: expected a number and one of"),
        (("key", "--zone", "UTC", "--", "true"), "give --every 1d as well"),
        (("key", "--every", "1h", "--zone", "UTC", "--", "true"), "--zone is for periods of whole"),
        (("key", "--every", "1d", "--zone", "Mars/X", "--", "true"), "knows no such time zone"),
        (
            ("key", "--if-done", "300", "--", "true"),
            "--if-done: expected an exit code from 0 to 255",
        ),
        (("key", "--timeout", "x", "--", "true"), "expected a number of seconds from 0"),
        (("key", "--stop-grace", "-1", "--", "true"), "expected a number of seconds from 0"),
        (("key", "--name", "", "--", "true"), "--name: '' is no node's name"),
        (("key", "--history", "--forget"), "give one of them"),
        (("key", "true"), "COMMAND follows a `--`"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = dispatch(["once", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)

    err = capfd.readouterr().err
    assert code == 125
    assert said in err
    assert err.count("\n") == 1
