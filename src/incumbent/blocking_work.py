"""Work for blocking code: twins of those in `incumbent.work`.

Nothing interrupts a handler whose claim was lost: `claim.lost` is set, `ensure()` raises, and so
does going on to the next claim or leaving the block.

Rule of this file: a KeyboardInterrupt, wherever it strikes, leaves no claim behind once the
block of the work has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from incumbent.blocking import Lost
from incumbent.errors import HoldLost, SessionError, Taken
from incumbent.portal import Portal
from incumbent.work import claim as claims
from incumbent.work import work as works
from incumbent.work.records import Record

__all__ = ["Claim", "Work"]


class Claim:
    """The twin of `incumbent.work.Claim`, for any thread."""

    def __init__(self, portal: Portal, claim: claims.Claim) -> None:
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
        claim.lost.listen(self.lost._event.set)

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


class Work:
    """The twin of `incumbent.work.Work`."""

    def __init__(self, portal: Portal, work: works.Work) -> None:
        self._portal = portal
        self._work = work
        self.path = work.path
        self.lag = work.lag
        self.keep_done = work.keep_done

    def __enter__(self) -> Work:
        self._portal.run(self._work.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.finish(self._work.leave)

    @contextmanager
    def claim(self, item: str) -> Iterator[Claim]:
        (found,) = self._take([item]).values()
        if isinstance(found, Taken):
            raise found
        with found:
            yield found

    def claims(self, items: Iterable[str], *, batch: int = 500) -> Iterator[Claim]:
        for names in works.pieces(items, batch):
            ours = [each for each in self._take(names).values() if isinstance(each, Claim)]
            try:
                for claim in ours:
                    if claim._claim.why_not() is not None:
                        continue  # not begun: others will
                    claim._claim.begun()
                    yield claim
                    if not claim.is_ended:
                        claim.ensure()
                        self._portal.post(partial(claim._claim.leave, None))
            finally:
                self._portal.post(partial(_give_back, ours))

    def look(self, item: str) -> Record | None:
        return self._portal.run(lambda: self._work.look(item))

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


def _give_back(ours: Iterable[Claim]) -> None:
    for each in ours:
        each._claim.give_back()
