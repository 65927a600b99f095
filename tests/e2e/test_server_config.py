"""A server's settings at work: zoo.cfg, variables, a log directory of its own, lines as JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.apache import free_port
from tests.conformance.raw import RawClient
from tests.e2e.served import Served, certificates, refusal


def test_a_zoo_cfg_is_all_it_needs(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={tmp_path / 'data'}\nclientPort={port}\n"
        "clientPortAddress=127.0.0.1\nmaxClientCnxns=2\nmaxSessionTimeout=7000\n"
        "4lw.commands.whitelist=*\nsnapCount=10000\n"
    )
    with Served(tmp_path, "--config", tmp_path / "zoo.cfg", listen=None) as server:
        assert server.port == port
        conf = dict(line.split("=") for line in server.word("conf").splitlines())
        assert conf["tickTime"] == "1000"
        assert conf["dataDir"] == str(tmp_path / "data")
        assert (conf["minSessionTimeout"], conf["maxSessionTimeout"]) == ("2000", "7000")
        assert conf["maxClientCnxns"] == "2"
        client = KazooClient(server.hosts, timeout=30)
        client.start(20)
        assert client._session_timeout == 30000
        assert "to=7000" in server.word("cons")
        client.stop()
        assert server.stop() == 0
    (warning,) = server.output().splitlines()
    assert warning == (
        f"incumbent server: warning: {tmp_path / 'zoo.cfg'}: "
        "snapCount has no effect: there are no snapshots"
    )


def test_variables(tmp_path: Path) -> None:
    env = {"INCUMBENT_SERVER_WORDS": "ruok,isro", "INCUMBENT_SERVER_TICK": "0.25"}
    with Served(tmp_path, env=env) as server:
        assert server.word("isro") == "rw"
        assert "not in the whitelist" in server.word("srvr")
        client = RawClient.connected(server.host, server.port, timeout_ms=1)
        client.close()

    assert "INCUMBENT_SERVER_TICK: 'x'" in refusal(
        "--data", tmp_path, env={"INCUMBENT_SERVER_TICK": "x"}
    )


def test_the_database_on_a_disk_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "disk"
    with Served(tmp_path, "--data-log", log, "--words", "*") as server:
        client = KazooClient(server.hosts)
        client.start(20)
        client.create("/x")
        client.stop()
        assert {path.name for path in log.iterdir()} == {"zookeeper.db", "zookeeper.db-wal"}
        assert (server.data / "zookeeper.db").readlink() == log / "zookeeper.db"
        assert f"dataLogDir={log}\n" in server.word("conf")
        server.stop()

    with Served(tmp_path) as server:  # the same database, also without the setting
        client = KazooClient(server.hosts)
        client.start(20)
        assert client.exists("/x")
        client.stop()
        server.stop()
    line = refusal("--data", server.data, "--data-log", tmp_path / "third")
    assert f"the database is {log / 'zookeeper.db'}" in line
    (tmp_path / "plain").mkdir()
    with Served(tmp_path / "plain") as plain:
        plain.stop()
    assert "move it" in refusal("--data", plain.data, "--data-log", log)


def test_larger_requests_if_wanted(tmp_path: Path) -> None:
    with Served(tmp_path, "--max-request", 3_000_000) as server:
        client = KazooClient(server.hosts)
        client.start(20)
        client.create("/large", b"x" * 2_500_000)

        assert len(client.get("/large")[0]) == 2_500_000
        client.stop()


def test_apaches_data_is_not_taken_for_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()

    assert "holds Apache ZooKeeper's data" in refusal("--data", tmp_path)


def test_lines_as_json(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\nno.such.key=1\nadmin.serverPort=0\n")
    arguments = ("--log-format", "json", "--config", tmp_path / "zoo.cfg")
    with Served(tmp_path, *arguments) as server:
        assert server.stop() == 0

    events = [json.loads(line) for line in server.output().splitlines()]
    assert [event["level"] for event in events] == ["warning", "warning", "info"]
    assert events[1]["event"].endswith(
        "no.such.key is not a setting of this server and has no effect"
    )
    assert events[2]["event"].startswith("admin endpoint at http://127.0.0.1:")
    assert all(event["time"].endswith("Z") for event in events)


def test_what_nobody_asked_for_is_not_imported() -> None:
    program = "import sys, incumbent.server.main\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    imported = set(done.stdout.split())
    server = {
        f"incumbent.server.{name}" for name in ("admin", "backup", "report", "tls", "zoo_cfg")
    }
    assert not imported & ({"typer", "rich", "msgspec", "kazoo", "http.server"} | server)


@pytest.mark.parametrize("flag", ["--admin", "--tls-listen"])
def test_no_port_no_start(tmp_path: Path, flag: str) -> None:
    certificate = ("--tls-cert", certificates(tmp_path) / "server.pem")
    start = ("--data", tmp_path / "data", "--listen", "127.0.0.1:0", *certificate)

    assert "is not HOST:PORT" in refusal(*start, flag, "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = refusal(*start, flag, f"127.0.0.1:{taken.getsockname()[1]}")
    assert "is in use" in line
    assert f"name another with {flag} HOST:PORT" in line
