"""`incumbent server backup` while clients write, and `restore` at the next zxid epoch."""

from __future__ import annotations

import contextlib
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.e2e.served import Served, command, refusal

from incumbent.server.control import CONTROL


def run(*arguments: object) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert done.stderr == ""
    return done.stdout


def kazoo(server: Served, **options: object) -> KazooClient:
    client = KazooClient(server.hosts, **options)
    client.start(20)
    return client


def test_a_backup_under_load_has_everything_up_to_some_write(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = kazoo(server)
        client.create("/before", b"x" * 1000)
        written, is_over = [0], threading.Event()

        def write() -> None:
            while not is_over.is_set():
                client.create(f"/n{written[0] + 1:06d}", b"x" * 500)
                written[0] += 1

        writer = threading.Thread(target=write)
        writer.start()
        done_before = written[0]
        said = run("backup", tmp_path / "backup", "--data", server.data)
        is_over.set()
        writer.join(20)
        client.stop()
    file = tmp_path / "backup"
    assert said == f"backup of {server.data} written to {file}, {file.stat().st_size} bytes\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("backup*")) == ["backup"]

    run("restore", file, "--data", tmp_path / "other" / "data")
    with Served(tmp_path / "other") as restored:
        client = kazoo(restored)
        names = sorted(name for name in client.get_children("/") if name.startswith("n"))
        assert client.get("/before")[0] == b"x" * 1000
        client.stop()
    assert names == [f"n{one:06d}" for one in range(1, len(names) + 1)]
    assert len(names) >= done_before


def test_zxids_go_on_in_the_next_epoch_and_sessions_with_them(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = kazoo(server, timeout=30)
        client.create("/e", ephemeral=True)
        zxid = client.create("/x", include_data=True)[1].czxid
        run("backup", tmp_path / "backup", "--data", server.data)
        client.create("/lost")
        session = client.client_id
        server.stop()
    said = run("restore", tmp_path / "backup", "--data", server.data, "--replace")
    assert "zxids go on after 0x100000000" in said
    assert (server.data / "zookeeper.db.before-1").exists()

    with Served(tmp_path) as again:
        other = kazoo(again, client_id=session)
        assert other.client_id == session
        assert other.exists("/e").owner_session_id == session[0]
        assert other.exists("/lost") is None
        assert other.exists("/x").czxid == zxid
        assert other.create("/y", include_data=True)[1].czxid == 0x1_0000_0001
        other.stop()
        client.stop()
    said = run("restore", tmp_path / "backup", "--data", server.data, "--replace")
    assert "zxids go on after 0x200000000" in said
    said = run("restore", tmp_path / "backup", "--data", tmp_path / "new", "--epoch", "7")
    assert "zxids go on after 0x700000000" in said


def test_a_backup_of_a_stopped_server_and_of_one_that_was_killed(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = kazoo(server)
        client.create("/x")
        client.stop()
        server.stop(signal.SIGKILL)
    assert (server.data / CONTROL).exists()  # left behind

    run("backup", tmp_path / "backup", "--data", server.data)
    with Served(tmp_path) as server:  # the socket that is left is in nobody's way
        run("backup", tmp_path / "backup", "--data", server.data)
        assert stat.S_IMODE((server.data / CONTROL).stat().st_mode) == 0o600
        assert stat.S_IMODE((server.data / "zookeeper.db").stat().st_mode) == 0o600
        assert server.stop() == 0
    assert not (server.data / CONTROL).exists()


def test_a_data_directory_with_a_long_name(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()

    with Served(directory) as server:
        run("backup", tmp_path / "backup", "--data", server.data)
        assert server.stop() == 0


def test_a_server_killed_in_the_middle_leaves_no_backup(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = kazoo(server)
        for one in range(60):
            client.create(f"/n{one}", b"x" * 1_000_000)
        client.stop()
        with socket.socket(socket.AF_UNIX) as slow:  # reads nothing: the copy stays in the middle
            slow.connect(str(server.data / CONTROL))
            slow.sendall(b"backup\n")
            assert slow.recv(1)
            assert server.word("ruok") == "imok"  # and keeps nobody waiting
            with subprocess.Popen(
                command("backup", tmp_path / "backup", "--data", server.data),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as backup:
                server.stop(signal.SIGKILL)
                _, said = backup.communicate(timeout=30)
    if backup.returncode:  # it may have been quick
        assert "no backup was written" in said or "in use" in said
        assert not (tmp_path / "backup").exists()
    assert not list(tmp_path.glob("backup.part*"))


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_bytes(b"no database at all" * 100)
    data = tmp_path / "data"

    assert "there is no database in" in refusal("backup", tmp_path / "b", "--data", data)
    assert "there is no backup" in refusal("restore", tmp_path / "none", "--data", data)
    line = refusal("restore", tmp_path / "rubbish", "--data", data)
    assert "was not restored" in line
    assert "not a database" in line
    assert sorted(path.name for path in data.iterdir()) == ["lock"]
    with Served(tmp_path) as server:
        run("backup", tmp_path / "b", "--data", server.data)
        assert "in use by the server" in refusal("restore", tmp_path / "b", "--data", data)
        line = refusal("backup", tmp_path / "nowhere" / "b", "--data", server.data)
        assert "no backup was written" in line
        server.stop()
    line = refusal("restore", tmp_path / "b", "--data", data)
    assert "--replace" in line


def test_a_ruined_database_is_replaced_once_it_is_said_where_zxids_go_on(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        run("backup", tmp_path / "b", "--data", server.data)
        server.stop()
    database = server.data / "zookeeper.db"
    database.write_bytes(b"ruined" * 1000)
    (server.data / "zookeeper.db-wal").write_bytes(b"ruined, too")
    restore = ("restore", tmp_path / "b", "--data", server.data, "--replace")

    assert "--epoch N" in refusal(*restore)
    assert database.read_bytes() == b"ruined" * 1000
    assert "after 0x900000000; what was there before is" in run(*restore, "--epoch", "9")

    assert (server.data / "zookeeper.db.before-9").read_bytes() == b"ruined" * 1000
    with Served(tmp_path) as again:
        assert "Zxid: 0x900000000\n" in again.word("srvr")


@pytest.mark.parametrize("word", ["backdown\n", "b" * 100_000, "\n"])
def test_nonsense_on_the_control_socket(tmp_path: Path, word: str) -> None:
    with Served(tmp_path) as server:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(10)
            stranger.connect(str(server.data / CONTROL))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(word.encode())
                assert stranger.recv(1) == b""
        assert server.word("ruok") == "imok"
