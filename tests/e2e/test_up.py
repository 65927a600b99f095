"""`incumbent up` with real processes: start, stop in order, and whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.nodes import INCUMBENT, is_alive, run_cli
from tests.e2e.terminals import Terminal, Terminals
from tests.waiting import wait_until

GOLDEN = Path(__file__).parent.parent / "golden"

# Writes when it starts and when it is told to stop.
TRACED = """
[component.{name}]
command = ["sh", "-c", "trap 'echo stop {name} >> trace; exit 0' TERM; echo start {name} >> trace; while :; do sleep 0.02; done"]
"""
STUBBORN = """
[component.stubborn]
command = ["sh", "-c", "trap '' TERM; echo start stubborn >> trace; while :; do sleep 0.02; done"]
"""


class Up:
    """One `up` in a folder, and what can be seen of it from outside."""

    def __init__(self, folder: Path, terminal: Terminal) -> None:
        self.folder = folder
        self.terminal = terminal
        self.data = folder / ".incumbent"

    @property
    def port(self) -> int:
        runtime = json.loads((self.data / "runtime.json").read_text())
        return int(runtime["zookeeper"].rpartition(":")[2])

    @property
    def server_pid(self) -> int:
        """0 between the truncation of the lock file and its writing."""
        return int((self.data / "server" / "lock").read_text() or 0)

    @property
    def guardian_pid(self) -> int:
        return int((self.data / "agent" / "lock").read_text())

    def trace(self) -> list[str]:
        path = self.folder / "trace"
        return path.read_text().splitlines() if path.exists() else []

    def status(self) -> dict[str, dict[str, Any]]:
        """Component → row, as another terminal in that folder sees it, without flags."""
        done = run_cli("status", "--output", "json", cwd=self.folder, env=_private(self.folder))
        if done.returncode != 0:
            return {}
        return {row["component"]: row for row in json.loads(done.stdout or "[]")}

    def runs(self, name: str) -> dict[str, Any]:
        """Wait until a component runs; its row."""

        def look() -> dict[str, Any] | None:
            row = self.status().get(name, {})
            return row if row.get("state") == "running" else None

        found = wait_until(look, 20, f"{name} to run; {self.terminal.lines()}")
        assert found is not None
        return found

    def interrupt(self) -> None:
        """Ctrl-C: to everything in the terminal's foreground group."""
        os.killpg(self.terminal.pid, signal.SIGINT)

    def says(self, text: str) -> None:
        self.terminal.wait_for(text, 20)


def _private(folder: Path) -> dict[str, str]:
    """The tests of several `up`s at once must not find each other."""
    return {"XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}


@contextmanager
def up(folder: Path, text: str, *options: str, name: str = "up") -> Iterator[Up]:
    folder.mkdir(exist_ok=True)
    (folder / "incumbent.toml").write_text(text)
    with Terminals(folder) as terminals:
        terminal = terminals.start(name, [*INCUMBENT, "up", *options], env=_private(folder))
        running = Up(folder, terminal)
        try:
            yield running
        finally:
            if terminal.code is None:
                terminal.send(signal.SIGTERM)
                terminal.send(signal.SIGTERM)
                terminal.ends(20)


def is_taken(port: int) -> bool:
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("127.0.0.1", port))
            trying.listen()
        except OSError:
            return True
        return False


def _all_dead(*pids: int) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), 20, f"the end of {pids}")


