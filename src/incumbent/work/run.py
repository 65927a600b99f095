"""The loop of a worker: list, claim what is free, handle it, count what came of it.

A handler that fails is tried again later, by whoever claims the item then; after `tries` failures
the item is parked. A handler that takes its whole process with it fails in no way that anybody
could count, but its record shows a try without an end. After two of those the item is a suspect:
it is begun by itself only, with nothing else claimed in its process, so that the next death is
surely its own; after `tries` of them it is parked as well.

Where handlers fail one after the other and none works in between, it is rather what they call that
is down. One item at a time is begun then, with growing pauses, until one works: an outage parks a
few items, not all of them.

Rule of this file: no more is claimed than is begun at once.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from incumbent.errors import (
    ClaimLost,
    FateUnknown,
    IncumbentError,
    NotSent,
    Refused,
    SessionExpired,
    Taken,
)
from incumbent.recipes.ledger import SYSTEM_ERROR
from incumbent.work.claim import Claim
from incumbent.work.desk import Desk
from incumbent.work.records import Standing, encode

__all__ = ["Counters", "GiveBack", "Plan", "Runner", "retry_in"]

SUSPECTS = 2
"""Deaths from which on an item is begun by itself."""

_DOUBT = 5
"""Items in a row that fail for the first time, or `workers` if that is more, before what all
handlers call is doubted."""

_SIFT = 100
_LONGEST_BACK_OFF = 60.0  # seconds, of an item
_LONGEST_PAUSE = 30.0  # seconds, of a source or servers that cannot be reached
_LONGEST_DOUBT = 5.0  # seconds; they may all be bad items after all
_TELL_EVERY = 0.1  # seconds


class GiveBack(Exception):
    """Raised by a handler: the item is given back as if it had not been begun."""


@dataclass(slots=True)
class Counters:
    """What a run has done so far.

    claimed   items claimed; each is then one of: done, failed, parked, lost, given_back, running
    done      handlers that ended well; `unneeded` of them had nothing to do, by the re-read
    failed    handlers that failed and will be tried again
    parked    items that failed for the last time
    lost      claims that were lost while a handler ran
    given_back  handlers cut short by the end of the run, or that raised `GiveBack`
    taken     tries to claim what somebody else was faster to claim
    errors    of the source or of the servers, after which it went on
    running   handlers at this moment
    left      items of the newest listing that have not been looked at or begun yet
    parked_now  items of the newest listing that are parked, whoever did that
    seconds   since the run began
    """

    claimed: int = 0
    done: int = 0
    unneeded: int = 0
    failed: int = 0
    parked: int = 0
    lost: int = 0
    given_back: int = 0
    taken: int = 0
    errors: int = 0
    running: int = 0
    left: int = 0
    parked_now: int = 0
    seconds: float = 0.0

    def metrics(self, path: str) -> str:
        """As Prometheus reads it, the work's `path` as a label."""
        label = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines = []
        for each in fields(self):
            gauges = ("running", "left", "parked_now", "seconds")
            kind = "gauge" if each.name in gauges else "counter"
            name = f"incumbent_work_{each.name}{'_total' if kind == 'counter' else ''}"
            lines.append(f"# TYPE {name} {kind}")
            lines.append(f'{name}{{path="{label}"}} {getattr(self, each.name)}')
        return "".join(f"{line}\n" for line in lines)

    def __str__(self) -> str:
        rate = self.done / self.seconds if self.seconds else 0.0
        said = [f"{self.done:,} done, {rate:,.0f}/s", f"{self.running} running"]
        for name in ("failed", "parked", "lost"):
            if count := getattr(self, name):
                said.append(f"{count:,} {name}")
        if self.parked_now > self.parked:
            said.append(f"{self.parked_now:,} parked in all")
        return " · ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `work.run` was asked for; the words are explained there."""

    source: Callable[[], Any]
    handler: Callable[..., Any]
    read: Callable[[str], Any] | None = None
    workers: int = 8
    tries: int = 5
    idle: float = 1.0
    until_empty: bool = False
    progress: Callable[[Counters], object] | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.tries < 1 or self.idle <= 0:
            raise ValueError(
                f"workers={self.workers}, tries={self.tries}, idle={self.idle}: at least 1, at "
                "least 1, and seconds above 0"
            )


def retry_in(failures: int, rng: random.Random) -> float:
    """Seconds until an item is tried again: 1, 2, 4, … up to a minute, a fifth more or less."""
    return float(min(_LONGEST_BACK_OFF, 2.0 ** min(failures - 1, 10)) * rng.uniform(0.8, 1.2))


@dataclass(slots=True)
class _Pass:
    """One reading of the source. `open`: items in it that are neither done nor parked."""

    names: deque[str] = field(default_factory=deque)
    free: deque[str] = field(default_factory=deque)
    open: int = 0
    claimed: int = 0
    parked: int = 0
    is_last: bool = False


