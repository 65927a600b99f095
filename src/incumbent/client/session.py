"""A session kept alive over connections that come and go, and given up in time.

Rule of this file: the session is believed in only while our own clock allows it. Every entry
from outside (bytes, a timer, a caller) looks at the clock first; once `lost_at` has passed the
session is LOST, whatever a server says later.

The life of a session is a straight line: attach somewhere, live until the connection drops,
attach again. LOST ends that line; then comes `on_lost` (the caller's proof that nothing of it
lives on), the old session is closed if only our own clock has ended it, so that our own old
znodes don't stand in our way, and a new one begins. The rules are in
ARCHITECTURE.md, "Session and lease".
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence

from incumbent.client.beats import Beats
from incumbent.client.calls import Call
from incumbent.client.chroot import Chroot
from incumbent.client.connection import Connection, ConnectionFailed
from incumbent.client.dialer import Dialer
from incumbent.client.handshake import Access, Handshake, Identity
from incumbent.client.hosts import Host, parse_hosts
from incumbent.client.passport import Passport
from incumbent.client.states import State, StateCell
from incumbent.client.traffic import Traffic, outcome
from incumbent.client.watches import Watches
from incumbent.clock import SYSTEM, Clock
from incumbent.errors import (
    AuthFailed,
    IncumbentError,
    RemoteWireError,
    SessionClosed,
    SessionExpired,
)
from incumbent.lease import Lease, Numbers
from incumbent.wire import Err, EventType, ReplyHeader, WatchEvent
from incumbent.wire.jute import Reader

__all__ = ["Session"]


class Session:
    """The machinery under `Client`, which says what the arguments mean."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout: float = 10.0,
        clock: Clock = SYSTEM,
        rng: random.Random | None = None,
        tick: float | None = None,
        auth: Sequence[tuple[str, bytes]] = (),
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
        read_only: bool = False,
        chroot: str = "",
        resume: Passport | None = None,
        request_timeout: float | None = None,
        on_lost: Callable[[], Awaitable[None]] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        if not 0 < session_timeout < math.inf:
            raise ValueError(f"session_timeout={session_timeout}: seconds, more than 0")
        if request_timeout is not None and not request_timeout > 0:
            raise ValueError(f"request_timeout={request_timeout}: seconds, more than 0")
        if tick is not None and not 0 <= tick < math.inf:
            raise ValueError(f"tick={tick}: seconds, 0 for a standalone server, None if unknown")
        self.clock = clock
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None  # that of `connect`
        self._log = log or logging.getLogger("incumbent.client").warning
        self._tick = tick
        timeout_ms = resume.timeout_ms if resume else round(session_timeout * 1000)
        auth = tuple(auth) or (resume.auth if resume else ())
        access = Access(auth=auth, tls=tls, is_insecure=insecure)
        rng = rng or random.SystemRandom()
        self._handshake = Handshake(self, clock, rng, timeout_ms, access)
        self._takes_read_only = read_only
        self._on_lost = on_lost
        self._dialer = Dialer(parse_hosts(hosts), clock, rng, self._log)
        self._cell = StateCell(self._log)
        self.root = Chroot(chroot)
        self._watches = Watches(self._log, self.root)
        self._traffic = Traffic(
            request_timeout or timeout_ms / 1000, self._watches, self._dialer.why_not, self._log
        )
        self._beats = Beats(self, self._traffic, clock, self._log)
        self._connection: Connection | None = None
        self.generation = 0
        """+1 at each new session of this client."""
        self._session = self._blank()  # the one that callers see
        self._next = self._session  # the one to attach; another one once that is over
        self._found: Identity | None = None  # one that serves writes, while ours does not
        if resume is not None:
            self._session.id, self._session.password = resume.session_id, resume.password
            self._session.last_zxid = resume.last_zxid
            self._session.lease.granted(resume.s_min_ms / 1000)
            self.generation = resume.generation
        self._proven_at = -math.inf  # sending time of the newest request that was answered
        self._is_closing = False
        self._holds_on = False
        self._lost_to: str = ""  # "us" or "server": whose word ended the session
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._scope: asyncio.Timeout | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = 0.0

    # What callers see.

    @property
    def state(self) -> State:
        """LOST as soon as our own clock says so, even before anyone was told."""
        if self._is_over:
            return State.LOST
        return self._cell.now

    def hold_on(self, holds_on: bool) -> None:
        """From now on only the server's word ends the session, not our own clock: `lease` says as
        before until when it is proven, and must be looked at. Or both end it again, at once if the
        lease is over.
        """
        if holds_on != self._holds_on:
            self._holds_on = holds_on
            self.relied_on()

    @property
    def is_closing(self) -> bool:
        """Has `close` been called?"""
        return self._is_closing

    @property
    def is_ours(self) -> bool:
        """Was it made in this process? What a forked child has is its parent's."""
        return os.getpid() == self._pid

    @property
    def session_id(self) -> int:
        """0 before the first session."""
        return self._session.id

    @property
    def lease(self) -> Lease:
        """The present session's. A new session has a new one, and the old one stays ended."""
        return self._session.lease

    @property
    def timeout(self) -> float:
        """S_min in seconds: the smallest timeout ever granted to this session."""
        return self._session.lease.timeout

    @property
    def numbers(self) -> Numbers:
        """Beat, silence, reconnect, … for this session's timeout."""
        return self._session.numbers

    # The straight line.

    async def _run(self) -> None:
        try:
            while True:
                self._lost_to = ""
                try:
                    async with asyncio.timeout(None) as self._scope:
                        await self._live()
                except TimeoutError:
                    if not self._lost_to:
                        raise  # not our scope's
                finally:
                    self._scope = None
                await self._bury(self._next, self._lost_to)
                self._next, self._found = self._found or self._blank(), None
        except Exception as error:
            self._log(f"session {self.session_id:#x} is given up: {error!r}")
            self._end(f"it failed: {error!r}")
            raise

    async def _live(self) -> None:
        """Attach, live, attach again. Returns, or is cancelled by its scope, when LOST."""
        while not self._lost_to:
            connection = await self._dialer.dial(self._attach, self._next.numbers)
            if connection is not None:
                if self._next.is_read_only:
                    await self._look_for_writable()
                await connection.gone

    async def _look_for_writable(self) -> None:
        """Leave a server that serves reads only as soon as another one serves writes. Cancelled
        by the end of the connection, which is that of the session."""
        self._found = await self._dialer.dial(
            lambda host: self._handshake.find_writable(host, self._blank()), self._next.numbers
        )
        self._lose("server", "it was for reading only, and a server serves writes again")

    async def _attach(self, host: Host) -> Connection | None:
        """One connection to this address, up; None if the server says that the session is over."""
        identity = self._next
        connection, response = await self._handshake.reach(
            host,
            identity,
            identity.last_zxid,
            read_only=self._takes_read_only and identity.id == 0,
        )
        try:
            if response.timeout_ms <= 0:
                self._refused(identity)
                return None
            identity.adopt(response)
            await self._authenticate(connection, host)
            self._up(connection, identity)
        except BaseException:
            connection.drop("given up")
            raise
        return connection

    async def _authenticate(self, connection: Connection, host: Host) -> None:
        try:
            await self._handshake.authenticate(connection, host, self._next.id)
        except AuthFailed as error:
            if self._first is not None and not self._first.done():
                self._first.set_exception(error)
            raise

    def _up(self, connection: Connection, identity: Identity) -> None:
        """The session is attached here: CONNECTED, watches set again, then what waits is sent."""
        if not connection.is_open:
            raise ConnectionFailed("the server closed the connection")
        self._look()
        if self._lost_to:
            raise ConnectionFailed("the session was over when it was granted")
        if not identity.is_read_only:
            identity.lease.attached(connection.hello_at)
        self._proven_at = max(self._proven_at, connection.hello_at)
        if self._cell.now is State.LOST or self.generation == 0:
            self._session = identity
            self._proven_at = connection.hello_at
            self.generation += 1
        self._connection = connection
        self._traffic.set_watches(connection, identity.last_zxid)
        self._arm()
        self._cell.move(State.READ_ONLY if identity.is_read_only else State.CONNECTED)
        if self._connection is connection:  # a listener may have ended it
            self._traffic.resume(connection)
            self._beats.start(connection)
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    # The end of a session.

    @property
    def _is_live(self) -> bool:
        return self._cell.now in (State.CONNECTED, State.READ_ONLY, State.SUSPENDED)

    @property
    def _lost_at(self) -> float:
        """When our own clock ends the session. Whoever relies on beats is bound by the lease
        alone; for the others it is enough that a server answered anything."""
        lease = self.lease
        if self._beats.governs:
            return lease.valid_until
        return max(lease.valid_until, self._proven_at + lease.timeout - lease.margin)

    @property
    def _is_over(self) -> bool:
        """By our own clock."""
        now = self.clock.boottime()
        if now < self._session.lease.valid_until:  # never after `_lost_at`: mostly this is all
            return False
        return self._is_live and not self._holds_on and now >= self._lost_at

    def _look(self) -> None:
        if self._is_over:
            self._lose("us", "our own clock: no proof that it lives for too long")

    def _arm(self) -> None:
        """See to it that a timer looks at the clock when the session would be LOST, or before."""
        if self._holds_on:
            return
        loop = asyncio.get_running_loop()
        due_at = loop.time() + max(0.0, self._lost_at - self.clock.boottime())
        if self._deadline is not None:
            if self._deadline_at <= due_at:
                return
            self._deadline.cancel()
        self._deadline_at = due_at
        self._deadline = loop.call_at(due_at, self._due)

    def _refused(self, identity: Identity) -> None:
        if identity.id == 0:
            raise ConnectionFailed("it refused to make a session")
        if identity is self._session and self._cell.now is not State.LOST and self.generation:
            self._lose("server", "the server's word")
        else:  # made, but never up: nobody knew of it
            self._next = self._blank()
            raise ConnectionFailed("the session was over before it began")

    def _lose(self, whose: str, why: str) -> None:
        """LOST, now. Whoever is called here finds the session over already."""
        self._lost_to = whose
        self._log(f"session {self.session_id:#x} is lost: {why}")
        error = SessionExpired(self.session_id, f"it is over ({why})")
        self._finish(State.LOST, why, error)
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _end(self, why: str) -> None:
        """CLOSED, now; the session itself is not touched."""
        if self._cell.now is State.CLOSED:
            return
        error = SessionClosed(self.session_id, f"the client cannot be used: {why}")
        if self._task is not None:
            self._task.cancel()
        self._finish(State.CLOSED, why, error)
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
            self._first.exception()

    def _finish(self, state: State, why: str, error: IncumbentError) -> None:
        self.lease.end()
        self._beats.end()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        connection, self._connection = self._connection, None
        unanswered = connection.take_unanswered() if connection is not None else []
        tell_callers = self._traffic.end(unanswered, why, error)
        tell_watchers = self._watches.end()
        if connection is not None:
            connection.drop(why)
        self._cell.move(state)
        tell_callers()
        tell_watchers()

    async def _bury(self, identity: Identity, whose: str) -> None:
        """Proof of death first; then nothing of the old session may stand in our way."""
        if self._on_lost is not None:
            await self._on_lost()
        if whose == "us":
            await self._dialer.dial(
                lambda host: self._handshake.close_old(host, identity), identity.numbers
            )

    # What a connection calls.

    def heard(self, connection: Connection) -> bool:
        if connection is self._connection:
            self._look()
            return self._connection is connection
        return True

    def answered(
        self, connection: Connection, call: Call, header: ReplyHeader, reader: Reader
    ) -> None:
        try:
            value = outcome(call.request, header, reader)
        except RemoteWireError as error:
            self.unreadable(connection, call, error)
            raise
        if connection is not self._connection:  # it is not up yet, or closes an old session
            assert call.then is not None
            call.then(call, value)
            return
        if header.err == Err.SESSION_EXPIRED:
            self._lose("server", "the server's word")
            self._traffic.settle(call, SessionExpired(self.session_id, "the server's word"))
            return
        if header.zxid > self._session.last_zxid:
            self._session.last_zxid = header.zxid
        self._proved(call, value)
        if call.then is not None:
            call.then(call, value)
        if call.watcher is not None:
            self._traffic.watch_answered(connection, call, value, self._session.last_zxid)
        self._traffic.settle(call, value)
        if header.err == Err.SESSION_MOVED:
            connection.drop("the session has moved to another connection")

    def _proved(self, call: Call, value: object) -> None:
        """An answer shows that this server knows us; that of a write, that a quorum does."""
        assert call.sent_at is not None
        if call.sent_at == self._proven_at and not call.is_write:
            return  # of one flight the first answer says it all
        now = self.clock.boottime()
        self._proven_at = max(self._proven_at, call.sent_at)
        if call.is_write and not isinstance(value, Exception):
            self.lease.acknowledged(call.sent_at, now)
        else:
            self.lease.touched(call.sent_at, now)

    def fired(self, connection: Connection, event: WatchEvent) -> None:
        if connection is self._connection:
            if event.type is EventType.DELETED:
                self._traffic.ephemerals.gone(event.path)
            self._watches.fire(event)

    def unreadable(self, connection: Connection, call: Call, error: RemoteWireError) -> None:
        self._traffic.settle(call, error)

    def may_write(self, connection: Connection) -> None:
        if connection is self._connection:
            self._traffic.pump()

    def dropped(self, connection: Connection, why: str, unanswered: Sequence[Call]) -> None:
        if connection is not self._connection:
            for call in unanswered:
                call.finish(ConnectionFailed(why))
                if call.future is not None and not call.future.cancelled():
                    call.future.exception()
            return
        self._connection = None
        self._beats.stop()
        self._traffic.suspend(unanswered, why)
        self._look()
        if self._cell.now is State.READ_ONLY:
            self._lose("server", f"it was for reading only, and its connection ended: {why}")
        if self._is_live:
            self._log(f"session {self.session_id:#x}: connection lost: {why}")
            self._dialer.noted(why)
            self._cell.move(State.SUSPENDED)

    # What the heartbeat calls.

    def wake(self) -> bool:
        """Look at the clock. True if connected."""
        self._look()
        return self._connection is not None

    def relied_on(self) -> None:
        """Look at the clock, and set the timer anew: when we would be LOST may have changed."""
        self._look()
        if self._is_live:
            self._arm()

    def _due(self) -> None:
        self._deadline = None
        self.relied_on()

    def _blank(self) -> Identity:
        return Identity(Lease(self._handshake.timeout_ms / 1000, self._tick))
