"""The runtime file: who may find it, who believes it, who removes it."""

import dataclasses
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import wait_until

from incumbent.runtime_file import (
    Runtime,
    beside,
    is_alive,
    publish,
    read_runtime,
    run_folders,
    start_time,
    withdraw,
)

UID = os.geteuid()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "run").mkdir()
    return {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}


def a_runtime(folder: Path, **changes: object) -> Runtime:
    runtime = Runtime.of_this_process(
        file=folder / "incumbent.toml",
        zookeeper="127.0.0.1:2181",
        root="/incumbent",
        data=folder / ".incumbent" / "agent",
        node="n1",
        session_timeout=10.0,
    )
    return dataclasses.replace(runtime, **changes)


def test_what_is_published_can_be_read_by_this_user_only(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    runtime = a_runtime(tmp_path)

    written = publish(runtime, tmp_path, environ, UID)

    assert written == [beside(tmp_path), tmp_path / "run" / "incumbent" / f"{os.getpid()}.json"]
    for path in written:
        assert read_runtime(path) == runtime
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_withdrawing_removes_what_is_ours_and_nothing_else(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    ours = a_runtime(tmp_path)
    written = publish(ours, tmp_path, environ, UID)
    theirs = a_runtime(tmp_path, zookeeper="127.0.0.1:1")
    publish(theirs, tmp_path, {"HOME": str(tmp_path / "other")}, UID)

    withdraw(ours, written)

    assert read_runtime(written[0]) == theirs
    assert not written[1].exists()
    withdraw(ours, written)  # nothing left to remove: no error


def test_the_process_is_known_by_pid_start_time_and_boot(tmp_path: Path) -> None:
    assert is_alive(a_runtime(tmp_path))
    assert not is_alive(a_runtime(tmp_path, start_time=1))
    assert not is_alive(a_runtime(tmp_path, boot_id="another"))
    assert not is_alive(a_runtime(tmp_path, pid=2**22 + 1))


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: start_time(child.pid) is None, 10, "the child to be a zombie")
    finally:
        child.wait()


def test_what_a_dead_up_left_is_swept_by_the_next(tmp_path: Path, environ: dict[str, str]) -> None:
    publish(a_runtime(tmp_path, pid=2**22 + 1), tmp_path, environ, UID)
    run = tmp_path / "run" / "incumbent"
    assert [path.name for path in run.iterdir()] == [f"{2**22 + 1}.json"]

    publish(a_runtime(tmp_path), tmp_path, environ, UID)

    assert [path.name for path in run.iterdir()] == [f"{os.getpid()}.json"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '"x"', '{"v":1,"pid":"1"}', '{"pid":1,"start_time":1,"boot_id":"b"}'],
)
def test_a_torn_or_foreign_file_is_no_runtime_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "runtime.json"
    path.write_text(content)

    assert read_runtime(path) is None


def test_a_newer_up_may_say_more(tmp_path: Path, environ: dict[str, str]) -> None:
    runtime = a_runtime(tmp_path)
    path = publish(runtime, tmp_path, environ, UID)[0]
    path.write_text(path.read_text().replace("{", '{"web": "127.0.0.1:80", ', 1))

    assert read_runtime(path) == runtime


def test_a_link_is_not_followed(tmp_path: Path, environ: dict[str, str]) -> None:
    path = publish(a_runtime(tmp_path), tmp_path, environ, UID)[0]
    link = tmp_path / "link.json"
    link.symlink_to(path)

    assert read_runtime(link) is None


@pytest.mark.skipif(UID != 0, reason="only root can make another user's file")
def test_another_users_file_is_not_believed(tmp_path: Path, environ: dict[str, str]) -> None:
    path = publish(a_runtime(tmp_path), tmp_path, environ, UID)[0]
    os.chown(path, 12345, 12345)

    assert read_runtime(path) is None


def test_without_a_runtime_directory_the_state_directory_serves(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}

    written = publish(a_runtime(tmp_path), tmp_path, environ, 4_000_000)

    assert written[1].parent == tmp_path / ".local/state/incumbent/run"
    assert written[1].parent in run_folders(environ, 4_000_000)


def test_a_run_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file in the way")

    written = publish(a_runtime(tmp_path), tmp_path, {"HOME": str(tmp_path)}, 4_000_000)

    assert written == [beside(tmp_path)]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_runtime_file_and_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "runtime.json")

    assert read_runtime(tmp_path / "runtime.json") is None
