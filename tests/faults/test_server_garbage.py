"""No bytes whatsoever stop the server or disturb another client."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator

import pytest
from tests.conformance.embedded import EmbeddedServer
from tests.conformance.raw import Closed, RawClient

from incumbent.wire import (
    AuthPacket,
    Check,
    ConnectRequest,
    Create,
    Delete,
    Exists,
    GetChildren2,
    GetData,
    Multi,
    Ping,
    SetData,
    SetWatches,
    frame,
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("garbage")) as server:
        yield server


VALID = [
    Create("/garbage/x", b"data", flags=3),
    Delete("/garbage/x"),
    Exists("/garbage", True),
    GetData("/garbage", True),
    SetData("/garbage", b"y"),
    GetChildren2("/garbage", True),
    Multi([Create("/garbage/y"), Check("/garbage"), Delete("/garbage/y")]),
    SetWatches(0, ["/garbage"], ["/none"], ["/garbage"]),
    AuthPacket(0, "digest", b"a:b"),
    Ping(),
]


@pytest.mark.parametrize("seed", range(8))
def test_mangled_requests_never_stop_it(ours: EmbeddedServer, seed: int) -> None:
    rng = random.Random(seed)
    witness = RawClient.connected(ours.host, ours.port)
    for _ in range(60):
        with RawClient.connected(ours.host, ours.port) as client:
            for _ in range(10):
                body = bytearray(rng.choice(VALID).encode(rng.randrange(-10, 100)))
                for _ in range(rng.randrange(1, 4)):
                    body[rng.randrange(len(body))] = rng.randrange(256)
                if rng.random() < 0.3:
                    del body[rng.randrange(len(body)) :]
                with contextlib.suppress(OSError):
                    client.send(bytes(body))
            with contextlib.suppress(Closed, OSError):
                client.submit(Ping(), -2)
                while client.receive()[:4] != struct.pack(">i", -2):
                    pass

    assert witness.call(Ping(), -2).err == 0
    witness.close()
    assert "Traceback" not in ours.output()


@pytest.mark.parametrize("seed", range(4))
def test_mangled_handshakes_never_stop_it(ours: EmbeddedServer, seed: int) -> None:
    rng = random.Random(seed)
    whole = frame(ConnectRequest(0, 10_000, 0, bytes(16)).encode())
    for _ in range(50):
        with RawClient(ours.host, ours.port) as client:
            data = bytearray(whole)
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            client.socket.sendall(bytes(data[: rng.randrange(1, len(data) + 1)]))
            if rng.random() < 0.5:
                client.socket.shutdown(1)

    with RawClient.connected(ours.host, ours.port) as witness:
        assert witness.call(Ping(), -2).err == 0


@pytest.mark.parametrize("length", [1_048_576, 2**31 - 1, -1, -(2**31)])
def test_a_frame_of_a_wrong_length_ends_its_connection_only(
    ours: EmbeddedServer, length: int
) -> None:
    with RawClient.connected(ours.host, ours.port) as client:
        client.submit(Ping(), -2)
        client.socket.sendall(struct.pack(">i", length) + b"x" * 100)

        with contextlib.suppress(Closed):
            client.reply()
        assert client.is_closed()


def test_frames_may_come_byte_by_byte(ours: EmbeddedServer) -> None:
    with RawClient(ours.host, ours.port) as client:
        for byte in frame(ConnectRequest(0, 10_000, 0, bytes(16)).encode()):
            client.socket.sendall(bytes([byte]))
        client.receive()
        for byte in frame(Ping().encode(-2)):
            client.socket.sendall(bytes([byte]))

        assert client.reply().err == 0
