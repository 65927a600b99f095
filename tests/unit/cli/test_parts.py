"""The small parts of the command line: exit codes, `srvr`, logs, live lines, restarts, the folder."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from incumbent.agent.tree import Observed
from incumbent.cli.children import pause_before
from incumbent.cli.exits import No, TimedOut, exit_code
from incumbent.cli.folder import Folder, FolderUnusable, UpRuns
from incumbent.cli.live import Live
from incumbent.cli.local import ask, find_logs, show_logs
from incumbent.cli.srvr import Times, ask_mode, mode_of, times
from incumbent.errors import (
    BadVersion,
    ConnectTimeout,
    FateUnknown,
    IncumbentError,
    NotSent,
    NumbersDontFit,
    SessionExpired,
    SettingMissing,
    SpecErrors,
)

# ── exit codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (No("no"), 1),
        (BadVersion("/x"), 1),
        (SpecErrors([]), 2),
        (SettingMissing("x", [], "y"), 2),
        (NumbersDontFit("1 > 0", "less"), 2),
        (ConnectTimeout(1.0, []), 3),
        (NotSent("get", "no connection"), 3),
        (FateUnknown("set", "lost"), 3),
        (SessionExpired(1), 3),
        (TimedOut("late"), 4),
    ],
)
def test_each_error_has_its_exit_code(error: IncumbentError, code: int) -> None:
    assert exit_code(error) == code


# ── srvr


@pytest.mark.parametrize("mode", ["standalone", "follower", "leader"])
def test_the_mode_is_read_from_srvr(mode: str) -> None:
    assert mode_of(b"Zookeeper version: 3.8.0\nMode: %s\nNode count: 5\n" % mode.encode()) == mode


def test_a_refused_srvr_tells_nothing() -> None:
    assert mode_of(b"srvr is not executed because it is not in the whitelist.\n") == ""


def _server(answer: bytes) -> tuple[socket.socket, str]:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return listening, f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (b"Mode: standalone\n", Times(10.0, 0.0)),
        (b"Mode: follower\n", Times(30.0, None)),
        (b"not in the whitelist\n", Times(30.0, None)),
    ],
)
def test_the_usual_times_follow_the_mode(answer: bytes, seen: Times) -> None:
    listening, hosts = _server(answer)
    with listening:
        assert times(hosts, None, None, lambda _: None) == seen


def test_a_host_that_is_down_is_passed_over() -> None:
    listening, hosts = _server(b"Mode: standalone\n")
    with listening:
        assert times(f"127.0.0.1:1,{hosts}", None, None, lambda _: None).tick == 0.0


def test_set_times_ask_nobody() -> None:
    assert times("nowhere:1", 7.0, 0.5, lambda _: None) == Times(7.0, 0.5)


def test_no_answer_within_the_patience_is_unknown() -> None:
    said: list[str] = []

    assert times("127.0.0.1:1", None, None, said.append, patience=0.05) == Times(30.0, None)
    assert "127.0.0.1:1: connection refused" in said[0]


def test_a_server_that_hangs_up_tells_nothing() -> None:
    listening, hosts = _server(b"")
    with listening:
        assert ask_mode(("127.0.0.1", int(hosts.rpartition(":")[2]))) == ""


# ── logs


def test_a_file_that_comes_later_is_shown_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "web-0.log"
    shown: list[tuple[str, str]] = []

    def pause(_seconds: float) -> None:
        if shown:
            raise KeyboardInterrupt
        path.write_text("first\n")

    with pytest.raises(KeyboardInterrupt):
        show_logs(
            {"web/0": path},
            lambda seat, line: shown.append((seat, line)),
            count=10,
            follow=True,
            pause=pause,
        )
    assert shown == [("web/0", "first")]


def test_logs_are_found_by_component_and_by_seat(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("web-0.log", "web-1.log", "web-0.log.1", "web-admin-0.log"):
        (tmp_path / "logs" / name).touch()

    assert sorted(find_logs([tmp_path], "web")) == ["web/0", "web/1"]
    assert sorted(find_logs([tmp_path], "web/1")) == ["web/1"]
    assert sorted(find_logs([tmp_path], "web-admin")) == ["web-admin/0"]
    assert find_logs([tmp_path], "other") == {}


def test_an_agent_that_does_not_answer_is_no_error(tmp_path: Path) -> None:
    assert ask(tmp_path) is None


# ── live lines


def observed(state: str, epoch: int = 1, **more: object) -> Observed:
    return Observed(epoch=epoch, state=state, node="n1", **more)  # type: ignore[arg-type]


def test_live_shows_each_change_once() -> None:
    live = Live(["web/0", "worker/0"])

    assert live.unseen == ["web/0", "worker/0"]
    assert live.see("web/0", observed("starting")) is None
    assert live.see("web/0", observed("running", pid=7)) == ("web   ", "running", "pid 7")
    assert live.see("web/0", observed("running", pid=7)) is None
    assert live.unseen == ["worker/0"]
    assert live.see("web/0", observed("released", reason="SIGTERM")) == ("web   ", "stopped", "")


def test_live_names_the_seat_where_there_are_several() -> None:
    live = Live(["web/0", "web/1"])

    news = live.see("web/1", observed("backoff", reason="exited with 3"))

    assert news == ("web/1", "restarts", "exited with 3")


def test_live_says_why_the_agent_stands_aside_once() -> None:
    live = Live(["web/0"])

    assert live.aside("web/0", "/x does not exist") == ("web", "waiting", "/x does not exist")
    assert live.aside("web/0", "/x does not exist") is None


# ── restarts, the folder


def test_a_child_that_keeps_dying_is_started_less_and_less_often() -> None:
    assert [pause_before(deaths) for deaths in range(1, 8)] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_a_second_up_is_refused_by_pid(tmp_path: Path) -> None:
    folder = Folder(tmp_path / ".incumbent")
    folder.lock()

    with pytest.raises(UpRuns, match=f"pid {os.getpid()}"):
        Folder(tmp_path / ".incumbent").lock()
    assert (tmp_path / ".incumbent").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".incumbent").touch()

    with pytest.raises(FolderUnusable, match=r"cannot be used: .*file"):
        Folder(tmp_path / ".incumbent").lock()


def test_an_earlier_life_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.server.mkdir()
    held = os.open(folder.server / "lock", os.O_RDWR | os.O_CREAT)
    os.write(held, b"4711\n")
    fcntl.flock(held, fcntl.LOCK_EX)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        os.close(held)

    folder.await_earlier(say)

    assert said == ["waiting for the server of an earlier `up` to stop (pid 4711)"]


def test_fresh_deletes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    folder.server.symlink_to(elsewhere)
    folder.agent.mkdir()
    (folder.agent / "node-id").touch()
    (tmp_path / "notes.txt").touch()

    folder.empty(lambda _: None)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "notes.txt"]
    assert (elsewhere / "kept").exists()


def test_a_grown_log_is_put_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.log("agent").write_bytes(b"x" * 1_000_001)
    folder.log("server").write_text("short")

    folder.rotate("agent")
    folder.rotate("server")
    folder.rotate("missing")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.log.1", "server.log"]
