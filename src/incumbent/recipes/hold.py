"""What one has while being first: a lock or a leadership, believed until its lease ends.

A hold is lost, once and for good, at the first of: `grace` seconds before the session could be
over (nothing was heard in time, whatever the server thinks); the end of the session; the
deletion of our znode by somebody else. Then the block that it guards is cancelled, as
`asyncio.timeout` does it, and leaving the block raises `LockLost` or `Deposed`.

Rule of this file: "held" is said only after reading the clock now. Timers are hints; a hold
that was lost is never held again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from incumbent.client import transaction
from incumbent.errors import (
    Deposed,
    FateUnknown,
    HoldLost,
    NoNode,
    NotSent,
    NumbersDontFit,
    Refused,
    SessionError,
)
from incumbent.recipes.content import fitting
from incumbent.recipes.epoch import count_up
from incumbent.recipes.latch import Latch
from incumbent.recipes.ledger import Pause
from incumbent.wire import MultiResult

if TYPE_CHECKING:
    from incumbent.recipes.place import Place

__all__ = ["LASTING", "Guarding", "Held", "Hold", "Scope", "Transaction", "tried"]

LASTING = 0.05
"""Seconds after which a lock, or a wait for one, has our znode watched, to be told of a deletion by
hand or a request to give way. Most are shorter, and need no request more. A leadership lasts: it
is watched from its beginning."""

_LATE = "no beat was acknowledged in time, the session may end soon"


class Hold:
    """A lock or a leadership.

    path           the queue's path; of a multilock all of them, with commas
    name           our znode's name there; of a multilock in the first
    is_shared      others may hold it at the same time: readers, semaphores
    lost           set when the hold is over: `lost.is_set()`, `await lost.wait()`, `lost.error`
    asked          an Event: somebody asks us to give way (`zk.revoke`); what we do is our choice
    overrun        seconds for which the block went on after `valid_until`; 0 if it did not
    """

    def __init__(
        self,
        place: Place,
        *more: Place,
        grace: float | None,
        error: type[HoldLost],
        is_shared: bool = False,
    ) -> None:
        """Of one place, or of several that one session has."""
        self._places = (place, *more)
        self.path = ", ".join(each.directory for each in self._places)
        self.name = place.name
        self.is_shared = is_shared or place.is_reader
        self.lost = Latch()
        self.asked = place.asked
        self.overrun = 0.0
        self._place = place
        self._client = place.ledger.client
        self._error = error
        self._grace = self._client.timeout / 10 if grace is None else grace
        self._timer: asyncio.TimerHandle | None = None
        self._beat: Any = None
        self._owner: object = None
        self.block: Callable[[], object] | None = None
        self._believed_until = -math.inf
        self._epoch: int | None = None

    @property
    def fencing_token(self) -> int:
        """Rises from holder to holder; give it to whatever can refuse an older one.

        With an `epoch_path` it is this hold's number there. Without, there is none
        (AttributeError) where several hold at a time: readers, semaphores.
        """
        if self._epoch is not None:
            return self._epoch
        if self.is_shared:
            raise AttributeError(
                f"{self.path} is shared with others: its tokens are counted with epoch_path="
            )
        return self._place.czxid

    @property
    def valid_until(self) -> float:
        """Seconds of CLOCK_BOOTTIME: before this nobody else can hold it; rises with each beat."""
        return self._place.lease.valid_until

    @property
    def is_over(self) -> bool:
        """Its block has not begun, or it has ended; whether it was lost is another matter."""
        return self._beat is None

    def remaining(self) -> float:
        """Seconds from now to `valid_until`; 0 once lost or given back."""
        left = self.valid_until - self._client.clock.boottime()
        is_held = self._beat is not None and not self.lost.is_set() and self._client.is_ours
        return max(0.0, left) if is_held else 0.0

    def ensure(self) -> None:
        """Return if it is held at this instant; else raise `LockLost` or `Deposed`."""
        if error := self.why_not():
            if self._beat is not None and self._client.is_ours:
                self.lost.set(error)
            raise error

    def why_not(self) -> HoldLost | None:
        """The error that `ensure` would raise, or None. Any thread may ask."""
        if self.lost.error is not None:
            assert isinstance(self.lost.error, HoldLost)
            return self.lost.error
        if self._beat is None:
            return self._error(self.path, "it was given back")
        if not self._client.is_ours:
            return self._error(self.path, "it is held by the process that this one was forked from")
        if self._soft_in() <= 0:
            return self._error(self.path, _LATE)
        return None

    async def update(self, member: str | bytes) -> None:
        """What others are to read in our znode from now on, in place of what it was made with.

        Returns when the servers have it. Repeated as often as needed, with the newest `member`
        of all calls. Raises `LockLost` or `Deposed` once it is lost, `TooLarge` (then what was
        there stays), or what the server refused.
        """
        self._place.data = fitting(self._client, self._place.path, member)
        pause = Pause()
        while True:
            self.ensure()
            try:
                await self._client.set(self._place.path, self._place.data)
                return
            except NoNode:
                self._place.gone.set(NoNode(self._place.path))
            except (FateUnknown, NotSent, SessionError):
                await pause.take()

    def transaction(self) -> Transaction:
        """Writes that are done only if we hold it when they are: all of them, or none."""
        return Transaction(self)

    def belongs_to(self, owner: object, block: Callable[[], object] | None = None) -> None:
        """Whose block it guards: a task or a thread, which must not wait for it again. `block`, of
        a thread: what ends it, None once that is gone."""
        self._owner, self.block = owner, block
        for place in self._places:
            place.ledger.holders.setdefault((place.directory, owner), self)

    def disown(self) -> None:
        """Nobody's block any more. From any thread."""
        holders = self._place.ledger.holders
        for place in self._places:
            if holders.get((place.directory, self._owner)) is self:
                holders.pop((place.directory, self._owner), None)

    async def begin(self) -> None:
        """Believe in it: at once if the lease is proven now, else after beats that prove it.

        Raises `SessionExpired`, `SessionClosed`, or `NoNode` if our znode was deleted; with an
        `epoch_path` also `BadContent`, or what the server refused.
        """
        if self._beat is not None:
            return
        self._refuse_too_much_grace()
        self._beat = self._client.beat(self._place.path)
        self._beat.__enter__()
        try:
            if self._place.epoch_path is not None and self._epoch is None:
                self._epoch = await count_up(self._places, self._place.epoch_path)
            if self._soft_in() <= 0:
                await self._prove()
            self._raise_if_gone()
        except BaseException:
            self.end()
            raise
        for place in self._places:
            place.gone.listen(partial(self._gone, place))
        if issubclass(self._error, Deposed):
            self._watch_own()
        self._look_in(min(self._soft_in(), LASTING))

    def release(self) -> None:
        """The end, and the place is given up: the next one may have it."""
        self.end()
        for place in self._places:
            place.release()

    def end(self) -> None:
        """The block is over; the place stays ours until it is released."""
        late = self._client.clock.boottime() - self._believed_until
        if self.lost.is_set() and late > 0 and self._beat is not None:
            self.overrun = late
            self._place.ledger.log(
                f"{self.path}: the block went on for {late:.3f} s after its {self._error.noun} was over"
            )
        self._look_in(None)
        if self._beat is not None:
            self.disown()
            beat, self._beat = self._beat, None
            beat.__exit__(None, None, None)

    async def _prove(self) -> None:
        """Wait until the lease reaches far enough. Mostly our create has proved it."""
        self._watch_own()
        beaten = asyncio.Event()
        stop_beats = self._client.watch_beats(lambda sent_at: beaten.set())
        stops = [place.gone.listen(beaten.set) for place in self._places]
        try:
            while self._soft_in() <= 0:
                beaten.clear()
                self._raise_if_gone()
                await beaten.wait()
        finally:
            stop_beats()
            for stop in stops:
                stop()

    def _raise_if_gone(self) -> None:
        for place in self._places:
            place.raise_if_gone()

    def _soft_in(self) -> float:
        until = self.valid_until
        self._believed_until = max(self._believed_until, until)
        return until - self._grace - self._client.clock.boottime()

    def look(self) -> None:
        """Read the clock; lose it if it is too late."""
        if self._beat is not None and self._soft_in() <= 0:
            self._lose(_LATE)

    def _wake(self) -> None:
        """Look, and look again in time."""
        self.look()
        if not self.lost.is_set() and self._beat is not None:
            self._watch_own()
            self._look_in(min(self._soft_in(), self._client.timeout / 10))

    def _look_in(self, seconds: float | None) -> None:
        """Set the timer anew; None: no timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _watch_own(self) -> None:
        for place in self._places:
            place.watch_own()

    def _gone(self, place: Place) -> None:
        error = place.gone.error
        if isinstance(error, NoNode):
            self._lose(f"its znode {place.name} was deleted by somebody")
        else:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self._look_in(None)
        self.lost.set(self._error(self.path, why))

    def _refuse_too_much_grace(self) -> None:
        timeout, lease = self._client.timeout, self._place.lease
        room = timeout - lease.margin - lease.report_lag - timeout / 5
        if not 0 <= self._grace < room:
            raise NumbersDontFit(
                f"grace {self._grace:g} s, while a session of {timeout:g} s leaves {room:.3g} s "
                "between two beats and its end",
                "lower grace, or raise session_timeout",
            )


class Guarding(Protocol):
    """What a scope needs of what guards its block."""

    lost: Latch

    async def begin(self) -> None: ...

    def belongs_to(self, owner: object) -> None: ...

    def look(self) -> None: ...

    def end(self) -> None: ...


HeldT = TypeVar("HeldT", bound=Guarding)


class Scope(Generic[HeldT]):
    """`async with` around what a hold guards: cancelled when it is lost, like `asyncio.timeout`.

    Leaving the block of a lost hold raises its error: instead of the cancellation made here, of
    an error of the session, and of a normal end. A cancellation from outside stays one, and
    any other exception of the block stays itself.
    """

    def __init__(self, hold: HeldT) -> None:
        self._hold = hold
        self._interrupt: asyncio.Handle | None = None
        self._is_interrupted = False

    async def __aenter__(self) -> HeldT:
        task = asyncio.current_task()
        assert task is not None, "a hold is taken inside a task"
        await self._hold.begin()
        self._task = task
        self._hold.belongs_to(task)
        self._cancelling = task.cancelling()
        self._forget = self._hold.lost.listen(self._soon)
        return self._hold

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._forget()
        if self._interrupt is not None:
            self._interrupt.cancel()
        self._hold.look()
        self._hold.end()
        ours = True
        if self._is_interrupted:
            ours = self._task.uncancel() <= self._cancelling
        lost = self._hold.lost.error
        if lost is None or error is lost:
            return
        is_our_cancel = self._is_interrupted and ours and kind is asyncio.CancelledError
        if error is None or is_our_cancel or isinstance(error, SessionError | HoldLost):
            raise lost from error

    def _soon(self) -> None:
        """Not now: the block itself may be running, and `ensure` tells it by its exception."""
        loop = asyncio.get_running_loop()
        self._interrupt = loop.call_soon(self._cancel)

    def _cancel(self) -> None:
        self._is_interrupted = True
        self._task.cancel()


class Held(Scope[Hold]):
    """A scope that gives its places up at the end, however it ends."""

    async def __aenter__(self) -> Hold:
        try:
            return await super().__aenter__()
        except BaseException:
            self._hold.release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, traceback)
        finally:
            self._hold.release()


@asynccontextmanager
async def tried(take: Callable[[], Awaitable[Hold | None]]) -> AsyncIterator[Hold | None]:
    """What a try has got, for the block, or None."""
    hold = await take()
    if hold is None:
        yield None
        return
    async with Held(hold):
        yield hold


class Transaction(transaction.Transaction):
    """Writes under a hold: one multi, led by the check that our znode still stands.

    Guards znodes only; for anything else give `fencing_token` along. `commit()` sends it; used
    as a context manager it commits at the end of the block, unless that raised. `results` then
    has one result per operation: the path made, the Stat, or None.
    """

    def __init__(self, hold: Hold) -> None:
        super().__init__(hold._client)
        self._hold = hold

    async def commit(self) -> Sequence[MultiResult]:
        """Raises the hold's error if it is lost, the refusal of the operation that failed (then
        nothing was done), `FateUnknown` if no answer came: read back what it would have written.
        """
        self._hold.ensure()
        places = self._hold._places
        checks = [place.check_own() for place in places]
        try:
            results = await self._hold._client.multi([*checks, *self._operations])
        except Refused as error:
            if error.index is not None and error.index < len(places):
                gone = places[error.index]
                gone.gone.set(NoNode(gone.path))
                self._hold.ensure()
            raise
        self.results = results[len(checks) :]
        return self.results
