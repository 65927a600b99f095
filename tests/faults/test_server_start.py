"""What keeps a server from starting is one sentence with the next step, and exit code 2."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.raw import RawClient
from tests.waiting import wait_until

from incumbent.wire import Ping


def refused(*arguments: str, **options: object) -> str:
    """The one line that a start which must fail prints."""
    command = [sys.executable, "-m", "incumbent.server", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, **options)  # type: ignore[call-overload]
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines: list[str] = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    return lines[-1]


def test_the_port_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        line = refused("--data", str(tmp_path), "--listen", f"127.0.0.1:{port}")

    assert line == (
        f"incumbent server: port {port} on 127.0.0.1 is in use; stop what listens there, "
        "or name another with --listen HOST:PORT"
    )


def test_the_data_directory_is_in_use_by_a_pid(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        line = refused("--data", str(server.data), "--listen", "127.0.0.1:0")

        assert f"in use by the server with pid {server.pid}" in line
        with RawClient.connected(server.host, server.port) as client:
            assert client.call(Ping(), -2).err == 0


def test_the_data_directory_is_not_writable() -> None:
    line = refused("--data", "/sys/incumbent")  # where nobody can write, not even root

    assert "cannot write to the data directory /sys/incumbent" in line
    assert "name another with --data" in line


def test_the_data_directory_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    assert "cannot write to the data directory" in refused("--data", str(tmp_path / "data"))


def test_the_database_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "zookeeper.db").write_bytes(b"not a database, whatever it is" * 100)

    line = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0")

    assert "zookeeper.db" in line
    assert "not a database" in line


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none(tmp_path: Path, listen: str) -> None:
    assert "is not HOST:PORT" in refused("--data", str(tmp_path), "--listen", listen)


@pytest.mark.parametrize("tick", ["0", "-1", "x", "inf", "nan"])
def test_a_tick_that_is_none(tmp_path: Path, tick: str) -> None:
    assert "is not a number of seconds" in refused("--data", str(tmp_path), "--tick", tick)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, signum: int) -> None:
    server = EmbeddedServer(tmp_path)
    server.start()
    client = RawClient.connected(server.host, server.port)

    assert server.kill(signum) == 0
    assert client.is_closed()
    assert server.output() == f"listening on {server.hosts}\n"


def test_it_stops_when_its_parent_ends(tmp_path: Path) -> None:
    """Also when the parent was killed."""
    program = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'incumbent.server', '--parent-death',"
        " '--listen', '127.0.0.1:0', '--data', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "print(p.pid, p.stdout.readline().decode(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline().split()[0])

    parent.kill()
    parent.communicate()

    wait_until(lambda: not is_running(pid), what="the server to follow its parent")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_two_hundred_servers_at_once_find_a_port_each(tmp_path: Path) -> None:
    """Port 0 never clashes."""
    import asyncio

    from incumbent.server import MemoryStore, Server

    async def all_of_them() -> set[int]:
        servers = [Server(MemoryStore()) for _ in range(200)]
        await asyncio.gather(*(server.start() for server in servers))
        ports = {server.port for server in servers}
        await asyncio.gather(*(server.stop() for server in servers))
        return ports

    assert len(asyncio.run(all_of_them())) == 200


def test_a_paused_server_expires_nobody_when_it_goes_on(tmp_path: Path) -> None:
    """SIGSTOP for longer than the session: its client is answered as if nothing had been."""
    with EmbeddedServer(tmp_path, tick=0.1) as server:
        client = RawClient.connected(server.host, server.port, timeout_ms=400)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(1.5)  # the pause itself is what is tested

        client.submit(Ping(), -2)
        os.kill(server.pid, signal.SIGCONT)

        assert client.reply().err == 0
