"""The asyncio client: ZooKeeper's operations as methods.

Rule of this file: a method is one flight. What needs two round trips is a recipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from incumbent.client.passport import Passport
from incumbent.client.session import Session
from incumbent.client.states import State
from incumbent.client.watches import Watcher
from incumbent.errors import (
    ConnectTimeout,
    FateUnknown,
    IncumbentError,
    NodeExists,
    NoNode,
    SessionClosed,
)
from incumbent.wire import (
    ANY_VERSION,
    CloseSession,
    Create2,
    CreateContainer,
    Created,
    CreateFlag,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiOp,
    Request,
    SetData,
    Stat,
    Sync,
)
from incumbent.wire.paths import ancestors

__all__ = ["Client"]

_TRIES = 5
"""How often `ensure` begins anew when parents vanish under it."""


class Client(Session):
    """One session with a ZooKeeper ensemble or with `incumbent server`.

    hosts            "host:port,host:port"; looked up at each attempt to connect
    session_timeout  seconds, fixed for the life of this client; the server may grant less
    clock, rng       the world's; given by tests and simulations
    tick             the ensemble's tickTime in seconds, 0.0 for a standalone server (then a beat
                     counts from its sending), None if unknown (then taken for half a session)
    auth             credentials as (scheme, bytes), presented on every connection
    resume           another process's session to go on with; its timeout and auth are used
    request_timeout  total deadline of a call in seconds, also while there is no connection;
                     the session timeout by default
    on_lost          awaited when a session is LOST, before the old one is closed and a new one
                     begins: returns when nothing of the old one lives on. If it raises, the
                     client is CLOSED
    log              gets one line per noteworthy thing; by default the logger incumbent.client

    Everything happens on the loop that runs `connect`, and from that loop only it may be used.
    """

    async def connect(self, timeout: float) -> None:
        """Begin. Returns when CONNECTED. Raises `ConnectTimeout`, `AuthFailed`.

        After an exception the client is CLOSED; a session that was to be resumed lives on.
        """
        if self._task is not None or self._cell.now is State.CLOSED:
            raise SessionClosed(self.session_id, "a client connects once; make another one")
        loop = asyncio.get_running_loop()
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

    async def close(self) -> None:
        """End the session, within S/5; whatever is pending then gets `SessionClosed`.

        If no server could be told in time, the session simply expires. Closing twice is no error.
        """
        is_first, self._is_closing = not self._is_closing, True
        if is_first and self._task is not None and self._is_live:
            try:
                await self._traffic.submit(
                    CloseSession(), timeout=self.numbers.silence, watcher=None
                )
            except IncumbentError as error:
                self._log(f"session {self.session_id:#x} was not closed, it will expire: {error}")
            finally:
                await self._abandon("it was closed")
        elif is_first:
            await self._abandon("it was closed")
        elif self._task is not None:
            await asyncio.wait([self._task])

    def detach(self) -> Passport:
        """Drop the connection, keep the session, hand it over; CLOSED. Raises `SessionError`."""
        passport = self.passport
        self._end("its session was handed over")
        return passport

    def submit(
        self, request: Request, *, timeout: float | None = None, watcher: Watcher | None = None
    ) -> asyncio.Future[Any]:
        """Send a request, in order; several in a row go out as one flight.

        Without a connection it waits for one. Within `timeout` seconds (`request_timeout`) the
        future has the answer's value or raises a subclass of `Refused`, `NotSent`, `FateUnknown`,
        `SessionExpired` or `SessionClosed`; reads are repeated after a dropped connection.
        `watcher` goes with a read that has `watch` set; it is registered when the answer comes.
        """
        if self._task is None or self._is_closing or self._cell.now is State.CLOSED:
            why = "it is not connected yet" if self._task is None else "it is closed"
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            error = SessionClosed(self.session_id, f"the client cannot be used: {why}")
            future.set_exception(error)
            return future
        self._look()
        return self._traffic.submit(request, timeout=timeout, watcher=watcher)

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
    ) -> Created:
        """Make a znode; its path as made and its Stat. Raises `NodeExists`, `NoNode`, …"""
        if container:
            assert not (ephemeral or sequential), "a container is neither ephemeral nor sequential"
            return await self._created(CreateContainer(path, data))
        flags = ephemeral * CreateFlag.EPHEMERAL | sequential * CreateFlag.SEQUENTIAL
        return await self._created(Create2(path, data, flags=flags))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises `NoNode`, `BadVersion`, `NotEmpty`."""
        await self.submit(Delete(path, version))

    async def exists(self, path: str, *, watcher: Watcher | None = None) -> Stat | None:
        """The Stat, or None. The watcher hears of creation, change or deletion."""
        try:
            stat: Stat = await self.submit(Exists(path, watcher is not None), watcher=watcher)
        except NoNode:
            return None
        return stat

    async def get(self, path: str, *, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data (null reads as empty) and Stat. The watcher hears of change or deletion."""
        data, stat = await self.submit(GetData(path, watcher is not None), watcher=watcher)
        return data or b"", stat

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Raises `NoNode`, `BadVersion`."""
        stat: Stat = await self.submit(SetData(path, data, version))
        return stat

    async def children(self, path: str, *, watcher: Watcher | None = None) -> list[str]:
        """The children's names, sorted. The watcher hears when one comes or goes."""
        names = await self.submit(GetChildren(path, watcher is not None), watcher=watcher)
        return sorted(names)

    async def multi(self, ops: Sequence[MultiOp]) -> list[Any]:
        """All of them or none; their results in order.

        Raises the `Refused` of the operation that was refused, with its number in `index`.
        """
        if not ops:
            return []
        results: list[Any] = await self.submit(Multi(tuple(ops)))
        return results

    async def sync(self, path: str) -> None:
        """Let this server catch up with the leader: what is read next is no older than now."""
        await self.submit(Sync(path))

    async def ensure(self, path: str) -> None:
        """Make `path` and its parents, persistent and empty, where they don't exist. One flight."""
        paths = [*ancestors(path), path]
        for tries_left in reversed(range(_TRIES)):
            errors: list[IncumbentError] = []
            for future in [self.submit(Create2(each)) for each in paths]:
                try:
                    await future
                    errors.clear()  # it is there, so what is above it is there
                except NodeExists:
                    errors.clear()
                except IncumbentError as error:
                    errors.append(error)
            if not errors:
                return
            if not isinstance(errors[0], NoNode | FateUnknown) or not tries_left:
                raise errors[0]

    def beat(self, path: str) -> AbstractContextManager[None]:
        """While open, the session beats with multi[check(path)] every S/10.

        `path` is an ephemeral of this session; opened again it counts. `lease.valid_until` grows
        with each acknowledged beat, and the session is LOST when it has passed.
        """
        return self._beats.open(path)

    def watch_state(self, listener: Callable[[State], None]) -> Callable[[], None]:
        """Call `listener` at each change of state; the result takes it off again."""
        return self._cell.watch(listener)

    def watch_beats(self, listener: Callable[[float], None]) -> Callable[[], None]:
        """Call `listener(sent_at)` at each acknowledged beat; the result takes it off again."""
        return self._beats.watch(listener)

    def unwatch(self, path: str, watcher: Watcher) -> None:
        """Nobody waits for this any more: forget the watcher. No error if it is not there."""
        self._watches.remove(path, watcher)

    async def _created(self, request: Request) -> Created:
        created: Created = await self.submit(request)
        return created

    async def _abandon(self, why: str) -> None:
        """CLOSED, and nothing left behind: no task, no socket."""
        self._end(why)
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # it was logged where it happened
