"""`incumbent work` as it is used: on two machines, killed, told to stop, and put right by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.terminals import Terminals, our_server
from tests.e2e.wrappers import Wrappers, agent_of
from tests.waiting import wait_until

import incumbent

_HANDLER = 'echo "$INCUMBENT_ITEM $INCUMBENT_KEY $INCUMBENT_TOKEN" >> {out}; test "$1" != bad'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


@pytest.fixture
def workers(server: str, tmp_path: Path) -> Iterator[Wrappers]:
    with Terminals(tmp_path) as terminals:
        yield Wrappers(terminals, server, tmp_path)


def by_hand(hosts: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "incumbent.cli", "work", *words, "--zookeeper", hosts],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_two_machines_do_each_item_once_and_poison_is_parked(
    workers: Wrappers, server: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    handler = ("sh", "-c", _HANDLER.replace("{out}", str(out)), "sh", "{id}")
    flags = ("--source", "seq 1 8; echo bad; echo a/b", "--path", "/both", "--lag", "0.1")
    flags += ("--tries", "2", "--idle", "0.2", "-j", "3", "--until-empty")
    flags += ("--metrics-file", str(tmp_path / "work.prom"))
    both = [workers.start(name, "work", "run", *handler, flags=flags) for name in ("n1", "n2")]

    assert [each.ends() for each in both] == [1, 1], "something is parked, by whomever"
    lines = [line.split() for line in out.read_text().splitlines()]
    tally = Tally(item for item, _, _ in lines)
    assert tally == {**{str(n): 1 for n in range(1, 9)}, "a/b": 1, "bad": 2}
    assert len({key for item, key, _ in lines if item == "bad"}) == 1
    tokens = [int(token) for item, _, token in lines if item == "bad"]
    assert tokens == sorted(set(tokens))

    assert 'incumbent_work_done_total{path="/both"}' in (tmp_path / "work.prom").read_text()

    parked = by_hand(server, "parked", "--path", "/both")
    assert parked.stdout.startswith("bad\t2 failures\t")
    unknown = by_hand(server, "retry", "--path", "/both", "bda")
    assert unknown.returncode == 1
    assert (
        "nothing is known of bda at /both; `incumbent work parked --path /both`" in unknown.stderr
    )
    assert by_hand(server, "retry", "--path", "/both", "--parked").returncode == 0
    assert by_hand(server, "parked", "--path", "/both", "-o", "json").stdout == "[]\n"
    assert by_hand(server, "done", "--path", "/both", "bad").returncode == 0
    with incumbent.connect(server) as zk:
        record = zk.work("/both").look("bad")
    assert record is not None
    assert record.state == "done"


@pytest.mark.parametrize("killed", ["guardian", "agent", "both"])
def test_a_killed_worker_s_handler_is_dead_before_its_item_is_begun_again(
    killed: str, workers: Wrappers
) -> None:
    flags = ("--source", "echo x", "--path", f"/killed-{killed}", "--lag", "0.05", "--idle", "0.1")
    options = ("--fork", "--ignore-term")
    first = workers.witness("n1", "work", "run", *options, flags=flags)
    workers.runs(first)
    second = workers.witness("n2", "work", "run", *options, flags=flags)
    second.wait_for_complaint("working on")

    if killed in ("agent", "both"):
        os.kill(agent_of(first), signal.SIGKILL)
    if killed in ("guardian", "both"):
        first.send(signal.SIGKILL)
    wait_until(lambda: workers.starts("n2"), what="n2 to take it up")

    workers.judge()


def test_told_to_stop_it_gives_back_what_it_had_and_others_go_on(workers: Wrappers) -> None:
    flags = ("--source", "echo x", "--path", "/stopped", "--lag", "0.05", "--idle", "0.1")
    first = workers.witness("n1", "work", "run", "--stop-takes", "0.1", "--code", "3", flags=flags)
    workers.runs(first)
    second = workers.witness("n2", "work", "run", flags=flags)
    second.wait_for_complaint("working on")

    assert first.end(signal.SIGTERM) == 0
    workers.runs(second)

    workers.judge()
    with incumbent.connect(workers.hosts) as zk:
        record = zk.work("/stopped").look("x")
    assert record is not None
    assert record.failures == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nothing",), 2, "is not one of run, parked, retry, done"),
        (("run", "--source", "true", "--path", "/x"), 125, "a HANDLER is missing"),
        (("run", "--source", "true", "--path", "x", "--", "true"), 125, "is no znode's path"),
        (("run", "--source", "true", "--path", "/x", "--", "no-such"), 127, "no such program"),
        (("retry", "--path", "/x"), 2, "give items, or --parked"),
        (("done", "--path", "/x", ""), 1, "an item's name has 1 to"),
    ],
)
def test_a_wrong_call_says_what_to_do(
    server: str, words: tuple[str, ...], code: int, says: str
) -> None:
    at = words.index("--") if "--" in words else len(words)
    asked = [*words[:at], *(("--zookeeper", server) if words[0] != "nothing" else ()), *words[at:]]
    done = subprocess.run(
        [sys.executable, "-m", "incumbent.cli", "work", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
