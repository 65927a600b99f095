"""A work queue on claims: an item stays where it is until whoever took it says that it is done.

An item is a record below the queue's path, with what was put as its payload; taking it is
claiming it, and so a consumer that dies gives it back by the end of its session. Done removes
record and claim in one transaction. The names begin with the time at which they were put, or for
which they were delayed, so that their order is that of the queue:

    PATH/<milliseconds>-<nonce>              at once
    PATH/<milliseconds>-<nonce>-<delay>      not before the milliseconds; delay in milliseconds

Rule of this file: an item leaves the queue only by a transaction that its claim is part of, or
by hand.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections import deque
from contextlib import suppress
from types import TracebackType

from incumbent.client import Client
from incumbent.client.traffic import MAX_MULTI
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    ItemUnknown,
    NoNode,
    NotSent,
    SessionExpired,
    Taken,
    TooLarge,
)
from incumbent.recipes.content import as_bytes
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.readback import read_back
from incumbent.wire import Create, Exists
from incumbent.wire.paths import ancestors, problem
from incumbent.work import hand
from incumbent.work.claim import Claim
from incumbent.work.desk import Desk
from incumbent.work.records import Record, Standing

__all__ = ["WorkQueue"]

_NAME = re.compile(r"([0-9]{13})-[0-9a-f]{16}(?:-([0-9]+))?")
_SIFT = 32
_LOOK_AGAIN = 1.0
"""Seconds after which an empty queue is looked at again: what a dead consumer had comes back
without a word."""
_TRIES = 5

_LARGEST = MAX_MULTI - 16 * 1024
"""Bytes of an item's znode: it is claimed, and ended with what came of it, in one transaction."""


