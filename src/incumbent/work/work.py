"""Work that is done once, however many servers pick from the same list.

Reading a list, doing what stands there and marking it done is not enough: whoever has read the
list before the mark does it once more. So an item is claimed; read again under the claim; done;
and the claim's end leaves a mark that outlives every old list and every copy that lags.

Rule of this file: an item's handler begins under a believed claim, and the block of the work
ends only when each claim's end is written down or its session is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from types import TracebackType
from typing import Any

from incumbent.client import Client
from incumbent.errors import Taken
from incumbent.recipes.ledger import Ledger
from incumbent.wire.paths import problem
from incumbent.work import hand
from incumbent.work.claim import Claim
from incumbent.work.desk import Desk
from incumbent.work.progress import Line
from incumbent.work.records import Record, record_path
from incumbent.work.run import Counters, Plan, Runner
from incumbent.work.sweep import Sweeper

__all__ = ["Work", "pieces"]


class Work:
    """The items of work at a path. Made by `zk.work`; an asynchronous context manager.

    counters  of the last `run`
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        path: str,
        *,
        lag: float,
        keep_done: float,
        grace: float | None,
        rng: random.Random,
    ) -> None:
        if (wrong := problem(path)) or path == "/":
            raise ValueError(f"{path!r}: {wrong or 'work needs a znode of its own'}")
        if lag < 0 or keep_done < 2 * lag:
            raise ValueError(
                f"lag={lag:g}, keep_done={keep_done:g}: seconds; a mark must outlive the lag "
                "twice over"
            )
        self.path = path
        self.lag = lag
        self.keep_done = keep_done
        self._client = client
        self._ledger = ledger
        self._rng = rng
        self._grace = grace
        self._desk: Desk | None = None
        self._is_over = False
        self._stop = asyncio.Event()
        self.counters = Counters()
        self._sweeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Work:
        if self._desk is not None:
            raise RuntimeError(f"{self.path}: the block of this work has begun: make another")
        sweeper = Sweeper(
            self._client,
            self.path,
            self.keep_done,
            self.lag,
            rng=self._rng,
            server_time=lambda: desk.server_time(),
        )
        self._desk = desk = self._new_desk(sweeper.marked)
        self._sweeping = asyncio.get_running_loop().create_task(sweeper.run())
        self._ledger.before_close[self.leave] = None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """The end of the block: every claim is ended, and that is written or its session over."""
        await asyncio.shield(self._ledger.owe(self._leave()))

    async def take(self, items: Iterable[str]) -> dict[str, Claim | Taken]:
        """A claim on each item in one flight, or why there is none; `claims` is made of it. Each
        is to be ended, or given back."""
        return await self._here.take(items)

    async def _leave(self) -> None:
        if self._desk is None or self._sweeping is None:
            return
        self._is_over = True
        await self._desk.settle()
        self._desk.close()
        self._sweeping.cancel()
        self._ledger.before_close.pop(self.leave, None)

    def _new_desk(self, on_done: Callable[[str, int], None]) -> Desk:
        return Desk(
            self._client,
            self._ledger,
            self.path,
            rng=self._rng,
            lag=self.lag,
            grace=self._grace,
            on_done=on_done,
        )

    @property
    def _here(self) -> Desk:
        if self._desk is None or self._is_over:
            raise RuntimeError(f"{self.path}: claims are made inside the block of `zk.work(…)`")
        return self._desk

    @asynccontextmanager
    async def claim(self, item: str) -> AsyncIterator[Claim]:
        """`async with work.claim(item) as claim`: one item, or `Taken` says why not.

        The block is cancelled when the claim is lost, and leaving it raises `ClaimLost`. A
        normal end marks the item done, an exception counts as a failure, and a cancellation
        gives it back. Two round trips: the claim, and its end, which is not waited for.
        """
        (found,) = (await self._here.take([item])).values()
        if isinstance(found, Taken):
            raise found
        async with found:
            yield found

    async def claims(
        self, items: Iterable[str] | AsyncIterable[str], *, batch: int = 500
    ) -> AsyncIterator[Claim]:
        """Those of the items that are ours, one after the other: `async for claim in …`.

        `batch` items are claimed in one flight, and stay ours while those before them are
        worked on. Going on to the next one marks the one before as done; an exception or
        `break` gives it back, and those that were not begun. Items that are taken, done, parked
        or not due are passed over. Going on under a claim that was lost raises `ClaimLost`;
        nothing cancels the loop's body, unless it says `async with claim:`.
        """
        async for names in _pieces(items, batch):
            found = await self._here.take(names)
            ours = [each for each in found.values() if isinstance(each, Claim)]
            try:
                for claim in ours:
                    if claim.why_not() is not None:
                        continue  # not begun: others will
                    yield claim.begun()
                    if not claim.is_ended:
                        claim.ensure()
                        claim.done()
            finally:
                for claim in ours:
                    claim.give_back()

    async def run(
        self,
        source: Callable[[], Any],
        handler: Callable[..., Any],
        *,
        read: Callable[[str], Any] | None = None,
        workers: int = 8,
        tries: int = 5,
        idle: float = 1.0,
        until_empty: bool = False,
        progress: Callable[[Counters], object] | bool = False,
    ) -> Counters:
        """Do what `source` lists, again and again, until `stop()` or a cancellation.

        source    called for a list of items; what is done, claimed or not due may be in it. Its
                  order is kept, but for several workers who race for the same items
        handler   called with each claim: a normal end marks the item done, an exception counts
        read      called under the claim with the item, and what it returns is the handler's
                  second argument; None: there is nothing to do any more, it is marked done
        workers   handlers at a time
        tries     failures after which an item is parked, and deaths of its worker too
        idle      seconds between two looks at a source in which nothing could be begun
        until_empty  return as soon as all that the source lists is done or parked
        progress  called with the counters, at most ten times a second, and at the end; True: a
                  line on stderr, redrawn if that is a terminal, else one in ten seconds

        Each may be a coroutine function. What fails is tried again after 1, 2, 4, … 60 s, by
        whoever claims it then. Errors of the source and of the connection are logged and waited
        out. A lost claim cancels its handler. What a handler raises that is no Exception, as
        `sys.exit()` does, counts as a failure too and ends the run: it is raised here when the
        other handlers have finished. `stop()` lets the handlers finish; cancelled, they
        are cancelled, and their items given back.
        """
        line = Line() if progress is True else None
        plan = Plan(
            source=source,
            handler=handler,
            read=read,
            workers=workers,
            tries=tries,
            idle=idle,
            until_empty=until_empty,
            progress=line or (progress if callable(progress) else None),
        )
        self._stop.clear()
        self.counters = Counters()
        try:
            return await Runner(self._here, plan, self.counters, self._stop, self._rng).run()
        finally:
            if line is not None:
                line.end()

    def metrics(self) -> str:
        """The counters of the last `run` as Prometheus reads them."""
        return self.counters.metrics(self.path)

    def stop(self) -> None:
        """`run` begins nothing more, and returns when its handlers have finished."""
        self._stop.set()

    # -- by hand: these need no block

    async def look(self, item: str) -> Record | None:
        """What is written down of an item; None: nothing. One round trip."""
        return (await hand.look(self._client, record_path(self.path, item))).record

    async def parked(self) -> list[Record]:
        """The items that failed too often, each with its last failure's `why`, by name."""
        found = [record async for record in hand.records(self._client, self.path)]
        return sorted((each for each in found if each.state == "parked"), key=lambda r: r.item)

    async def done(self, item: str) -> None:
        """Mark an item as done that nobody works on, a parked one too. Raises `Taken` if somebody
        does, `FateUnknown` if the answer was lost: look whether it is marked."""
        await hand.write(self._client, self.path, item, Record(item=item, state="done"))

    async def retry(self, item: str) -> None:
        """Let an item that is parked, waiting or done be begun again, as if it were new. Raises
        `Taken` if somebody works on it, `FateUnknown` as `done` does."""
        await hand.write(self._client, self.path, item, None)


async def _pieces(items: Iterable[str] | AsyncIterable[str], size: int) -> AsyncIterator[list[str]]:
    if not isinstance(items, AsyncIterable):
        for each in pieces(items, size):
            yield each
        return
    piece: list[str] = []
    async for item in items:
        piece.append(item)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


def pieces(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """The items, `size` at a time."""
    if isinstance(items, str):
        raise TypeError(f"{items!r} is one item; claims takes many: [{items!r}]")
    if size < 1:
        raise ValueError(f"batch={size}: at least 1")
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece
