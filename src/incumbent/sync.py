"""ZooKeeper for blocking code: the names of `incumbent.aio`, each call waits for its result.

    with incumbent.connect("127.0.0.1:2181") as zk:
        with zk.lock("/app/migration", timeout=30) as hold:
            hold.ensure()            # raises if the lock is lost at this instant

One background thread runs the event loop of every client of the process, so that beats go on
while the program computes. A call from that thread would wait for itself: `RuntimeError` at
once. A forked child has no such thread: `SessionClosed`; connect again there.

Rule of this file: the same names as in `aio` (a test compares them), and no thought of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from types import TracebackType

from incumbent import aio
from incumbent.blocking import Election, Guarded, Hold, Lost, Transaction, Wait
from incumbent.client import State
from incumbent.errors import Deposed, LockLost
from incumbent.portal import Portal, portal
from incumbent.recipes.place import Place
from incumbent.wire import Created, MultiOp, MultiResult, Stat

__all__ = ["Election", "Hold", "Lost", "Transaction", "Zk", "connect"]


def connect(
    hosts: str,
    *,
    timeout: float | None = None,
    session_timeout: float = 10.0,
    request_timeout: float | None = None,
    tick: float | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
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

    async def begin() -> aio.Zk:
        return await aio.connect(
            hosts,
            timeout=timeout,
            session_timeout=session_timeout,
            request_timeout=request_timeout,
            tick=tick,
            auth=auth,
            rng=rng,
            on_lost=lost,
            log=log,
        )

    return Zk(the_portal.run(begin, undo=lambda zk: zk.close()), the_portal)


class Zk:
    """A session with ZooKeeper; the twin of `incumbent.aio.Zk`, whose docstrings hold here."""

    def __init__(self, zk: aio.Zk, portal: Portal) -> None:
        self._zk = zk
        self._portal = portal
        portal.at_exit[zk.close] = None

    def __enter__(self) -> Zk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def state(self) -> State:
        return self._zk.state

    @property
    def session_id(self) -> int:
        return self._zk.session_id

    def close(self) -> None:
        self._portal.run(self._zk.close)
        self._portal.at_exit.pop(self._zk.close, None)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
    ) -> Created:
        return self._portal.run(
            lambda: self._zk.create(
                path, data, ephemeral=ephemeral, sequential=sequential, container=container
            )
        )

    def delete(self, path: str, version: int = -1) -> None:
        self._portal.run(lambda: self._zk.delete(path, version))

    def exists(self, path: str) -> Stat | None:
        return self._portal.run(lambda: self._zk.exists(path))

    def get(self, path: str) -> tuple[bytes, Stat]:
        return self._portal.run(lambda: self._zk.get(path))

    def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return self._portal.run(lambda: self._zk.set(path, data, version))

    def children(self, path: str) -> list[str]:
        return self._portal.run(lambda: self._zk.children(path))

    def multi(self, operations: Sequence[MultiOp]) -> Sequence[MultiResult]:
        return self._portal.run(lambda: self._zk.multi(operations))

    def sync(self, path: str) -> None:
        self._portal.run(lambda: self._zk.sync(path))

    def ensure(self, path: str) -> None:
        self._portal.run(lambda: self._zk.ensure(path))

    def lead(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
        on_change: Callable[[Place], None] | None = None,
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        return Guarded(
            self._portal,
            Wait(self._zk.queue(path, dialect=dialect), member, Deposed, timeout, grace, on_change),
            on_lost,
        )

    def lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        timeout: float | None = None,
        grace: float | None = None,
        dialect: str | None = "ours",
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold]:
        return Guarded(
            self._portal,
            Wait(self._zk.queue(path, dialect=dialect), member, LockLost, timeout, grace),
            on_lost,
        )

    def try_lock(
        self,
        path: str,
        *,
        member: str | bytes = b"",
        grace: float | None = None,
        dialect: str | None = "ours",
        on_lost: Callable[[Hold], None] | None = None,
    ) -> Guarded[Hold | None]:
        return Guarded(
            self._portal,
            Wait(self._zk.queue(path, dialect=dialect), member, LockLost, None, grace, tries=True),
            on_lost,
        )

    def election(self, path: str, *, dialect: str | None = None) -> Election:
        return Election(self._portal, self._zk.queue(path, dialect=dialect))
