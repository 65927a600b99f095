"""What callers put into znodes.

Rule of this file: what cannot be written is refused when it is handed in, and changes nothing.
"""

from __future__ import annotations

from incumbent.client import Client
from incumbent.errors import TooLarge
from incumbent.wire import MAX_FRAME

__all__ = ["as_bytes", "fitting"]

_AROUND = 1024
"""Bytes of a request besides its path and data: an ACL, mostly."""


def as_bytes(data: str | bytes) -> bytes:
    """As it is written. Raises TypeError if it is neither text nor bytes."""
    if isinstance(data, str):
        return data.encode()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{data!r} is neither text nor bytes: it cannot be put into a znode")
    return bytes(data)


def fitting(client: Client, path: str, data: str | bytes) -> bytes:
    """The same. Raises `TooLarge` for what no server would take at `path`, made or written."""
    body = as_bytes(data)
    if (size := len(body) + len(client.root.down(path).encode()) + _AROUND) > MAX_FRAME:
        raise TooLarge(f"the data of {path}", size, MAX_FRAME)
    return body
