"""A client's own root: it sees `/app/x` as `/x`, in every request, answer, error and event.

Rule of this file: pure, and both ways. Below a root nothing above it can be named: a path that
does not begin with / is refused here, since no server would see what was meant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from incumbent.errors import BadArguments, Refused
from incumbent.wire import (
    Created,
    GetEphemerals,
    Multi,
    MultiRead,
    Request,
    WatchEvent,
)

__all__ = ["Chroot"]


class Chroot:
    """Paths as the caller names them, and as the server knows them.

    path  "" for none, else a whole path without a slash at its end
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def down(self, path: str) -> str:
        """The server's name. Raises `BadArguments`."""
        if not self.path:
            return path
        if not path.startswith("/"):
            raise BadArguments(path)
        return self.path if path == "/" else self.path + path

    def up(self, path: str) -> str:
        """The caller's name."""
        if path == self.path:
            return "/"
        return path.removeprefix(self.path) if path.startswith(f"{self.path}/") else path

    def request(self, request: Request) -> Request:
        """As the server is to see it. Raises `BadArguments`."""
        if isinstance(request, Multi | MultiRead):
            ops: list[Any] = [self.request(op) for op in request.ops]
            return type(request)(ops)
        if isinstance(request, GetEphemerals):
            return replace(request, prefix=self._prefix(request.prefix))
        if request.where:
            return replace(request, path=self.down(request.where))  # type: ignore[type-var]
        if hasattr(request, "path"):
            raise BadArguments(request.where)
        return request

    def answer(self, request: Request, value: Any) -> Any:
        """What came for a request of ours, refusals included, as the caller is to see it."""
        if isinstance(value, Refused):
            value.path = self.up(value.path)
            value.args = (value.path, value.code)
            return value
        if isinstance(value, Exception):
            return value
        if isinstance(request, Multi | MultiRead):
            return [self.answer(op, each) for op, each in zip(request.ops, value, strict=True)]
        if isinstance(value, Created):
            return value._replace(path=self.up(value.path))
        if isinstance(value, str):  # the path made by a create, or looked at by a sync
            return self.up(value)
        if isinstance(request, GetEphemerals):
            return [self.up(path) for path in value if self._is_mine(path)]
        return value

    def event(self, event: WatchEvent) -> WatchEvent:
        return replace(event, path=self.up(event.path)) if event.path and self.path else event

    def _prefix(self, prefix: str) -> str:
        """Not a path: `/a` means `/ab` too."""
        if prefix and not prefix.startswith("/"):
            raise BadArguments(prefix)
        return self.path + prefix

    def _is_mine(self, path: str) -> bool:
        return path.startswith(f"{self.path}/")
