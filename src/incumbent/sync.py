"""ZooKeeper for blocking code: the names of `incumbent.aio`, each call waits for its result.

    with incumbent.connect("127.0.0.1:2181") as zk:
        with zk.lock("/app/migration", timeout=30) as hold:
            hold.ensure()            # raises if the lock is lost at this instant

One background thread runs the event loop of every client of the process (that of uvloop, where it
is installed), so that beats go on while the program computes. A call from that thread would wait
for itself: `RuntimeError` at once. A forked child has no such thread: `SessionClosed`; connect
again there. gevent and eventlet are not supported: they would run the loop in the very thread
that waits for it.

Callbacks (`watcher=`, `listen`, `on_state`) are called in one more thread, one after the other.

Rule of this file: the same names as in `aio` (a test compares them), and no thought of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from incumbent import aio
from incumbent.blocking import Caller, Events, Hold, Lost, Transaction, twin_of
from incumbent.blocking_blocks import Guarded, Wait, Within, last_resort
from incumbent.blocking_items import (
    Barrier,
    Counter,
    DoubleBarrier,
    Following,
    ItemQueue,
    Items,
    Value,
)
from incumbent.blocking_locks import MultiLock, ReadWriteLock, Semaphore
from incumbent.blocking_views import Cache, Election, Group
from incumbent.blocking_work import Claim, Work, WorkQueue
from incumbent.client import Passport, State, Watcher
from incumbent.portal import Portal, portal
from incumbent.recipes import lock as locks
from incumbent.recipes.place import Place
from incumbent.wire import (
    OPEN_ACL,
    Acl,
    Created,
    Id,
    MultiOp,
    MultiReadOp,
    Stat,
    WatchType,
)

__all__ = [
    "Barrier",
    "Cache",
    "Claim",
    "Counter",
    "DoubleBarrier",
    "Election",
    "Events",
    "Following",
    "Group",
    "Hold",
    "ItemQueue",
    "Items",
    "Lost",
    "MultiLock",
    "ReadWriteLock",
    "Semaphore",
    "Transaction",
    "Value",
    "Work",
    "WorkQueue",
    "Zk",
    "connect",
]

T = TypeVar("T")


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
    rng: random.Random | None = None,
    on_lost: Callable[[], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> Zk:
    """A session, connected; `with connect(…) as zk` also closes it. See `incumbent.aio.connect`.

    `on_lost` is called in a thread of its own when a session is over, and ends before the next
    session begins.
    """
    the_portal = portal()

    async def lost() -> None:
        if on_lost is not None:
            await asyncio.get_running_loop().run_in_executor(None, on_lost)

    made: list[aio.Zk] = []

    async def begin() -> None:
        zk = await aio.connect(
            hosts,
            timeout=timeout,
            session_timeout=session_timeout,
            request_timeout=request_timeout,
            tick=tick,
            auth=auth,
            tls=tls,
            insecure=insecure,
            read_only=read_only,
            resume=resume,
            rng=rng,
            on_lost=lost,
            log=log,
        )
        made.append(zk)

    try:
        the_portal.run(begin)
        return Zk(made[0], the_portal, log=log)
    except BaseException:
        for zk in made:
            the_portal.carry_out(zk.close)
        raise


async def _close(zk: aio.Zk, portal: Portal) -> None:
    try:
        await zk.close()
    finally:
        portal.at_exit.pop(zk.close, None)


@twin_of(aio.Zk)
class Zk:
    """A session with ZooKeeper; the twin of `incumbent.aio.Zk`, whose docstrings hold here."""

    def __init__(
        self, zk: aio.Zk, portal: Portal, *, log: Callable[[str], None] | None = None
    ) -> None:
        self._zk = zk
        self._caller = Caller(log or logging.getLogger("incumbent").warning)
        self._portal = portal
        self._close = partial(_close, zk, portal)
        self._last_resort: weakref.finalize[..., object] | None = None
        portal.at_exit[zk.close] = None

    def __enter__(self) -> Zk:
        self._last_resort = last_resort(self, partial(self._portal.carry_out, self._close))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is GeneratorExit:  # maybe the collector's, in any thread: no waiting
            self._portal.carry_out(self._close)
        else:
            self.close()
        if self._last_resort is not None:
            self._last_resort.detach()

    @property
    def state(self) -> State:
        return self._zk.state

    @property
    def session_id(self) -> int:
        return self._zk.session_id

    def close(self) -> None:
        if not self._portal.is_elsewhere:
            self._portal.finish(self._close)

    def detach(self) -> Passport:
        async def detach() -> Passport:
            return self._zk.detach()

        passport = self._portal.run(detach)
        self._portal.at_exit.pop(self._zk.close, None)
        return passport

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[Acl] = OPEN_ACL,
        parents: bool = False,
    ) -> Created:
        return self._ask(
            lambda: self._zk.create(
                path,
                data,
                ephemeral=ephemeral,
                sequential=sequential,
                container=container,
                ttl=ttl,
                acl=acl,
                parents=parents,
            )
        )

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        self._ask(lambda: self._zk.delete(path, version, recursive=recursive))

    def exists(self, path: str, *, watcher: Watcher | None = None) -> Stat | None:
        return self._ask(lambda: self._zk.exists(path, watcher=self._later(watcher)))

    def get(self, path: str, *, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        return self._ask(lambda: self._zk.get(path, watcher=self._later(watcher)))

    def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return self._ask(lambda: self._zk.set(path, data, version))

    def children(self, path: str, *, watcher: Watcher | None = None) -> list[str]:
        return self._ask(lambda: self._zk.children(path, watcher=self._later(watcher)))

    def children_and_stat(
        self, path: str, *, watcher: Watcher | None = None
    ) -> tuple[list[str], Stat]:
        return self._ask(lambda: self._zk.children_and_stat(path, watcher=self._later(watcher)))

    def descendants(self, path: str) -> int:
        return self._ask(lambda: self._zk.descendants(path))

    def ephemerals(self, prefix: str = "/") -> list[str]:
        return self._ask(lambda: self._zk.ephemerals(prefix))

    def get_acl(self, path: str) -> tuple[list[Acl], Stat]:
        return self._ask(lambda: self._zk.get_acl(path))

    def set_acl(self, path: str, acl: Sequence[Acl], version: int = -1) -> Stat:
        return self._ask(lambda: self._zk.set_acl(path, acl, version))

    def who_am_i(self) -> list[Id]:
        return self._ask(self._zk.who_am_i)

    def add_auth(self, scheme: str, credential: bytes) -> None:
        self._portal.run(lambda: self._zk.add_auth(scheme, credential))

    def multi(self, operations: Sequence[MultiOp]) -> list[Any]:
        return self._ask(lambda: self._zk.multi(operations))

    def transaction(self) -> Transaction:
        return Transaction(self._portal, self._zk.transaction())

    def read_all(self, operations: Sequence[MultiReadOp]) -> list[Any]:
        return self._ask(lambda: self._zk.read_all(operations))

    def sync(self, path: str) -> None:
        self._ask(lambda: self._zk.sync(path))

    def ensure(self, path: str) -> None:
        self._ask(lambda: self._zk.ensure(path))

    def has_watch(self, path: str, kind: WatchType = WatchType.ANY) -> bool:
        return self._ask(lambda: self._zk.has_watch(path, kind))

    def remove_watches(self, path: str, kind: WatchType = WatchType.ANY) -> bool:
        return self._ask(lambda: self._zk.remove_watches(path, kind))

    def reconfig(
        self,
        *,
        joining: str | None = None,
        leaving: str | None = None,
        members: str | None = None,
        config_id: int = -1,
    ) -> bytes:
        return self._ask(
            lambda: self._zk.reconfig(
                joining=joining, leaving=leaving, members=members, config_id=config_id
            )
        )

    def config(self) -> bytes:
        return self._ask(self._zk.config)

    @contextmanager
    def watch(self, path: str, *, recursive: bool = False) -> Iterator[Events]:
        with Within(self._portal, self._zk.watch(path, recursive=recursive)) as events:
            yield Events(self._portal, events)

    @contextmanager
    def listen(self, path: str, callback: Watcher, *, recursive: bool = False) -> Iterator[None]:
        heard = self._caller.later(callback)
        with Within(self._portal, self._zk.listen(path, heard, recursive=recursive)):
            yield

    def unwatch(self, path: str, watcher: Watcher) -> None:
        async def unwatch() -> None:
            self._zk.unwatch(path, self._caller.later(watcher))

        self._ask(unwatch)

    def on_state(self, listener: Callable[[State], object]) -> Callable[[], None]:
        async def begin() -> Callable[[], None]:
            return self._zk.on_state(self._caller.later(listener))

        remove = self._portal.run(begin)
        return lambda: self._portal.post(remove)

    def _ask(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal.ask(begin, self._zk.client.flush)

    def _later(self, watcher: Watcher | None) -> Watcher | None:
        return None if watcher is None else self._caller.later(watcher)

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
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        return self.election(path, dialect=dialect, epoch_path=epoch_path).lead(
            member, timeout=timeout, grace=grace, on_change=on_change, on_lost=on_lost
        )

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
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        queue = self._zk.contenders(path, dialect=dialect, epoch_path=epoch_path)
        begin = partial(locks.acquire, queue, member, timeout=timeout, grace=grace)
        return Guarded(self._portal, Wait(begin, queue, reentrant=reentrant), on_lost)

    def try_lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        grace: float | None = None,
        dialect: str | None = "ours",
        epoch_path: str | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold | None]:
        queue = self._zk.contenders(path, dialect=dialect, epoch_path=epoch_path)
        begin = partial(locks.try_acquire, queue, member, grace=grace)
        return Guarded(self._portal, Wait(begin), on_lost)

    def revoke(self, path: str, *, dialect: str | None = None) -> str | None:
        return self._portal.run(lambda: self._zk.revoke(path, dialect=dialect))

    def rwlock(
        self, path: str, *, dialect: str | None = "ours", epoch_path: str | None = None
    ) -> ReadWriteLock:
        rwlock = self._zk.rwlock(path, dialect=dialect, epoch_path=epoch_path)
        return ReadWriteLock(self._portal, rwlock)

    def multilock(
        self, paths: Iterable[str], *, dialect: str = "ours", epoch_path: str | None = None
    ) -> MultiLock:
        multilock = self._zk.multilock(paths, dialect=dialect, epoch_path=epoch_path)
        return MultiLock(self._portal, multilock)

    def semaphore(
        self, path: str, *, size: int | None = None, epoch_path: str | None = None
    ) -> Semaphore:
        semaphore = self._zk.semaphore(path, size=size, epoch_path=epoch_path)
        return Semaphore(self._portal, semaphore)

    def election(
        self, path: str, *, dialect: str | None = None, epoch_path: str | None = None
    ) -> Election:
        queue = self._zk.contenders(path, dialect=dialect, epoch_path=epoch_path)
        return Election(self._portal, queue)

    def queue(self, path: str) -> ItemQueue:
        return ItemQueue(self._portal, self._zk.queue(path))

    def barrier(self, path: str) -> Barrier:
        return Barrier(self._portal, self._zk.barrier(path))

    def double_barrier(
        self, path: str, count: int, *, timeout: float | None = None
    ) -> DoubleBarrier:
        return DoubleBarrier(self._portal, self._zk.double_barrier(path, count, timeout=timeout))

    def counter(self, path: str, *, initial: int = 0) -> Counter:
        return Counter(self._portal, self._zk.counter(path, initial=initial))

    def value(self, path: str, default: str | bytes = b"") -> Value:
        return Value(self._portal, self._zk.value(path, default))

    def group(self, path: str) -> Group:
        return Group(self._portal, self._zk.group(path))

    def cache(self, path: str) -> Cache:
        return Cache(self._portal, self._zk.cache(path))

    def work(
        self,
        path: str,
        *,
        lag: float = 1.0,
        keep_done: float = 600.0,
        grace: float | None = None,
    ) -> Work:
        return Work(self._portal, self._zk.work(path, lag=lag, keep_done=keep_done, grace=grace))

    def work_queue(
        self, path: str, *, tries: int = 5, lag: float = 0.0, grace: float | None = None
    ) -> WorkQueue:
        queue = self._zk.work_queue(path, tries=tries, lag=lag, grace=grace)
        return WorkQueue(self._portal, queue)
