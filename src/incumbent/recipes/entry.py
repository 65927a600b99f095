"""One try to stand in a queue: from the create to a listing that was read after it.

A create whose reply was lost is never simply repeated, or two znodes would stand and the first
one block the second. Its effect is read back: after a `multi[check directory]`, which the
servers order behind that create, the listing tells. In a dialect with ids by the nonce in the
name. In a plain dialect there is none, and other programs may read the data, so that we put no
nonce there either: of the znodes there that our own session owns, it is the one with our data
that no place of ours claims. For that, creates in one plain directory go one at a time, and a
client has only one `Ledger`.

Rule of this file: an earlier session's znode is never taken for ours: its owner is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NoNode,
    NotSent,
    Refused,
    SessionClosed,
    SessionExpired,
    TooLarge,
)
from incumbent.recipes.dialects import Dialect
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import SYSTEM_ERROR, Ledger, Pause
from incumbent.recipes.place import Place, join
from incumbent.wire import (
    Check,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateFlag,
    GetChildren,
    GetData,
    Multi,
    Request,
    Stat,
)
from incumbent.wire.paths import ancestors

__all__ = ["TRIES", "Entrance", "Entry", "enter", "look"]

TRIES = 10
"""So often may a directory vanish under us while we enter it, before we say so."""

T_co = TypeVar("T_co", covariant=True)


class Entrance(Protocol[T_co]):
    """What `enter` sees through, whatever happens to its caller."""

    is_wanted: bool

    async def begin(self) -> bool:
        """The first flight. Was it answered so well that `run` has nothing to wait for?"""

    async def run(self) -> T_co:
        """To the end, from whatever was begun."""

    def give_up(self, duty: asyncio.Task[Any]) -> None:
        """It is done and nobody wants it: leave no znode behind."""


async def enter(ledger: Ledger, entrance: Entrance[T_co]) -> T_co:
    """See it through as a duty of the session: a cancelled caller leaves, what was begun is undone.
    Where one flight does, as mostly, no task is made for it."""
    duty: asyncio.Task[T_co] | None = None
    try:
        if await entrance.begin():
            return await entrance.run()
        duty = ledger.owe(entrance.run())
        return await asyncio.shield(duty)
    except asyncio.CancelledError:
        if duty is not None and duty.cancelled():
            raise SessionClosed(ledger.client.session_id, "closed while entering a queue")
        entrance.is_wanted = False
        duty = duty or ledger.owe(entrance.run())
        duty.add_done_callback(entrance.give_up)
        raise


class Entry:
    """One try to stand in `directory`. `above`, `beside` and `epoch_path`: see `Queue`."""

    def __init__(
        self,
        ledger: Ledger,
        directory: str,
        dialect: Dialect,
        data: bytes,
        *,
        nonce: str,
        is_reader: bool,
        above: Mapping[str, bytes],
        beside: Sequence[GetData],
        epoch_path: str | None = None,
    ) -> None:
        self.is_wanted = True
        self.directory = directory
        self._client = ledger.client
        self._ledger = ledger
        self._dialect = dialect
        self._data = data
        self._nonce = nonce
        self._is_reader = is_reader
        self._above = above
        self._beside = beside
        self._epoch_path = epoch_path
        self._stem = ""
        self._sent: _Sent | None = None

    async def begin(self) -> bool:
        if not self._dialect.has_nonce:
            return False
        self._sent = self._send()
        return not any(isinstance(each, BaseException) for each in await self._sent.results())

    async def run(self) -> Place:
        if self._dialect.has_nonce:
            place, read = await self._stand()
        else:
            async with self._ledger.turn(self.directory):
                place, read = await self._stand()
        try:
            await look(place, read)
        except BaseException:
            place.release()
            raise
        return place

    def give_up(self, duty: asyncio.Task[Any]) -> None:
        if not duty.cancelled() and duty.exception() is None:
            duty.result().release()

    def create(self) -> Create2:
        """For the present session; a lost reply is then read back by this very name."""
        self._stem = self._dialect.stem(
            self._client.session_id, self._nonce, is_reader=self._is_reader
        )
        path = join(self.directory, self._stem)
        return Create2(path, self._data, flags=CreateFlag.EPHEMERAL_SEQUENTIAL)

    def parents(self) -> Sequence[Request]:
        """Refusals of these matter only if the create says that something is missing still."""
        above = [Create(path, self._above.get(path, b"")) for path in ancestors(self.directory)]
        return [*above, CreateContainer(self.directory)]

    def placed(self, made: Created, session_id: int) -> Place:
        """What was made, as a place of `session_id`'s.

        Raises `SessionExpired`, and has it deleted, if the create waited for a next session,
        whose id its name does not bear (an heir of that session finds its places by name), or
        that one is over too.
        """
        owner = made.stat.ephemeralOwner
        if not owner == session_id == self._client.session_id:
            self._ledger.delete(made.path, made.stat.czxid, owner)
            raise SessionExpired(session_id, "it ended while we entered a queue")
        place = Place(self._ledger, self.directory, self._dialect, made.path, made.stat, self._data)
        place.reads_beside = tuple(self._beside)
        place.epoch_path = self._epoch_path
        return place

    async def read_back(self, session_id: int) -> Created | None:
        """What became of a create whose reply was lost; None: nothing, and nothing will.

        `session_id` was ours when it was handed over; if it had to wait until a next session
        began, it was sent in that one, and a znode of ours may stand there.
        """
        pause = Pause()
        while True:
            current = self._client.session_id
            ordered, children = await flight(
                self._client, Multi([Check(self.directory)]), GetChildren(self.directory)
            )
            if isinstance(ordered, NoNode):
                return None
            if ordered_failed := _unless_lost(ordered):
                raise ordered_failed
            if not isinstance(ordered, BaseException) and isinstance(children, list):
                with contextlib.suppress(FateUnknown, NotSent):
                    made = await self._find(current, children)
                    if made is None and current != session_id:
                        raise SessionExpired(session_id, "it ended while a create's reply was lost")
                    return made
            await pause.take()

    async def _stand(self) -> tuple[Place, list[object]]:
        """Our place, and what was read after the create: all that is beside, and the listing."""
        pause = Pause()
        vanished = 0
        while self._sent is not None or self.is_wanted:
            sent, self._sent = self._sent or self._send(self.parents() if vanished else ()), None
            made, *read = await sent.results()
            if isinstance(made, FateUnknown):
                made, read = await self.read_back(sent.session_id), [None]
            if isinstance(made, Created):
                return self.placed(made, sent.session_id), read
            if isinstance(made, NoNode) and vanished < TRIES:
                if why := why_not_made(self._client, join(self.directory, "_"), sent.above):
                    raise why
                vanished += 1
            elif isinstance(made, NotSent) and not isinstance(made, TooLarge):
                await pause.take()
            elif isinstance(made, BaseException):
                raise made
        raise asyncio.CancelledError

    def _send(self, parents: Sequence[Request] = ()) -> _Sent:
        requests = (self.create(), *self._beside)
        sent = _Sent(self._client.session_id, len(requests) + 1)
        for each in parents:
            self._client.ask(each, sent.above.append)
        for at, each in enumerate(requests):
            self._client.ask(each, sent.told(at))
        self._ledger.listings.ask(self.directory, sent.told(len(requests)))
        return sent

    async def _find(self, session_id: int, children: Sequence[str]) -> Created | None:
        for name in sorted(children):
            path = join(self.directory, name)
            if self._dialect.has_nonce and not name.startswith(self._stem):
                continue
            if self._dialect.contender(name) is None or path in self._ledger.standing:
                continue
            with contextlib.suppress(NoNode):
                data, stat = await self._client.get(path)
                is_ours = self._dialect.has_nonce or data == self._data
                if stat.ephemeralOwner == session_id and is_ours:
                    return Created(path, Stat(*stat))
        return None


class _Sent:
    """A create, what is read beside and the listing, on their way in one flight.

    session_id   ours when they were handed over
    above        what became of the creates of what is above, which came before them
    """

    __slots__ = ("_left", "_results", "_waiter", "above", "session_id")

    def __init__(self, session_id: int, count: int) -> None:
        self.session_id = session_id
        self.above: list[object] = []
        self._left = count
        self._results: list[object] = [None] * count
        self._waiter: asyncio.Future[None] | None = None

    def told(self, at: int) -> Callable[[object], None]:
        """Who is told of the outcome of number `at`."""
        return partial(self._came, at)

    async def results(self) -> list[object]:
        """Return when they are all answered. Cancelled, it can be asked again."""
        if self._left:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._results

    def _came(self, at: int, outcome: object) -> None:
        self._results[at] = outcome
        self._left -= 1
        if not self._left and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def look(place: Place, read: Sequence[object]) -> None:
    """Take over what was read after the create, all that is beside and the listing, or read it
    again. Raises `NoNode` or an error of the session if our znode is gone already."""
    *beside, children = read
    if isinstance(children, list) and not any(isinstance(e, BaseException) for e in beside):
        place.listed(children, beside)
    else:
        await place.refresh()
    if place.gone.error is not None:
        raise place.gone.error


def _unless_lost(result: object) -> IncumbentError | None:
    """The error that reading again will not help against."""
    if isinstance(result, Refused) and result.code == SYSTEM_ERROR:
        return None  # it cannot write just now; what was written before may stand all the same
    if isinstance(result, IncumbentError) and not isinstance(result, FateUnknown | NotSent):
        return result
    return None