class WorkQueue:
    """The items at a path. Made by `zk.work_queue`; an asynchronous context manager."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        path: str,
        *,
        tries: int,
        lag: float,
        grace: float | None,
        rng: random.Random,
    ) -> None:
        if (wrong := problem(path)) or path == "/":
            raise ValueError(f"{path!r}: {wrong or 'a queue needs a znode of its own'}")
        if tries < 1:
            raise ValueError(f"tries={tries}: at least 1")
        self.path = path
        self.tries = tries
        self._client = client
        self._ledger = ledger
        self._rng = rng
        self._desk = Desk(client, ledger, path, rng=rng, lag=lag, grace=grace, is_queue=True)
        self._listed: deque[str] = deque()
        self._free: deque[str] = deque()
        self._changed = asyncio.Event()
        self._last_ms = 0

    async def __aenter__(self) -> WorkQueue:
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
        """The end of the block: what was taken and has no end is given back."""
        await asyncio.shield(self._ledger.owe(self._leave()))

    async def _leave(self) -> None:
        await self._desk.settle()
        self._desk.close()
        self._ledger.before_close.pop(self.leave, None)

    async def put(self, data: str | bytes, *, delay: float = 0.0) -> str:
        """Put an item at the end, or for `delay` seconds from now; its name. One round trip.

        Raises `ItemUnknown` if the answer was lost and the item is not there: then it was done
        already, or never put. `NotSent`: it was not put; `TooLarge`: nor could it be claimed, if
        it has more than 240 KB. Cancelled, it may have been put.
        """
        if not 0 <= delay < math.inf:
            raise ValueError(f"delay={delay}: seconds from 0")
        now = self._client.clock.wall()
        self._last_ms = max(self._last_ms + 1, round(now * 1000))  # one producer's order is kept
        stem = f"{self._last_ms + round(delay * 1000):013d}-{self._rng.getrandbits(64):016x}"
        name = f"{stem}-{round(delay * 1000)}" if delay else stem
        payload = as_bytes(data)
        record = Record(item=name, payload=payload).waiting(delay, now)
        body = record.write(name)
        create = Create(f"{self.path}/{name}", body)
        if len(body) > _LARGEST:
            raise TooLarge(f"put {create.path}", len(body), _LARGEST)
        above: list[Create] = []
        for _ in range(_TRIES):
            *results, made = await flight(self._client, *above, create)
            if isinstance(made, FateUnknown):
                await self._read_back(create.path, payload, made)
                return name
            if not isinstance(made, NoNode):
                break
            if why := why_not_made(self._client, create.path, results):
                raise why
            above = [Create(path) for path in (*ancestors(self.path), self.path)]
        if isinstance(made, BaseException):
            raise made
        return name

    async def take(self, timeout: float | None = None) -> Claim | None:
        """The first item that is free, as a claim on it: `claim.payload`. None if there was none
        within `timeout` seconds; 0: look once; None: wait for ever.

        Then `async with claim:`, or `claim.done()`, which removes the item; `fail`, `give_back`
        and `park` as for all claims. An item that was begun `tries` times without being done is
        parked and not given out. Waits through lost connections and into later sessions.
        """
        ends = math.inf if timeout is None else asyncio.get_running_loop().time() + timeout
        pause = Pause()
        while True:
            try:
                claim = await self._take_next()
                left = ends - asyncio.get_running_loop().time()
                if claim is not None or left <= 0:
                    return claim
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_AGAIN)):
                        await self._changed.wait()
            except (FateUnknown, NotSent, SessionExpired):
                if asyncio.get_running_loop().time() >= ends:
                    raise
                await pause.take()

    async def size(self) -> int:
        """How many items there are: free, taken, delayed and parked."""
        stat = await self._client.exists(self.path)
        return 0 if stat is None else stat.numChildren

    async def parked(self) -> list[Record]:
        """The items that were begun too often, with `why` and `payload`, in their order."""
        try:
            names = sorted(await self._client.children(self.path))
        except NoNode:
            return []
        paths = [f"{self.path}/{name}" for name in names]
        found = [each.record for each in await hand.look_at(self._client, paths)]
        return [record for record in found if record is not None and record.state == "parked"]

    async def retry(self, name: str) -> None:
        """Let an item be taken as if it had just been put. Raises `Taken` if somebody has it,
        `NoNode` if it is not there, `FateUnknown` if the answer was lost."""
        path = f"{self.path}/{name}"
        for _ in range(_TRIES):
            found = await hand.look(self._client, path)
            if found.record is None:
                raise NoNode(path)
            if found.is_claimed:
                break
            fresh = Record(item=name, payload=found.record.payload)
            with suppress(BadVersion):
                await self._client.set(path, fresh.write(name), found.version)
                return
        raise Taken(self.path, name, Standing.CLAIMED.value)

    # -- taking

    async def _take_next(self) -> Claim | None:
        """The next of those listed; or of a new listing, once."""
        is_new = False
        while True:
            while self._free:
                claim = await self._claim(self._free.popleft())
                if claim is not None:
                    return claim
            if self._listed:
                await self._sift()
            elif is_new:
                return None
            else:
                await self._list()
                is_new = True

    async def _claim(self, name: str) -> Claim | None:
        claim = (await self._desk.take([name]))[name]
        if isinstance(claim, Taken):
            self._rng.shuffle(self._free)  # somebody goes through the same list
            return None
        if claim.record.tries > self.tries:
            why = claim.record.why or "its consumers died with it"
            await asyncio.shield(claim.park(f"begun {self.tries} times: {why}"))
            return None
        return claim.begun()

    async def _list(self) -> None:
        self._changed.clear()
        try:
            names = await self._client.children(self.path, watcher=self._heard)
        except NoNode:
            names = []
        now = self._client.clock.wall() * 1000
        self._listed = deque(sorted(name for name in names if _is_due(name, now)))

    async def _sift(self) -> None:
        piece = [self._listed.popleft() for _ in range(min(_SIFT, len(self._listed)))]
        standings = await self._desk.sift(piece)
        self._free.extend(name for name, how in standings.items() if how is Standing.FREE)

    def _heard(self, event: object) -> None:
        self._changed.set()

    async def _read_back(self, path: str, data: bytes, lost: FateUnknown) -> None:
        try:
            (found,) = await read_back(self._client, Exists(path))
        except IncumbentError as error:
            raise ItemUnknown(path, data, f"{lost.why}; {error}") from None
        if isinstance(found, BaseException) or found is None:
            why = f"{lost.why}; it is not in the queue: done already, or never put"
            raise ItemUnknown(path, data, why)


def _is_due(name: str, now_ms: float) -> bool:
    """By its name; what is no item's name is none. A delay that is longer than was asked for is
    another clock's, as in `records.stand`."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    wait = int(found[1]) - now_ms
    return found[2] is None or not 0 < wait <= int(found[2]) + 1000
