"""One TCP connection to one server, from the handshake to its end.

Rule of this file: answers come in the order of the requests. A reply under any other xid than
the oldest request's, or bytes that are not the protocol, end the connection; nothing is guessed.

The watchdog: nothing heard for `silence` seconds while an answer is outstanding ends the
connection too. It looks at what comes in only, so a caller that keeps sending cannot hide a
dead link. Its timer is a hint, the clock decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from incumbent.client.answers import Answers, Oversize
from incumbent.client.calls import Call
from incumbent.clock import Clock
from incumbent.errors import AnswerTooLarge, RemoteWireError
from incumbent.wire import (
    MAX_FRAME,
    ConnectRequest,
    ConnectResponse,
    ReplyHeader,
    WatchEvent,
    Xid,
    frame,
)
from incumbent.wire.jute import Reader

__all__ = ["Connection", "ConnectionFailed", "Link", "Xids", "words"]

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer that we accept; a server's own limit on requests does not bind answers."""

_REFUSAL = 16  # bytes of a bare header: how a server for reading only refuses (Apache 3.8)
_BUFFER = 1024 * 1024  # bytes that may wait for the socket before callers' requests stay with us


class ConnectionFailed(Exception):
    """A connection ended, or never came to be. Its text says why; inside this package only."""


class Xids:
    """1, 2, 3, … 2^31 - 1, 1, …: the negative ones have meanings of their own."""

    __slots__ = ("_next",)

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        xid = self._next
        self._next = 1 if xid >= 2**31 - 1 else xid + 1
        return xid


class Link(Protocol):
    """Whom a connection tells. All are called on the loop and none may block."""

    def heard(self, connection: Connection) -> bool:
        """Bytes have come. False: the session is over, they are not looked at."""

    def answered(
        self, connection: Connection, call: Call, header: ReplyHeader, reader: Reader
    ) -> None: ...

    def unreadable(self, connection: Connection, call: Call, error: RemoteWireError) -> None:
        """This call's answer is one that we don't take."""

    def fired(self, connection: Connection, event: WatchEvent) -> None: ...

    def may_write(self, connection: Connection) -> None: ...

    def dropped(self, connection: Connection, why: str, unanswered: Sequence[Call]) -> None:
        """The connection is over; said once."""


class Connection(asyncio.Protocol):
    """A connection for `loop.create_connection`. It sends its ConnectRequest by itself.

    last_word  a request that goes with it, in one write, before anything is known of the answer
    response   what the server answered to it; raises `ConnectionFailed`
    gone       done, with the reason, when the connection is over
    """

    def __init__(
        self,
        link: Link,
        hello: ConnectRequest,
        *,
        clock: Clock,
        silence: float,
        xids: Xids,
        last_word: Call | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.response: asyncio.Future[ConnectResponse] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self.is_paused = False
        self.hello_at = 0.0
        """When the ConnectRequest was sent."""
        self.sent_at = 0.0
        """When anything was sent last."""
        self._silence = silence
        self._link = link
        self._hello = hello
        self._last_word = last_word
        self._clock = clock
        self._xids = xids
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answers = Answers(MAX_FRAME, passes=False)
        self._pending: deque[tuple[int, Call]] = deque()
        self._special: dict[int, deque[Call]] = {}
        self._watchdog: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0

    @property
    def is_open(self) -> bool:
        return (
            not self.gone.done()
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def send(self, calls: Sequence[Call], xid: Xid | None = None) -> None:
        """Send these, in one write. `xid`: one of those with a meaning, else the next ones."""
        assert self._transport is not None
        now = self._clock.boottime()
        if not self._pending and not any(self._special.values()):
            self._quiet_since = now
        frames = []
        for call in calls:
            call.sent_at = now
            if xid is None:
                number = next(self._xids)
                self._pending.append((number, call))
            else:
                number = xid
                self._special.setdefault(xid, deque()).append(call)
            frames.append(call.frame(number))
        self.sent_at = now
        self._transport.write(b"".join(frames))
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._silence, self._look)

    def take_unanswered(self) -> list[Call]:
        """Every call without an answer, oldest first; they are no longer this connection's."""
        calls = [call for queue in self._special.values() for call in queue]
        calls += [call for _, call in self._pending]
        self._special.clear()
        self._pending.clear()
        return calls

    def drop(self, why: str) -> None:
        """End it now; whatever waits in buffers is not sent."""
        self._finish(why)
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.gone.done():  # given up while it was being made
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_BUFFER)
        self.hello_at = self.sent_at = self._clock.boottime()
        hello = frame(self._hello.encode())
        if self._last_word is None:
            self._transport.write(hello)
            return
        self._last_word.sent_at = self.hello_at
        self._pending.append((next(self._xids), self._last_word))
        self._transport.write(hello + self._last_word.frame(self._pending[0][0]))

    def data_received(self, data: bytes) -> None:
        if self.gone.done() or not self._link.heard(self):
            return
        self._quiet_since = self._clock.boottime()
        try:
            for body in self._answers.feed(data):
                if isinstance(body, Oversize):
                    self._throw_away(body)
                else:
                    self._take(body)
                if self.gone.done():
                    return
        except RemoteWireError as error:
            self.drop(f"it broke the protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish("the server closed the connection" if exc is None else words(exc))

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._link.may_write(self)

    # Its own.

    def _take(self, body: bytes) -> None:
        if not self.response.done():
            if len(body) == _REFUSAL:
                code = ReplyHeader.read(Reader(body)).err
                self.drop(f"it refused to make a session (code {code})")
                return
            self.response.set_result(ConnectResponse.decode(body))
            self._answers.limit(MAX_ANSWER, passes=True)
            return
        reader = Reader(body)
        header = ReplyHeader.read(reader)
        if self._pending and self._pending[0][0] == header.xid:
            self._link.answered(self, self._pending.popleft()[1], header, reader)
        elif header.xid == Xid.EVENT:
            self._link.fired(self, WatchEvent.read(reader))
        elif queue := self._special.get(header.xid):
            self._link.answered(self, queue.popleft(), header, reader)
        else:
            expected = self._pending[0][0] if self._pending else "none"
            raise RemoteWireError(f"a reply to xid {header.xid}, expected {expected}")

    def _throw_away(self, answer: Oversize) -> None:
        """Whoever asked is told, once: asking again would only bring it again."""
        if not self._pending:
            raise RemoteWireError(f"a frame of {answer.size} bytes that nobody asked for")
        call = self._pending.popleft()[1]
        self._link.unreadable(self, call, AnswerTooLarge(str(call), answer.size, MAX_ANSWER))

    def _look(self) -> None:
        self._watchdog = None
        if not self._pending and not any(self._special.values()):
            return
        quiet = self._clock.boottime() - self._quiet_since
        if quiet >= self._silence:
            self.drop(f"nothing heard for {quiet:.3g} s with an answer outstanding")
        else:
            self._watchdog = self._loop.call_later(self._silence - quiet, self._look)

    def _finish(self, why: str) -> None:
        if self.gone.done():
            return
        self.gone.set_result(why)
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if not self.response.done():
            self.response.set_exception(ConnectionFailed(why))
            self.response.exception()  # whoever gave up waiting need not hear of it
        self._link.dropped(self, why, self.take_unanswered())


def words(error: Exception) -> str:
    """A connection's error in few words: "connection refused"."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
