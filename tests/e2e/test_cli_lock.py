"""`incumbent lock` as it is used: beside others, killed in every way, cut off, told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache import free_port
from tests.e2e.nodes import INCUMBENT
from tests.e2e.terminals import Terminal, Terminals, our_server
from tests.e2e.wrappers import Wrappers, agent_of
from tests.waiting import wait_until

from incumbent import sync

_STUBBORN = ("--fork", "--flood", "--ignore-term")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with our_server(tmp_path_factory.mktemp("server")) as hosts:
        yield hosts


@pytest.fixture
def locks(server: str, tmp_path: Path) -> Iterator[Wrappers]:
    with Terminals(tmp_path) as terminals:
        yield Wrappers(terminals, server, tmp_path)


def queue(locks: Wrappers, name: str, *options: str) -> list[Terminal]:
    """Three at one lock, the first of them having it."""
    first = locks.witness("first", "lock", name, *options)
    locks.runs(first)
    others = []
    for other in ("second", "third"):
        others.append(locks.witness(other, "lock", name, *options))
        others[-1].wait_for_complaint("waiting for the lock")
    return [first, *others]


def test_killed_in_every_way_commands_under_a_lock_never_overlap(locks: Wrappers) -> None:
    standing = queue(locks, "kills", *_STUBBORN)
    ends: dict[str, int] = {}

    for number, kill in enumerate(["guardian", "agent", "both", "sigterm"]):
        holder = standing.pop(0)
        newcomer = locks.witness(f"late{number}", "lock", "kills", *_STUBBORN)
        newcomer.wait_for_complaint("waiting for the lock")
        standing.append(newcomer)
        if kill in ("agent", "both"):
            os.kill(agent_of(holder), signal.SIGKILL)
        if kill in ("guardian", "both"):
            holder.send(signal.SIGKILL)
        if kill == "sigterm":
            holder.send(signal.SIGTERM)
        locks.runs(standing[0])
        ends[kill] = holder.ends()

    assert locks.starts() == 5
    assert ends["agent"] == 120
    assert ends["sigterm"] == 128 + signal.SIGKILL  # it ignores SIGTERM
    locks.judge()


@pytest.mark.parametrize("frozen", ["agent", "guardian"])
def test_a_frozen_process_costs_the_lock_and_never_two(frozen: str, locks: Wrappers) -> None:
    first = locks.witness("first", "lock", f"frozen-{frozen}", "--ignore-term")
    locks.runs(first)
    second = locks.witness("second", "lock", f"frozen-{frozen}", "--ignore-term")
    second.wait_for_complaint("waiting for the lock")

    os.kill(agent_of(first) if frozen == "agent" else first.pid, signal.SIGSTOP)
    locks.runs(second)

    if frozen == "agent":
        assert first.ends() == 120
    locks.judge()


def test_sigterm_stops_command_proves_it_dead_and_releases_in_this_order(locks: Wrappers) -> None:
    first = locks.witness("first", "lock", "order", "--stop-takes", "0.1", "--code", "3")
    locks.runs(first)
    second = locks.witness("second", "lock", "order")
    second.wait_for_complaint("first pid")

    code = first.end(signal.SIGTERM)
    locks.runs(second)

    assert code == 3
    python = Path(sys.executable).name
    said = [line.split("lock: ")[1] for line in first.complaints()]
    assert said == [f"stopping {python}", f"{python} is proven dead"]
    locks.judge()


def test_where_zookeeper_is_gone_command_is_stopped_in_time_and_not_run_again(
    tmp_path: Path,
) -> None:
    port = free_port()
    with Terminals(tmp_path) as terminals:
        locks = Wrappers(terminals, f"127.0.0.1:{port}", tmp_path)
        with our_server(tmp_path / "ours", port=port):
            first = locks.witness("first", "lock", "gone", "--ignore-term")
            locks.runs(first)

        assert first.ends() == 120

        first.wait_for_complaint("the lock /incumbent/locks/gone is lost")
        with our_server(tmp_path / "ours", port=port):
            second = locks.witness("second", "lock", "gone", "--exit-after", "0.1")
            assert second.ends() == 0
        assert locks.starts() == 2
        locks.judge()


def test_the_exit_code_is_commands_or_ours(locks: Wrappers) -> None:
    holder = locks.start("holder", "lock", "codes", "sh", "-c", "echo has it; sleep 60")
    holder.wait_for("has it")
    at_once = locks.start("try", "lock", "codes", "true", flags=("--timeout", "0"))
    assert at_once.ends() == 124
    at_once.wait_for_complaint(f"behind holder pid {holder.pid}; nothing was run")
    codes = {
        "own": locks.start("own", "lock", "free", "sh", "-c", "exit 7"),
        "signal": locks.start("signal", "lock", "free2", "sh", "-c", "kill -KILL $$"),
        "background": locks.start("background", "lock", "free3", "sh", "-c", "sleep 60 & exit 0"),
        "late": locks.start("late", "lock", "codes", "true", flags=("--timeout", "0.3")),
        "nothing": locks.start("nothing", "lock", "codes", "no-such-program"),
        "usage": locks.start("usage", "lock", "not/a/name", "true"),
        "waiting": locks.start("waiting", "lock", "codes", "true"),
    }
    codes["waiting"].wait_for_complaint(f"behind holder pid {holder.pid}")
    codes["waiting"].send(signal.SIGTERM)

    ends = {name: terminal.ends() for name, terminal in codes.items()}

    assert ends == {
        "own": 7,
        "signal": 128 + signal.SIGKILL,
        "background": 125,
        "late": 124,
        "nothing": 127,
        "usage": 125,
        "waiting": 128 + signal.SIGTERM,
    }
    assert codes["own"].complaints() == []


@pytest.mark.parametrize("verb", ["lock", "once"])
def test_a_lock_within_another_leaves_nobody_behind_and_its_last_words_are_written(
    locks: Wrappers, tmp_path: Path, verb: str
) -> None:
    def within(name: str, *command: str) -> list[str]:
        ours = [sys.executable, "-m", "incumbent.cli", verb, name, "--zookeeper", locks.hosts]
        return [*ours, "--session-timeout", "1", "--", *command]

    said = tmp_path / "said"
    for number in range(3):
        command = within(f"outer{number}", *within(f"inner{number}", "true"))
        with said.open("w") as stderr:  # a file: there a process of ours writes what is said
            assert subprocess.run(command, stderr=stderr, timeout=30).returncode == 0
        before = said.read_text()

        with said.open("w") as stderr:
            command = within(f"late{number}", "sh", "-c", "sleep 60 & exit 0")
            assert subprocess.run(command, stderr=stderr, timeout=30).returncode == 125
        assert "background" not in before
        assert "left 1 process" in said.read_text()


def test_command_is_told_a_growing_token_and_a_deadline_that_moves_on(locks: Wrappers) -> None:
    script = (
        'echo "$INCUMBENT_TOKEN $INCUMBENT_SEAT"; cat "$INCUMBENT_DEADLINE_FILE";'
        'was=$(cat "$INCUMBENT_DEADLINE_FILE");'
        'while [ "$was" = "$(cat "$INCUMBENT_DEADLINE_FILE")" ]; do sleep 0.02; done;'
        'cat "$INCUMBENT_DEADLINE_FILE" /proc/uptime; echo "$INCUMBENT_DEADLINE_FILE"'
    )
    tokens = []
    for name in ("one", "two"):
        told = locks.start(name, "lock", "told", "sh", "-c", script)

        assert told.ends() == 0

        (token, path), (before,), (after,), (now, _), (file,) = map(str.split, told.lines())
        assert path == "/incumbent/locks/told"
        assert float(now) - 1 < float(before) < float(after) < float(now) + 1
        assert not Path(file).exists()
        tokens.append(int(token))
    assert tokens[0] < tokens[1]


def test_a_name_that_is_a_path_is_the_librarys_lock(locks: Wrappers) -> None:
    with sync.connect(locks.hosts) as zk, zk.lock("/app/migration", member="library"):
        waiting = locks.start("waiting", "lock", "/app/migration", "true")
        waiting.wait_for_complaint("behind library")
        assert waiting.code is None

    assert waiting.ends() == 0


def test_a_lock_waits_for_a_server_that_comes_later(tmp_path: Path) -> None:
    port = free_port()
    with Terminals(tmp_path) as terminals:
        locks = Wrappers(terminals, f"127.0.0.1:{port}", tmp_path)
        early = locks.start("early", "lock", "later", "echo", "has it")
        never = locks.start("never", "lock", "later", "true", flags=("--timeout", "0.5"))
        early.wait_for_complaint("waiting for ZooKeeper")

        assert never.ends() == 124
        with our_server(tmp_path / "late", port=port):
            assert early.ends() == 0
        assert early.lines() == ["has it"]


def test_ctrl_c_before_a_server_is_found_ends_it(tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        locks = Wrappers(terminals, f"127.0.0.1:{free_port()}", tmp_path)
        early = locks.start("early", "lock", "never", "true")
        early.wait_for_complaint("waiting for ZooKeeper")

        assert early.end(signal.SIGINT) == 130


def test_a_waiting_one_stands_again_when_its_session_ends(locks: Wrappers) -> None:
    with sync.connect(locks.hosts) as zk, zk.lock("/app/again", member="library"):
        waiting = locks.start("waiting", "lock", "/app/again", "true")
        waiting.wait_for_complaint("behind library")
        (name,) = [each for each in zk.children("/app/again") if b"waiting" in _data(zk, each)]
        zk.delete(f"/app/again/{name}")
        waiting.wait_for_complaint("standing again")
        wait_until(lambda: len(zk.children("/app/again")) == 2, what="it to stand again")

    assert waiting.ends() == 0


def _data(zk: sync.Zk, name: str) -> bytes:
    return zk.get(f"/app/again/{name}")[0]


def test_those_who_share_a_lock_run_together_and_nobody_alone_beside_them(
    locks: Wrappers,
) -> None:
    script = 'echo "has it${INCUMBENT_TOKEN:+ with a token}"; sleep 60'
    shared = [
        locks.start(name, "lock", "shared", "sh", "-c", script, flags=("--shared",))
        for name in ("one", "two")
    ]
    for each in shared:
        each.wait_for("has it")
    alone = locks.start("alone", "lock", "shared", "sh", "-c", script)
    alone.wait_for_complaint("one pid")
    alone.wait_for_complaint("two pid")
    later = locks.start("later", "lock", "shared", "sh", "-c", script, flags=("--shared",))
    later.wait_for_complaint(f"behind alone pid {alone.pid}")
    refused = locks.start("refused", "lock", "shared", "true", flags=("--limit", "2"))

    assert refused.ends() == 125
    assert alone.lines() == later.lines() == []
    shared[0].end(signal.SIGTERM)
    shared[1].send(signal.SIGKILL)
    alone.wait_for("has it")
    assert later.lines() == []
    alone.end(signal.SIGTERM)
    later.wait_for("has it")
    assert [each.lines() for each in (shared[0], alone)] == [["has it"], ["has it with a token"]]


def test_so_many_have_it_at_a_time_and_a_new_limit_reaches_those_who_wait(locks: Wrappers) -> None:
    def start(name: str, limit: str, *flags: str) -> Terminal:
        command = ("sh", "-c", 'echo "has it$INCUMBENT_TOKEN"; sleep 60')
        return locks.start(name, "lock", "limit", *command, flags=("--limit", limit, *flags))

    inside = [start(name, "2") for name in ("one", "two")]
    for each in inside:
        each.wait_for("has it")
    third, late = start("third", "2"), start("late", "3", "--timeout", "0")
    third.wait_for_complaint("waiting for the lock /incumbent/locks/limit behind")
    alone = locks.start("alone", "lock", "limit", "true")

    assert late.ends() == 124
    late.wait_for_complaint("`incumbent zk set /incumbent/locks/limit 3` changes it")
    assert alone.ends() == 125
    alone.wait_for_complaint("is used with --limit")
    assert third.lines() == []
    fourth = start("fourth", "2")
    fourth.wait_for_complaint("waiting for")
    inside[0].send(signal.SIGKILL)
    third.wait_for("has it")
    assert fourth.lines() == []
    with sync.connect(locks.hosts) as zk:
        zk.set("/incumbent/locks/limit", b"3")
    fourth.wait_for("has it")


def test_a_limit_that_is_no_number_is_not_taken_for_a_lock_of_another_kind(server: str) -> None:
    with sync.connect(server) as zk:
        zk.create("/no-number", b"banana")
    command = [*INCUMBENT, "lock", "/no-number", "--limit", "2", "--zookeeper", server]

    done = subprocess.run([*command, "--", "true"], capture_output=True, text=True, timeout=30)

    assert done.returncode == 125
    assert "'banana' is not the size of a semaphore" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "#!/no/such/interpreter\n",
            "it is there, but not the interpreter that its first line names",
        ),
        ("echo hello\n", "a script begins with a line such as #!/bin/sh"),
    ],
)
def test_a_script_that_nothing_can_run_is_said_for_what_it_is(
    server: str, tmp_path: Path, script: str, said: str
) -> None:
    program = tmp_path / "script"
    program.write_text(script)
    program.chmod(0o755)
    command = [*INCUMBENT, "lock", "scripts", "--zookeeper", server, "--", str(program)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=30)

    assert done.returncode == 127
    assert f"script was not started: {program}: it is" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("options", [("--shared",), ("--limit", "2"), ()])
def test_the_token_of_a_lock_around_it_is_not_that_of_a_lock(
    server: str, options: tuple[str, ...]
) -> None:
    name = "-".join(["inner", *options]).replace("--", "")
    command = [*INCUMBENT, "lock", name, *options, "--zookeeper", server, "--quiet", "--"]

    done = subprocess.run(
        [*command, "sh", "-c", 'echo "${INCUMBENT_TOKEN-none}"'],
        env={**os.environ, "INCUMBENT_TOKEN": "99"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
    )

    assert done.returncode == 0
    if options:
        assert done.stdout == "none\n"
    else:
        assert int(done.stdout) != 99
