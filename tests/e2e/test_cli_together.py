"""`incumbent queue` and `incumbent barrier` as scripts on several machines use them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nodes import INCUMBENT
from tests.e2e.terminals import Terminal, Terminals, our_server
from tests.waiting import wait_until

from incumbent import sync
from incumbent.cli.dispatch import dispatch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


class Script:
    """Commands in this process, and in terminals of their own."""

    def __init__(
        self, terminals: Terminals, hosts: str, capfd: pytest.CaptureFixture[str], root: str
    ) -> None:
        self.terminals, self.hosts, self.root = terminals, hosts, root
        self._capfd = capfd

    def run(self, *words: str) -> tuple[int, str, str]:
        """Its exit code, stdout, stderr."""
        return self.typed(*words, "--zookeeper", self.hosts, "--root", self.root)

    def typed(self, *words: str) -> tuple[int, str, str]:
        """The same, with nothing added."""
        code = dispatch(words)
        said = self._capfd.readouterr()
        return code, said.out, said.err

    def start(self, name: str, *words: str) -> Terminal:
        command = [*INCUMBENT, *words, "--zookeeper", self.hosts, "--root", self.root]
        return self.terminals.start(name, command)


@pytest.fixture
def script(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Iterator[Script]:
    with Terminals(tmp_path) as terminals:
        yield Script(terminals, server, capfd, f"/{request.node.name}")


def test_each_item_goes_to_one_taker_smallest_priority_first(script: Script) -> None:
    script.run("queue", "put", "jobs", "one")
    script.run("queue", "put", "jobs", "two")
    script.run("queue", "put", "jobs", "urgent", "--priority", "1")

    taken = [script.run("queue", "take", "jobs") for _ in range(2)]
    last = json.loads(script.run("queue", "take", "jobs", "-o", "json")[1])

    assert taken == [(0, "urgent\n", ""), (0, "one\n", "")]
    assert (last["data"], last["priority"]) == ("two", 100)
    assert script.run("queue", "take", "jobs", "--timeout", "0")[0] == 1
    assert script.run("queue", "take", "jobs", "--timeout", "0.1")[0] == 4


def test_lines_are_items_and_a_follower_gets_what_comes(script: Script) -> None:
    following = script.start("follow", "queue", "take", "jobs", "-f")
    put = [*INCUMBENT, "queue", "put", "jobs", "-", "--lines", "--root", script.root]

    subprocess.run([*put, "--zookeeper", script.hosts], input=b"a b\n\nc", check=True)

    following.wait_for("c")
    assert following.lines() == ["a b", "", "c"]
    assert following.end() == 130
    assert following.complaints() == []


def test_an_item_that_nobody_reads_is_put_back(script: Script) -> None:
    script.run("queue", "put", "jobs", "precious")
    take = [*INCUMBENT, "queue", "take", "jobs", "--root", script.root]
    closed = subprocess.Popen([*take, "--zookeeper", script.hosts], stdout=subprocess.PIPE)
    assert closed.stdout is not None
    closed.stdout.close()

    closed.wait(20)

    assert script.run("queue", "take", "jobs", "--timeout", "0")[1] == "precious\n"


def test_an_item_for_which_there_is_no_room_is_put_back(script: Script) -> None:
    script.run("queue", "put", "jobs", "precious")
    take = [*INCUMBENT, "queue", "take", "jobs", "--root", script.root, "--zookeeper", script.hosts]

    with open("/dev/full", "w") as full:
        done = subprocess.run(take, stdout=full, stderr=subprocess.PIPE, text=True)
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *take], stderr=subprocess.PIPE)

    assert (done.returncode, closed.returncode) == (1, 1)
    assert "has its item back" in done.stderr
    assert b"has its item back" in closed.stderr
    assert b"Traceback" not in done.stderr.encode() + closed.stderr
    assert script.run("queue", "take", "jobs", "--timeout", "0")[1] == "precious\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_follower_that_is_told_to_stop_loses_no_item(script: Script, signum: int) -> None:
    lines = [f"{number}" for number in range(400)]
    put = [*INCUMBENT, "queue", "put", "jobs", "-", "--lines", "--root", script.root]
    subprocess.run([*put, "--zookeeper", script.hosts], input="\n".join(lines).encode(), check=True)

    seen: list[str] = []
    for number in range(3):
        following = script.start(f"follow{number}", "queue", "take", "jobs", "-f")
        following.wait_for(f"{len(seen) + 20}")
        assert following.end(signum) == 128 + signum
        assert following.complaints() == []
        seen += following.lines()
    while (taken := script.run("queue", "take", "jobs", "--timeout", "0"))[0] == 0:
        seen.append(taken[1].strip())

    assert sorted(seen, key=int) == lines


def test_a_timeout_during_an_outage_says_that_nothing_is_known(
    script: Script, tmp_path: Path
) -> None:
    with our_server(tmp_path / "own") as script.hosts:
        script.run("queue", "put", "jobs", "one")
        taking = script.start("taking", "queue", "take", "jobs", "-f", "--timeout", "3")
        taking.wait_for("one")

    assert taking.ends() == 4
    taking.wait_for_complaint("ZooKeeper is not reached; before that: ")


def test_who_meets_and_is_told_to_stop_is_not_counted(script: Script) -> None:
    gone = script.start("gone", "barrier", "meet", "deploy", "--count", "2")
    with sync.connect(script.hosts) as zk:
        members = f"{script.root}/barriers/deploy"
        zk.ensure(members)
        wait_until(lambda: len(zk.children(members)) == 1)
        assert gone.end(signal.SIGTERM) == 143
        assert zk.children(members) == []


def test_those_who_meet_go_on_together_and_may_meet_again(script: Script) -> None:
    for round_ in ("first", "second"):
        early = [
            script.start(f"{round_}{number}", "barrier", "meet", "deploy", "--count", "3")
            for number in range(2)
        ]
        with sync.connect(script.hosts) as zk:
            members = f"{script.root}/barriers/deploy"
            zk.ensure(members)
            while len(zk.children(members)) < 2:
                assert [each.code for each in early] == [None, None]

        assert script.run("barrier", "meet", "deploy", "--count", "3")[0] == 0

        assert [each.ends() for each in early] == [0, 0]


def test_who_meets_too_few_says_how_many_came(script: Script) -> None:
    code, _, said = script.run("barrier", "meet", "few", "--count", "2", "--timeout", "0.2")

    assert code == 4
    assert "1 of 2 came within 0.2 s" in said


def test_whoever_waits_at_a_barrier_goes_on_when_it_is_down(script: Script) -> None:
    assert script.run("barrier", "wait", "gate") == (0, "", "")
    script.run("barrier", "up", "gate")
    waiting = script.start("waiting", "barrier", "wait", "gate")
    code, _, said = script.run("barrier", "wait", "gate", "--timeout", "0.3")

    assert code == 4
    assert "`incumbent barrier down gate` takes it down" in said
    assert waiting.code is None
    assert script.run("barrier", "down", "gate")[0] == 0
    assert waiting.ends() == 0
    assert "was down already" in script.run("barrier", "down", "gate")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("queue", "put", "a/b", "x"), "'a/b' is no name here"),
        (("queue", "put", "a", "x", "--lines"), "--lines reads items from stdin"),
        (("queue", "take", "a", "-f", "--count", "2"), "give one of them"),
        (("barrier", "meet", "a", "--count", "0"), "--count"),
        (("barrier", "down", "/"), "holds what others need"),
        (("barrier", "down", "ROOT/once/a"), "holds what others need"),
        (("queue", "put", "/zookeeper", "x"), "or a path elsewhere"),
        (("barrier", "meet", "a", "--count", "101"), "less than or equal to 100"),
        (("barrier", "meet", "a", "--count", "2", "--timeout", "0"), "leaves the others no time"),
        (("queue", "put", "a", "x", "--zookeeper", "HOSTS/app"), "is the setting `root`"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    script: Script, words: tuple[str, ...], said: str
) -> None:
    there = {"ROOT": script.root, "HOSTS": script.hosts}
    words = tuple(re.sub("ROOT|HOSTS", lambda found: there[found[0]], word) for word in words)
    if "--zookeeper" not in words:
        words = (*words, "--zookeeper", script.hosts)
    code, _, err = script.typed(*words, "--root", script.root)

    assert code == 2
    assert said in err
