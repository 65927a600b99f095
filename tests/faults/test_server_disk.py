"""A full disk: writes are refused, reads and pings go on, and it heals when there is space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.raw import Closed, RawClient
from tests.waiting import wait_until

from incumbent.wire import Create, Exists, GetData, Ping, SetData, Xid


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 10 MB large."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out:
        try:
            while out.write(b"x" * 4096):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk has no end")


def test_a_full_disk_stops_writes_only_and_only_while_it_is_full(
    tmp_path: Path, small_disk: Path
) -> None:
    with EmbeddedServer(tmp_path / "server", data=small_disk / "data") as server:
        client = RawClient.connected(server.host, server.port, timeout_ms=30_000)
        session = client.session
        assert session is not None
        assert client.call(Create("/kept", b"here", flags=1)).err == 0
        ballast = fill(small_disk)
        acknowledged = b"here"
        try:
            for n in range(1000):
                data = b"%d" % n + b"x" * 5000
                assert client.call(SetData("/kept", data)).err == 0
                acknowledged = data
        except Closed:
            pass
        server.wait_for_output("ALARM: cannot write")

        with RawClient(server.host, server.port) as again:
            again.connect(session_id=session.session_id, password=session.password)
            kept = again.call(GetData("/kept")).value.data
            assert kept == acknowledged, "an acknowledged write is lost, or another is there"
            assert again.call(Ping(), Xid.PING).err == 0
            assert again.call(Create("/refused", b"x" * 5000)).err == -1
            ballast.unlink()
            server.wait_for_output("writing works again", 20)
            assert again.call(Create("/accepted", b"x" * 5000)).err == 0

        server.restart()
        with RawClient(server.host, server.port) as later:
            later.connect(session_id=session.session_id, password=session.password)
            assert later.call(Exists("/accepted")).err == 0
            assert later.call(Exists("/refused")).err == -101
            assert later.call(Exists("/kept")).value.ephemeralOwner == session.session_id


def test_a_server_started_on_a_full_disk_reads(tmp_path: Path, small_disk: Path) -> None:
    with EmbeddedServer(tmp_path / "server", data=small_disk / "data") as server:
        client = RawClient.connected(server.host, server.port)
        session = client.session
        assert session is not None
        client.call(Create("/kept", b"here"))
        server.kill()
        ballast = fill(small_disk)

        server.start()

        with RawClient(server.host, server.port) as again:
            answer = again.connect(session_id=session.session_id, password=session.password)
            assert answer.session_id == session.session_id
            assert again.call(GetData("/kept")).value.data == b"here"
        ballast.unlink()


def test_folding_on_a_nearly_full_disk_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    """Small writes until nothing more fits; then some space, and all of it again."""
    with EmbeddedServer(tmp_path / "server", data=small_disk / "data") as server:
        made = 0
        client = RawClient.connected(server.host, server.port, timeout_ms=30_000)
        try:
            while made < 5000:
                assert client.call(Create(f"/{made}", b"x" * 3000)).err == 0
                made += 1
        except Closed:
            pass
        assert 700 < made < 5000, "it was to be full after folding began"
        server.kill()

        server.start()

        def serves() -> bool:
            with RawClient(server.host, server.port) as reader:
                session = client.session
                assert session is not None
                reader.connect(session_id=session.session_id, password=session.password)
                assert reader.call(Exists(f"/{made - 1}")).err == 0
                return reader.call(Exists("/0")).err == 0

        wait_until(serves)
