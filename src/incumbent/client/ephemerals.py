"""How many bytes the paths of a session's ephemerals have, so that closing it stays possible.

closeSession logs every path in one transaction: 2.5 MB of them stopped an Apache ensemble and
made its database unloadable (measured). So one session may have 512 KB.

Rule of this file: when in doubt a path counts. A create whose answer was lost stays counted
until the session ends; a session taken over from another process counts from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from incumbent.errors import TooLarge
from incumbent.wire import Create, Create2, Created, CreateFlag, Delete, Multi, MultiOp, Request

__all__ = ["MAX_EPHEMERAL_BYTES", "Ephemerals"]

MAX_EPHEMERAL_BYTES = 512 * 1024

_CREATES = (Create, Create2)
_MAKERS = (*_CREATES, Multi)
_CHANGERS = (*_MAKERS, Delete)
_SUFFIX = 10  # digits of a sequence number


class Ephemerals:
    """The ephemerals of one session as far as this client knows them."""

    __slots__ = ("_limit", "_sizes", "total")

    def __init__(self, limit: int = MAX_EPHEMERAL_BYTES) -> None:
        self._limit = limit
        self._sizes: dict[str, int] = {}
        self.total = 0

    def reserve(self, request: Request) -> int:
        """Bytes that the request may add, counted from now on. Raises `TooLarge`."""
        if not isinstance(request, _MAKERS):
            return 0
        size = sum(map(_size, _parts(request)))
        if size and self.total + size > self._limit:
            what = f"{request.op.name.lower()} {request.where}: with all ephemeral paths of this session"
            raise TooLarge(what, self.total + size, self._limit)
        self.total += size
        return size

    def release(self, reserved: int) -> None:
        """Nothing was made."""
        self.total -= reserved

    def done(self, request: Request, value: object, reserved: int) -> None:
        """The request was carried out with this answer."""
        self.total -= reserved
        if not isinstance(request, _CHANGERS):
            return
        parts = _parts(request)
        answers: Iterable[object] = (value,)
        if isinstance(request, Multi) and isinstance(value, Sequence):
            answers = value
        for part, answer in zip(parts, answers, strict=False):
            if isinstance(part, Delete):
                self.gone(part.path)
            elif _size(part):
                path = answer.path if isinstance(answer, Created) else answer
                if isinstance(path, str) and path not in self._sizes:
                    self._sizes[path] = len(path.encode())
                    self.total += self._sizes[path]

    def gone(self, path: str) -> None:
        self.total -= self._sizes.pop(path, 0)


def _parts(request: Request) -> Sequence[Request | MultiOp]:
    return request.ops if isinstance(request, Multi) else (request,)


def _size(request: Request) -> int:
    if not isinstance(request, _CREATES) or not request.flags & CreateFlag.EPHEMERAL:
        return 0
    return len(request.path.encode()) + _SUFFIX * bool(request.flags & CreateFlag.SEQUENTIAL)
