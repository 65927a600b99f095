"""A client's counterpart, real: our server or Apache's, behind a relay that may fail.

Rule of this file: a test has a znode of its own, since the Apache server is shared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.apache import ApacheServer
from tests.relay import Relay, relay_to

from incumbent.client import Client
from incumbent.server import MemoryStore, Server

__all__ = ["direct", "relay", "root"]


@pytest.fixture(params=["ours", "apache"])
async def relay(request: pytest.FixtureRequest) -> AsyncIterator[Relay]:
    """A relay to a running server."""
    if request.param == "apache":
        apache: ApacheServer = request.getfixturevalue("apache")
        async with relay_to(apache.hosts) as it:
            yield it
        return
    server = Server(MemoryStore(), tick=0.2)
    await server.start()
    async with relay_to(f"127.0.0.1:{server.port}") as it:
        yield it
    await server.stop()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """A znode for this test alone."""
    return "/" + "".join(c if c.isalnum() else "-" for c in request.node.name)


async def direct(relay: Relay) -> Client:
    """Another client, not over the relay."""
    host, port = relay._target
    client = Client(f"{host}:{port}", session_timeout=4.0, tick=0.0)
    await client.connect(5)
    return client
