"""Where items are claimed: many in one flight, a few together in each of its transactions.

    fresh        multi{ create record, create claim; … }
    once more    multi{ set record at the version that was read, create claim; … }

Both are refused if somebody has a claim on one of them, or if a record is not what we take it
for: a record that is marked done refuses the first, and is never read as free for the second.
Behind the transactions, in the same flight, the claims' znodes are read: whose they are, and
which transaction made them, is known from that alone. For what was refused, the records are read,
and those that are free after all are tried once more; in the end each by itself, so that nobody's
race for one item can keep us from another.

A claim whose answer was lost is read back by its nonce behind a write of ours. It is ours if it
stands there with our nonce and this session as its owner, and then only.

Rule of this file: a claim that we made is in the hands of our caller, or being given back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from incumbent.client import Client
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    MalformedValue,
    NodeExists,
    NoNode,
    NotSent,
    NumbersDontFit,
    Refused,
    SessionClosed,
    SessionExpired,
    Taken,
)
from incumbent.lease import Lease
from incumbent.recipes.entry import TRIES
from incumbent.recipes.flight import flight
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.readback import read_back
from incumbent.wire import (
    Create,
    Create2,
    CreateFlag,
    GetData,
    Multi,
    MultiOp,
    MultiRead,
    Request,
    SetData,
    Stat,
)
from incumbent.wire.paths import name
from incumbent.work.claim import Claim
from incumbent.work.hand import make_parents
from incumbent.work.records import (
    CLAIM,
    Record,
    Standing,
    key_of,
    read_record,
    record_path,
    stand,
)

__all__ = ["Desk"]

_READS = 100
"""Reads in one request."""
_TOGETHER = 16
"""Items in one transaction, which costs the servers as much as one item's."""
_TOGETHER_FOR = 2
"""Flights in which they go together; from then on each goes by itself."""


@dataclass(slots=True)
class _Try:
    """One item that is being claimed. `version` of its record; None: there is none yet."""

    item: str
    path: str
    nonce: str
    record: Record
    version: int | None = None

    @property
    def znode(self) -> str:
        return f"{self.path}/{CLAIM}"

    def operations(self) -> tuple[MultiOp, MultiOp]:
        data = self.record.begun().write(name(self.path))
        record: MultiOp = Create(self.path, data)
        if self.version is not None:
            record = SetData(self.path, data, self.version)
        return record, Create2(self.znode, self.nonce.encode(), flags=CreateFlag.EPHEMERAL)


