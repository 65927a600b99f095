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
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from types import TracebackType

from incumbent.client import Client
from incumbent.errors import Taken
from incumbent.recipes.ledger import Ledger
from incumbent.wire.paths import problem
from incumbent.work.claim import Claim
from incumbent.work.desk import Desk
from incumbent.work.records import Record

__all__ = ["Work", "pieces"]


class Work:
    """The items of work at a path. Made by `zk.work`; an asynchronous context manager."""

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
        self._desk = Desk(client, ledger, path, rng=rng, lag=lag, grace=grace)

    async def __aenter__(self) -> Work:
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
        return await self._desk.take(items)

    async def _leave(self) -> None:
        await self._desk.settle()
        self._desk.close()

    @asynccontextmanager
    async def claim(self, item: str) -> AsyncIterator[Claim]:
        """`async with work.claim(item) as claim`: one item, or `Taken` says why not.

        The block is cancelled when the claim is lost, and leaving it raises `ClaimLost`. A
        normal end marks the item done, an exception counts as a failure, and a cancellation
        gives it back. Two round trips: the claim, and its end, which is not waited for.
        """
        (found,) = (await self._desk.take([item])).values()
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
            found = await self._desk.take(names)
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

    # -- by hand

    async def look(self, item: str) -> Record | None:
        """What is written down of an item; None: nothing. One round trip."""
        return (await self._desk.look_at(item)).record

    async def done(self, item: str) -> None:
        """Mark an item as done that nobody works on, a parked one too. Raises `Taken` if somebody
        does, `FateUnknown` if the answer was lost: look whether it is marked."""
        await self._desk.set_by_hand(item, Record(item=item, state="done"))

    async def retry(self, item: str) -> None:
        """Let an item that is parked, waiting or done be begun again, as if it were new. Raises
        `Taken` if somebody works on it, `FateUnknown` as `done` does."""
        await self._desk.set_by_hand(item, None)


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
