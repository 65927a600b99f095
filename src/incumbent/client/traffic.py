"""Requests from their submission to their outcome.

Rule of this file: each request gets exactly one outcome, within its deadline, and it is true:
the answer; `NotSent`, if it never left; `FateUnknown`, if it left and no answer came. Reads are
sent again on the next connection; what may change something never is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from incumbent.client.calls import Backlog, Call, Deadlines
from incumbent.client.chroot import Chroot
from incumbent.client.connection import Connection
from incumbent.client.ephemerals import Ephemerals
from incumbent.client.watches import Watcher, Watches
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NotSent,
    Refused,
    SessionExpired,
    TooLarge,
    refusal,
)
from incumbent.wire import (
    MAX_FRAME,
    Err,
    Multi,
    MultiRead,
    OpError,
    ReplyHeader,
    Request,
    SetWatches,
    SetWatches2,
    Xid,
)
from incumbent.wire.jute import Reader

__all__ = ["MAX_MULTI", "Traffic", "outcome"]

MAX_MULTI = 256 * 1024
"""Bytes of a multi."""

_WRITE = 1024 * 1024  # bytes given to the transport at once
_UNDONE = (Refused, NotSent)


def outcome(request: Request, header: ReplyHeader, reader: Reader) -> Any:
    """A reply's value, or the `Refused` that it means. Raises `RemoteWireError`."""
    if header.err:
        return refusal(header.err, request.where)
    value = request.decode_answer(reader)
    if isinstance(request, Multi):
        codes = [part.code if isinstance(part, OpError) else 0 for part in value]
        for wanted in (lambda code: code not in (0, Err.RUNTIME_INCONSISTENCY), bool):
            for index, code in enumerate(codes):
                if wanted(code):
                    error = refusal(code, request.ops[index].path)
                    error.index = index
                    return error
    if isinstance(request, MultiRead):
        return [
            refusal(part.code, op.path) if isinstance(part, OpError) else part
            for op, part in zip(request.ops, value, strict=True)
        ]
    return value


