"""Work for blocking code: twins of those in `incumbent.work`.

Nothing interrupts a handler whose claim was lost: `claim.lost` is set, `ensure()` raises, and so
does going on to the next claim or leaving the block.

Rule of this file: a KeyboardInterrupt, wherever it strikes, leaves no claim behind once the
block of the work has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from incumbent.blocking import Lost, twin_of
from incumbent.blocking_blocks import Entered
from incumbent.errors import HoldLost, SessionError, Taken
from incumbent.portal import Portal
from incumbent.work import claim as ours
from incumbent.work import queue as queues
from incumbent.work import work as works
from incumbent.work.records import Record
from incumbent.work.run import Counters

__all__ = ["Claim", "Work", "WorkQueue"]


@twin_of(ours.Claim)
class Claim:
    """The twin of `incumbent.work.Claim`, for any thread."""

    def __init__(self, portal: Portal, claim: ours.Claim) -> None:
        """On the loop."""
        self._portal = portal
        self._claim = claim
        self.item = claim.item
        self.key = claim.key
        self.path = claim.path
        self.record = claim.record
        self.payload = claim.payload
        self.fencing_token = claim.fencing_token
        self.lost = Lost(claim)
        claim.lost.listen(self.lost._happened)

    @property
    def valid_until(self) -> float:
        return self._claim.valid_until

    @property
    def is_ended(self) -> bool:
        return self._claim.is_ended

    def remaining(self) -> float:
        return self._claim.remaining()

    def ensure(self) -> None:
        if error := self._claim.why_not():
            self._portal.post(self._claim.look)
            raise error

    def done(self) -> None:
        self._portal.run(partial(_awaited, self._claim.done))

    def give_back(self) -> None:
        self._portal.run(partial(_awaited, self._claim.give_back))

    def fail(self, why: str, *, retry_in: float = 0.0) -> None:
        self._portal.run(partial(_awaited, partial(self._claim.fail, why, retry_in=retry_in)))

    def park(self, why: str) -> None:
        self._portal.run(partial(_awaited, partial(self._claim.park, why)))

    def __enter__(self) -> Claim:
        self.ensure()
        self._claim.is_busy = True
        self._claim.begun()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended, lost = self._claim.is_ended, self._claim.why_not()
        self._portal.post(partial(self._claim.leave, error))
        if lost is None or ended or error is lost:
            return
        if error is None or isinstance(error, SessionError | HoldLost):
            raise lost from error


async def _awaited(end: Callable[[], asyncio.Task[None]]) -> None:
    await asyncio.shield(end())


@twin_of(works.Work)
class Work(Entered[works.Work]):
    """The twin of `incumbent.work.Work`."""

    def __init__(self, portal: Portal, work: works.Work) -> None:
        super().__init__(portal, work)
        self._work = work
        self.path = work.path
        self.lag = work.lag
        self.keep_done = work.keep_done

    @contextmanager
    def claim(self, item: str) -> Iterator[Claim]:
        (found,) = self._take([item]).values()
        if isinstance(found, Taken):
            raise found
        with found:
            yield found

    def claims(self, items: Iterable[str], *, batch: int = 500) -> Iterator[Claim]:
        for names in works.pieces(items, batch):
            taken = [each for each in self._take(names).values() if isinstance(each, Claim)]
            try:
                for claim in taken:
                    if claim._claim.why_not() is not None:
                        continue  # not begun: others will
                    claim._claim.begun()
                    yield claim
                    if not claim.is_ended:
                        claim.ensure()
                        self._portal.post(partial(claim._claim.leave, None))
            finally:
                self._portal.post(partial(_give_back, taken))

    def run(
        self,
        source: Callable[[], Iterable[str]],
        handler: Callable[..., object],
        *,
        read: Callable[[str], object] | None = None,
        workers: int = 8,
        tries: int = 5,
        idle: float = 1.0,
        until_empty: bool = False,
        progress: Callable[[Counters], object] | bool = False,
    ) -> Counters:
        """As in asyncio; `source`, `read` and `handler` are called in threads, `workers` of them
        for the handlers, `progress` on the loop: no waiting there. A KeyboardInterrupt begins
        nothing more and is raised when the handlers, which nothing interrupts, have ended."""
        with ThreadPoolExecutor(workers, "incumbent-work") as pool, ThreadPoolExecutor(1) as lists:

            async def list_items() -> Iterable[str]:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(lists, lambda: list(source()))

            async def handle(each: ours.Claim) -> None:
                claim = Claim(self._portal, each)
                await _in_thread(pool, each, partial(self._handle, claim, read, handler))

            fatal: list[BaseException] = []

            async def run() -> Counters:
                try:
                    return await self._work.run(
                        list_items,
                        handle,
                        workers=workers,
                        tries=tries,
                        idle=idle,
                        until_empty=until_empty,
                        progress=progress,
                    )
                except (Exception, asyncio.CancelledError):
                    raise
                except BaseException as error:  # raised on the loop it would end the loop
                    fatal.append(error)
                    return self._work.counters

            counters = self._portal.run(run)
            if fatal:
                raise fatal[0]
            return counters

    def stop(self) -> None:
        self._portal.post(self._work.stop)

    @property
    def counters(self) -> Counters:
        return self._work.counters

    def metrics(self) -> str:
        return self._work.metrics()

    def _handle(
        self,
        claim: Claim,
        read: Callable[[str], object] | None,
        handler: Callable[..., object],
    ) -> None:
        """In a thread."""
        if read is None:
            handler(claim)
        elif (found := read(claim.item)) is not None:
            handler(claim, found)
        else:
            self._work.counters.unneeded += 1

    def look(self, item: str) -> Record | None:
        return self._portal.run(lambda: self._work.look(item))

    def parked(self) -> list[Record]:
        return self._portal.run(self._work.parked)

    def done(self, item: str) -> None:
        self._portal.run(lambda: self._work.done(item))

    def retry(self, item: str) -> None:
        self._portal.run(lambda: self._work.retry(item))

    def _take(self, items: Iterable[str]) -> dict[str, Claim | Taken]:
        async def take() -> dict[str, Claim | Taken]:
            found = await self._work.take(items)
            return {
                item: each if isinstance(each, Taken) else Claim(self._portal, each)
                for item, each in found.items()
            }

        async def undo(found: dict[str, Claim | Taken]) -> None:
            _give_back([each for each in found.values() if isinstance(each, Claim)])

        return self._portal.run(take, undo=undo)


@twin_of(queues.WorkQueue)
class WorkQueue(Entered[queues.WorkQueue]):
    """The twin of `incumbent.work.WorkQueue`."""

    def __init__(self, portal: Portal, queue: queues.WorkQueue) -> None:
        super().__init__(portal, queue)
        self._queue = queue
        self.path = queue.path
        self.tries = queue.tries

    def put(self, data: str | bytes, *, delay: float = 0.0) -> str:
        return self._portal.run(lambda: self._queue.put(data, delay=delay))

    def take(self, timeout: float | None = None) -> Claim | None:
        async def take() -> Claim | None:
            claim = await self._queue.take(timeout)
            return None if claim is None else Claim(self._portal, claim)

        async def undo(claim: Claim | None) -> None:
            _give_back([] if claim is None else [claim])

        return self._portal.run(take, undo=undo)

    def size(self) -> int:
        return self._portal.run(self._queue.size)

    def parked(self) -> list[Record]:
        return self._portal.run(self._queue.parked)

    def retry(self, name: str) -> None:
        self._portal.run(lambda: self._queue.retry(name))


async def _in_thread(pool: ThreadPoolExecutor, claim: ours.Claim, call: Callable[[], None]) -> None:
    """A handler in a thread, which goes on whatever happens: the claim waits for its end."""
    running = asyncio.get_running_loop().run_in_executor(pool, call)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        running.result()
    else:
        if claim.why_not() is None and running.exception() is None:
            claim.done()
        raise cancelled


def _give_back(claims: Iterable[Claim]) -> None:
    for each in claims:
        each._claim.give_back()
