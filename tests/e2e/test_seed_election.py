"""The election of the tutorials prints the same on our server and on Apache ZooKeeper.

Rule of this file: one script, two servers; only process ids are normalised.
"""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path

import pytest
from tests.apache import ApacheServer
from tests.e2e.terminals import Terminal, Terminals, our_server

_EXAMPLES = Path(__file__).parents[2] / "examples" / "seed_election"

_EXPECTED = {
    "first": [
        "node_0000000000 is the leader",
        "Process PID is doing leader work",
    ],
    "second": [
        "node_0000000001 is not the leader, watching node_0000000000",
        "Process PID is waiting",
        "node_0000000001 is the leader",
        "Process PID is doing leader work",
    ],
    "third": [
        "node_0000000002 is not the leader, watching node_0000000001",
        "Process PID is waiting",
        "node_0000000002 is the leader",
        "Process PID is doing leader work",
    ],
}


@pytest.mark.parametrize("program", ["procedural.py", "classes.py"])
def test_three_started_and_ended_in_turn_print_the_same_on_both_servers(
    program: str, apache: ApacheServer, tmp_path: Path
) -> None:
    (tmp_path / "apache").mkdir()
    with our_server(tmp_path / "ours") as ours:
        on_ours = _script(program, ours, tmp_path / "ours")
        on_apache = _script(program, apache.hosts, tmp_path / "apache")

    assert on_ours == on_apache == _EXPECTED


def test_without_a_server_the_program_says_so_and_fails(tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        program = terminals.python("alone", _EXAMPLES / "classes.py", "127.0.0.1:1")

        code = program.ends(30)

    assert code == 1
    assert "no ZooKeeper answers at 127.0.0.1:1" in "\n".join(program.complaints())


def _script(program: str, hosts: str, folder: Path) -> dict[str, list[str]]:
    """Three started one after the other; the leader ended, then the next, then the last."""
    path = f"/{Path(program).stem}/election"
    with Terminals(folder) as terminals:

        def start(name: str) -> Terminal:
            arguments = (hosts, "--path", path, "--every", "0.1")
            return terminals.python(name, _EXAMPLES / program, *arguments)

        first = start("first")
        first.wait_for("doing leader work")
        second = start("second")
        second.wait_for("waiting")
        third = start("third")
        third.wait_for("waiting")
        assert first.end(signal.SIGTERM) == 0
        second.wait_for("doing leader work")
        assert second.end(signal.SIGINT) == 0
        third.wait_for("doing leader work")
        assert third.end(signal.SIGTERM) == 0
        return {each.name: _normalised(each) for each in (first, second, third)}


def _normalised(terminal: Terminal) -> list[str]:
    """Without the process id; a periodic line counts once, however often it came."""
    lines = [re.sub(rf"\b{terminal.pid}\b", "PID", line) for line in terminal.lines()]
    return [line for line, _ in itertools.groupby(lines)]
