"""What every stream transport owes its protocol, on real loopback sockets and on simulated ones.

Each test is one coroutine that gets a `Ground`: somewhere to listen, to connect, to wait. It
knows nothing of which of the two worlds it runs in.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from incumbent.testing.sockets import WorldLoop
from incumbent.testing.world import World

Story = Callable[["Ground"], Coroutine[Any, Any, None]]

STORIES: list[Story] = []


def story(function: Story) -> Story:
    STORIES.append(function)
    return function


class Recorder(asyncio.Protocol):
    """Notes every call, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.got = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: Any = None
        self.keep_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.calls[-1] != "data":
            self.calls.append("data")
        self.got += data

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.append(exc)


class Ground:
    """A server on one side, connections from the other."""

    def __init__(self) -> None:
        self.accepted: list[Recorder] = []
        self.server: Any = None
        self.prepare: Callable[[Recorder], None] = lambda recorder: None

    def _accept(self) -> Recorder:
        recorder = Recorder()
        self.prepare(recorder)
        self.accepted.append(recorder)
        return recorder

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self._accept, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def connect(self, port: int) -> tuple[Any, Recorder]:
        transport, protocol = await asyncio.get_running_loop().create_connection(
            Recorder, "127.0.0.1", port
        )
        return transport, protocol

    async def both(self) -> tuple[Recorder, Recorder]:
        """(client, server) of one connection."""
        _, near = await self.connect(await self.listen())
        await self.until(lambda: self.accepted and self.accepted[0].calls)
        return near, self.accepted[0]

    async def socketpair(self) -> tuple[Any, Any]:
        loop: Any = asyncio.get_running_loop()
        if isinstance(loop, WorldLoop):
            return loop.socketpair()
        return socket.socketpair()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for what must come, at most 5 seconds."""
        async with asyncio.timeout(5):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def _on(told: Story) -> None:
    ground = Ground()
    try:
        await told(ground)
    finally:
        if ground.server is not None:
            ground.server.close()


@story
async def what_is_written_arrives_whole_and_in_order(ground: Ground) -> None:
    near, far = await ground.both()
    sent = bytes(range(256)) * 40

    for start in range(0, len(sent), 100):
        near.transport.write(sent[start : start + 100])
    await ground.until(lambda: len(far.got) == len(sent))

    assert far.got == sent


@story
async def connection_made_comes_first_even_if_the_peer_writes_at_once(ground: Ground) -> None:
    port = await ground.listen()
    transport, near = await ground.connect(port)
    transport.write(b"x")
    await ground.until(lambda: ground.accepted and ground.accepted[0].got)

    assert near.calls == ["made"]
    assert ground.accepted[0].calls == ["made", "data"]


@story
async def close_flushes_and_the_peer_sees_eof_after_all_data(ground: Ground) -> None:
    near, far = await ground.both()
    sent = b"z" * 3_000_000

    near.transport.write(sent)
    near.transport.close()
    await ground.until(lambda: far.lost)

    assert far.got == sent
    assert far.calls == ["made", "data", "eof", "lost"]
    assert far.lost == near.lost == [None]


@story
async def connection_lost_is_called_later_and_once(ground: Ground) -> None:
    near, _ = await ground.both()

    near.transport.close()
    called_inside = list(near.lost)
    near.transport.close()
    near.transport.abort()
    await ground.until(lambda: near.lost)
    await asyncio.sleep(0.01)

    assert called_inside == []
    assert near.lost == [None]


@story
async def a_closing_transport_reads_no_more(ground: Ground) -> None:
    near, far = await ground.both()

    near.transport.close()
    far.transport.write(b"too late")
    await ground.until(lambda: near.lost and far.lost)

    assert near.got == b""


@story
async def abort_drops_what_is_buffered(ground: Ground) -> None:
    near, far = await ground.both()
    far.transport.pause_reading()
    near.transport.write(b"z" * 20_000_000)

    assert near.transport.get_write_buffer_size() > 0
    near.transport.abort()
    far.transport.resume_reading()
    await ground.until(lambda: near.lost and far.lost)

    assert near.lost == [None]
    assert len(far.got) < 20_000_000


@story
async def a_full_buffer_pauses_and_an_empty_one_resumes_the_writer(ground: Ground) -> None:
    near, far = await ground.both()
    far.transport.pause_reading()
    while "pause" not in near.calls:
        near.transport.write(b"z" * 100_000)
        await asyncio.sleep(0)

    assert near.transport.get_write_buffer_size() > near.transport.get_write_buffer_limits()[1]
    far.transport.resume_reading()
    await ground.until(lambda: "resume" in near.calls)

    assert near.calls == ["made", "pause", "resume"]


@story
async def the_water_marks_are_64k_and_16k_and_can_be_set(ground: Ground) -> None:
    near, _ = await ground.both()

    before = near.transport.get_write_buffer_limits()
    near.transport.set_write_buffer_limits(high=1000)
    after = near.transport.get_write_buffer_limits()

    assert before == (16 * 1024, 64 * 1024)
    assert after == (250, 1000)
    with pytest.raises(ValueError, match="must be >="):
        near.transport.set_write_buffer_limits(high=1, low=2)


@story
async def write_eof_ends_one_direction_only(ground: Ground) -> None:
    ground.prepare = lambda r: setattr(r, "keep_open", True)
    near, far = await ground.both()

    near.transport.write(b"question")
    near.transport.write_eof()
    await ground.until(lambda: "eof" in far.calls)
    far.transport.write(b"answer")
    await ground.until(lambda: near.got)

    assert far.got == b"question"
    assert near.got == b"answer"
    assert not far.lost
    with pytest.raises(RuntimeError, match="write_eof"):
        near.transport.write(b"more")
    far.transport.close()
    await ground.until(lambda: near.lost and far.lost)


@story
async def without_a_wish_to_stay_open_eof_closes(ground: Ground) -> None:
    near, far = await ground.both()

    near.transport.write_eof()
    await ground.until(lambda: near.lost and far.lost)

    assert far.calls == ["made", "eof", "lost"]


@story
async def pause_reading_holds_data_back(ground: Ground) -> None:
    near, far = await ground.both()

    far.transport.pause_reading()
    near.transport.write(b"held")
    await asyncio.sleep(0.02)
    held = bytes(far.got)
    reading = far.transport.is_reading()
    far.transport.resume_reading()
    await ground.until(lambda: far.got)

    assert (held, reading) == (b"", False)
    assert far.got == b"held"


@story
async def closing_with_unread_bytes_resets_the_peer(ground: Ground) -> None:
    near, far = await ground.both()
    far.transport.pause_reading()
    near.transport.write(b"never read")
    await asyncio.sleep(0.02)

    far.transport.abort()
    await ground.until(lambda: near.lost)

    assert isinstance(near.lost[0], ConnectionResetError)


@story
async def writing_to_a_peer_that_is_gone_ends_in_connection_lost(ground: Ground) -> None:
    near, far = await ground.both()
    near.keep_open = True
    far.transport.abort()
    await ground.until(lambda: far.lost)

    async with asyncio.timeout(5):
        while not near.lost:
            near.transport.write(b"anyone?")
            await asyncio.sleep(0.001)

    assert isinstance(near.lost[0], (ConnectionResetError, BrokenPipeError))


@story
async def an_error_in_data_received_closes_the_connection_with_it(ground: Ground) -> None:
    near, far = await ground.both()
    failed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    error = ValueError("not a frame")

    def fail(data: bytes) -> None:
        raise error

    far.data_received = fail  # type: ignore[method-assign]
    near.transport.write(b"x")
    await ground.until(lambda: near.lost and far.lost)

    assert far.lost == [error]
    assert failed[0]["exception"] is error


@story
async def nobody_listening_is_connection_refused(ground: Ground) -> None:
    port = await ground.listen()
    ground.server.close()
    await asyncio.sleep(0.01)

    with pytest.raises(ConnectionRefusedError):
        await ground.connect(port)


@story
async def a_port_is_taken_once(ground: Ground) -> None:
    port = await ground.listen()

    with pytest.raises(OSError, match=r"taken|in use"):
        await asyncio.get_running_loop().create_server(Recorder, "127.0.0.1", port)


@story
async def an_unknown_name_is_a_gaierror(ground: Ground) -> None:
    with pytest.raises(OSError, match=r"not known|failure|No address"):
        await asyncio.get_running_loop().create_connection(Recorder, "no-such-host.invalid", 1)


@story
async def a_closed_server_keeps_its_connections(ground: Ground) -> None:
    near, far = await ground.both()

    ground.server.close()
    near.transport.write(b"still here")
    await ground.until(lambda: far.got)

    assert not ground.server.is_serving()
    assert far.got == b"still here"


@story
async def both_ends_know_the_two_addresses(ground: Ground) -> None:
    near, far = await ground.both()

    assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
    assert near.transport.get_extra_info("sockname") == far.transport.get_extra_info("peername")
    assert near.transport.get_extra_info("no such thing", 7) == 7


@story
async def a_write_of_the_wrong_type_is_a_type_error(ground: Ground) -> None:
    near, _ = await ground.both()

    with pytest.raises(TypeError):
        near.transport.write("text")
    near.transport.write(b"")
    near.transport.writelines([bytearray(b"a"), memoryview(b"b")])
    await ground.until(lambda: ground.accepted[0].got)

    assert ground.accepted[0].got == b"ab"


@story
async def a_protocol_can_be_changed(ground: Ground) -> None:
    near, far = await ground.both()
    second = Recorder()
    second.calls.append("made")

    far.transport.set_protocol(second)
    near.transport.write(b"for the second")
    await ground.until(lambda: second.got)

    assert far.transport.get_protocol() is second
    assert far.got == b""


@story
async def a_cancelled_connect_leaves_nothing_behind(ground: Ground) -> None:
    port = await ground.listen()

    task = asyncio.ensure_future(ground.connect(port))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.02)

    assert all(r.lost or r.calls == ["made"] for r in ground.accepted)


@story
async def a_socketpair_is_a_connection_too(ground: Ground) -> None:
    loop = asyncio.get_running_loop()
    one, two = await ground.socketpair()
    a, near = await loop.create_connection(Recorder, sock=one)
    b, far = await loop.create_connection(Recorder, sock=two)

    a.write(b"ping")
    await ground.until(lambda: far.got)
    b.write(b"pong")
    await ground.until(lambda: near.got)
    a.close()
    await ground.until(lambda: far.lost and near.lost)

    assert far.calls == ["made", "data", "eof", "lost"]


@pytest.mark.parametrize("told", STORIES, ids=lambda s: s.__name__)
def test_real(told: Story) -> None:
    asyncio.run(_on(told))


@pytest.mark.parametrize("told", STORIES, ids=lambda s: s.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_simulated(told: Story, seed: int) -> None:
    with World(seed) as world:
        world.run(world.host("n1").call(_on(told)), limit=60)
