"""A queue of items: whoever deletes an item has taken it.

An item is a persistent znode `item-<priority>-<nonce>-<ten digits>`: the smallest priority goes
first, then the smallest number. Its data is read before its deletion is asked for, so that the
data is in our hands when the fate of that deletion is unknown.

A taken item is gone from ZooKeeper: if its taker dies, so does the item. Who cannot have that
looks with `peek` and deletes the item in one transaction with what came of it:

    item = await queue.peek()
    async with zk.transaction() as t:
        t.delete(item.path, item.version)       # refused with NoNode if somebody was faster
        t.set("/app/total", total)

Rule of this file: an item is never given out twice, and one that may be lost is named: an
answer that was lost is read back, and where that does not tell, `ItemUnknown` has the item.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from incumbent.client import Client
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    ItemUnknown,
    NodeExists,
    NoNode,
    NotSent,
    QueueExhausted,
    Refused,
    SessionClosed,
    SessionExpired,
)
from incumbent.recipes.content import as_bytes
from incumbent.recipes.dialects import LAST_SEQUENCE
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.line import MOST_LOSSES, Item, Line, number_of, stem_of
from incumbent.recipes.place import join
from incumbent.recipes.readback import read_back
from incumbent.wire import (
    AddWatch,
    Create,
    CreateFlag,
    Delete,
    Exists,
    GetChildren,
    GetData,
    KeeperState,
    Stat,
    WatchEvent,
    WatchMode,
)
from incumbent.wire.paths import ancestors, problem

__all__ = ["Item", "ItemQueue", "Items"]

_TRIES = 5

_WINS = 8
"""Items in a row after which one race less is remembered as lost."""

_LINGER = 1.0
"""Seconds that a cancelled take may need to learn what became of its item, and put it back."""


class ItemQueue:
    """The items at `path`, a persistent znode that the first item makes."""

    def __init__(self, client: Client, path: str, *, rng: random.Random, ledger: Ledger) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.client = client
        self.path = path
        self.rng = rng
        self.ledger = ledger
        self.likely = ""
        """Name of the item that may well be first: its data is asked for along with the listing."""
        self.known: tuple[str, bytes] | None = None
        """The item that was put here last. While its version is 0 it has this data."""

    async def put(self, data: str | bytes, *, priority: int = 100) -> str:
        """Put an item at the end of its priority, 0 (first) to 999; its path.

        One round trip. Raises `ItemUnknown` if the answer was lost and the item is not there:
        then it was taken already, or never put. `NotSent`: it was not put. Cancelled, it may
        have been put.
        """
        stem = stem_of(priority, f"{self.rng.getrandbits(64):016x}")
        body = as_bytes(data)
        create = Create(join(self.path, stem), body, flags=CreateFlag.SEQUENTIAL)
        above: list[Create] = []
        for _ in range(_TRIES):
            *results, made = await flight(self.client, *above, create)
            if isinstance(made, FateUnknown):
                made = await self._read_back(stem, body, made)
            if not isinstance(made, NoNode):
                break
            if why := why_not_made(self.client, create.path, results):
                raise why
            above = [Create(path) for path in (*ancestors(self.path), self.path)]
        if isinstance(made, BaseException):
            raise made
        assert isinstance(made, str)
        if not 0 <= number_of(made) < LAST_SEQUENCE:
            with contextlib.suppress(NoNode):  # taken already, so it was put
                await self.client.delete(made)
                raise QueueExhausted(self.path, number_of(made))
        self.known = made[made.rindex("/") + 1 :], body
        return made

    async def take(self, timeout: float | None = None) -> Item | None:
        """Take the first item; None if none came within `timeout` seconds.

        Three round trips, or two where the first item is the one that was expected: the next one
        of the last listing, or what was put here; `items` has the next ones for one each. Waits through disconnections
        and into later sessions; with 0 it looks once, and raises if there is no connection. A
        deletion that was begun in time is waited for. Raises `ItemUnknown`, with the item, if it is gone and whether
        by us or by somebody else is not known. A cancelled take puts the item back.
        """
        async with self.items() as items:
            items.looks_ahead = False
            return await items.take(timeout)

    async def peek(self, timeout: float | None = 0) -> Item | None:
        """The first item, which stays where it is; None if there is none. Two round trips, or one
        where it is the one that was expected."""
        async with self.items() as items:
            items.looks_ahead = False
            return await items.peek(timeout)

    async def size(self) -> int:
        """How many items there are; whatever else stands there counts too."""
        stat = await self.client.exists(self.path)
        return 0 if stat is None else stat.numChildren

    @asynccontextmanager
    async def items(self) -> AsyncIterator[Items]:
        """To take again and again, one round trip each: `async with queue.items() as items`,
        then `await items.take()` or `async for item in items`."""
        items = Items(self)
        try:
            yield items
        finally:
            items.forget()

    async def put_back(self, item: Item) -> None:
        """Put a taken item where it was. If that cannot be done for certain, the log says so."""
        pause = Pause()
        try:
            while True:
                made, *_ = await flight(self.client, Create(item.path, item.data))
                if isinstance(made, FateUnknown):
                    made, *_ = await read_back(self.client, Exists(item.path))
                if not isinstance(made, BaseException) or isinstance(made, NodeExists):
                    return
                if not isinstance(made, NotSent | SessionExpired):
                    raise made
                await pause.take()
        except (IncumbentError, asyncio.CancelledError) as error:
            why = str(error) or "the client was closed"
            self.ledger.log(f"{item.path} was taken by nobody, and may be lost: {why}")
            raise

    async def _read_back(self, stem: str, data: bytes, lost: FateUnknown) -> str:
        try:
            (names,) = await read_back(self.client, GetChildren(self.path))
        except IncumbentError as error:
            raise ItemUnknown(join(self.path, stem), data, f"{lost.why}; {error}") from None
        for name in names if isinstance(names, list) else ():
            if name.startswith(stem):
                return join(self.path, name)
        why = f"{lost.why}; it is not in the queue: taken already, or never put"
        raise ItemUnknown(join(self.path, stem), data, why)


class Items:
    """A queue's items as they come; made by `ItemQueue.items`.

    One recursive watch tells of each item that comes and goes, so that the queue is listed once
    per connection. While an item is being deleted, the next one's data is read in the same
    flight. Who wants one only (`looks_ahead` is False) watches only where there is none.
    """

    def __init__(self, queue: ItemQueue) -> None:
        self.looks_ahead = True
        self._queue = queue
        self._client = queue.client
        self._line = Line(queue.path)
        self._losses = self._wins = 0
        self._ahead: tuple[str, asyncio.Future[tuple[bytes | None, Stat]]] | None = None
        self._is_stale = True
        self._is_watching = False
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    async def take(self, timeout: float | None = None) -> Item | None:
        """See `ItemQueue.take`. Several takes at a time are served in their order."""
        async with self._its_turn(timeout) as ends:
            while ends is not None:
                item = await self._first(timeout, ends)
                if item is None or await self._remove(item):
                    return item
        return None

    async def peek(self, timeout: float | None = None) -> Item | None:
        """The first item, which stays where it is. Arguments as `take`."""
        async with self._its_turn(timeout) as ends:
            return None if ends is None else await self._first(timeout, ends)

    def __aiter__(self) -> Items:
        return self

    async def __anext__(self) -> Item:
        item = await self.take()
        assert item is not None
        return item

    def forget(self) -> None:
        """No more: the server's watch goes too."""
        self._client.unwatch(self._queue.path, self._heard)

    # -- who is first

    @asynccontextmanager
    async def _its_turn(self, timeout: float | None) -> AsyncIterator[float | None]:
        """When its time is over, by the loop's clock; None if it is before its turn came."""
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout={timeout}: seconds, 0 to look once, None to wait for ever")
        ends = math.inf if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(None if timeout is None else ends):
                await self._turn.acquire()
        except TimeoutError:
            yield None
            return
        try:
            yield ends
        finally:
            self._turn.release()

    async def _first(self, timeout: float | None, ends: float) -> Item | None:
        if timeout == 0:
            return await self._look_once(waits=False)
        try:
            async with asyncio.timeout_at(None if timeout is None else ends):
                return await self._look_once(waits=True)
        except TimeoutError:
            return None

    async def _look_once(self, *, waits: bool) -> Item | None:
        pause = Pause()
        while True:
            self._news.clear()
            try:
                if self._is_stale:
                    await self._list(watches=self.looks_ahead)
                name = self._choose(prefer=self._ahead[0] if self._ahead else "")
                if name is not None:
                    if item := await self._read(name):
                        return item
                elif not waits:
                    return None
                elif not self._is_watching:
                    await self._list(watches=True)
                else:
                    await self._news.wait()
            except (FateUnknown, NotSent, SessionExpired):
                if not waits:
                    raise
                await pause.take()

    def _choose(self, *, prefer: str = "", without: str = "") -> str | None:
        draw = self._queue.rng.randrange
        return self._line.choose(self._losses, draw, prefer=prefer, without=without)

    async def _list(self, *, watches: bool) -> None:
        """The watch first, then the listing: whatever comes or goes after it is told."""
        path, was_watching = self._queue.path, self._is_watching
        self._line.begin()
        self._is_stale, self._is_watching = False, was_watching or watches
        begins = watches and not was_watching
        sent: list[asyncio.Future[Any]] = [self._submit_watch()] if begins else []
        sent.append(self._client.submit(GetChildren(path)))
        if not self.looks_ahead and self._queue.likely:
            self._ahead = self._queue.likely, self._ask(self._queue.likely)
        try:
            *_, names = answers = await asyncio.gather(*sent, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                    raise answer
        except BaseException:
            self._is_stale, self._is_watching = True, was_watching and self._is_watching
            raise
        self._line.listed(names if isinstance(names, list) else [])

    def _submit_watch(self) -> asyncio.Future[None]:
        watch = AddWatch(self._queue.path, WatchMode.RECURSIVE)
        return self._client.submit(watch, watcher=self._heard)

    async def _read(self, name: str) -> Item | None:
        """An item with its data, None if it is gone."""
        known = self._queue.known
        if known is not None and known[0] == name:
            return self._line.item(name, known[1], 0)
        if self._ahead is None or self._ahead[0] != name or self._ahead[1].cancelled():
            self._ahead = name, self._ask(name)
        _, asked = self._ahead
        try:
            data, stat = await asyncio.shield(asked)
        except NoNode:
            self._missing(name)
            return None
        finally:
            if asked.done():
                self._ahead = None
        return self._line.item(name, data or b"", stat.version)

    def _ask(self, name: str) -> asyncio.Future[tuple[bytes | None, Stat]]:
        asked = self._client.submit(GetData(join(self._queue.path, name)))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    def _missing(self, name: str) -> None:
        """It is gone. A watch should have said so before: if it has not, look again."""
        if not self._is_watching:
            self._line.remove(name)
        self._is_stale = (
            self._is_stale or name in self._line or not (self._is_watching or self._line)
        )

    def _heard(self, event: WatchEvent) -> None:
        if event.state is KeeperState.EXPIRED:
            self._is_watching = False
        if not self._line.heard(event):
            self._is_stale = True
        self._news.set()

    # -- taking it

    async def _remove(self, item: Item) -> bool:
        """Delete it; is it ours? Cancelled, we wait for the answer and put it back."""
        deletion = self._ask_deletion(item)
        duty: asyncio.Task[bool] | None = None
        try:
            with contextlib.suppress(IncumbentError):
                await asyncio.shield(deletion)
                self._has_taken(item)
                return True
            duty = self._queue.ledger.owe(self._delete(item, deletion))
            return await asyncio.shield(duty)
        except asyncio.CancelledError:
            if duty is not None and duty.cancelled():
                raise ItemUnknown(item.path, item.data, "the client was closed") from None
            duty = duty or self._queue.ledger.owe(self._delete(item, deletion))
            await asyncio.wait([self._queue.ledger.owe(self._undo(duty, item))], timeout=_LINGER)
            raise

    def _ask_deletion(self, item: Item) -> asyncio.Future[None]:
        deletion = self._client.submit(Delete(item.path, item.version))
        if self.looks_ahead and (after := self._choose(without=item.name)):
            self._ahead = after, self._ask(after)
        return deletion

    def _has_taken(self, item: Item) -> None:
        self._line.remove(item.name)
        self._queue.likely = self._choose() or ""
        self._wins += 1
        if self._wins % _WINS == 0:
            self._losses = max(0, self._losses - 1)

    async def _undo(self, duty: asyncio.Task[bool], item: Item) -> None:
        try:
            if await duty:
                await self._queue.put_back(item)
        except ItemUnknown as error:
            self._queue.ledger.log(str(error))

    async def _delete(self, item: Item, deletion: asyncio.Future[None] | None) -> bool:
        """From a deletion that is under way."""
        session_id, doubt = self._client.session_id, ""
        for _ in range(_TRIES):
            try:
                await (deletion or self._ask_deletion(item))
            except NoNode:
                if doubt:
                    break
                self._losses, self._wins = min(self._losses + 1, MOST_LOSSES), 0
                self._missing(item.name)
                return False
            except FateUnknown as lost:
                doubt = lost.why
                try:
                    (found,) = await read_back(self._client, Exists(item.path))
                except IncumbentError as error:
                    doubt += f"; {error}"
                    break
                if isinstance(found, Refused):
                    break
                if self._client.session_id == session_id:
                    doubt = ""  # it was read behind that deletion, which will not come any more
            except BadVersion:
                self._queue.known = None
                return False  # somebody changed it: it is there, and read anew
            except (NotSent, SessionExpired):
                if not doubt:
                    return False
            except SessionClosed as error:
                doubt = error.why
                break
            else:
                self._has_taken(item)
                return True
            deletion = None
        if not doubt:
            return False
        self._line.remove(item.name)
        raise ItemUnknown(item.path, item.data, f"{doubt}; taken by us, or by somebody else")
