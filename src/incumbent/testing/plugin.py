"""pytest fixtures for any project that talks to ZooKeeper; there as soon as incumbent is installed.

    def test_leader(zookeeper_hosts):
        my_program.run(zookeeper_hosts)

    @pytest.mark.zookeeper(tick=0.2)
    def test_failover(zookeeper, zookeeper_client):
        zookeeper.expire(zookeeper_client.session_id)

zookeeper         an `incumbent.testing.EmbeddedServer`, new for each test (some milliseconds);
                  the mark's arguments are its own
zookeeper_hosts   `127.0.0.1:PORT`, for a client of your own
zookeeper_client  a session of ours on it: `incumbent.connect(zookeeper_hosts)`

Rule of this file: it imports nothing before a fixture is asked for, since it is loaded in every
run of pytest wherever incumbent is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from incumbent.sync import Zk
    from incumbent.testing.embedded import EmbeddedServer

__all__ = ["pytest_configure", "zookeeper", "zookeeper_client", "zookeeper_hosts"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "zookeeper(**options): arguments for the server of the `zookeeper` fixture"
    )


@pytest.fixture
def zookeeper(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A ZooKeeper server for this test alone, with faults to order."""
    from incumbent.testing.embedded import EmbeddedServer

    mark = request.node.get_closest_marker("zookeeper")
    with EmbeddedServer(**(mark.kwargs if mark else {})) as server:
        yield server


@pytest.fixture
def zookeeper_hosts(zookeeper: EmbeddedServer) -> str:
    """Where it listens, as a client takes it."""
    return zookeeper.hosts


@pytest.fixture
def zookeeper_client(zookeeper_hosts: str) -> Iterator[Zk]:
    """A blocking client of ours, connected; closed at the end if the server is there to hear it."""
    import incumbent

    with incumbent.connect(zookeeper_hosts, timeout=10.0) as client:
        yield client
