"""A double barrier: `count` members go in together, work, and come out together.

Each member stands with an ephemeral znode in a queue of contenders; what its data says is the
member's state, and its version forbids every step out of turn:

    version 0, empty   waits to go in
            1, inside  written to `count` members in one multi by whoever saw that many
            2, leaving written by the member itself
            3, left    written to all of the round in one multi, which is refused unless all of
                       them stand there at version 2

So nobody is inside unless all were there at one moment, and `left` is impossible once one is
gone: who notices a loss need not agree with anybody. Each who waits to leave watches its own
znode and that of the next member, round in a ring; whoever sees the next one gone goes too, and
so the word goes round. Nothing of a round stays behind but its name in the directory's data, by
which one whose session ended while it waited to leave can still learn that the round had left.

Rule of this file: `left` is believed only as written; whoever sees a member gone looks at its
own znode once more before it calls the round broken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, cast

from incumbent.client.watches import LOOK_AGAIN, Watcher
from incumbent.errors import (
    BadVersion,
    BarrierTimeout,
    BrokenBarrier,
    FateUnknown,
    IncumbentError,
    MalformedValue,
    NoNode,
    NotSent,
    Refused,
    SessionExpired,
)
from incumbent.recipes.flight import flight
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place, join
from incumbent.recipes.queue import Queue
from incumbent.recipes.readback import read_back
from incumbent.recipes.round import MOST, Answer, Word
from incumbent.wire import (
    Delete,
    Exists,
    GetData,
    Multi,
    SetData,
    Stat,
    WatchEvent,
)

__all__ = ["DoubleBarrier"]


_LAST_WORD = 1.0
"""Seconds for the last request of one whose time is over."""

_TRIES = 3
"""So often may it be refused to stand here, or our znode be deleted at once, before we say so."""


class DoubleBarrier:
    """One member of the double barrier at `queue.path`; for one task at a time.

    count     how many go in together
    timeout   seconds that going in may take, and coming out; None: for ever
    """

    def __init__(self, queue: Queue, count: int, *, timeout: float | None = None) -> None:
        if not isinstance(count, int) or not 1 <= count <= MOST:
            raise ValueError(f"count={count}: from 1 to {MOST} members")
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout={timeout}: more than 0 seconds, None to wait for ever")
        self.count = count
        self.timeout = timeout
        self._queue = queue
        self._client = queue.client
        self._place: Place | None = None
        self._after = ""
        self._changed = asyncio.Event()
        self._word = Word()
        self._first: asyncio.Future[tuple[bytes | None, Stat]] | None = None

    @property
    def path(self) -> str:
        return self._queue.path

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.leave()
        else:
            self.abandon()

    async def enter(self) -> None:
        """Return when `count` members are here, ourselves among them.

        Two round trips for the last one. Raises `BarrierTimeout`; then nothing of ours is left.
        Waits through disconnections and into later sessions. Cancelled, we are out.
        """
        if self._place is not None:
            raise RuntimeError(f"{self.path}: this member is inside already; leave first")
        try:
            try:
                async with asyncio.timeout(self.timeout):
                    await self._enter()
            except TimeoutError:
                await self._withdraw()
        except BaseException:
            self.abandon()
            raise

    async def leave(self) -> None:
        """Return when all who went in with us want to leave.

        One round trip for the last one. Raises `BrokenBarrier`, as every other one of the round
        does, if one of them was lost before, or gave up after its `timeout`.
        """
        place = self._place
        if place is None:
            raise RuntimeError(f"{self.path}: this member is not inside; enter first")
        try:
            try:
                async with asyncio.timeout(self.timeout):
                    await self._leave(place)
            except TimeoutError:
                await self._give_up(place)
        except SessionExpired:
            if not await self._had_left():
                why = "our session ended before we heard that all had left"
                raise BrokenBarrier(self.path, why, is_certain=False) from None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Be out at once, without waiting for anybody: to the others we are lost."""
        place, self._place = self._place, None
        after, self._after = self._after, ""
        if place is None:
            return

        def forget(_: object) -> None:  # mostly the deletions have taken the watches with them
            for path in filter(None, (place.path, after)):
                self._client.unwatch(path, self._heard)

        place.release().add_done_callback(forget)

    # -- going in

    async def _enter(self) -> None:
        pause, refusals = Pause(), 0
        while True:
            try:
                self._place = await self._queue.enter()
                if not await self._decide(self._place):
                    await self._let_in(self._place)
                return
            except (SessionExpired, NoNode) as error:  # or our znode was deleted: stand again
                refusals += isinstance(error, NoNode) and self._place is None
                if refusals == _TRIES:
                    raise  # there is nowhere to stand
                self.abandon()
            await pause.take()

    async def _decide(self, place: Place) -> bool:
        """Let the first `count` of those who wait go in, if there are so many. Are we with them?"""
        pause = Pause()
        inside = set(self._word.members)  # of our last round, as far as they stand here still
        while True:
            waiting = [each.name for each in place.listing if each.name not in inside]
            if len(waiting) < self.count:
                return False
            members = waiting[: self.count]
            word = Word(round=f"{self._queue.rng.getrandbits(64):016x}", first=members[0])
            first, rest = word.data("inside", members), word.data("inside")
            told = [SetData(self._at(name), rest, 0) for name in members[1:]]
            try:
                await self._client.multi([SetData(self._at(members[0]), first, 0), *told])
                if place.name in members:
                    self._word = replace(word, state="inside", members=tuple(members))
                return place.name in members
            except BadVersion:
                inside = await self._inside(place)
                if place.name in inside:
                    return False
            except NoNode:
                await place.refresh()
            except (FateUnknown, NotSent):
                await pause.take()
                await place.refresh()

    async def _inside(self, place: Place) -> set[str]:
        """Who does not wait to go in any more."""
        names = [each.name for each in place.listing]
        stats = await flight(self._client, *(Exists(self._at(name)) for name in names))
        pairs = zip(names, stats, strict=True)
        return {name for name, stat in pairs if isinstance(stat, Stat) and stat.version > 0}

    async def _let_in(self, place: Place) -> None:
        """Wait until we are inside."""
        pause, is_told = Pause(), False
        while True:
            self._changed.clear()
            try:  # being told, it is here already, and nothing more is to be watched for
                watcher = None if is_told else self._heard
                data, _ = await self._client.get(place.path, watcher=watcher)
            except (FateUnknown, NotSent):
                await pause.take()
                continue
            place.raise_if_gone()
            if data:
                break
            if is_told := not is_told:
                await self._changed.wait()
        self._word = Word.read(place.path, data)
        if not self._word.members:
            self._ask_first()

    async def _withdraw(self) -> None:
        """Out of time. We may have been let in just now: then we are in."""
        assert self.timeout is not None
        place = self._place
        here = 0 if place is None else len(place.listing)
        if place is not None:
            try:
                await self._client.submit(Delete(place.path, 0), timeout=_LAST_WORD)
            except BadVersion:
                with contextlib.suppress(SessionExpired, NoNode):
                    return await self._let_in(place)
            except (NoNode, FateUnknown, NotSent, SessionExpired):
                pass
        raise BarrierTimeout(self.path, self.timeout, here, self.count)

    # -- coming out

    async def _leave(self, place: Place) -> None:
        members = await self._round(place)
        self._after = self._at(members[(members.index(place.name) + 1) % len(members)])
        pause = Pause()
        is_lost = is_told = False
        answer = await self._want_out(place, members)
        while answer is not Answer.ALL_LEFT:
            is_lost = is_lost or answer is Answer.ONE_IS_LOST
            self._changed.clear()
            is_there = True
            if is_lost or is_told:  # mostly our last word: nothing more is to be watched for
                word = await self._own(place)
            else:
                word, is_there = await self._look(place)
            if word.state == "left":
                return
            if is_lost:  # seen before we looked, so that it cannot have left first
                raise BrokenBarrier(self.path, "one of its members was lost")
            if answer is Answer.NONE or word.state == "inside":
                await pause.take()
                answer = await self._want_out(place, members)
                continue
            is_lost = not is_there
            if is_told := not (is_told or is_lost):
                await self._changed.wait()

    def _heard(self, event: WatchEvent) -> None:
        self._changed.set()

    async def _want_out(self, place: Place, members: Sequence[str]) -> Answer:
        """Say that we want to leave, and that all leave if we are the last one to say so."""
        is_first = self._word.first == place.name
        own = self._word.data("leaving", members if is_first else ())
        left = self._word.data("left")
        all_leave = [SetData(self._at(name), left, 2) for name in members]
        said, done = await flight(
            self._client,
            SetData(place.path, own, 1),
            Multi([*all_leave, SetData(self.path, left)]),
        )
        if not isinstance(done, BaseException):
            return Answer.ALL_LEFT
        if isinstance(done, NoNode):
            return Answer.ONE_IS_LOST
        if isinstance(done, BadVersion) and isinstance(said, Stat | BadVersion):
            return Answer.NOT_YET
        if isinstance(done, BadVersion | FateUnknown | NotSent):
            return Answer.NONE
        raise done

    async def _round(self, place: Place) -> tuple[str, ...]:
        """The names of all who went in with us."""
        pause, word = Pause(), self._word
        while not word.members:
            if self._first is None:
                self._ask_first()
            asked, self._first = self._first, None
            assert asked is not None
            try:
                data, _ = await asyncio.shield(asked)
                word = Word.read(self._at(self._word.first), data)
                if word.members:
                    break
            except (FateUnknown, NotSent):
                await pause.take()
            except NoNode:
                await self._own(place)
                raise BrokenBarrier(self.path, "one of its members was lost") from None
            word = await self._own(place)
        self._word = replace(self._word, members=word.members)
        return word.members

    def _ask_first(self) -> None:
        self._first = self._client.submit(GetData(self._at(self._word.first)))
        self._first.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _look(self, place: Place) -> tuple[Word, bool]:
        """Our word, and whether the next one is there, read in this order; we hear of what changes
        of either."""
        asked = (GetData(place.path, True), GetData(self._after, True))
        own, theirs = await flight(self._client, *asked, watcher=self._heard)
        word = await self._own(place, self._heard) if isinstance(own, Exception) else None
        if isinstance(theirs, FateUnknown | NotSent):
            self._heard(LOOK_AGAIN)
            await asyncio.sleep(0 if isinstance(theirs, FateUnknown) else 0.02)
        elif isinstance(theirs, Exception) and not isinstance(theirs, NoNode):
            raise theirs
        if word is None:
            data, _ = cast(tuple[bytes | None, Stat], own)
            word = Word.read(place.path, data or b"")
        return word, not isinstance(theirs, NoNode)

    async def _own(self, place: Place, heard: Watcher | None = None) -> Word:
        pause = Pause()
        while True:
            try:
                data, _ = await self._client.get(place.path, watcher=heard)
            except (FateUnknown, NotSent):
                await pause.take()
            except NoNode:
                self._raise_if_over(place)
                raise BrokenBarrier(self.path, "somebody deleted our znode") from None
            else:
                return Word.read(place.path, data)

    async def _give_up(self, place: Place) -> None:
        """Out of time: the round is broken, unless all have left just now."""
        deleting = [
            self._client.submit(Delete(place.path, step), timeout=_LAST_WORD) for step in (1, 2)
        ]
        results = await asyncio.gather(*deleting, return_exceptions=True)
        if all(isinstance(result, BadVersion) for result in results):
            return  # it is at version 3
        self._raise_if_over(place)
        why = f"not all wanted to leave within {self.timeout:g} s"
        raise BrokenBarrier(self.path, why, is_certain=None in results)

    def _raise_if_over(self, place: Place) -> None:
        if self._client.session_id != place.session_id:
            raise SessionExpired(place.session_id, "it is over")

    async def _had_left(self) -> bool:
        """Our session is over. What does the directory say of our round?"""
        try:
            (answer,) = await read_back(self._client, GetData(self.path))
        except IncumbentError:
            return False
        if isinstance(answer, Refused):
            return False
        word = Word()
        with contextlib.suppress(MalformedValue):
            word = Word.read(self.path, answer.data)
        return word.round == self._word.round and word.state == "left"

    def _at(self, name: str) -> str:
        return join(self.path, name)
