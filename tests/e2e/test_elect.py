"""`incumbent elect` as it is used: in terminals, beside others, killed in every way.

Rule of this file: real processes, ended by pid; COMMAND is the auditor's witness wherever
"exactly one" is the matter.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import ApacheEnsemble, ApacheServer, free_port
from tests.e2e.terminals import Terminal, Terminals, our_server
from tests.e2e.wrappers import SESSION, Wrappers, agent_of
from tests.waiting import wait_until

_EXAMPLES = Path(__file__).parents[2] / "examples" / "seed_election"


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    with Terminals(tmp_path) as all_of_them:
        yield all_of_them


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


class Stage(Wrappers):
    """An election of its own, whose COMMAND testifies to a journal."""

    def __init__(self, terminals: Terminals, hosts: str, folder: Path, path: str) -> None:
        super().__init__(terminals, hosts, folder)
        self.path = path

    def elect(self, name: str, *options: str, flags: tuple[str, ...] = ()) -> Terminal:
        """One that runs the witness while it leads; `options` are the witness's."""
        return self.witness(name, "elect", self.path, *options, flags=("--every", "0.5", *flags))

    def three(self, *options: str) -> list[Terminal]:
        """Three, standing in this order, the first of them leading."""
        first = self.elect("first", *options)
        self.runs(first)
        others = []
        for name in ("second", "third"):
            others.append(self.elect(name, *options))
            others[-1].wait_for("is not the leader")
        return [first, *others]


@pytest.fixture
def stage(terminals: Terminals, server: str, tmp_path: Path) -> Stage:
    return Stage(terminals, server, tmp_path, f"/{tmp_path.name}/election")


def elect(
    terminals: Terminals,
    name: str,
    hosts: str,
    path: str,
    *command: str,
    flags: tuple[str, ...] = (),
) -> Terminal:
    return terminals.python(
        name,
        *("-m", "incumbent.cli", "elect", path, "--zookeeper", hosts, "--name", name),
        *("--session-timeout", str(SESSION), "--every", "0.5", *flags),
        *(("--", *command) if command else ()),
        env={"XDG_RUNTIME_DIR": str(terminals.folder)},
    )


def roles(terminal: Terminal) -> list[str]:
    """Its lines without repetitions."""
    lines = terminal.lines()
    return [line for i, line in enumerate(lines) if i == 0 or line != lines[i - 1]]


def node_of(terminal: Terminal) -> str:
    found = re.match(r"\S+", terminal.lines()[-1])
    assert found
    return found[0]


def test_close_the_leaders_terminal_and_the_next_leads_while_the_third_hears_nothing(
    stage: Stage,
) -> None:
    first, second, third = stage.three()
    before = roles(third)

    code = first.end(signal.SIGHUP)
    stage.runs(second)

    assert code == 0
    assert roles(second)[-1] == f"{node_of(second)} is the leader"
    heard = len(third.lines())
    third.wait_for("is not the leader", after=heard)
    assert roles(third) == before
    stage.judge()


def test_the_leaders_process_killed_costs_no_session_timeout(stage: Stage) -> None:
    first, second, _third = stage.three("--ignore-term")

    first.send(signal.SIGKILL)
    stage.runs(second)

    first.wait_for_complaint("proven dead, the session is closed")
    assert stage.starts() == 2
    stage.judge()


def test_the_agent_killed_stops_command_and_releases_the_leadership(stage: Stage) -> None:
    first, second, _third = stage.three()

    os.kill(agent_of(first), signal.SIGKILL)
    stage.runs(second)

    assert first.ends() == 1
    first.wait_for_complaint("policy release")
    stage.judge()


def test_both_killed_at_once_the_next_leads_after_the_session_timeout(stage: Stage) -> None:
    first, second, _third = stage.three("--ignore-term", "--fork")
    agent = agent_of(first)

    first.send(signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    first.send(signal.SIGKILL)
    stage.runs(second)

    stage.judge()


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
)
def test_commands_that_fork_flood_and_ignore_sigterm_never_overlap_under_any_kill(
    rounds: int, stage: Stage
) -> None:
    options = ("--fork", "--flood", "--ignore-term")
    standing = stage.three(*options)

    for number, kill in enumerate(["guardian", "agent", "both", "ctrl-c"] * rounds):
        leader = standing.pop(0)
        newcomer = stage.elect(f"late{number}", *options)
        newcomer.wait_for("is not the leader")
        standing.append(newcomer)
        if kill in ("agent", "both"):
            os.kill(agent_of(leader), signal.SIGKILL)
        if kill in ("guardian", "both"):
            leader.send(signal.SIGKILL)
        if kill == "ctrl-c":
            leader.send(signal.SIGINT)
        stage.runs(standing[0])
        leader.ends()

    assert stage.starts() == 4 * rounds + 1
    stage.judge()


