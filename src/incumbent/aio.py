"""ZooKeeper for asyncio: `async with aio.connect("host:2181") as zk`, then verbs and recipes.

    async with aio.connect("127.0.0.1:2181") as zk:
        async with zk.lead("/app/leader", member="web-1") as leadership:
            ...                      # cancelled when the leadership is lost

Rule of this file: it is the rim: randomness begins here, everything below is handed it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from incumbent.client import Client, Events, Passport, State, split_chroot
from incumbent.client.callbacks import Callback, Callbacks
from incumbent.client.tls import context as tls_context
from incumbent.client.verbs import Verbs
from incumbent.clock import SYSTEM, Clock
from incumbent.recipes import dialects
from incumbent.recipes.barrier import Barrier
from incumbent.recipes.cache import Cache
from incumbent.recipes.counter import Counter
from incumbent.recipes.double_barrier import DoubleBarrier
from incumbent.recipes.election import Election
from incumbent.recipes.group import Group
from incumbent.recipes.hold import Hold
from incumbent.recipes.items import ItemQueue
from incumbent.recipes.lead import lead
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.lock import lock, revoke, try_lock
from incumbent.recipes.multilock import MultiLock
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue
from incumbent.recipes.rwlock import ReadWriteLock
from incumbent.recipes.semaphore import Semaphore
from incumbent.recipes.value import Value
from incumbent.wire import Request, WatchEvent
from incumbent.work import Work, WorkQueue

__all__ = ["Connecting", "Zk", "connect", "tls_context"]


def connect(
    hosts: str,
    *,
    timeout: float | None = None,
    session_timeout: float = 10.0,
    request_timeout: float | None = None,
    tick: float | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
    tls: ssl.SSLContext | None = None,
    insecure: bool = False,
    read_only: bool = False,
    resume: Passport | None = None,
    clock: Clock = SYSTEM,
    rng: random.Random | None = None,
    on_lost: Callable[[], Awaitable[None]] | None = None,
    log: Callable[[str], None] | None = None,
) -> Connecting:
    """A session: `zk = await connect(…)`, or `async with connect(…) as zk` which also closes it.

    hosts            "a:2181,b:2181,c:2181", tried in a random order; names are looked up each
                     time. With "/app" at the end, that is the client's root: its / is /app
    timeout          seconds for the first connection; default: the session timeout
    session_timeout  seconds after which the servers end a session that they don't hear from
    request_timeout  seconds for each call, also while disconnected; default: the session timeout
    tick             the ensemble's tickTime in seconds; 0 for a standalone server, `incumbent
                     server` included; None if unknown: then a hold is believed less long
    auth             (scheme, credential) pairs: ("digest", b"name:password"), or "sasl" with the
                     same for SASL DIGEST-MD5, or ("gssapi", b"") for Kerberos. A digest
                     credential is the password in clear: refused beyond this machine, unless by
                     TLS or with `insecure`
    tls              `aio.tls_context(ca=…, certificate=…, key=…)`, or another `ssl.SSLContext`
    read_only        be content with a server that is cut off from its ensemble: state READ_ONLY
    resume           the passport of a session to go on with, from another process's `detach()`
    on_lost          awaited when a session is over, before the next one begins
    log              takes a line for people; default: the logger "incumbent"

    Raises `ConnectTimeout`, with what each address answered, and `AuthFailed`.
    """
    source = rng or random.SystemRandom()
    addresses, chroot = split_chroot(hosts)
    client = Client(
        addresses,
        chroot=chroot,
        session_timeout=session_timeout,
        request_timeout=request_timeout,
        tick=tick,
        auth=auth,
        tls=tls,
        insecure=insecure,
        read_only=read_only,
        resume=resume,
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


class Zk(Verbs):
    """A session with ZooKeeper: znodes, and the recipes made of them.

    The operations are those of `incumbent.client.verbs`. A `watcher` of a read, and every other
    callback, is called in order, one at a time, away from the connection: it may be a coroutine
    function and call anything.

    Every verb raises a subclass of `Refused` (nothing was done), `NotSent` (nothing was done),
    `FateUnknown` (a write whose answer was lost), `SessionExpired` or `SessionClosed`.
    `client` is the session itself, for what has no verb here.
    """

    def __init__(
        self, client: Client, *, rng: random.Random, log: Callable[[str], None] | None = None
    ) -> None:
        self.client = client
        self.root = client.root
        self._rng = rng
        self._ledger = Ledger(client, log=log)
        self._callbacks = Callbacks(log or logging.getLogger("incumbent").warning)

    @property
    def state(self) -> State:
        """Of the session: CONNECTED, SUSPENDED (it may live on), LOST, CLOSED, …"""
        return self.client.state

    @property
    def session_id(self) -> int:
        """The servers' number of the session; another one after a LOST."""
        return self.client.session_id

    async def close(self) -> None:
        """End the session: its ephemeral znodes are gone when this returns, if it is connected.

        Work whose block is still open is left first, as at its end, within a session timeout.
        """
        self.client.here()
        if self._ledger.before_close and self.client.state is not State.CLOSED:
            await self._ledger.last_words(self.client.timeout)
        self._ledger.drop()
        await self.client.close()

    def detach(self) -> Passport:
        """Give the session away: it lives on for whoever resumes it; this is closed."""
        if self.client.is_ours:
            self.client.here()
        self._ledger.drop()
        return self.client.detach()

    def submit(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        watcher: Callback | None = None,
        absolute: bool = False,
    ) -> asyncio.Future[Any]:
        """A request of one's own making, in order with the others: see `Client.submit`."""
        wrapped = None if watcher is None else self._callbacks.watcher(watcher)
        return self.client.submit(request, timeout=timeout, watcher=wrapped, absolute=absolute)

    async def add_auth(self, scheme: str, credential: bytes) -> None:
        """Present one more credential, now and on every connection to come. Raises `AuthFailed`,
        and `NotSent` without a connection."""
        await self.client.add_auth(scheme, credential)

    def watch(self, path: str, *, recursive: bool = False) -> AbstractAsyncContextManager[Events]:
        """Every event on a znode, or also on all below it, as a stream:
        `async with zk.watch(path) as events`, then `async for event in events`.

        The znode need not exist. Recursive watches tell of each znode's creation, change and
        deletion, others also when a child comes or goes (CHILD). An event of type NONE says
        that some may be missing, after a reconnect: look again. When the session is over the
        stream raises `SessionExpired` or `SessionClosed`.
        """
        return self.client.watch(path, recursive=recursive)

    def listen(
        self, path: str, callback: Callback, *, recursive: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """As `watch`, but while the block lasts `callback(event)` is called; also once at the
        session's end, with the state EXPIRED."""

        def heard(event: WatchEvent) -> None:  # another one for each block, whoever is called
            self._callbacks.put(callback, event)

        return self.client.watching(path, heard, recursive=recursive)

    def unwatch(self, path: str, watcher: Callback) -> None:
        """Nobody waits for this any more: forget the `watcher` of a read of this path, here and
        at the server. No error if it has been called, or was never there."""
        self.client.unwatch(path, self._callbacks.watcher(watcher))

    def on_state(self, listener: Callable[[State], object]) -> Callable[[], None]:
        """Call `listener(state)` after each change, in order; the result takes it off again.

        It may be a coroutine function; while it waits, later changes wait for it.
        """
        return self.client.watch_state(lambda state: self._callbacks.put(listener, state))

    def lead(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
        epoch_path: str | None = None,
        on_change: Callable[[Place], None] | None = None,
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until we lead; the block is cancelled and `Deposed` raised when we are deposed.

        member     what others may read in our znode
        timeout    seconds to wait at most, then `LockTimeout`
        grace      seconds that the block has to end in, counted before the session could be
                   over; default a tenth of the session timeout
        dialect    "ours" (kazoo's), "curator-lock", "curator-latch", "curator-rw",
                   "plain:PREFIX", or None: as those who stand there
        epoch_path a znode that counts the holds, made if need be; `fencing_token` is then the
                   number, good also for readers and semaphores, and on another ensemble that
                   it is copied to. One or two round trips more
        on_change  called each time we begin to wait for someone (`place.watching`)
        """
        queue = self.contenders(path, dialect=dialect, epoch_path=epoch_path)
        return lead(queue, member, timeout=timeout, grace=grace, on_change=on_change)

    def lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
        epoch_path: str | None = None,
        reentrant: bool = False,
    ) -> AbstractAsyncContextManager[Hold]:
        """Wait until we have the lock; the block is cancelled and `LockLost` raised when it is
        lost. See `lead` for the arguments; `timeout=0` tries once.

        Taken again inside its own block, by the same task, it raises RuntimeError at once; with
        `reentrant` it is the same hold once more, until the outermost block ends.
        """
        queue = self.contenders(path, dialect=dialect, epoch_path=epoch_path)
        return lock(queue, member, timeout=timeout, grace=grace, reentrant=reentrant)

    def try_lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        grace: float | None = None,
        dialect: str | None = "ours",
        epoch_path: str | None = None,
    ) -> AbstractAsyncContextManager[Hold | None]:
        """The lock if nobody has it, else None, at once."""
        queue = self.contenders(path, dialect=dialect, epoch_path=epoch_path)
        return try_lock(queue, member, grace=grace)

    async def revoke(self, path: str, *, dialect: str | None = None) -> str | None:
        """Ask whoever is first at `path` to give way: their `hold.asked` is set, and what they
        do is their choice. Their znode's name; None if nobody stands there.
        """
        return await revoke(self.contenders(path, dialect=dialect))

    def rwlock(
        self, path: str, *, dialect: str | None = "ours", epoch_path: str | None = None
    ) -> ReadWriteLock:
        """Many who read at a time, or one who writes, in order of arrival:
        `async with zk.rwlock(path).read() as hold`. `dialect`: one that has readers, "ours" or
        "curator-rw", or None. `epoch_path` as in `lead`: then readers have a token too.
        """
        queue = self.contenders(path, dialect=dialect, epoch_path=epoch_path)
        return ReadWriteLock(queue)

    def multilock(
        self, paths: Iterable[str], *, dialect: str = "ours", epoch_path: str | None = None
    ) -> MultiLock:
        """The locks at all these paths, or none of them:
        `async with zk.multilock(["/a", "/b"]).acquire() as hold`. Two of these never wait for
        each other in a circle, whatever the order of their paths. `epoch_path` as in `lead`.
        """
        queues = [self.contenders(p, dialect=dialect, epoch_path=epoch_path) for p in paths]
        return MultiLock(queues)

    def semaphore(
        self, path: str, *, size: int | None = None, epoch_path: str | None = None
    ) -> Semaphore:
        """So many at a time: `async with zk.semaphore(path, size=3).acquire() as hold`.

        `size` is for the first one who uses it; then what `resize` has put there counts. None:
        it is there already. `epoch_path` as in `lead`: then holds have a token.
        """
        return Semaphore(
            self.client, path, size, epoch_path=epoch_path, rng=self._rng, ledger=self._ledger
        )

    def election(
        self, path: str, *, dialect: str | None = None, epoch_path: str | None = None
    ) -> Election:
        """To see who leads, and to stand again and again. `dialect`, `epoch_path` as in `lead`."""
        return Election(self.contenders(path, dialect=dialect, epoch_path=epoch_path))

    def queue(self, path: str) -> ItemQueue:
        """A queue of items, by priority: `await queue.put(data)`, `await queue.take()`."""
        return ItemQueue(self.client, path, rng=self._rng, ledger=self._ledger)

    def barrier(self, path: str) -> Barrier:
        """While it is up, whoever comes to it waits."""
        return Barrier(self.client, path)

    def double_barrier(
        self, path: str, count: int, *, timeout: float | None = None
    ) -> DoubleBarrier:
        """One of `count` who go in together and come out together: `async with` it.

        timeout  seconds that going in may take, and coming out: then `BarrierTimeout`, and
                 `BrokenBarrier` for the whole round
        """
        return DoubleBarrier(self.contenders(path), count, timeout=timeout)

    def counter(self, path: str, *, initial: int = 0) -> Counter:
        """A number that many add to; each acknowledged addition counts once."""
        return Counter(self.client, path, initial=initial, rng=self._rng)

    def value(self, path: str, default: str | bytes = b"") -> Value:
        """Bytes that many read and some change; to compare and set, and to follow in memory.
        `default` is what it is while there is no znode."""
        return Value(self.client, path, default)

    def group(self, path: str) -> Group:
        """The members at `path`: to be one (`join`), to list them, to follow who comes and goes."""
        return Group(self._ledger, path, nonce=lambda: f"{self._rng.getrandbits(64):016x}")

    def cache(self, path: str) -> Cache:
        """The tree at and below `path` in memory: `async with zk.cache(path) as cache`."""
        return Cache(self.client, path, log=self._ledger.log)

    def work(
        self,
        path: str,
        *,
        lag: float = 1.0,
        keep_done: float = 600.0,
        grace: float | None = None,
    ) -> Work:
        """Items of work at `path` that are done once: `async with zk.work(path) as work`, then
        `async for claim in work.claims(ids)`.

        lag        seconds by which any copy of the database may be behind, from which somebody
                   reads whether an item is done. A claim is lost that long before its session
                   could be over, and one whose handler failed stands for that long after it
        keep_done  seconds for which a done item is remembered: longer than anybody holds a list
                   of items that he has read, at least twice the lag
        grace      seconds that a handler has to end in once its claim is lost; default a tenth of
                   the session timeout, and never less than the lag
        """
        return Work(
            self.client,
            self._ledger,
            path,
            lag=lag,
            keep_done=keep_done,
            grace=grace,
            rng=self._rng,
        )

    def work_queue(
        self, path: str, *, tries: int = 5, lag: float = 0.0, grace: float | None = None
    ) -> WorkQueue:
        """A queue whose items stay until they are done: `async with zk.work_queue(path) as queue`,
        then `await queue.put(data)`, and `async with await queue.take() as claim`.

        tries  how often an item is begun before it is parked
        lag, grace  as in `work`
        """
        return WorkQueue(
            self.client,
            self._ledger,
            path,
            tries=tries,
            lag=lag,
            grace=grace,
            rng=self._rng,
        )

    def contenders(
        self, path: str, *, dialect: str | None = "ours", epoch_path: str | None = None
    ) -> Queue:
        """The contenders at `path`, for recipes of one's own."""
        spoken = None if dialect is None else dialects.dialect(dialect)
        return Queue(
            self.client,
            path,
            spoken,
            epoch_path=epoch_path,
            rng=self._rng,
            ledger=self._ledger,
        )
