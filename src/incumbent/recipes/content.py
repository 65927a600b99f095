"""What callers put into znodes.

Rule of this file: what cannot be written is refused when it is handed in, and changes nothing.
"""

from __future__ import annotations

from incumbent.errors import TooLarge
from incumbent.wire import MAX_FRAME, SetData

__all__ = ["as_bytes", "fitting"]


def as_bytes(data: str | bytes) -> bytes:
    """As it is written. Raises TypeError if it is neither text nor bytes."""
    if isinstance(data, str):
        return data.encode()
    if not isinstance(data, bytes):
        raise TypeError(f"{data!r} is neither text nor bytes: it cannot be put into a znode")
    return data


def fitting(path: str, data: str | bytes) -> bytes:
    """The same. Raises `TooLarge` for what no server would take at `path`."""
    body = as_bytes(data)
    if (size := len(SetData(path, body).encode(0))) > MAX_FRAME:
        raise TooLarge(f"set_data {path}", size, MAX_FRAME)
    return body
