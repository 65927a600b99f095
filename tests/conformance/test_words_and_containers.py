"""Four-letter words look alike, and containers are reaped alike."""

from __future__ import annotations

import re
from pathlib import Path

from tests.apache import ApacheServer, four_letters
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.raw import RawClient
from tests.unit.server.live import connect, running
from tests.waiting import eventually, wait_until

from incumbent.server import MemoryStore
from incumbent.wire import Create, CreateContainer, Delete, GetChildren, Multi, Request


def shape(text: str) -> list[str]:
    """The lines with their values replaced by what kind they are."""
    lines = [re.sub(r"^(Zookeeper version: 3\.8\.0)-.*", r"\1", line) for line in text.split("\n")]
    return [re.sub(r"\d+(\.\d+)?$|\d+/\d+(\.\d+)?/\d+$|0x[0-9a-f]+$", "#", line) for line in lines]


def test_srvr_and_ruok_look_alike(apache: ApacheServer, ours: EmbeddedServer) -> None:
    for word in ("srvr", "ruok"):
        expected, got = (four_letters(s.host, s.port, word) for s in (apache, ours))

        assert shape(got) == shape(expected)


def test_an_unknown_word_gets_nothing(apache: ApacheServer, ours: EmbeddedServer) -> None:
    for server in (apache, ours):
        assert four_letters(server.host, server.port, "abcd", 1.0) == ""


STEPS: list[Request] = [
    CreateContainer("/used"),
    Create("/used/x"),
    Delete("/used/x"),
    CreateContainer("/unused"),
    CreateContainer("/busy"),
    Create("/busy/x"),
    Create("/ordinary"),
    Create("/ordinary/x"),
    Delete("/ordinary/x"),
    Multi([CreateContainer("/outer"), CreateContainer("/outer/inner"), Create("/outer/inner/x")]),
    Delete("/outer/inner/x"),
]
LEFT = {"zookeeper", "unused", "busy", "ordinary"}


async def test_containers_are_reaped_alike(tmp_path: Path) -> None:
    """Used ones only; one whose last child was a container goes in its turn."""
    properties = {"znode.container.checkIntervalMs": "100"}
    with (
        ApacheServer(tmp_path, properties=properties) as apache,
        RawClient.connected(apache.host, apache.port) as client,
    ):
        for step in STEPS:
            assert client.call(step).err == 0
        wait_until(lambda: set(client.call(GetChildren("/")).value) == LEFT)
    async with running(MemoryStore(), reap_every=0.05) as server:
        ours = await connect(server)
        for step in STEPS:
            assert (await ours.call(step)).err == 0
        assert server._service is not None
        tree = server._service.tree
        await eventually(lambda: set(tree.nodes["/"].children) == LEFT)