class Traffic:
    """The line of requests of one client, over all its connections and sessions."""

    def __init__(
        self,
        default_timeout: float,
        watches: Watches,
        why_not: Callable[[], str],
        log: Callable[[str], None],
    ) -> None:
        """`why_not` tells why there is no connection, for the message of `NotSent`."""
        self._watches = watches
        self._log = log
        self.ephemerals = Ephemerals()
        self._default_timeout = default_timeout
        self._why_not = why_not
        self._backlog = Backlog()
        self._deadlines = Deadlines(self._overdue)
        self._connection: Connection | None = None
        self._pump_handle: asyncio.Handle | None = None

    def submit(
        self,
        request: Request,
        *,
        timeout: float | None,
        watcher: Watcher | None,
        root: Chroot | None = None,
        future: asyncio.Future[Any] | None = None,
        told: Callable[[Any], None] | None = None,
    ) -> Call:
        """Put it in the line; what one turn of the loop submits leaves in one write.

        `root`: the request's paths are below it. None: they are the server's. `future` gets the
        outcome, or `told` is called with it.
        """
        loop = asyncio.get_running_loop()
        call = Call(request, b"", future, told=told, root=root)
        try:
            call.wanted = call.request = request if root is None else root.request(request)
            if watcher is not None:
                call.request = self._watches.asks(call.wanted)
                call.watcher = watcher
            call.body = call.request.encode(0)
            self._admit(call)
        except IncumbentError as error:
            self.settle(call, error)
            return call
        self._backlog.append(call)
        limit = self._default_timeout if timeout is None else timeout
        self._deadlines.add(call, limit, loop)
        if self._connection is not None and self._pump_handle is None:
            self._pump_handle = loop.call_soon(self.pump)
        return call

    def resume(self, connection: Connection) -> None:
        """A connection is up: send what waits, in order."""
        self._connection = connection
        self.pump()

    def suspend(self, unanswered: Sequence[Call], why: str) -> None:
        """It is down, with these calls unanswered."""
        self._connection = None
        reads, others = [], []
        for call in unanswered:
            if call.is_read and call.then is None and not call.is_over:
                call.sent_at = None
                reads.append(call)
            else:
                others.append(call)
        self._backlog.put_back(reads)
        for call in others:
            self.settle(call, FateUnknown(str(call), f"the connection was lost ({why})"))

    def end(
        self, unanswered: Sequence[Call], why: str, error: IncumbentError
    ) -> Callable[[], None]:
        """The session is over. Takes every call out; the result gives them their outcome.

        What was sent and changes something has an unknown fate, unless `error` is the caller's
        own doing (`SessionClosed`).
        """
        self._connection = None
        self.ephemerals = Ephemerals()
        waiting = self._backlog.take_all()

        def tell() -> None:
            for call in unanswered:
                is_moot = call.is_read or not isinstance(error, SessionExpired)
                self.settle(call, error if is_moot else FateUnknown(str(call), why))
            for call in waiting:
                self.settle(call, error)

        self._deadlines.end()
        return tell

    def send_own(
        self,
        connection: Connection,
        request: Request,
        then: Callable[[Call, object], None],
        xid: Xid | None = None,
    ) -> None:
        """A request of the client's own, at once, behind what was submitted before. `then` gets
        the answer, or a `Refused`; if the connection ends before, nobody is told."""
        if xid is None:
            self.pump()
        if connection.is_open:
            connection.send([Call(request, request.encode(0), then=then)], xid)

    def set_watches(self, connection: Connection, last_zxid: int) -> None:
        """A connection is coming up, and its server knows none of our watches."""

        def then(call: Call, value: object) -> None:
            if isinstance(value, Exception):
                self._log(f"watches were not set again: {value}")
                connection.drop("watches were not set again")
                return
            assert isinstance(call.request, SetWatches | SetWatches2)
            surplus = self._watches.set_again(call.request)
            if call.request is last:
                self._watches.look_again()
            self.send_all(connection, surplus)

        requests = list(self._watches.requests(last_zxid))
        last = requests[-1] if requests else None
        for request in requests:
            self.send_own(connection, request, then, Xid.SET_WATCHES)

    def watch_answered(
        self, connection: Connection, call: Call, value: object, last_zxid: int
    ) -> None:
        """This call asked for a watch: whoever waits for it waits from now on."""
        watcher, call.watcher = None if call.is_over else call.watcher, None
        self.send_all(
            connection,
            self._watches.answered(call.wanted, call.request, value, watcher, last_zxid),
        )

    def send_all(self, connection: Connection, requests: Sequence[Request]) -> None:
        """Requests that make the server's watches what they have to be."""

        def then(call: Call, value: object) -> None:
            self.send_all(connection, self._watches.carried_out(call.request))

        if requests:
            self.pump()
        for request in requests:
            xid = Xid.SET_WATCHES if isinstance(request, SetWatches) else None
            self.send_own(connection, request, then, xid)

    def settle(self, call: Call, value: Any) -> None:
        """The call's outcome, a value or an exception. Only the first one counts."""
        if call.limit is not None:
            self._deadlines.met(call)
        if call.watcher is not None:
            call.watcher = None
            self._watches.given_up(call.wanted)
        if not isinstance(value, Exception):
            self.ephemerals.done(call.request, value, call.reserved)
        elif isinstance(value, _UNDONE):
            self.ephemerals.release(call.reserved)
        call.reserved = 0
        if call.root is not None and not call.is_over:
            value = call.root.answer(call.request, value)
        self._finish(call, value)

    def pump(self) -> None:
        """Send what waits, as far as the connection takes it."""
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        connection = self._connection
        if connection is None:
            return
        while self._backlog and connection.is_open and not connection.is_paused:
            calls = self._backlog.take(_WRITE)
            for call in calls:
                if call.is_over:
                    self.settle(call, NotSent(str(call), "nobody awaits it any more"))
            awaited = [call for call in calls if not call.is_over]
            if awaited:
                connection.send(awaited)

    def _admit(self, call: Call) -> None:
        limit = MAX_MULTI if isinstance(call.request, Multi) else MAX_FRAME
        if len(call.body) > limit:
            raise TooLarge(str(call), len(call.body), limit)
        if not self._backlog.has_room_for(call):
            raise NotSent(str(call), f"{len(self._backlog)} requests wait to be sent already")
        call.reserved = self.ephemerals.reserve(call.request)

    def _overdue(self, call: Call, limit: float) -> None:
        self._backlog.discard(call)
        if call.sent_at is None:
            self.settle(
                call, NotSent(str(call), f"no connection within {limit:g} s ({self._why_not()})")
            )
        else:
            self._finish(call, FateUnknown(str(call), f"no answer within {limit:g} s"))

    def _finish(self, call: Call, value: Any) -> None:
        try:
            call.finish(value)
        except Exception as error:  # a stranger's code: it must not harm the connection
            self._log(f"who was told of {call} failed: {error!r}")
