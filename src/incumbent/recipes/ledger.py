"""What one client's recipes own in the tree, and what they still owe it.

A contender that gives up must not leave its znode behind: it would block everybody after it for
as long as the session lives. So creating and deleting are duties that outlive whoever wanted
them: a cancelled caller leaves, the duty goes on until it is done or the session is gone (then
the server deletes the ephemerals itself).

Rule of this file: a duty ends only by being done, or with its session; never because a reply
was lost, a connection dropped or a caller was cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from incumbent.client import Client
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NoNode,
    NotSent,
    Refused,
    SessionError,
)
from incumbent.recipes.listing import Listings
from incumbent.wire import Delete

if TYPE_CHECKING:
    from incumbent.recipes.hold import Hold

__all__ = ["SYSTEM_ERROR", "Ledger", "Pause"]

T = TypeVar("T")

SYSTEM_ERROR = -1
"""The server cannot write at present, for a full disk: it will."""


class Pause:
    """Waits between tries, in seconds: short at first, then at most one per second."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0.02

    async def take(self) -> None:
        seconds, self._next = self._next, min(1.0, self._next * 2)
        await asyncio.sleep(seconds)


class Ledger:
    """The duties of one client's recipes; whoever makes a client makes one of these for it.

    `log` takes a line for people.
    """

    def __init__(self, client: Client, *, log: Callable[[str], None] | None = None) -> None:
        self.client = client
        self.log = log or logging.getLogger("incumbent").warning
        self.standing: dict[str, object] = {}
        """Our znodes in queues: full path → whose it is."""
        self.holders: dict[tuple[str, object], Hold] = {}
        """Queues that we hold: path, and the task or thread whose block it guards → the hold."""
        self.before_close: dict[Callable[[], Coroutine[Any, Any, None]], None] = {}
        """What is to be done before the session is closed by its user, as far as time allows."""
        self.epochs: dict[str, tuple[int, int]] = {}
        """Counts of holds as we left them: path → the number, and its znode's version."""
        self._duties: dict[asyncio.Future[Any], None] = {}
        self.listings = Listings(client)
        self._turns: dict[str, asyncio.Lock] = {}

    def owe(self, duty: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a duty to its end, whatever happens to the caller."""
        task = asyncio.get_running_loop().create_task(duty)
        self._duties[task] = None
        task.add_done_callback(self._paid)
        return task

    def delete(self, path: str, czxid: int, session_id: int) -> asyncio.Future[None]:
        """Delete the ephemeral that `session_id` made at `czxid`, surely and only it.

        Asked for when this returns: whatever is submitted next comes behind it.
        """
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.client.session_id != session_id:
            self.standing.pop(path, None)
            gone.set_result(None)
            return gone
        self._duties[gone] = None

        def is_gone(by: object) -> None:
            self.standing.pop(path, None)
            self._duties.pop(gone, None)
            if not gone.done():
                gone.set_result(None)

        def answered(outcome: object) -> None:
            """Mostly that is all, and no task is made for it."""
            if gone.done() or not isinstance(outcome, IncumbentError):
                is_gone(outcome)
            else:
                duty = self.owe(self._delete(path, czxid, session_id, outcome))
                duty.add_done_callback(is_gone)

        self.client.ask(Delete(path), answered)
        return gone

    def refuse_nested(self, queue: str, owner: object) -> None:
        """Raises `RuntimeError` if `owner` is inside a block that holds this queue already."""
        if (queue, owner) in self.holders:
            raise RuntimeError(
                f"{queue} is held by this very task or thread: it would wait for itself "
                "(a lock is reentrant only with reentrant=True)"
            )

    async def settled(self) -> None:
        """Return when nothing is owed. For whoever hands the session to another process."""
        while owed := [duty for duty in self._duties if not duty.done()]:
            await asyncio.wait(owed)

    async def last_words(self, timeout: float) -> None:
        """Do what is to be done before closing; at most `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for last in list(self.before_close):
                    await last()

    def drop(self) -> None:
        """Forget all duties: the session is being closed, its ephemerals go with it."""
        duties, self._duties = self._duties, {}
        for duty in duties:
            duty.cancel()

    @asynccontextmanager
    async def turn(self, directory: str) -> AsyncIterator[None]:
        """One at a time in `directory`: for creates that cannot be told apart by their names."""
        lock = self._turns.setdefault(directory, asyncio.Lock())
        async with lock:
            yield

    def _paid(self, duty: asyncio.Future[Any]) -> None:
        self._duties.pop(duty, None)
        if not duty.cancelled():
            duty.exception()  # whoever waits has it too; nobody has to

    async def _delete(self, path: str, czxid: int, session_id: int, error: IncumbentError) -> None:
        """Go on from the error with which the first try ended."""
        pause = Pause()
        is_certain = True
        while not isinstance(error, NoNode | SessionError):
            if isinstance(error, FateUnknown | NotSent):
                is_certain = False
            elif not isinstance(error, Refused) or error.code != SYSTEM_ERROR:
                self.log(f"{path} is left in its queue until the session ends: {error}")
                return
            await pause.take()
            if self.client.session_id != session_id:
                return
            try:
                if not is_certain:  # in a plain dialect the name may be another's by now
                    stat = await self.client.exists(path)
                    if stat is None or stat.czxid != czxid:
                        return
                await self.client.submit(Delete(path))
                return
            except IncumbentError as another:
                error = another
