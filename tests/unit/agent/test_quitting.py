"""Asking a program by HTTP to quit."""

from __future__ import annotations

import asyncio

import pytest

from incumbent.agent.quitting import ask_to_quit


async def _asked(answer: bytes | None, timeout: float = 10.0) -> tuple[str, bytes]:
    """What comes of asking one that answers so (None: not at all), and what it was asked."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await ask_to_quit(f"http://127.0.0.1:{port}/quit?now=1", timeout)
    return found, asked


@pytest.mark.parametrize(
    ("answer", "deaf"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 202\r\n\r\n", ""),
        (b"", ""),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered 404"),
        (b"hello\n", "its answer is no HTTP"),
    ],
)
def test_heard_is_2xx_or_an_end_without_an_answer(answer: bytes, deaf: str) -> None:
    found, asked = asyncio.run(_asked(answer))

    assert found == deaf
    assert asked.startswith(b"POST /quit?now=1 HTTP/1.1\r\n")


def test_who_does_not_answer_is_not_waited_for_longer_than_said() -> None:
    assert asyncio.run(_asked(None, 0.2))[0] == "no answer within 0.2 s"


def test_where_nobody_listens_is_said() -> None:
    found = asyncio.run(ask_to_quit("http://127.0.0.1:1/quit", 5.0))

    assert "refused" in found or "connect" in found
