"""A program is asked over TCP or HTTP, from its own node.

Rule of this file: each way has one question with a time limit, and returns "" or in one clause
what is wrong. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

from incumbent.spec import Check

__all__ = ["ask"]

_LONGEST_LINE = 4096


async def ask(check: Check) -> str:
    """One question over the network; "" is a yes."""
    try:
        async with asyncio.timeout(check.timeout):
            return await (_http(check.target) if check.way == "http" else _tcp(check.target))
    except TimeoutError:
        return f"{check.target} did not answer within {check.timeout:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{check.target}: {reason.lower()}"


async def _tcp(target: str) -> str:
    async with _connected(*_split(target)):
        return ""


async def _http(url: str) -> str:
    parts = urlsplit(url)
    place = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    async with _connected(str(parts.hostname), parts.port or 80) as (reader, writer):
        lines = (
            f"GET {place} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "User-Agent: incumbent",
            "Connection: close",
        )
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        first = (await reader.readline()).decode(errors="replace").strip()
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
        return f"{url}: no HTTP: {first[:60]!r}" if first else f"{url}: closed without an answer"
    return "" if 200 <= int(words[1]) < 400 else f"{url}: {' '.join(words[1:])}"


@contextlib.asynccontextmanager
async def _connected(host: str, port: int):  # type: ignore[no-untyped-def]
    reader, writer = await asyncio.open_connection(host, port, limit=_LONGEST_LINE)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _split(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    return host, int(port)