class Desk:
    """The items of one path, as one session claims and ends them.

    is_queue    the items are what was put there: one without a record is gone, and done items
                are removed, not marked
    lag, grace  seconds; see `zk.work`
    on_done     told of each record that is marked done, and of its version
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        path: str,
        *,
        rng: random.Random,
        lag: float,
        grace: float | None,
        is_queue: bool = False,
        on_done: Callable[[str, int], None] = lambda path, version: None,
    ) -> None:
        self.client = client
        self.ledger = ledger
        self.path = path
        self.lag = lag
        self.keeps_done = not is_queue
        self.claims: dict[Claim, None] = {}
        """Ours, until they are ended and that is written, or lost."""
        self._grace = grace
        self._on_done = on_done
        self._rng = rng
        self._is_closed = False
        self._server_ahead: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._settled = asyncio.Event()
        self._endings: list[tuple[Sequence[MultiOp], asyncio.Future[None]]] = []
        self._forget = client.watch_state(lambda state: self.look())

    def close(self) -> None:
        """No more claims."""
        self._is_closed = True
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def grace(self) -> float:
        """Seconds before the session could be over at which claims are lost."""
        grace = self.client.timeout / 10 if self._grace is None else self._grace
        return max(grace, self.lag)

    def server_time(self) -> float | None:
        """What the servers' clock shows at least; None before our first claim."""
        ahead = self._server_ahead
        return None if ahead is None else ahead + self.client.clock.boottime()

    def path_of(self, item: str) -> str:
        return record_path(self.path, item) if self.keeps_done else f"{self.path}/{item}"

    def key_of(self, item: str) -> str:
        return key_of(self.client.root.down(self.path), item)

    # -- claiming

    async def take(
        self, items: Iterable[str], *, suspects: int | None = None
    ) -> dict[str, Claim | Taken]:
        """A claim for each item, or why there is none. Two round trips at most where nothing is
        lost, one where nobody has touched the items before.

        Cancelled, it leaves no claim behind. Raises ValueError for an item that has no name,
        `NumbersDontFit`, and what kept it from knowing; then nothing is claimed.
        """
        tries = [self._first(item) for item in dict.fromkeys(items)]
        self._refuse_too_much_grace()
        duty = self.ledger.owe(self._take(tries, suspects))
        try:
            return await asyncio.shield(duty)
        except asyncio.CancelledError:
            if duty.cancelled():
                raise SessionClosed(self.client.session_id, "closed while claiming") from None
            duty.add_done_callback(_give_up)
            raise

    async def sift(
        self, items: Sequence[str], *, suspects: int | None = None
    ) -> dict[str, Standing]:
        """How it stands with these items, by one read; some may be claimed before we are."""
        found: dict[str, Claim | Taken] = {}
        tries = [self._first(item) for item in items]
        free = await self._look(tries, found, suspects)
        standings = {each.item: Standing.FREE for each in free}
        for item, taken in found.items():
            assert isinstance(taken, Taken)
            standings[item] = Standing(taken.standing)
        return {item: standings[item] for item in items}

    def _first(self, item: str) -> _Try:
        nonce = f"{self._rng.getrandbits(64):016x}"
        return _Try(item, self.path_of(item), nonce, Record(item=item))

    async def _take(self, tries: list[_Try], suspects: int | None) -> dict[str, Claim | Taken]:
        found: dict[str, Claim | Taken] = {}
        try:
            left = tries
            if not self.keeps_done:
                left = await self._look(tries, found, suspects)
            for number in range(TRIES):
                if not left:
                    break
                size = _TOGETHER if self.keeps_done and number < _TOGETHER_FOR else 1
                homeless, refused = await self._fly(left, found, size)
                left = [*homeless, *await self._look(refused, found, suspects)]
            for each in left:
                found[each.item] = self._taken(each, Standing.CLAIMED)
            await self._prove([each for each in found.values() if isinstance(each, Claim)])
            if self._is_closed:
                raise RuntimeError(f"{self.path}: the block of this work has ended meanwhile")
        except BaseException:
            _give_back(found)
            raise
        return {each.item: found[each.item] for each in tries}

    async def _fly(
        self, tries: Sequence[_Try], found: dict[str, Claim | Taken], size: int
    ) -> tuple[list[_Try], list[_Try]]:
        """One flight for all, `size` in a transaction. Those that had no shard to stand in, which
        is made by now, and those that were refused although there is no claim of anybody's."""
        claims = _multis([each.operations() for each in tries], size)
        answers, reads = await self._with_reads(claims, [each.znode for each in tries])
        refused: list[_Try] = []
        homeless: list[_Try] = []
        failed: BaseException | None = None
        for number, (each, read) in enumerate(zip(tries, reads, strict=True)):
            result = answers[number // size]
            if isinstance(result, FateUnknown) or (
                not isinstance(result, BaseException) and isinstance(read, BaseException)
            ):
                read = await self._read_back(each)
            if claim := self._won(each, read):
                found[each.item] = claim
            elif not isinstance(read, BaseException):
                found[each.item] = self._taken(each, Standing.CLAIMED)
            elif isinstance(result, NoNode) and each.version is None:
                homeless.append(each)
            elif isinstance(result, NodeExists | BadVersion | NoNode | FateUnknown) or not (
                isinstance(result, BaseException)
            ):
                refused.append(each)
            else:
                failed = failed or result
        if failed is not None:
            raise failed
        if homeless:
            await make_parents(self.client, self.path, [each.path for each in homeless])
        return homeless, refused

    async def _with_reads(
        self, writes: Sequence[Request], paths: Sequence[str]
    ) -> tuple[list[Any], list[Any]]:
        """Send the writes, and behind them reads of these paths: the answers, and what was read."""
        chunks = [
            MultiRead(tuple(GetData(path) for path in paths[start : start + _READS]))
            for start in range(0, len(paths), _READS)
        ]
        answers = await flight(self.client, *writes, *chunks)
        read: list[object] = []
        for chunk, answer in zip(chunks, answers[len(writes) :], strict=True):
            if isinstance(answer, BaseException):
                read += [answer] * len(chunk.ops)
            else:
                assert isinstance(answer, list)
                read += answer
        return answers[: len(writes)], read

    def _won(self, each: _Try, read: Any) -> Claim | None:
        """Our claim, if what was read at its znode is ours, made by this session."""
        if isinstance(read, BaseException):
            return None
        data, stat = read
        if data != each.nonce.encode() or stat.ephemeralOwner != self.client.session_id:
            return None
        self._server_ahead = stat.ctime / 1000 - self.client.clock.boottime()
        version = 0 if each.version is None else each.version + 1
        lease: Lease = self.client.lease
        record = each.record.begun()
        claim = Claim(self, each.path, self.key_of(each.item), record, version, Stat(*stat), lease)
        self.claims[claim] = None
        self._settled.clear()
        return claim

    async def _read_back(self, each: _Try) -> Any:
        """What stands at the claim's znode, behind all that we have sent; or its `NoNode`."""
        pause = Pause()
        while True:
            try:
                (read,) = await read_back(self.client, GetData(each.znode))
            except (FateUnknown, NotSent, SessionExpired):
                await pause.take()
                continue
            return read

    async def _look(
        self, tries: Sequence[_Try], found: dict[str, Claim | Taken], suspects: int | None
    ) -> list[_Try]:
        """Read the records of what was refused; those that are free, to be tried once more."""
        if not tries:
            return []
        paths = [path for each in tries for path in (each.path, each.znode)]
        _, reads = await self._with_reads([], paths)
        now = self.client.clock.wall()
        again: list[_Try] = []
        for each, record, claim in zip(tries, reads[::2], reads[1::2], strict=True):
            if isinstance(record, NoNode):
                if self.keeps_done:
                    each.record, each.version = Record(item=each.item), None
                    again.append(each)
                else:
                    found[each.item] = self._taken(each, Standing.DONE)
                continue
            for answer in (record, claim):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                    raise answer
            data, stat = record
            try:
                each.record, each.version = read_record(each.path, data), stat.version
            except MalformedValue as error:
                self.ledger.log(str(error))
                found[each.item] = self._taken(each, Standing.PARKED)
                continue
            standing = stand(each.record, is_claimed=not isinstance(claim, NoNode), now=now)
            if standing is not Standing.FREE:
                found[each.item] = self._taken(each, standing)
            elif suspects is not None and each.record.deaths >= suspects:
                found[each.item] = self._taken(each, Standing.SUSPECT)
            else:
                again.append(each)
        return again

    def _taken(self, each: _Try, standing: Standing) -> Taken:
        return Taken(self.path, each.item, standing.value)

    # -- believing

    async def _prove(self, claims: Sequence[Claim]) -> None:
        """Wait until the lease reaches far enough: it does already if our write has proven it."""
        beaten = asyncio.Event()
        stop_beats = self.client.watch_beats(lambda sent_at: beaten.set())
        stop_state = self.client.watch_state(lambda state: beaten.set())
        try:
            for claim in claims:
                while claim.remaining() <= 0 and not claim.is_ended:
                    if claim.is_session_over:
                        raise SessionExpired(claim.session_id, "it ended while we claimed")
                    beaten.clear()
                    await beaten.wait()
        finally:
            stop_beats()
            stop_state()
        for claim in claims:
            claim.is_believed = True
        self.look()

    def look(self) -> None:
        """Read the clock; lose what is over, and look again in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for claim in list(self.claims):
            claim.look()
        left = [claim.remaining() for claim in self.claims if claim.remaining() > 0]
        if left:
            soon = min(*left, self.client.timeout / 10)
            self._timer = asyncio.get_running_loop().call_later(soon, self.look)

    def write_end(self, operations: Sequence[MultiOp]) -> asyncio.Future[None]:
        """Sent together with what else ends in this turn of the loop; by itself, if one of those
        with it was refused. A multi's result or error."""
        if not self._endings:
            asyncio.get_running_loop().call_soon(self._write_ends)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._endings.append((operations, written))
        return written

    def _write_ends(self) -> None:
        endings, self._endings = self._endings, []
        size = _TOGETHER if self.keeps_done else 1
        for start in range(0, len(endings), size):
            self._write_together(endings[start : start + size])

    def _write_together(
        self, endings: Sequence[tuple[Sequence[MultiOp], asyncio.Future[None]]]
    ) -> None:
        def answered(answer: asyncio.Future[Any]) -> None:
            error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
            if isinstance(error, Refused) and len(endings) > 1:  # none of them was written
                for each in endings:
                    self._write_together([each])
                return
            for _, written in endings:
                if written.done():
                    continue
                if error is None:
                    written.set_result(None)
                else:
                    written.set_exception(error)

        (multi,) = _multis([operations for operations, _ in endings], len(endings))
        self.client.submit(multi).add_done_callback(answered)

    def ended(self, claim: Claim, marked_at: int | None) -> None:
        """A claim is over."""
        self.claims.pop(claim, None)
        if marked_at is not None:
            self._on_done(claim.path, marked_at)
        if not self.claims:
            self._settled.set()

    async def settle(self) -> None:
        """Give back what nobody is at work on; return when all ends are written, or lost."""
        self.look()
        for claim in list(self.claims):
            if not claim.is_busy:
                claim.give_back()
        while self.claims:
            await self._settled.wait()

    def _refuse_too_much_grace(self) -> None:
        timeout, lease = self.client.timeout, self.client.lease
        room = timeout - lease.margin - lease.report_lag - timeout / 5
        if not 0 <= self.grace < room:
            raise NumbersDontFit(
                f"grace {self.grace:g} s (lag {self.lag:g} s), while a session of {timeout:g} s "
                f"leaves {room:.3g} s between two beats and its end",
                "raise session_timeout, or state a smaller lag",
            )


def _multis(operations: Sequence[Sequence[MultiOp]], size: int) -> list[Multi]:
    """Transactions, each of `size` items' operations."""
    return [
        Multi(tuple(chain.from_iterable(operations[start : start + size])))
        for start in range(0, len(operations), size)
    ]


def _give_up(duty: asyncio.Task[dict[str, Claim | Taken]]) -> None:
    if not duty.cancelled() and duty.exception() is None:
        _give_back(duty.result())


def _give_back(found: dict[str, Claim | Taken]) -> None:
    for claim in found.values():
        if isinstance(claim, Claim):
            claim.give_back()
