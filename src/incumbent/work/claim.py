"""A claim on one item: ours alone, believed until its lease ends, and ended in one of four ways.

    done        the item is finished: one transaction takes the claim away and leaves the record
                marked, so that nobody who still holds an old list begins it again
    given back  as if it had not been begun
    failed      the failure is counted; it is free again, or after a while
    parked      nobody begins it until somebody says so

All claims of a session stand or fall with its lease (`incumbent.lease`): each is lost, once and
for good, `grace` seconds before the session could be over. `grace` is at least the lag that was
stated for the copies of a database that others may read, so that whatever the handler of a lost
claim has written, before it stopped, is in every copy when the next claim can be made.

Rule of this file: a claim is ended by one transaction that names the version of its record; it
is repeated only after a look that shows our claim still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from incumbent.client import Client, State
from incumbent.errors import (
    BadVersion,
    ClaimLost,
    FateUnknown,
    NoNode,
    NotSent,
    Refused,
    SessionError,
)
from incumbent.lease import Lease
from incumbent.recipes.hold import Scope
from incumbent.recipes.latch import Latch
from incumbent.recipes.ledger import SYSTEM_ERROR, Ledger, Pause
from incumbent.recipes.readback import read_back
from incumbent.wire import Delete, GetData, MultiOp, SetData, Stat
from incumbent.wire.paths import name
from incumbent.work.records import CLAIM, Record

__all__ = ["Claim", "Owner"]

_LATE = "no beat was acknowledged in time, the session may end soon"


class Owner(Protocol):
    """Where claims are made, as a claim sees it."""

    client: Client
    ledger: Ledger
    lag: float
    keeps_done: bool
    """Are done items marked, or gone?"""

    @property
    def grace(self) -> float:
        """Seconds before the session could be over at which claims are lost."""

    def write_end(self, operations: Sequence[MultiOp]) -> asyncio.Future[None]:
        """Write these in one transaction; its result or error."""

    def ended(self, claim: Claim, marked_at: int | None) -> None:
        """It is over. `marked_at`: its record is marked done, and has that version."""


class Claim:
    """One item that is ours. Made by `work.claim`, `work.claims`, `work.run` and a work queue.

    item      what it is on
    key       an idempotency key, of the work's path and the item alone: the same for every try,
              on every server
    path      the item's record
    record    what was known of it when we began: tries, failures, the last failure's why
    payload   of a queue's item: what was put
    lost      set when it is over before we ended it: `lost.is_set()`, `lost.error`
    is_busy   somebody is inside its block
    is_believed  the session's lease has been proven since it was made
    """

    def __init__(
        self,
        owner: Owner,
        path: str,
        key: str,
        record: Record,
        version: int,
        stat: Stat,
        lease: Lease,
    ) -> None:
        """`record` as it stands at `version`, begun; `stat` of the claim's znode."""
        self.item = record.item
        self.key = key
        self.path = path
        self.record = record
        self.payload = record.payload
        self.lost = Latch()
        self.lease = lease
        self.session_id = stat.ephemeralOwner
        self._owner = owner
        self._client = owner.client
        self._version = version
        self._czxid = stat.czxid
        self.is_believed = False
        self.is_busy = False
        self._is_begun = False
        self._ending: asyncio.Task[None] | None = None
        self._scope: Scope[Claim] | None = None
        self._beat: AbstractContextManager[None] | None = self._client.beat(self.znode)
        self._beat.__enter__()

    @property
    def znode(self) -> str:
        """The path of the claim's own znode."""
        return f"{self.path}/{CLAIM}"

    @property
    def fencing_token(self) -> int:
        """The transaction that made the claim: larger for each later claim on the item."""
        return self._czxid

    @property
    def valid_until(self) -> float:
        """Seconds of CLOCK_BOOTTIME: before this nobody else can have it; rises with each beat."""
        return self.lease.valid_until

    @property
    def is_ended(self) -> bool:
        """Ended by us, or about to be."""
        return self._ending is not None

    def remaining(self) -> float:
        """Seconds from now for which it is ours; 0 once lost or ended."""
        left = self.lease.valid_until - self._owner.grace - self._client.clock.boottime()
        return 0.0 if self.is_ended or self.lost.is_set() else max(0.0, left)

    def ensure(self) -> None:
        """Return if it is ours at this instant; else raise `ClaimLost`."""
        if error := self.why_not():
            if not self.is_ended and self._client.is_ours:
                self.lost.set(error)
            raise error

    def why_not(self) -> ClaimLost | None:
        """The error that `ensure` would raise, or None. Any thread may ask."""
        if self.lost.error is not None:
            assert isinstance(self.lost.error, ClaimLost)
            return self.lost.error
        if self.is_ended:
            return ClaimLost(self.path, "it was ended by ourselves")
        if not self._client.is_ours:
            return ClaimLost(self.path, "it is had by the process that this one was forked from")
        return None if self.remaining() > 0 else ClaimLost(self.path, _LATE)

    # -- the four ends

    def done(self) -> asyncio.Task[None]:
        """Finished: nobody begins it again for `keep_done` seconds. Need not be awaited.

        Awaited, it returns when the servers have it, or raises `ClaimLost` if they have not:
        then somebody else may begin it, and finds in the database that it is done.
        """
        if not self._owner.keeps_done:
            return self._end(None, leaves_effects=False)
        marked = replace(self.record, state="done", tries=0, failures=0, why="", payload=b"")
        return self._end(marked, leaves_effects=False)

    def give_back(self) -> asyncio.Task[None]:
        """As if we had not begun. If we have, the claim stays for the lag first.

        Also for a lost claim, once nothing is done under it any more: if its session lives after
        all, nobody else could begin the item before that ends.
        """
        if self._ending is not None:
            return self._ending
        after = self.record.not_begun()
        is_as_new = self._owner.keeps_done and after == Record(item=self.item)
        return self._begin_end(None if is_as_new else after, leaves_effects=self._is_begun)

    def fail(self, why: str, *, retry_in: float = 0.0) -> asyncio.Task[None]:
        """It could not be finished: counted, and free again in `retry_in` seconds, or after the
        lag if that is longer."""
        after = self.record.failed(_short(why)).waiting(retry_in, self._client.clock.wall())
        return self._end(after, leaves_effects=True)

    def park(self, why: str) -> asyncio.Task[None]:
        """It could not be finished, and nobody is to begin it before `retry` or `done` by hand."""
        after = replace(self.record.failed(_short(why)), state="parked", not_before=0.0, wait=0.0)
        return self._end(after, leaves_effects=False)

    # -- as a block: `async with claim`

    def begun(self) -> Claim:
        """Its handler begins: from now on there may be effects."""
        self._is_begun = True
        return self

    async def __aenter__(self) -> Claim:
        self._scope = Scope(self)
        await self._scope.__aenter__()
        self.is_busy = True
        return self.begun()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._scope is not None
        scope, self._scope = self._scope, None
        try:
            await scope.__aexit__(kind, error, traceback)  # raises if it is lost
        finally:
            self.leave(error)

    def leave(self, error: BaseException | None) -> None:
        """The block is over: done, or failed if an exception ended it, or given back."""
        self.is_busy = False
        if self.is_ended:
            return
        if self.why_not() is not None:
            self.give_back()
        elif error is None:
            self.done()
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}")
        else:
            self.give_back()

    async def begin(self) -> None:
        """For the block: raises `ClaimLost` if it is over already."""
        self.ensure()

    def belongs_to(self, owner: object) -> None:
        """Anybody may end it."""

    def look(self) -> None:
        """Read the clock; lose it if its time is over."""
        if self.is_ended:
            return
        if self.is_session_over:
            self._lose("the session is over")
            self._stop_beating()
            self._owner.ended(self, None)
        elif self.is_believed and self.remaining() <= 0:
            self._lose(_LATE)

    def end(self) -> None:
        """The block is over; the claim is ended by `leave`."""

    @property
    def is_session_over(self) -> bool:
        return self.lease.ended or self._client.state in (State.LOST, State.CLOSED)

    def _lose(self, why: str) -> None:
        self.lost.set(ClaimLost(self.path, why))

    # -- ending it

    def _end(self, after: Record | None, *, leaves_effects: bool) -> asyncio.Task[None]:
        """`after`: its record from now on; None: there is none. With effects that the next one
        could not see yet in a copy that lags, the claim goes on standing for that long.
        Raises `ClaimLost` at once if it is lost or ended."""
        self.ensure()
        return self._begin_end(after, leaves_effects=leaves_effects)

    def _begin_end(self, after: Record | None, *, leaves_effects: bool) -> asyncio.Task[None]:
        wait = self._owner.lag if leaves_effects else 0.0
        self._ending = self._owner.ledger.owe(self._write(after, wait))
        return self._ending

    async def _write(self, after: Record | None, wait: float) -> None:
        marked_at: int | None = None
        try:
            if wait:
                await asyncio.sleep(wait)
            await self._carry_out(after)
            if after is not None and after.state == "done":
                marked_at = self._version + 1
        finally:
            self._stop_beating()
            self._owner.ended(self, marked_at)

    def _operations(self, after: Record | None) -> list[MultiOp]:
        claim = Delete(self.znode, 0)
        if after is None:
            return [claim, Delete(self.path, self._version)]
        return [claim, SetData(self.path, after.write(name(self.path)), self._version)]

    async def _carry_out(self, after: Record | None) -> None:
        """Returns when it is done; raises `ClaimLost` when the session ended before."""
        operations = self._operations(after)
        pause = Pause()
        is_certain = True
        while not self.is_session_over:
            try:
                if not is_certain and not await self._still_stands():
                    if await self._has_become(after):
                        return
                    break  # it went with its session
                self._stop_beating()  # what is sent behind this finds no znode any more
                await self._owner.write_end(operations)
                return
            except (NoNode, BadVersion):
                self._taken_away()
                break
            except (FateUnknown, NotSent):
                is_certain = False
            except SessionError as error:
                self._lose(str(error))
                break
            except Refused as error:
                if error.code != SYSTEM_ERROR:
                    self._owner.ledger.log(
                        f"{self.path} stays claimed until the session ends: {error}"
                    )
                    raise
            self._beat_on()
            await pause.take()
        self._lose("the session is over")
        assert self.lost.error is not None
        raise self.lost.error

    async def _still_stands(self) -> bool:
        """Is our claim's znode there, behind all that we have sent?"""
        (found,) = await read_back(self._client, GetData(self.znode))
        if isinstance(found, NoNode):
            return False
        if isinstance(found, BaseException):
            raise found
        _, stat = found
        return bool(stat.czxid == self._czxid)

    async def _has_become(self, after: Record | None) -> bool:
        """Our znode is gone: by our lost write, or with our session? By the first, its record is
        as we wrote it. Where others have been there since, that is not known, and not said."""
        try:
            data, stat = await self._client.get(self.path)
        except NoNode:
            return after is None
        if after is None:
            return False
        return stat.version == self._version + 1 and data == after.write(name(self.path))

    def _taken_away(self) -> None:
        why = "its znodes were changed or deleted by somebody"
        self._owner.ledger.log(f"{self.path}: the claim is lost: {why}")
        self._owner.ledger.delete(self.znode, self._czxid, self.session_id)
        self._lose(why)

    def _beat_on(self) -> None:
        if self._beat is None and not self.is_session_over:
            self._beat = self._client.beat(self.znode)
            self._beat.__enter__()

    def _stop_beating(self) -> None:
        beat, self._beat = self._beat, None
        if beat is not None:
            beat.__exit__(None, None, None)


def _short(why: str) -> str:
    return why if len(why) <= 500 else why[:499] + "…"
