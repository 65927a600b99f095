"""A tree so simple that one can see that it is right: a dictionary, and a copy for each multi."""

from __future__ import annotations

import copy
from typing import Any

from incumbent.wire import Check, Create, Delete, Multi, SetData

__all__ = ["Model", "Refusal"]


class Refusal(Exception):
    """The code that the server must answer."""

    def __init__(self, code: int) -> None:
        self.code = code


class Model:
    """Paths to plain dictionaries; parents and children are found by looking at all names."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {"/": self._new(None, 0)}
        self.zxid = 0

    @staticmethod
    def _new(data: bytes | None, owner: int) -> dict[str, Any]:
        return {"data": data, "version": 0, "made": 0, "owner": owner}

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [p for p in self.nodes if p != "/" and p.startswith(prefix)]
        return [p[len(prefix) :] for p in below if "/" not in p[len(prefix) :]]

    def multi(self, session: int, multi: Multi) -> list[int]:
        """The code of each operation; nothing changes if one is refused."""
        before = copy.deepcopy(self.nodes)
        for index, op in enumerate(multi.ops):
            try:
                self.one(session, op)
            except Refusal as refusal:
                self.nodes = before
                return [0] * index + [refusal.code] + [-2] * (len(multi.ops) - index - 1)
        return [0] * len(multi.ops)

    def one(self, session: int, op: Any) -> str:
        match op:
            case Create(path, data, _, flags):
                parent = path.rpartition("/")[0] or "/"
                if parent not in self.nodes:
                    raise Refusal(-101)
                if flags & 2:
                    path += f"{self.nodes[parent]['made']:010d}"
                if path in self.nodes:
                    raise Refusal(-110)
                if self.nodes[parent]["owner"]:
                    raise Refusal(-108)
                self.nodes[path] = self._new(data, session if flags & 1 else 0)
                self.nodes[parent]["made"] += 1
                return path
            case Delete(path, version):
                self._expect(path, version)
                if self.children(path):
                    raise Refusal(-111)
                del self.nodes[path]
            case SetData(path, data, version):
                self._expect(path, version)
                self.nodes[path]["data"] = data
                self.nodes[path]["version"] += 1
            case Check(path, version):
                self._expect(path, version)
        return op.path

    def end(self, session: int) -> None:
        for path in [p for p, node in self.nodes.items() if node["owner"] == session]:
            del self.nodes[path]

    def _expect(self, path: str, version: int) -> None:
        if path not in self.nodes:
            raise Refusal(-101)
        if version not in (-1, self.nodes[path]["version"]):
            raise Refusal(-103)
