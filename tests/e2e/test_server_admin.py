"""The admin endpoint: JSON under /commands, metrics, and nothing that a stranger sends stops it."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.e2e.served import Served

COMMANDS = {
    "conf": "configuration",
    "cons": "connections",
    "dirs": "dirs",
    "dump": "dump",
    "envi": "environment",
    "hash": "hash",
    "isro": "is_read_only",
    "mntr": "monitor",
    "ruok": "ruok",
    "srvr": "server_stats",
    "stat": "stats",
    "wchs": "watch_summary",
    "wchc": "watches",
    "wchp": "watches_by_path",
    "crst": "connection_stat_reset",
    "srst": "stat_reset",
}


def test_every_command_by_both_names(tmp_path: Path) -> None:
    with Served(tmp_path, has_admin=True) as server:
        index = server.http("/commands")
        for short, name in COMMANDS.items():
            for path in (short, name):
                shown = server.json(path)
                assert (shown["command"], shown["error"]) == (name, None)
            assert f"/commands/{name}" in index

        assert server.json("nosuch")["error"] == "Unknown command: nosuch"


def test_sessions_watches_and_ephemerals_are_shown(tmp_path: Path) -> None:
    with Served(tmp_path, has_admin=True) as server:
        client = KazooClient(server.hosts)
        client.start(20)
        client.create("/e", b"xy", ephemeral=True)
        client.get("/e", watch=print)
        session = client.client_id[0]

        assert server.json("dump")["session_id_to_ephemeral_paths"] == {str(session): ["/e"]}
        assert server.json("wchp")["path_to_session_ids"] == {"/e": [session]}
        (connection,) = server.json("cons")["connections"]
        assert connection["session_id"] == session
        assert connection["last_operation"] == "GETD"
        assert server.json("stats")["node_count"] == 6
        assert server.json("srvr")["server_stats"]["last_processed_zxid"] == 2
        client.stop()


def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    with Served(tmp_path, has_admin=True) as server:
        client = KazooClient(server.hosts)
        client.start(20)
        client.create("/x", b"xy")

        lines = server.http("/metrics").splitlines()
        client.stop()

    for line in lines:
        assert re.fullmatch(r"# TYPE \w+ (gauge|counter|summary)|\w+ -?[\d.e+-]+", line), line
    values = dict(line.split() for line in lines if not line.startswith("#"))
    assert values["znode_count"] == "6"
    assert values["num_alive_connections"] == "1"
    assert values["updatelatency_count"] == "2"
    assert int(values["fsynctime_count"]) >= 2
    assert values["incumbent_writable"] == "1"
    assert float(values["process_resident_memory_bytes"]) > 1e6


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"POST /commands/ruok HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /" + b"x" * 10_000, b"HTTP/1.1 431"),
        (b"HEAD /commands/ruok HTTP/1.1\r\n\r\n", b"HTTP/1.1 200"),
    ],
)
def test_what_is_no_question_is_answered_with_a_status(
    tmp_path: Path, request_: bytes, status: bytes
) -> None:
    with (
        Served(tmp_path, has_admin=True) as server,
        socket.create_connection(("127.0.0.1", server.admin), 10) as visitor,
    ):
        visitor.sendall(request_)
        answer = visitor.recv(10_000)

        assert answer.startswith(status)
        assert visitor.recv(1) == b""  # closed
        assert json.loads(server.http("/commands/ruok"))["error"] is None


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    with Served(tmp_path) as server, pytest.raises(OSError):
        urllib.request.urlopen(f"http://{server.hosts}/metrics", timeout=5)
