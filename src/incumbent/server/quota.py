"""Quotas: how many znodes and bytes there are at and below each path that has limits.

Limits are znodes that clients make, `/zookeeper/quota<path>/zookeeper_limits`. What is there is kept
beside them in `zookeeper_stats`, as a 3.8 server does it: without a version, a time or an event.
Only the deepest path with limits counts. Nothing is refused for being over a limit, which is 3.8's
default (`enforceQuota`).

Rule of this file: the statistics are worked out from the tree, never trusted. They are counted
anew when their znode is made and when the tree is loaded; whatever a client writes there that is
no statistics counts as nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from incumbent.server.tree import Znode

__all__ = ["QUOTAS", "Quotas"]

QUOTAS = "/zookeeper/quota/"
"""Where limits and statistics are, before the path that they are about."""

_ROOT = QUOTAS[:-1]
_LIMITS, _STATS = "/zookeeper_limits", "/zookeeper_stats"
_PAIR = re.compile(r"([^=,;]+)=+(-?\d{1,18})(?![^,;=])")


class Quotas:
    """Of the znodes in `nodes`, by path. What each function returns is by how many bytes data grew.

    limited  the paths that have limits
    """

    __slots__ = ("_nodes", "limited")

    def __init__(self, nodes: dict[str, Znode]) -> None:
        self._nodes = nodes
        self.limited: dict[str, None] = {}

    def find(self) -> int:
        """The tree was loaded: see what is limited, and count all of it."""
        waiting = [_ROOT]
        while waiting:
            path = waiting.pop()
            waiting += [f"{path}/{name}" for name in self._nodes[path].children]
            if path.endswith(_LIMITS):
                self._limit(path)
        return sum(self._count(path) for path in self.limited)

    def created(self, path: str, size: int) -> int:
        """The znode is there, with so many bytes of data."""
        more = 0
        if path.startswith(QUOTAS):
            if path.endswith(_LIMITS):
                self._limit(path)
            elif path.endswith(_STATS) and len(path) >= len(QUOTAS) + len(_STATS):
                self._nodes[path].data = b""
                more = self._count(path[len(_ROOT) : -len(_STATS)]) - size
        return more + self.changed(path, size, 1)

    def deleted(self, path: str, size: int) -> int:
        """The znode with so many bytes of data is gone."""
        if path.startswith(QUOTAS) and path.endswith(_LIMITS):
            self.limited.pop(path[len(_ROOT) : -len(_LIMITS)], None)
        return self.changed(path, -size, -1)

    def changed(self, path: str, size: int, count: int = 0) -> int:
        """There are so many bytes, and so many znodes, more there."""
        while path and path not in self.limited:
            path = path[: path.rfind("/")]
        return self._add(path, size, count) if path else 0

    def _limit(self, path: str) -> None:
        about = path[len(_ROOT) : -len(_LIMITS)]
        if about:  # limits of the whole tree would make Apache end itself
            self.limited[about] = None

    def _count(self, about: str) -> int:
        """Set the statistics of a path to what is there."""
        size = count = 0
        waiting = [about]
        while waiting:
            path = waiting.pop()
            node = self._nodes.get(path)
            if node is not None:
                count += 1
                size += len(node.data or b"")
                waiting += [f"{path}/{name}" for name in node.children]
        return self._set(about, size, count)

    def _add(self, about: str, size: int, count: int) -> int:
        node = self._nodes.get(f"{_ROOT}{about}{_STATS}")
        if node is None:
            return 0
        known = _read(node.data)
        return self._set(about, known.get("bytes", 0) + size, known.get("count", 0) + count)

    def _set(self, about: str, size: int, count: int) -> int:
        node = self._nodes.get(f"{_ROOT}{about}{_STATS}")
        if node is None:
            return 0
        before = node.data or b""
        known = _read(before)
        known.pop("bytes", None)
        known.pop("count", None)
        text = f"count={count},bytes={size}"
        if known:  # hard limits, as 3.8 writes them
            text += "=" + "".join(f";{key}={known[key]}" for key in sorted(known))
        node.data = text.encode()
        return len(node.data) - len(before)


def _read(data: bytes | None) -> dict[str, int]:
    text = (data or b"").decode(errors="replace")
    return {key: int(value) for key, value in _PAIR.findall(text)}