def test_a_frozen_agent_is_killed_and_its_leadership_released(stage: Stage) -> None:
    first, second, _third = stage.three()

    os.kill(agent_of(first), signal.SIGSTOP)
    stage.runs(second)

    assert first.ends() == 1
    stage.judge()


def test_a_frozen_guardian_is_killed_before_its_session_can_be_over(stage: Stage) -> None:
    first, second, _third = stage.three("--ignore-term")

    first.send(signal.SIGSTOP)
    stage.runs(second)

    stage.judge()


def test_command_ended_ends_elect_with_its_code_and_the_next_leads(stage: Stage) -> None:
    first = stage.elect("first", "--exit-after", "0.3", "--code", "7")
    stage.runs(first)
    second = stage.elect("second")

    code = first.ends()
    stage.runs(second)

    assert code == 7
    stage.judge()


def test_a_command_killed_by_a_signal_gives_a_shells_exit_code(
    terminals: Terminals, server: str
) -> None:
    one = elect(terminals, "one", server, "/signal", "sh", "-c", "kill -KILL $$")

    assert one.ends() == 128 + signal.SIGKILL


def test_a_command_that_puts_itself_in_the_background_has_failed(
    terminals: Terminals, server: str
) -> None:
    one = elect(terminals, "one", server, "/background", "sh", "-c", "sleep 60 & exit 0")

    code = one.ends()

    assert code == 1
    one.wait_for_complaint("put itself in the background")


def test_a_command_that_does_not_exist_is_said_before_anything_stands(
    terminals: Terminals, server: str
) -> None:
    one = elect(terminals, "one", server, "/nothing", "no-such-program")

    assert one.ends() == 127
    assert one.lines() == []
    one.wait_for_complaint("no-such-program: there is no such program in PATH")


def test_command_has_this_environment_folder_and_terminal_and_a_growing_token(
    terminals: Terminals, server: str, tmp_path: Path
) -> None:
    script = 'echo "$INCUMBENT_SEAT $INCUMBENT_NODE $INCUMBENT_EPOCH $MARK $PWD"; echo oops >&2'
    command = ("env", "MARK=kept", "sh", "-c", script)
    tokens = []
    for name in ("one", "two"):
        one = elect(terminals, name, server, "/environment", *command)

        assert one.ends() == 0

        words = one.lines()[-1].split()
        assert words[:2] == ["/environment", name]
        assert words[3:] == ["kept", str(tmp_path)]
        one.wait_for_complaint("oops")
        tokens.append(int(words[2]))
    assert tokens[0] < tokens[1]


def test_ctrl_c_while_waiting_leaves_the_queue_and_closes_the_session(
    terminals: Terminals, server: str
) -> None:
    first, second, third = (
        elect(terminals, name, server, "/leave") for name in ("1st", "2nd", "3rd")
    )
    everyone = (first, second, third)
    wait_until(lambda: all(each.lines() for each in everyone), what="three to stand")
    leader = wait_until(
        lambda: next((each for each in everyone if "is the leader" in each.lines()[-1]), None),
        what="one to lead",
    )
    assert leader is not None
    middle = next(
        each for each in everyone if each.lines()[-1].endswith(f"watching {node_of(leader)}")
    )
    last = next(each for each in everyone if each not in (leader, middle))

    code = middle.end(signal.SIGINT)
    last.wait_for(f"watching {node_of(leader)}")

    assert code == 0
    assert roles(leader) == [f"{node_of(leader)} is the leader"]


@pytest.mark.parametrize("isolation", ["sealed", "swept"])
def test_ctrl_c_stops_command_in_its_grace_and_proves_it_dead(isolation: str, stage: Stage) -> None:
    one = stage.elect("one", "--stop-takes", "0.1", flags=("--isolation", isolation))
    stage.runs(one)

    code = one.end(signal.SIGINT)

    assert code == 0
    assert '"event": "stop"' in stage.journal.read_text()
    one.wait_for_complaint("is proven dead")


@pytest.mark.parametrize("killed", ["guardian", "agent"])
def test_a_swept_command_is_proven_dead_too_when_one_process_is_killed(
    killed: str, stage: Stage
) -> None:
    options, flags = ("--ignore-term", "--fork"), ("--isolation", "swept")
    first = stage.elect("first", *options, flags=flags)
    stage.runs(first)
    second = stage.elect("second", *options, flags=flags)
    second.wait_for("is not the leader")

    os.kill(first.pid if killed == "guardian" else agent_of(first), signal.SIGKILL)
    stage.runs(second)

    stage.judge()