def test_from_nothing_to_running_and_found_by_another_terminal(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a") + TRACED.format(name="b")) as it:
        rows = {name: it.runs(name) for name in ("a", "b")}

        assert set(it.status()) == {"a", "b"}
        assert all(is_alive(row["pid"]) and row["epoch"] == 1 for row in rows.values())
        assert rows["a"]["time_to_fence"] > 0
        assert (tmp_path / ".incumbent").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / ".incumbent" / "runtime.json").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_in_the_reverse_order_of_the_file(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    with up(tmp_path, "".join(TRACED.format(name=name) for name in names)) as it:
        pids = [it.runs(name)["pid"] for name in names] + [it.server_pid, it.guardian_pid]

        it.interrupt()

        assert it.terminal.ends(20) == 0
        assert it.trace()[-3:] == ["stop three", "stop two", "stop one"]
        assert "everything is stopped" in it.terminal.lines()[-1]
        _all_dead(*pids)
        assert not (it.data / "runtime.json").exists()


def test_what_a_program_wrote_is_shown_after_the_end_of_its_up(tmp_path: Path) -> None:
    with up(tmp_path, "[component.a]\ncommand = \"sh -c 'echo last words; sleep 1000'\"\n") as it:
        it.runs("a")
        it.interrupt()
        it.terminal.ends(20)

        done = run_cli("logs", "a", cwd=tmp_path, env=_private(tmp_path))

        assert done.stdout.endswith(" last words\n"), done


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    with up(tmp_path, STUBBORN) as it:
        pids = [it.runs("stubborn")["pid"], it.server_pid, it.guardian_pid]
        it.interrupt()
        it.says("stopping in order")

        it.interrupt()

        assert it.terminal.ends(20) == 0
        it.says("stopping at once")
        _all_dead(*pids)


def test_a_closed_terminal_stops_it_in_order(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        it.runs("a")

        it.terminal.send(signal.SIGHUP)

        assert it.terminal.ends(20) == 0
        assert it.trace() == ["start a", "stop a"]


def test_killed_by_sigkill_it_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        pids = [it.runs("a")["pid"], it.server_pid, it.guardian_pid]

        it.terminal.send(signal.SIGKILL)

        _all_dead(*pids)
        assert it.trace() == ["start a", "stop a"]


def test_the_next_up_waits_for_what_a_killed_one_left_and_counts_on(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        it.runs("a")
        it.terminal.send(signal.SIGKILL)

        with up(tmp_path, TRACED.format(name="a"), name="next") as again:
            assert again.runs("a")["epoch"] == 2
            assert again.trace() == ["start a", "stop a", "start a"]


def test_a_killed_server_comes_back_and_nothing_is_restarted(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        before, server = it.runs("a"), it.server_pid

        os.kill(server, signal.SIGKILL)

        _all_dead(server)
        assert is_taken(it.port)  # nobody can stand in for it meanwhile
        it.says("the server was ended by signal 9; it is started again now")
        wait_until(lambda: it.server_pid not in (0, server), 20, "another server")
        after = it.runs("a")
        assert (after["pid"], after["epoch"]) == (before["pid"], 1)
        assert it.trace() == ["start a"]


def test_a_killed_guardian_comes_back_with_a_new_session(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        before = it.runs("a")

        os.kill(it.guardian_pid, signal.SIGKILL)

        it.says("the guardian was ended by signal 9; it is started again now")
        wait_until(lambda: it.status().get("a", {}).get("epoch") == 2, 20, "the next epoch")
        assert not is_alive(before["pid"])
        assert is_alive(it.runs("a")["pid"])


def test_a_second_up_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        it.runs("a")

        second = run_cli("up", cwd=tmp_path, env=_private(tmp_path))

        assert second.returncode == 2
        assert f"(pid {it.terminal.pid}," in second.stderr
        assert it.trace() == ["start a"]


def test_a_taken_port_is_said_and_another_one_is_used(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 2181))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        with up(tmp_path, TRACED.format(name="a")) as it:
            it.runs("a")

            it.says("(port 2181 is taken)")
            assert f":{it.port} (port 2181 is taken)" in it.terminal.lines()[0]


def test_several_that_begin_at_once_have_a_port_and_components_each(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    with ExitStack() as stack:
        ups = [stack.enter_context(up(tmp_path / name, TRACED.format(name=name))) for name in names]

        for it, name in zip(ups, names, strict=True):
            assert it.runs(name)["epoch"] == 1
            assert list(it.status()) == [name]
        assert len({it.port for it in ups}) == len(ups)


def test_what_the_file_no_longer_has_is_removed(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a") + TRACED.format(name="b")) as it:
        it.runs("a")
        it.runs("b")
        stopped = run_cli("stop", "a", "--wait", cwd=it.folder, env=_private(it.folder))
        assert stopped.returncode == 0, stopped.stderr
        it.interrupt()
        it.terminal.ends(20)

    with up(tmp_path, TRACED.format(name="a"), name="again") as it:
        it.says("a had been stopped: `up` starts it again")
        it.says("b is not in incumbent.toml: removed")
        assert it.runs("a")["epoch"] == 2
        assert set(it.status()) == {"a"}
        assert it.trace().count("start b") == 1


def test_fresh_begins_with_nothing(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        it.runs("a")
        it.interrupt()
        it.terminal.ends(20)

    with up(tmp_path, TRACED.format(name="a"), "--fresh", name="again") as it:
        assert it.runs("a")["epoch"] == 1


def test_a_component_that_cannot_run_here_says_why(tmp_path: Path) -> None:
    text = TRACED.format(name="a") + f'requires = ["{tmp_path}/key"]\n'
    with up(tmp_path, text) as it:
        it.says(f"{tmp_path}/key does not exist on this node")
        assert "key does not exist on this node" in it.status()["a"]["why"]

        (tmp_path / "key").touch()

        it.runs("a")


def test_a_server_that_cannot_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / ".incumbent").mkdir()
    (tmp_path / ".incumbent" / "server").write_text("not a folder")
    with up(tmp_path, TRACED.format(name="a")) as it:
        assert it.terminal.ends(20) == 1
        assert "the server cannot start" in "\n".join(it.terminal.complaints())
        assert it.trace() == []


def test_zookeeper_in_the_file_is_refused(tmp_path: Path) -> None:
    text = '[incumbent]\nzookeeper = "zk1:2181"\n' + TRACED.format(name="a")
    (tmp_path / "incumbent.toml").write_text(text)

    done = run_cli("up", cwd=tmp_path)

    assert done.returncode == 2
    assert "starts a server of its own" in done.stderr
    assert not (tmp_path / ".incumbent").exists()


WRONG = [each for each in sorted(GOLDEN.glob("*.toml")) if each.stem != "env_file_relative"]
"""That one is wrong for `apply` alone: under `up`, a path may be relative to FILE's folder."""


@pytest.mark.parametrize("golden", WRONG, ids=lambda path: path.stem)
def test_a_wrong_file_starts_nothing(golden: Path, tmp_path: Path) -> None:
    shutil.copy(golden, tmp_path / golden.name)

    done = run_cli("up", golden.name, cwd=tmp_path)

    assert done.returncode == 2
    assert golden.name in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".incumbent").exists()


def test_the_file_of_a_running_up_can_be_applied_as_it_stands(tmp_path: Path) -> None:
    with up(tmp_path, TRACED.format(name="a")) as it:
        before = it.runs("a")
        text = TRACED.format(name="a") + TRACED.format(name="b") + 'cwd = "."\n'
        (tmp_path / "incumbent.toml").write_text(text)

        done = run_cli("apply", "incumbent.toml", cwd=tmp_path, env=_private(tmp_path))

        assert done.returncode == 0, done.stderr
        assert "a          unchanged" in done.stdout
        it.runs("b")
        assert it.runs("a")["pid"] == before["pid"]
