"""A request on its way, and the line in which it waits to be sent.

Rule of this file: whether a request has been sent is known at every moment. In the backlog it
has not; once taken out for a connection, it has, until that connection's end puts it back.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from incumbent.client.chroot import Chroot
from incumbent.client.watches import Watcher
from incumbent.wire import (
    AddWatch,
    CheckWatches,
    Create,
    Create2,
    CreateContainer,
    CreateTtl,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Reconfig,
    Request,
    SetAcl,
    SetData,
    Sync,
    WhoAmI,
)

__all__ = ["MAX_BACKLOG_BYTES", "MAX_BACKLOG_CALLS", "Backlog", "Call", "Deadlines"]

MAX_BACKLOG_CALLS = 65_536
MAX_BACKLOG_BYTES = 32 * 1024 * 1024

_HEAD = struct.Struct(">ii")
_WRITES = (
    Create,
    Create2,
    CreateContainer,
    CreateTtl,
    Delete,
    SetData,
    SetAcl,
    Multi,
    Reconfig,
)
_READS = (
    AddWatch,
    CheckWatches,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    MultiRead,
    Sync,
    WhoAmI,
)


class Call:
    """One request and whoever waits for its answer.

    asked     as the caller wrote it; below a chroot and in what is said to people
    wanted    with the server's paths, and the watch that it is to leave behind
    request   as it is sent
    watcher   who waits for that watch, until it is registered or given up
    future    gets the outcome; or else
    told      is called with it, a value or an error, in the moment in which it is known
    then      for the client's own calls (beats, pings): called with the answer's value, or the
              `Refused`, in the moment of the answer
    reserved  path bytes of ephemerals that this call may make
    limit     seconds it was given, until it has an outcome; due_at: when they are over
    """

    __slots__ = (
        "asked",
        "body",
        "due_at",
        "future",
        "limit",
        "request",
        "reserved",
        "root",
        "sent_at",
        "then",
        "timer",
        "told",
        "wanted",
        "watcher",
    )

    def __init__(
        self,
        request: Request,
        body: bytes,
        future: asyncio.Future[Any] | None = None,
        *,
        told: Callable[[Any], None] | None = None,
        root: Chroot | None = None,
        then: Callable[[Call, object], None] | None = None,
    ) -> None:
        self.asked = self.wanted = self.request = request
        self.root = root
        self.body = body
        self.future = future
        self.told = told
        self.watcher: Watcher | None = None
        self.then = then
        self.sent_at: float | None = None
        self.limit: float | None = None
        self.due_at = 0.0
        self.reserved = 0

    @property
    def is_over(self) -> bool:
        """It has its outcome, or nobody awaits it any more."""
        return self.told is None if self.future is None else self.future.done()

    def finish(self, value: Any) -> None:
        """Its outcome, a value or an exception. Not told if it is over."""
        future = self.future
        if future is None:
            told, self.told = self.told, None
            if told is not None:
                told(value)
        elif future.done():
            return
        elif isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)

    def cancel(self) -> None:
        """Whoever was to be told does not await it any more. Not sent yet, it never is."""
        self.told = None

    def frame(self, xid: int) -> bytes:
        """The request under this xid, with the frame's length."""
        return _HEAD.pack(len(self.body), xid) + self.body[4:]

    @property
    def is_read(self) -> bool:
        """It changes nothing, so it may be sent again when the answer was lost."""
        return isinstance(self.request, _READS)

    @property
    def is_write(self) -> bool:
        """A leader asks whether it still has the session before it carries this out."""
        return isinstance(self.request, _WRITES)

    def __str__(self) -> str:
        name = self.asked.op.name.lower()
        return f"{name} {self.asked.where}" if self.asked.where else name


class Backlog:
    """Calls that have not been sent, in order, bounded in number and bytes."""

    __slots__ = ("_bytes", "_calls")

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}  # a set that keeps the order
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._calls)

    def has_room_for(self, call: Call) -> bool:
        return (
            len(self._calls) < MAX_BACKLOG_CALLS
            and self._bytes + len(call.body) <= MAX_BACKLOG_BYTES
        )

    def append(self, call: Call) -> None:
        self._calls[call] = None
        self._bytes += len(call.body)

    def discard(self, call: Call) -> None:
        if call in self._calls:
            del self._calls[call]
            self._bytes -= len(call.body)

    def put_back(self, calls: Iterable[Call]) -> None:
        """These were sent once and go first again. The bounds don't count: they were let in."""
        first = dict.fromkeys(calls)
        self._bytes += sum(len(call.body) for call in first)
        self._calls = first | self._calls

    def take(self, size: int) -> list[Call]:
        """The next calls, up to about `size` bytes, also such as nobody awaits any more."""
        if self._bytes <= size:
            return self.take_all()
        taken: list[Call] = []
        for call in tuple(self._calls):
            if size <= 0:
                break
            self.discard(call)
            taken.append(call)
            size -= len(call.body)
        return taken

    def take_all(self) -> list[Call]:
        calls = list(self._calls)
        self._calls, self._bytes = {}, 0
        return calls


class Deadlines:
    """When calls are overdue: one timer for all that were given the same time, which come due in
    the order in which they came. A timer for each would cost as much as the rest of a call."""

    __slots__ = ("_lines", "_overdue", "_timers")

    def __init__(self, overdue: Callable[[Call, float], None]) -> None:
        """`overdue` is told of a call without an outcome and of the seconds it had."""
        self._overdue = overdue
        self._lines: dict[float, deque[Call]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, call: Call, limit: float, loop: asyncio.AbstractEventLoop) -> None:
        """It has `limit` seconds from now."""
        call.limit = limit
        call.due_at = loop.time() + limit
        line = self._lines.get(limit)
        if line is None:
            line = self._lines[limit] = deque()
            self._timers[limit] = loop.call_at(call.due_at, self._look, limit)
        line.append(call)

    def met(self, call: Call) -> None:
        """It has its outcome."""
        limit, call.limit = call.limit, None
        line = self._lines.get(limit) if limit is not None else None
        while line and line[0].limit is None:
            line.popleft()

    def end(self) -> None:
        """All have theirs."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._lines.clear()

    def _look(self, limit: float) -> None:
        loop = asyncio.get_running_loop()
        line = self._lines[limit]
        now = loop.time()
        while line and (line[0].limit is None or line[0].due_at <= now):
            call = line.popleft()
            if call.limit is not None:
                call.limit = None
                self._overdue(call, limit)
        if line:
            self._timers[limit] = loop.call_at(line[0].due_at, self._look, limit)
        elif self._lines.get(limit) is line:  # what `overdue` called may have ended it all
            del self._lines[limit], self._timers[limit]
