"""The pytest plugin, as another project meets it: installed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = """\
import pytest
from kazoo.client import KazooClient

seen = []

def test_hosts_are_a_clients(zookeeper_hosts):
    client = KazooClient(zookeeper_hosts)
    client.start(10)
    client.create("/a")
    seen.append(zookeeper_hosts)
    client.stop()

def test_each_test_has_a_server_of_its_own(zookeeper, zookeeper_client):
    assert zookeeper_client.exists("/a") is None
    assert zookeeper.sessions == [zookeeper_client.session_id]

@pytest.mark.zookeeper(tick=0.25)
def test_the_mark_gives_its_arguments(zookeeper, zookeeper_client):
    assert zookeeper.tick == 0.25
    zookeeper.expire(zookeeper_client.session_id)

async def test_a_coroutine_may_use_it_too(zookeeper):
    import incumbent.aio
    async with incumbent.aio.connect(zookeeper.hosts) as zk:
        await zk.create("/a")

def test_a_server_stopped_by_the_test_troubles_nobody(zookeeper, zookeeper_client):
    zookeeper.stop()
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_fixtures_are_there_in_any_project(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (tmp_path / "test_project.py").write_text(PROJECT)

    done = run(tmp_path, "--strict-markers")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_run_that_asks_for_nothing_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    assert not [name for name in sys.modules if name.startswith('incumbent.server')]\n"
        "    assert 'incumbent.testing.embedded' not in sys.modules\n"
    )

    done = run(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
