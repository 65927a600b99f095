"""ZooKeeper for asyncio: `async with aio.connect("host:2181") as zk`, then verbs and recipes.

    async with aio.connect("127.0.0.1:2181") as zk:
        async with zk.lead("/app/leader", member="web-1") as leadership:
            ...                      # cancelled when the leadership is lost

Rule of this file: it is the rim: randomness begins here, everything below is handed it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from incumbent.client import Client, State
from incumbent.clock import SYSTEM, Clock
from incumbent.recipes import dialects
from incumbent.recipes.election import Election
from incumbent.recipes.hold import Hold
from incumbent.recipes.lead import lead
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.lock import lock, try_lock
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.wire import Created, MultiOp, MultiResult, Stat

__all__ = ["Connecting", "Zk", "connect"]


def connect(
    hosts: str,
    *,
    timeout: float | None = None,
    session_timeout: float = 10.0,
    request_timeout: float | None = None,
    tick: float | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
    clock: Clock = SYSTEM,
    rng: random.Random | None = None,
    on_lost: Callable[[], Awaitable[None]] | None = None,
    log: Callable[[str], None] | None = None,
) -> Connecting:
    """A session: `zk = await connect(…)`, or `async with connect(…) as zk` which also closes it.

    hosts            "a:2181,b:2181,c:2181", tried in a random order
    timeout          seconds for the first connection; default: the session timeout
    session_timeout  seconds after which the servers end a session that they don't hear from
    request_timeout  seconds for each call, also while disconnected; default: the session timeout
    tick             the ensemble's tickTime in seconds; 0 for a standalone server, `incumbent
                     server` included; None if unknown: then a hold is believed less long
    auth             (scheme, credential) pairs
    on_lost          awaited when a session is over, before the next one begins
    log              takes a line for people; default: the logger "incumbent"

    Raises `ConnectTimeout`, with what each address answered, and `AuthFailed`.
    """
    source = rng or random.SystemRandom()
    client = Client(
        hosts,
        session_timeout=session_timeout,
        request_timeout=request_timeout,
        tick=tick,
        auth=auth,
        clock=clock,
        rng=source,
        on_lost=on_lost,
        log=log,
    )
    zk = Zk(client, rng=source, log=log)
    return Connecting(zk, session_timeout if timeout is None else timeout)


class Connecting:
    """A connection to be made: await it, or `async with` it."""

    def __init__(self, zk: Zk, timeout: float) -> None:
        self._zk = zk
        self._timeout = timeout

    def __await__(self) -> Generator[Any, None, Zk]:
        return self._connect().__await__()

    async def __aenter__(self) -> Zk:
        return await self._connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._zk.close()

    async def _connect(self) -> Zk:
        try:
            await self._zk.client.connect(self._timeout)
        except BaseException:
            await self._zk.close()
            raise
        return self._zk


class Zk:
    """A session with ZooKeeper: znodes, and the recipes made of them.

    Every verb raises a subclass of `Refused` (nothing was done), `NotSent` (nothing was done),
    `FateUnknown` (a write whose answer was lost), `SessionExpired` or `SessionClosed`.
    `client` is the session itself, for what has no verb here.
    """

    def __init__(
        self, client: Client, *, rng: random.Random, log: Callable[[str], None] | None = None
    ) -> None:
        self.client = client
        self._rng = rng
        self._ledger = Ledger(client, log=log)

    @property
    def state(self) -> State:
        return self.client.state

    @property
    def session_id(self) -> int:
        return self.client.session_id

    async def close(self) -> None:
        """End the session: its ephemeral znodes are gone when this returns, if it is connected."""
        self._ledger.drop()
        await self.client.close()

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
    ) -> Created:
        """Make a znode; the result has its path (with the number, if sequential) and Stat."""
        return await self.client.create(
            path, data, ephemeral=ephemeral, sequential=sequential, container=container
        )

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode, if `version` is its data's version or -1."""
        await self.client.delete(path, version)

    async def exists(self, path: str) -> Stat | None:
        """Its Stat, or None."""
        return await self.client.exists(path)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        return await self.client.get(path)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace the data, if `version` is its version or -1."""
        return await self.client.set(path, data, version)

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted."""
        return await self.client.children(path)

    async def multi(self, operations: Sequence[MultiOp]) -> Sequence[MultiResult]:
        """All of them, or none: then the refusal of the one at `.index` is raised."""
        return await self.client.multi(operations)

    async def sync(self, path: str) -> None:
        """Later reads see at least what had been written anywhere before this."""
        await self.client.sync(path)

    async def ensure(self, path: str) -> None:
        """Make it and what is missing above it."""
        await self.client.ensure(path)

    def lead(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
        on_change: Callable[[Place], None] | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until we lead; the block is cancelled and `Deposed` raised when we are deposed.

        member     what others may read in our znode
        timeout    seconds to wait at most, then `LockTimeout`
        grace      seconds that the block has to end in, counted before the session could be
                   over; default a tenth of the session timeout
        dialect    "ours" (kazoo's), "plain:PREFIX", or None: as those who stand there
        on_change  called each time we begin to wait for someone (`place.watching`)
        """
        queue = self.queue(path, dialect=dialect)
        return lead(queue, member, timeout=timeout, grace=grace, on_change=on_change)

    def lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until we have the lock; the block is cancelled and `LockLost` raised when it is
        lost. Not reentrant. See `lead` for the arguments; `timeout=0` tries once.
        """
        queue = self.queue(path, dialect=dialect)
        return lock(queue, member, timeout=timeout, grace=grace)

    def try_lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        grace: float | None = None,
        dialect: str | None = "ours",
    ) -> AbstractAsyncContextManager[Hold | None]:
        """The lock if nobody has it, else None, at once."""
        return try_lock(self.queue(path, dialect=dialect), member, grace=grace)

    def election(self, path: str, *, dialect: str | None = None) -> Election:
        """To see who leads, and to stand again and again. `dialect` as in `lead`."""
        return Election(self.queue(path, dialect=dialect))

    def queue(self, path: str, *, dialect: str | None = "ours") -> Queue:
        """The contenders at `path`, for recipes of one's own."""
        spoken = None if dialect is None else dialects.dialect(dialect)
        return Queue(self.client, path, spoken, rng=self._rng, ledger=self._ledger)
