"""A place in a queue of contenders: our znode, who stands before it, and the wait to be first.

Only the one next in line wakes when the first one leaves, and only it (and the holder) beats.
A handover costs no round trip if all of this is so: we sent beats while waiting and the session
is believed now; the last listing was read after our own create and showed exactly one contender
before us; what came is the deletion of exactly that one; the session is still the same. Nobody
with a lower number can appear later, so the event itself is the grant; and so is "no such znode"
to the read that was to watch it, for that read came after the listing which showed it. In every
other case we ask: with a listing alone while the session is believed in, since it then has our
znode and shows who is before it; else, or if there is any doubt, with `multi[check own]` and a
listing in one flight.

The predecessor is watched through its data (getData): such a watch goes with the znode, while an
exists-watch on a znode that is gone already would stay at the server for good.

Rule of this file: being first is concluded from a listing read after our own create, or from the
deletion of the only contender that such a listing showed before us, told by its event or by a
later read; from nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

from incumbent.client import State
from incumbent.client.calls import Call
from incumbent.errors import (
    FateUnknown,
    HoldLost,
    IncumbentError,
    LockLost,
    NoNode,
    NotSent,
    SessionClosed,
    SessionError,
    SessionExpired,
)
from incumbent.recipes.dialects import Contender, Dialect
from incumbent.recipes.flight import flight, unheard
from incumbent.recipes.hold import LASTING, Hold, Scope
from incumbent.recipes.latch import Latch
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.wire import (
    Check,
    EventType,
    GetChildren,
    GetData,
    Multi,
    SetData,
    Stat,
    WatchEvent,
)

__all__ = ["REVOKE", "Place", "join"]

REVOKE = b"__REVOKE__"
"""Put into a contender's znode it asks to give way: Curator's `Revoker` does the same."""


_AGAIN = 0.1
"""Seconds after which our own znode is looked at again, where the answer was lost."""


def join(directory: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if directory == "/" else f"{directory}/{name}"


class Place:
    """Our znode in a queue. Made by `Queue.enter`; ends with `leave` or `release`.

    directory   the queue's path
    path, name  our znode, whole path and last part
    czxid       the transaction that made it: larger for everyone who came later
    data        what we put into it
    listing     the queue as last read, first one first; always read after our own create
    beside      what was read just before it (`Queue.beside`)
    epoch_path  where holds are counted for a fencing token (`epoch`)
    watching    the name of the contender that we wait for, None when we don't
    gone        set when our znode was deleted by somebody, or its session is over
    asked       set when somebody asked us to give way, if our znode is watched
    is_reader   it lets other readers in beside it
    is_released  it was given up: its deletion is asked for
    """

    def __init__(
        self, ledger: Ledger, directory: str, dialect: Dialect, path: str, stat: Stat, data: bytes
    ) -> None:
        self.directory = directory
        self.dialect = dialect
        self.path = path
        self.name = path[path.rindex("/") + 1 :]
        self.czxid = stat.czxid
        self.session_id = stat.ephemeralOwner
        self.data = data
        self.listing: tuple[Contender, ...] = ()
        self.beside: tuple[Any, ...] = ()
        self.reads_beside: tuple[GetData, ...] = ()
        self.epoch_path: str | None = None
        self.watching: str | None = None
        self.gone = Latch()
        self.asked = asyncio.Event()
        self._ours = dialect.contender(self.name)
        self.is_reader = self._ours is not None and self._ours.is_reader
        self.ledger = ledger
        self._client = ledger.client
        self.lease = self._client.lease  # this session's; the next one has another
        self._has_told_next = False
        self._watches_own = False
        self.is_released = False
        self._released: asyncio.Future[None] | None = None
        self._forget_state = self._client.watch_state(self._on_state)
        ledger.standing[path] = self

    def ahead(self) -> tuple[str, ...]:
        """The names that keep us out by the last listing, first one first: all before ours, and
        for a reader the writers among them."""
        return tuple(contender.name for contender in self._keep_out())

    def check_own(self) -> Check:
        """To put into a multi: refuse it unless our znode is there."""
        return Check(self.path)

    async def data_of(self, name: str) -> bytes | None:
        """The data of a contender, None if it left."""
        try:
            return (await self._client.get(join(self.directory, name)))[0]
        except NoNode:
            return None

    async def first(self, on_change: Callable[[Place], None] | None = None) -> None:
        """Return when nobody is before us who keeps us out.

        `on_change` is called whenever we begin to wait for a contender (then `watching` is its
        name). Waits through disconnections; bound it with `asyncio.timeout`. Raises
        `SessionExpired` or `SessionClosed` when the session ends, `NoNode` when somebody
        deleted our znode.
        """
        assert self.listing, "a place is made with a listing"
        while ahead := self._keep_out():
            nearest, is_next = ahead[-1].name, len(ahead) == 1
            if self.watching != nearest:
                self.watching = nearest
                if on_change is not None:
                    on_change(self)
            is_deleted = await self._wait_for(nearest, is_next)
            if is_deleted and is_next and self._is_believed():
                self.listing = tuple(c for c in self.listing if c.name != nearest)
            elif not (is_deleted and self._is_believed() and await self._look()):
                await self.refresh()
        self.watching = None
        self.raise_if_gone()

    async def refresh(self, watcher: Callable[[WatchEvent], object] | None = None) -> None:
        """Read the queue again, after proof that our znode stands in it. Raises as `first`.

        `watcher` hears of the next change of what is read; whoever gives one takes it off.
        """
        pause = Pause()
        watch = watcher is not None
        reads = [replace(each, watch=watch) for each in self.reads_beside]
        while True:
            self.raise_if_gone()
            checked, *beside, children = await flight(
                self._client,
                Multi([self.check_own()]),
                *reads,
                GetChildren(self.directory, watch),
                watcher=watcher,
            )
            errors = [each for each in (checked, *beside, children) if _is_error(each)]
            if isinstance(checked, NoNode):
                self.gone.set(NoNode(self.path))
            elif isinstance(checked, SessionError):
                raise checked
            elif not errors and isinstance(children, list):
                self.listed(children, beside)
                return
            elif not isinstance(errors[0], FateUnknown | NotSent | NoNode):
                raise errors[0]
            else:
                await pause.take()

    def listed(self, children: Sequence[str], beside: Sequence[object] = ()) -> None:
        """Take over a listing that was read after our create, and what was read just before."""
        self.beside = tuple(beside)
        self.dialect.admit(self.directory, self.name)
        self.listing = self.ledger.listings.rank(self.dialect, self.directory, children)
        at = self._our_position()
        if at == len(self.listing) or self.listing[at] != self._ours:
            self.gone.set(NoNode(self.path))

    def hold(self, *, grace: float | None = None, error: type[HoldLost] = LockLost) -> Scope[Hold]:
        """What being first is worth: `async with place.hold() as hold`. See `Scope`."""
        return Scope(Hold(self, grace=grace, error=error))

    def tell_next(self) -> None:
        """Being first, and to stay so for long: whoever stands behind us watches our znode, knows
        of somebody before us still, and looks again when it is written. Then it knows that it is
        next, beats, and takes over without a round trip. Once; waits for nothing.
        """
        if self._has_told_next:
            return
        self._has_told_next = True
        self._client.ask(SetData(self.path, self.data), unheard)

    def watch_own(self) -> None:
        """From now on `gone` also tells of a deletion by hand, and `asked` of a request."""
        if not self._watches_own:
            self._watches_own = True
            self._watch_own()

    def release(self) -> asyncio.Future[None]:
        """Give the place up, waiting for nothing; the deletion is a duty of the session.

        The deletion goes first, for somebody waits for it. It fires the watch on our znode, which
        therefore need not be taken off before.
        """
        if self._released is None:
            self.is_released = True
            self._forget_state()
            self._released = self.ledger.delete(self.path, self.czxid, self.session_id)
            if self.listing and self.listing[-1] != self._ours:
                self._client.flush()  # somebody waits for it
            if self._watches_own:
                forget = partial(self._client.unwatch, self.path, self._own_changed)
                self._released.add_done_callback(lambda _: forget())
        return self._released

    async def leave(self) -> None:
        """Give the place up; returns when our znode is deleted or its session is over."""
        await asyncio.shield(self.release())

    async def _wait_for(self, name: str, is_next: bool) -> bool:
        """Wait until something happened to `name`; True if it is certainly deleted."""
        path = join(self.directory, name)
        loop = asyncio.get_running_loop()
        happened: asyncio.Future[WatchEvent | Exception | None] = loop.create_future()

        def wake(what: WatchEvent | Exception | None = None) -> None:
            if not happened.done():
                happened.set_result(what)

        def read(outcome: object) -> None:
            if isinstance(outcome, Exception):
                wake(outcome)  # else the watch is set, and will tell

        what: WatchEvent | Exception | None = None
        reading: Call | None = None
        forget = self.gone.listen(wake)
        lasting: asyncio.TimerHandle | None = None
        with self._client.beat(self.path) if is_next else contextlib.nullcontext():
            if is_next and not self._watches_own:
                lasting = loop.call_later(LASTING, self.watch_own)
            try:
                reading = self._client.ask(GetData(path, watch=True), read, watcher=wake)
                what = await happened
            finally:
                if lasting is not None:
                    lasting.cancel()
                forget()
                if reading is not None:
                    reading.cancel()
                if not isinstance(what, WatchEvent):  # which took the watch with it
                    self._client.unwatch(path, wake)
        if isinstance(what, FateUnknown | NotSent):
            return False
        if isinstance(what, Exception) and not isinstance(what, NoNode):
            raise what
        self.raise_if_gone()
        # no such znode: it stood in a listing that we had read before
        return isinstance(what, NoNode) or (what is not None and what.type is EventType.DELETED)

    def _watch_own(self) -> None:
        if not self.is_released and not self.gone.is_set():
            own = self._client.submit(GetData(self.path, watch=True), watcher=self._own_changed)
            own.add_done_callback(self._own_read)

    def _own_read(self, answer: asyncio.Future[tuple[bytes | None, Stat]]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or self.is_released:
            return
        if isinstance(error, FateUnknown | NotSent):
            asyncio.get_running_loop().call_later(_AGAIN, self._watch_own)
        elif isinstance(error, IncumbentError):
            self.gone.set(error)
        elif error is None and answer.result()[0] == REVOKE:
            self.asked.set()

    def _own_changed(self, event: WatchEvent) -> None:
        if self.is_released:
            return
        if event.type is EventType.DELETED and self._client.is_closing:
            self.gone.set(SessionClosed(self.session_id, "its client is being closed"))
        elif event.type is EventType.DELETED:
            self.gone.set(NoNode(self.path))
        elif event.type is EventType.NONE:
            self.gone.set(SessionExpired(self.session_id, "it is over"))
        else:
            self._watch_own()

    def _on_state(self, state: State) -> None:
        if state in (State.LOST, State.CLOSED):
            self.gone.set(SessionExpired(self.session_id, f"it is {state.name.lower()}"))

    def _our_position(self) -> int:
        assert self._ours is not None
        return bisect_left(self.listing, self._ours)

    def _keep_out(self) -> Sequence[Contender]:
        before = self.listing[: self._our_position()]
        if not self.is_reader:
            return before
        return [contender for contender in before if contender.keeps_out(a_reader=True)]

    async def _look(self) -> bool:
        """Read the queue again. False if that did not do: the session is not believed in now."""
        read: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def listed(outcome: object) -> None:
            if not read.done():  # cancelled in this very turn of the loop
                read.set_result(outcome)

        asked = self._client.ask(GetChildren(self.directory), listed)
        self._client.flush()  # we may be next, and everybody behind us waits
        try:
            children = await read
        finally:
            asked.cancel()
        self.raise_if_gone()
        if not isinstance(children, list) or not self._is_believed():
            return False
        self.listed(children, self.beside)
        return True

    def _is_believed(self) -> bool:
        return self._client.clock.boottime() < self.lease.valid_until

    def raise_if_gone(self) -> None:
        if self.gone.error is not None:
            raise self.gone.error
        if self._client.session_id != self.session_id:
            raise SessionExpired(self.session_id, "another session took its place")


def _is_error(result: object) -> TypeGuard[BaseException]:
    return isinstance(result, BaseException)
