"""The asyncio client: one session, from `connect` to `close` or `detach`.

Rule of this file: every way in looks first whether there is still something to talk to: not
connected yet, closed, or a child of the process that made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from incumbent.client.acls import AclOf, dressed
from incumbent.client.calls import Call
from incumbent.client.connection import ConnectionFailed
from incumbent.client.events import Events
from incumbent.client.handshake import SASL_SCHEMES
from incumbent.client.passport import Passport
from incumbent.client.session import Session
from incumbent.client.states import State
from incumbent.client.verbs import Verbs
from incumbent.client.watches import Watcher
from incumbent.errors import (
    AuthFailed,
    ConnectTimeout,
    IncumbentError,
    NotSent,
    SessionClosed,
    SessionError,
    SessionExpired,
)
from incumbent.wire import AddWatch, AuthPacket, CloseSession, Request, WatchMode, Xid

__all__ = ["Client"]

_NOT_YET = "it is not connected yet"


class Client(Session, Verbs):
    """One session with a ZooKeeper ensemble or with `incumbent server`.

    hosts            "host:port,host:port"; looked up at each attempt to connect
    session_timeout  seconds, fixed for the life of this client; the server may grant less
    clock, rng       the world's; given by tests and simulations
    tick             the ensemble's tickTime in seconds, 0.0 for a standalone server (then a beat
                     counts from its sending), None if unknown (then taken for half a session)
    auth             credentials as (scheme, bytes), presented on every connection; the scheme
                     `sasl` with `name:password` is SASL DIGEST-MD5, `gssapi` with a principal, or
                     b"" for that of the tickets, is Kerberos (the extra `gssapi`). One of scheme
                     `digest` is refused (`AuthFailed`) beyond this machine without TLS
    tls              encrypt: `incumbent.client.tls.context(…)`, or another SSLContext
    insecure         let digest credentials go in clear text all the same
    read_only        be content with a server that is cut off from its ensemble: state READ_ONLY
    chroot           what is / to the caller: "" or a whole path
    resume           another process's session to go on with; its timeout and auth are used
    request_timeout  total deadline of a call in seconds, also while there is no connection;
                     the session timeout by default
    on_lost          awaited when a session is LOST, before the old one is closed and a new one
                     begins: returns when nothing of the old one lives on. If it raises, the
                     client is CLOSED
    log              gets one line per noteworthy thing; by default the logger incumbent.client

    Everything happens on the loop that runs `connect`, and from that loop only it may be used.
    """

    acl_of: AclOf | None = None
    """For new znodes whose maker names no ACL; None: then they are open to everybody."""

    @property
    def last_zxid(self) -> int:
        """The newest transaction that this session has seen."""
        return self._session.last_zxid

    @property
    def passport(self) -> Passport:
        """What another process needs to go on with this session. Raises `SessionError`."""
        if self._cell.now is State.CLOSED or self._session.id == 0:
            raise SessionClosed(self.session_id, "there is no session to hand over")
        if self.state is State.LOST:
            raise SessionExpired(self.session_id, "it is over, there is nothing to hand over")
        return Passport(
            session_id=self._session.id,
            password=self._session.password,
            timeout_ms=self._handshake.timeout_ms,
            s_min_ms=round(self.timeout * 1000),
            last_zxid=self._session.last_zxid,
            auth=self._handshake.access.auth,
            generation=self.generation,
        )

    async def connect(self, timeout: float) -> None:
        """Begin. Returns when CONNECTED. Raises `ConnectTimeout`, `AuthFailed`.

        After an exception the client is CLOSED; a session that was to be resumed lives on.
        """
        if (why := self._why_unusable()) != _NOT_YET:
            raise SessionClosed(self.session_id, why or "a client connects once; make another one")
        loop = self._loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._task = loop.create_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                await self._first
        except TimeoutError:
            await self._abandon("it never connected")
            raise ConnectTimeout(timeout, self._dialer.report) from None
        except BaseException:
            await self._abandon("it never connected")
            raise

    async def close(self) -> bool:
        """End the session, within S/5; whatever is pending then gets `SessionClosed`.

        If no server could be told in time, the session simply expires: False. Closing twice is no
        error.
        """
        if not self.is_ours:
            return False  # the connection is another process's
        loop = self.here()
        is_first, self._is_closing = not self._is_closing, True
        if is_first and self._task is not None and self._is_live:
            try:
                closed: asyncio.Future[Any] = loop.create_future()
                self._traffic.submit(
                    CloseSession(), timeout=self.numbers.silence, watcher=None, future=closed
                )
                await closed
            except IncumbentError as error:
                self._log(f"session {self.session_id:#x} was not closed, it will expire: {error}")
                return False
            finally:
                await self._abandon("it was closed")
        elif is_first:
            await self._abandon("it was closed")
        elif self._task is not None:
            await asyncio.wait([self._task])
        return True

    def detach(self) -> Passport:
        """Drop the connection, keep the session, hand it over; CLOSED. Raises `SessionError`."""
        if not self.is_ours:
            raise SessionClosed(self.session_id, self._why_unusable())
        self.here()
        passport = self.passport
        self._end("its session was handed over")
        return passport

    def submit(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        watcher: Watcher | None = None,
        absolute: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request, in order; several in a row go out as one flight.

        Without a connection it waits for one. Within `timeout` seconds (`request_timeout`) the
        future has the answer's value or raises a subclass of `Refused`, `NotSent`, `FateUnknown`,
        `SessionExpired` or `SessionClosed`; reads are repeated after a dropped connection.
        `watcher` goes with a read that has `watch` set, or an `AddWatch`; it is registered when
        the answer comes. `absolute`: the paths are not below the chroot.
        """
        future: asyncio.Future[Any] = self.here().create_future()
        if why := self._why_unusable():
            future.set_exception(self._unusable(why))
            return future
        self._look()
        if self.acl_of is not None:
            request = dressed(request, self.acl_of, str if absolute else self.root.down)
        root = None if absolute or not self.root.path else self.root
        self._traffic.submit(request, timeout=timeout, watcher=watcher, root=root, future=future)
        return future

    def ask(
        self, request: Request, told: Callable[[Any], None], *, watcher: Watcher | None = None
    ) -> Call:
        """As `submit`, for whoever needs no future and no turn of the loop: `told` is called
        once, with the answer's value or with the error, in the moment in which it is known, which
        may be now. It must not block; what it raises is logged.

        After `cancel()` of what this returns nobody is told, and what was not sent never is.
        """
        self.here()
        if why := self._why_unusable():
            call = Call(request, b"", told=told)
            call.finish(self._unusable(why))
            return call
        self._look()
        if self.acl_of is not None:
            request = dressed(request, self.acl_of, self.root.down)
        root = self.root if self.root.path else None
        return self._traffic.submit(request, timeout=None, watcher=watcher, root=root, told=told)

    def flush(self) -> None:
        """Send what was submitted in this turn of the loop now, and not at its end."""
        self.here()
        self._traffic.pump()

    @asynccontextmanager
    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[Events]:
        """Every event on a znode, whether or not it exists, as a stream; `recursive`: and on
        all below it, but then no CHILD events.

        An event of type NONE says that some may be missing, after a reconnect: look again.
        """
        events = Events(self._over)
        async with self.watching(path, events.put, recursive=recursive):
            yield events

    @asynccontextmanager
    async def watching(
        self, path: str, watcher: Watcher, *, recursive: bool = False
    ) -> AsyncIterator[None]:
        """While open, the watcher hears what `watch` tells; in the end SESSION_OVER, if then."""
        mode = WatchMode.RECURSIVE if recursive else WatchMode.PERSISTENT
        try:  # also when cancelled just after the answer has come
            await self.submit(AddWatch(path, mode), watcher=watcher)
            yield
        finally:
            self.unwatch(path, watcher)

    async def add_auth(self, scheme: str, credential: bytes) -> None:
        """Present one more credential, now and on every connection to come.

        Raises `NotSent` without a connection, and `AuthFailed`: then the server ends the
        connection, and the credential is not presented again.
        """
        self.here()
        connection, host = self._connection, self._handshake.host
        if self._why_unusable() or connection is None or host is None:
            raise NotSent(f"a credential of scheme {scheme}", "there is no connection")
        self._handshake.refuse_clear_text(scheme, host, self.session_id)
        if scheme in SASL_SCHEMES:
            raise AuthFailed(self.session_id, "SASL comes first on a connection: say auth=")
        packet = AuthPacket(0, scheme, credential)
        try:
            answer = await self._handshake.ask(connection, packet, Xid.AUTH)
        except ConnectionFailed as error:
            raise NotSent(f"a credential of scheme {scheme}", str(error)) from None
        if isinstance(answer, Exception):
            raise AuthFailed(self.session_id, f"a credential of scheme {scheme} was refused")
        self._handshake.access.auth += ((scheme, credential),)

    def beat(self, path: str) -> AbstractContextManager[None]:
        """While open, the session beats with multi[check(path)] every S/10.

        `path` is an ephemeral of this session; opened again it counts. `lease.valid_until` grows
        with each acknowledged beat, and the session is LOST when it has passed.
        """
        self.here()
        return self._beats.open(self.root.down(path))

    def watch_state(self, listener: Callable[[State], None]) -> Callable[[], None]:
        """Call `listener` at each change of state; the result takes it off again."""
        return self._cell.watch(listener)

    def watch_beats(self, listener: Callable[[float], None]) -> Callable[[], None]:
        """Call `listener(sent_at)` at each acknowledged beat; the result takes it off again."""
        return self._beats.watch(listener)

    def unwatch(self, path: str, watcher: Watcher) -> None:
        """Nobody waits for this any more: forget the watcher, here and at the server.

        No error if it is not there.
        """
        if not self.is_ours:
            return
        self.here()
        requests = self._watches.remove(self.root.down(path), watcher, self.last_zxid)
        if self._connection is not None:
            self._traffic.send_all(self._connection, requests)

    def _over(self) -> SessionError:
        if self._cell.now is State.CLOSED:
            return SessionClosed(self.session_id, "the client was closed")
        return SessionExpired(self.session_id, "the session is over")

    def here(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises RuntimeError if it is another one than this client's."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop and self._loop is not None and self.is_ours:
            raise RuntimeError(
                "this client belongs to the event loop that connected it: use it there "
                "(asyncio.run_coroutine_threadsafe), connect another one here, or take the "
                "blocking one of incumbent.connect"
            )
        return loop

    def _unusable(self, why: str) -> SessionClosed:
        return SessionClosed(self.session_id, f"the client cannot be used: {why}")

    def _why_unusable(self) -> str:
        if not self.is_ours:
            return "it was made before this process was forked; connect again here"
        if self._is_closing or self._cell.now is State.CLOSED:
            return "it is closed"
        return _NOT_YET if self._task is None else ""

    async def _abandon(self, why: str) -> None:
        """CLOSED, and nothing left behind: no task, no socket."""
        self._end(why)
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # it was logged where it happened
