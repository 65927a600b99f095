"""Mishaps to order: which requests are met by one, and what then becomes of them.

Rule of this file: a mishap changes when it is met and by nothing else; what it does to bytes is
the line's work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

from incumbent.wire import Op, Request

__all__ = ["Fate", "Mishap", "Mishaps"]

_FAMILIES: dict[str, tuple[Op, ...]] = {
    "create": (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL),
    "get_children": (Op.GET_CHILDREN, Op.GET_CHILDREN2),
    "set_watches": (Op.SET_WATCHES, Op.SET_WATCHES2),
}
"""Names that stand for every form of an operation; any other name of `Op` stands for itself."""


class Fate(Enum):
    """What becomes of a request."""

    REQUEST_LOST = "request lost"
    """It never reaches the server; the connection is cut."""
    REPLY_LOST = "reply lost"
    """It is carried out; the connection is cut in place of its reply."""
    REFUSED = "refused"
    """It is not carried out; its reply is an error code."""
    LATE = "late"
    """It, and what was sent after it, reaches the server after a delay."""


class Mishap:
    """One that was ordered; a context manager that cancels it at the end.

    met       requests that matched so far
    happened  of these, how many it befell
    """

    def __init__(
        self,
        fate: Fate,
        *,
        op: str | Op | None,
        path: str | None,
        session_id: int | None,
        nth: int,
        times: int,
        code: int = 0,
        seconds: float = 0.0,
    ) -> None:
        assert nth >= 1, "the first request that matches is number 1"
        self.fate = fate
        self.code = code
        self.seconds = seconds
        self.met = 0
        self.happened = 0
        self._ops = _ops(op)
        self._path = path
        self._session_id = session_id
        self._span = range(nth, nth + times)
        self._is_cancelled = False
        self._changed = threading.Condition()

    def __enter__(self) -> Mishap:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """It befalls nothing from now on."""
        with self._changed:
            self._is_cancelled = True

    def wait(self, timeout: float = 10.0, *, times: int = 1) -> None:
        """Return once it happened so many times. Raises `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.happened >= times, timeout):
                raise TimeoutError(
                    f"waited {timeout:g} s for {self!r} to happen {times} times, it met "
                    f"{self.met} requests and befell {self.happened}"
                )

    def is_met_by(self, session_id: int, op: int, paths: Iterable[str]) -> bool:
        """Count a request that is about to reach the server; does it befall this one?"""
        if op not in self._ops or self._session_id not in (None, session_id):
            return False
        if self._path is not None and not any(fnmatchcase(path, self._path) for path in paths):
            return False
        with self._changed:
            if self._is_cancelled:
                return False
            self.met += 1
            return self.met in self._span

    def befell(self) -> None:
        """It happened to one more."""
        with self._changed:
            self.happened += 1
            self._changed.notify_all()

    def __repr__(self) -> str:
        where = f" on {self._path}" if self._path else ""
        return f"<mishap: {self.fate.value}{where}>"


class Mishaps:
    """All that were ordered from one server. The first that a request meets decides."""

    def __init__(self) -> None:
        self._all: list[Mishap] = []

    def order(self, fate: Fate, **what: Any) -> Mishap:
        mishap = Mishap(fate, **what)
        self._all = [*self._all, mishap]  # replaced, never changed: another thread may be reading
        return mishap

    def meet(self, session_id: int, op: int, request: Request | None) -> Mishap | None:
        """What befalls a request, if anything; each mishap that it matches counts it."""
        if not self._all:
            return None
        ops = getattr(request, "ops", None)
        paths = [request.where] if request and ops is None else [one.path for one in ops or ()]
        met = [mishap for mishap in self._all if mishap.is_met_by(session_id, op, paths)]
        return met[0] if met else None


def _ops(op: str | Op | None) -> frozenset[int]:
    """Of no name, every operation but a ping: a client sends these when it likes."""
    if op is None:
        return frozenset(set(Op) - {Op.PING})
    if isinstance(op, Op):
        return frozenset({op})
    if op in _FAMILIES:
        return frozenset(_FAMILIES[op])
    if op.upper() not in Op.__members__:
        names = ", ".join(sorted(name.lower() for name in Op.__members__))
        raise ValueError(f"{op!r} is no operation; there are {names}")
    return frozenset({Op[op.upper()]})