def test_an_unreachable_server_is_said_and_ctrl_c_ends_it(terminals: Terminals) -> None:
    port = free_port()
    one = elect(terminals, "one", f"127.0.0.1:{port}", "/unreachable", "sleep", "60")
    one.wait_for_complaint(f"127.0.0.1:{port}: connection refused")

    code = one.end(signal.SIGINT)

    assert code == 130
    assert one.lines() == []


def test_a_server_that_comes_later_is_found(terminals: Terminals, tmp_path: Path) -> None:
    port = free_port()
    one = elect(terminals, "one", f"127.0.0.1:{port}", "/later")
    one.wait_for_complaint("connection refused")

    with our_server(tmp_path / "late", port=port):
        one.wait_for("is the leader")


def test_a_short_outage_restarts_nothing_and_a_long_one_stops_command_before_the_session_ends(
    terminals: Terminals, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "stage").mkdir()
    stage = Stage(terminals, f"127.0.0.1:{port}", tmp_path / "stage", "/outage")
    with our_server(tmp_path / "ours", port=port):
        first = stage.elect("first")
        stage.runs(first)
    first.wait_for_complaint("connection lost")
    with our_server(tmp_path / "ours", port=port):
        second = stage.elect("second")
        second.wait_for("is not the leader")
        assert stage.starts() == 1
    first.wait_for("is no longer the leader")
    first.wait_for_complaint("is lost")
    with our_server(tmp_path / "ours", port=port):
        wait_until(lambda: stage.starts() == 2, what="one of the two to lead again")
        wait_until(lambda: "is not the leader" in first.lines()[-1] + second.lines()[-1])

    stage.judge()


@pytest.mark.parametrize("prefix", ["node_", "n_"])
@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_it_joins_an_election_made_by_others_in_their_dialect(
    kind: str, prefix: str, request: pytest.FixtureRequest, terminals: Terminals, server: str
) -> None:
    hosts = server if kind == "ours" else _hosts(request.getfixturevalue("apache"))
    path = f"/joins-{prefix}"
    seed = terminals.python(
        "seed", _EXAMPLES / "procedural.py", hosts, "--path", path, "--prefix", prefix
    )
    seed.wait_for(f"{prefix}0000000000 is the leader")

    one = elect(terminals, "one", hosts, path)
    one.wait_for(f"{prefix}0000000001 is not the leader, watching {prefix}0000000000")
    last = terminals.python(
        "last", _EXAMPLES / "classes.py", hosts, "--path", path, "--prefix", prefix
    )
    last.wait_for(f"{prefix}0000000002 is not the leader, watching {prefix}0000000001")
    seed.end(signal.SIGTERM)
    one.wait_for(f"{prefix}0000000001 is the leader")
    one.end()
    last.wait_for(f"{prefix}0000000002 is the leader")


def test_on_an_ensemble_a_rolling_restart_restarts_nothing_and_a_killed_leader_costs_no_timeout(
    apache_ensemble: ApacheEnsemble, terminals: Terminals, tmp_path: Path
) -> None:
    stage = Stage(terminals, apache_ensemble.hosts, tmp_path, f"/{tmp_path.name}")
    flags = ("--session-timeout", "20")
    first, second = (stage.elect(name, flags=flags) for name in ("first", "second"))
    wait_until(lambda: stage.starts() == 1 and first.lines() and second.lines(), 20)
    leader, waiting = (first, second) if stage.starts("first") else (second, first)

    for number in range(3):
        apache_ensemble.restart(number)
    apache_ensemble.wait_until_serving()
    wait_until(lambda: "watching" in waiting.lines()[-1])
    assert stage.starts() == 1
    leader.send(signal.SIGKILL)
    stage.runs(waiting)

    leader.wait_for_complaint("proven dead")
    stage.judge()


def test_a_directory_of_another_order_is_refused_by_name(terminals: Terminals, server: str) -> None:
    path = "/foreign"
    other = terminals.python(
        "other", _EXAMPLES / "procedural.py", server, "--path", path, "--prefix", "guid-1f-"
    )
    other.wait_for("is the leader")

    one = elect(terminals, "one", server, path, "sleep", "60")

    assert one.ends() == 1
    one.wait_for_complaint("guid-1f-0000000000 is not a contender")


def _hosts(apache: ApacheServer) -> str:
    return apache.hosts