class Runner:
    """One run at a desk, until `stop` is set or, if it is planned so, nothing is left."""

    def __init__(
        self, desk: Desk, plan: Plan, counters: Counters, stop: asyncio.Event, rng: random.Random
    ) -> None:
        self._desk = desk
        self._plan = plan
        self._counters = counters
        self._stop = stop
        self._rng = rng
        self._running: set[asyncio.Task[None]] = set()
        self._suspects: deque[str] = deque()
        self._fatal: BaseException | None = None
        self._is_contended = False
        self._failed_in_a_row = 0
        self._begin_at = 0.0
        self._pause = 0.0
        self._began_at = self._told_at = asyncio.get_running_loop().time()

    async def run(self) -> Counters:
        """Cancelled, it cancels the handlers and ends after them; stopped, it lets them finish."""
        stopped: asyncio.Task[Any] = asyncio.ensure_future(self._stop.wait())
        now: _Pass | None = None
        try:
            while not self._stop.is_set():
                try:
                    now = await self._step(now, stopped)
                    self._pause = 0.0
                    self._counters.left = len(now.names) + len(now.free) + len(self._suspects)
                except (NotSent, FateUnknown, SessionExpired) as error:
                    await self._wait_out(error, stopped)
                except Refused as error:
                    if error.code != SYSTEM_ERROR:
                        raise
                    await self._wait_out(error, stopped)
                if now is not None and now.is_last and not self._suspects:
                    break
            await self._finished()
            if self._fatal is not None:
                raise self._fatal
        except BaseException:
            for task in self._running:
                task.cancel()
            await self._finished()
            raise
        finally:
            stopped.cancel()
            self._tell(at_once=True)
        return self._counters

    async def _step(self, now: _Pass | None, stopped: asyncio.Task[Any]) -> _Pass:
        """Begin what can be begun, or wait for a reason to look again."""
        if now is None:
            return await self._list(stopped)
        if self._suspects:
            await self._finished()
            await self._alone(self._suspects.popleft())
        elif len(self._running) >= self._room:
            waiting: set[asyncio.Task[Any]] = {*self._running, stopped}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        elif now.free and (doubt := self._begin_at - asyncio.get_running_loop().time()) > 0:
            await self._rest(stopped, doubt)
        elif now.free:
            await self._begin(now)
        elif now.names:
            await self._sift(now)
        elif now.claimed:
            return await self._list(stopped)
        elif self._plan.until_empty and not (now.open or self._running):
            now.is_last = True
        else:  # nothing is left, or what is left is somebody's, or its time has not come
            await self._rest(stopped, self._plan.idle)
            return await self._list(stopped)
        return now

    async def _list(self, stopped: asyncio.Task[Any]) -> _Pass:
        while not self._stop.is_set():
            try:
                found = self._plan.source()
                if inspect.isawaitable(found):
                    found = await found
                if isinstance(found, AsyncIterable):
                    names = [each async for each in found]
                else:
                    names = list(found)
                self._pause = 0.0
                return _Pass(names=deque(self._nameable(names)))
            except Exception as error:
                await self._wait_out(error, stopped, "the source of work")
        return _Pass()

    def _nameable(self, names: Iterable[str]) -> list[str]:
        good = []
        for each in dict.fromkeys(names):
            try:
                encode(each)
            except (TypeError, ValueError) as error:
                self._counters.errors += 1
                self._desk.ledger.log(f"{self._desk.path}: an item is passed over: {error}")
            else:
                good.append(each)
        return good

    async def _sift(self, now: _Pass) -> None:
        """Read how it stands with the next ones, and leave alone what is not free."""
        piece = [now.names.popleft() for _ in range(min(_SIFT, len(now.names)))]
        standings = await self._desk.sift(piece, suspects=SUSPECTS)
        for item, standing in standings.items():
            if standing is Standing.FREE:
                now.free.append(item)
            elif standing is Standing.SUSPECT:
                self._suspects.append(item)
            now.open += standing not in (Standing.DONE, Standing.PARKED)
            now.parked += standing is Standing.PARKED
        self._counters.parked_now = now.parked
        if self._is_contended:  # others have the same list, and begin at its head too
            self._rng.shuffle(now.free)

    @property
    def _room(self) -> int:
        """Handlers that may run at once."""
        return 1 if self._begin_at else self._plan.workers

    async def _begin(self, now: _Pass) -> None:
        room = self._room - len(self._running)
        piece = [now.free.popleft() for _ in range(min(room, len(now.free)))]
        found = await self._desk.take(piece, suspects=SUSPECTS)
        taken = [each for each in found.values() if isinstance(each, Taken)]
        self._is_contended = bool(taken)
        self._counters.taken += len(taken)
        for claim in found.values():
            if isinstance(claim, Claim):
                now.claimed += 1
                self._start(claim)

    async def _alone(self, item: str) -> None:
        """A suspect, with nothing else claimed here."""
        (claim,) = (await self._desk.take([item])).values()
        if isinstance(claim, Taken):
            return
        deaths = claim.record.deaths - 1  # this try is no death yet
        if deaths >= self._plan.tries:
            claim.park(f"{deaths} times its worker died, or lost its session, while at it")
            self._counters.claimed += 1
            self._counters.parked += 1
            return
        self._start(claim)
        await self._finished()

    def _start(self, claim: Claim) -> None:
        claim.is_busy = True
        self._counters.claimed += 1
        self._counters.running += 1
        task = asyncio.get_running_loop().create_task(self._handle(claim))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _handle(self, claim: Claim) -> None:
        counters = self._counters
        try:
            async with claim:
                try:
                    await self._call(claim)
                except asyncio.CancelledError:
                    counters.done += claim.is_ended  # in a thread it went on to its end
                    counters.given_back += not (claim.is_ended or claim.lost.is_set())
                    raise
                except GiveBack:
                    claim.ensure()
                    claim.give_back()
                    counters.given_back += 1
                except Exception as error:
                    if claim.is_ended:
                        raise
                    claim.ensure()
                    self._failed(claim, error)
                except BaseException as error:  # as sys.exit() raises it: the run ends with it
                    self._fatal = self._fatal or error
                    self._stop.set()
                    if not claim.is_ended:
                        claim.ensure()
                        self._failed(claim, error)
                else:
                    if not claim.is_ended:
                        claim.ensure()
                    counters.done += 1
        except ClaimLost:
            counters.lost += 1
        except Exception as error:
            self._desk.ledger.log(f"{claim.item}: its handler failed after its end: {error!r}")
        finally:
            claim.give_back()  # if it has no end yet: it was lost before it began
            counters.running -= 1
            self._tell()

    async def _call(self, claim: Claim) -> None:
        arguments: tuple[Any, ...] = (claim,)
        if self._plan.read is not None:
            found = await _result(self._plan.read(claim.item))
            if found is None:
                self._counters.unneeded += 1
                return
            arguments = (claim, found)
        await _result(self._plan.handler(*arguments))
        if self._begin_at:
            self._desk.ledger.log(f"{self._desk.path}: {claim.item} worked: all go on")
        self._failed_in_a_row, self._begin_at = 0, 0.0

    def _failed(self, claim: Claim, error: BaseException) -> None:
        why = _sentence(error)
        failures = claim.record.failures + 1
        if failures >= self._plan.tries:
            claim.park(why)
            self._counters.parked += 1
            self._desk.ledger.log(f"{claim.item} is parked after {failures} failures: {why}")
        else:
            claim.fail(why, retry_in=retry_in(failures, self._rng))
            self._counters.failed += 1
        if failures == 1 or self._begin_at:  # an item that fails again says nothing of the others
            self._doubt(why)

    def _doubt(self, why: str) -> None:
        """A handler has failed. Is it the item, or what all of them call?"""
        if asyncio.get_running_loop().time() < self._begin_at:
            return  # it had begun before there was a doubt
        self._failed_in_a_row += 1
        above = self._failed_in_a_row - max(_DOUBT, self._plan.workers)
        if above < 0:
            return
        pause = min(_LONGEST_DOUBT, 0.1 * 2.0 ** min(above, 10))
        self._begin_at = asyncio.get_running_loop().time() + pause
        self._desk.ledger.log(
            f"{self._desk.path}: {self._failed_in_a_row} handlers have failed and none has worked "
            f"since, the last one: {why}; one at a time now, the next in {pause:g} s"
        )

    async def _finished(self) -> None:
        while self._running:
            await asyncio.wait(set(self._running))

    async def _wait_out(
        self, error: Exception, stopped: asyncio.Task[Any], what: str = "the servers"
    ) -> None:
        self._counters.errors += 1
        self._pause = min(_LONGEST_PAUSE, max(0.1, self._pause * 2))
        self._desk.ledger.log(
            f"{self._desk.path}: {what}: {_sentence(error)}; trying again in {self._pause:g} s"
        )
        await self._rest(stopped, self._pause)

    async def _rest(self, stopped: asyncio.Task[Any], seconds: float) -> None:
        self._tell()
        await asyncio.wait([stopped], timeout=seconds * self._rng.uniform(0.8, 1.2))

    def _tell(self, *, at_once: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        self._counters.seconds = now - self._began_at
        if self._plan.progress and (at_once or now - self._told_at >= _TELL_EVERY):
            self._told_at = now
            self._plan.progress(self._counters)


def _sentence(error: BaseException) -> str:
    """Ours are sentences."""
    return str(error) if isinstance(error, IncumbentError) else f"{type(error).__name__}: {error}"


async def _result(found: Any) -> Any:
    return await found if isinstance(found, Awaitable) else found
