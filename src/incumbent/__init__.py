"""Runs each of your programs on exactly one machine at a time, and is a ZooKeeper library.

`incumbent.connect(hosts)` is the blocking client (`incumbent.sync`), `incumbent.aio` the one
for asyncio, `incumbent.errors` every error.

Rule of this file: importing the package imports nothing else of it until it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # to a type checker it is true, and nobody waits for `typing`
if TYPE_CHECKING:
    from typing import Any

    from incumbent.sync import connect

__all__ = ["connect"]


def __getattr__(name: str) -> Any:
    if name == "connect":
        from incumbent.sync import connect

        return connect
    raise AttributeError(f"module 'incumbent' has no attribute {name!r}")
