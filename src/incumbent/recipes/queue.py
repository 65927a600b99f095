"""A queue of contenders: a directory of ephemeral sequential znodes, the lowest number first.

To stand takes one flight: create2 and a listing, sent together; the parents too where they are
missing. The directory is a container, which the server deletes some time after its last child
left, so that "no such directory" is possible at any moment: then once more, with parents.

A create whose reply was lost is never simply repeated, or two znodes would stand and the first
one block the second. Its effect is read back: after a `multi[check directory]`, which the
servers order behind that create, the listing tells. In our dialect by the nonce in the name.
In a plain dialect there is none, and other programs may read the data, so that we put no nonce
there either: of the znodes there that our own session owns, it is the one with our data that
no place of ours claims. For that, creates in one plain directory go one at a time, and a client
has only one `Ledger`.

Rule of this file: an earlier session's znode is never taken for ours: its owner is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from incumbent.client import Client
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    MixedDialects,
    NoNode,
    NotSent,
    SessionClosed,
    SessionExpired,
)
from incumbent.recipes.dialects import OURS, Contender, Dialect, detect
from incumbent.recipes.ledger import Ledger, Pause
from incumbent.recipes.place import Place, flight, join
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
from incumbent.wire.paths import ancestors, problem

__all__ = ["Queue"]

_TRIES = 10
"""So often may a directory vanish under us while we enter it, before we say so."""


class Queue:
    """The contenders at `path`.

    dialect   how they are named; None: as those who stand there are (one round trip more)
    rng       source of nonces
    ledger    the client's; only if the client has no other recipes may it be left out
    above     data for znodes above the directory, should they have to be made: path → data
    beside    what places read with each listing, just before it (`Place.beside`)
    """

    def __init__(
        self,
        client: Client,
        path: str,
        dialect: Dialect | None = OURS,
        *,
        rng: random.Random,
        ledger: Ledger | None = None,
        above: Mapping[str, bytes] | None = None,
        beside: Sequence[GetData] = (),
    ) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.client = client
        self.path = path
        self.dialect = dialect
        self.rng = rng
        self.ledger = ledger or Ledger(client)
        self.above = above or {}
        self.beside = tuple(beside)

    async def enter(self, data: bytes = b"", *, is_reader: bool = False) -> Place:
        """Stand at the end of the queue; returns when the znode is made and the queue was read.

        `is_reader`: only writers keep us out, in a dialect that has readers.
        Waits through disconnections; bound it with `asyncio.timeout`. Cancelled, it leaves no
        znode behind. Raises `MixedDialects`, `QueueExhausted`, `SessionExpired` (the session
        ended meanwhile: enter again), `SessionClosed`, or what the server refused.
        """
        for _ in range(_TRIES):
            dialect = self.dialect or detect(self.path, await self._children())
            try:
                return await self._enter(data, dialect, is_reader)
            except MixedDialects:  # somebody came in between the look and our create
                if self.dialect is not None:
                    raise
        dialect = detect(self.path, await self._children())
        return await self._enter(data, dialect, is_reader)

    @asynccontextmanager
    async def place(self, data: bytes = b"", *, is_reader: bool = False) -> AsyncIterator[Place]:
        """`enter`, and give the place up at the end of the block."""
        place = await self.enter(data, is_reader=is_reader)
        try:
            yield place
        finally:
            place.release()

    async def contenders(self) -> tuple[Contender, ...]:
        """Who stands there now, first one first. No directory: nobody."""
        children = await self._children()
        return (self.dialect or detect(self.path, children)).rank(self.path, children)

    async def _children(self) -> list[str]:
        try:
            return await self.client.children(self.path)
        except NoNode:
            return []

    async def _enter(self, data: bytes, dialect: Dialect, is_reader: bool) -> Place:
        if is_reader and not dialect.has_readers:
            raise ValueError(
                f"{self.path}: the {dialect} dialect has no readers; use another directory in "
                "ours or curator-rw, or a plain lock here"
            )
        entry = _Entry(self, data, dialect, is_reader)
        duty = self.ledger.owe(entry.run())
        try:
            return await asyncio.shield(duty)
        except asyncio.CancelledError:
            if duty.cancelled():
                raise SessionClosed(self.client.session_id, "closed while entering a queue")
            entry.is_wanted = False
            duty.add_done_callback(_release)
            raise


def _release(duty: asyncio.Task[Place]) -> None:
    if not duty.cancelled() and duty.exception() is None:
        duty.result().release()


class _Entry:
    """One try to stand, from the create to a listing read after it."""

    def __init__(self, queue: Queue, data: bytes, dialect: Dialect, is_reader: bool) -> None:
        self.is_wanted = True
        self._queue = queue
        self._client = queue.client
        self._ledger = queue.ledger
        self._directory = queue.path
        self._data = data
        self._dialect = dialect
        self._is_reader = is_reader
        self._nonce = f"{queue.rng.getrandbits(64):016x}"
        self._stem = ""

    async def run(self) -> Place:
        if self._dialect.has_nonce:
            place, read = await self._stand()
        else:
            async with self._ledger.turn(self._directory):
                place, read = await self._stand()
        place.reads_beside = self._queue.beside
        try:
            *beside, children = read
            if isinstance(children, list) and not _errors(read):
                place.listed(children, beside)
            else:
                await place.refresh()
            if place.gone.error is not None:
                raise place.gone.error
        except BaseException:
            place.release()
            raise
        return place

    async def _stand(self) -> tuple[Place, list[object]]:
        """Our place, and what was read after the create: all that is beside, and the listing."""
        pause = Pause()
        vanished = 0
        while self.is_wanted:
            session_id = self._client.session_id
            self._stem = self._dialect.stem(session_id, self._nonce, is_reader=self._is_reader)
            create = Create2(
                join(self._directory, self._stem),
                self._data,
                flags=CreateFlag.EPHEMERAL_SEQUENTIAL,
            )
            parents = self._parents() if vanished else []
            reads = [*self._queue.beside, GetChildren(self._directory)]
            results = await flight(self._client, *parents, create, *reads)
            made, *read = results[len(parents) :]
            if isinstance(made, FateUnknown):
                made, read = await self._read_back(session_id), [None]
            if isinstance(made, Created):
                owner = made.stat.ephemeralOwner
                if not owner == session_id == self._client.session_id:
                    # The create waited for a next session, whose id its name does not bear (an
                    # heir of that session finds its places by name), or that one is over too.
                    self._ledger.delete(made.path, made.stat.czxid, owner)
                    raise SessionExpired(session_id, "it ended while we entered a queue")
                place = Place(
                    self._ledger, self._directory, self._dialect, made.path, made.stat, self._data
                )
                return place, read
            if isinstance(made, NoNode) and vanished < _TRIES:
                vanished += 1
            elif isinstance(made, NotSent):
                await pause.take()
            elif isinstance(made, BaseException):
                raise made
        raise asyncio.CancelledError

    def _parents(self) -> Sequence[Request]:
        """Refusals of these don't matter: if something is missing still, the create says so."""
        data = self._queue.above
        above = [Create(path, data.get(path, b"")) for path in ancestors(self._directory)]
        return [*above, CreateContainer(self._directory)]

    async def _read_back(self, session_id: int) -> Created | None:
        """What became of a create whose reply was lost; None: nothing, and nothing will.

        `session_id` was ours when it was handed over; if it had to wait until a next session
        began, it was sent in that one, and a znode of ours may stand there.
        """
        pause = Pause()
        while True:
            current = self._client.session_id
            ordered, children = await flight(
                self._client, Multi([Check(self._directory)]), GetChildren(self._directory)
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

    async def _find(self, session_id: int, children: Sequence[str]) -> Created | None:
        for name in sorted(children):
            path = join(self._directory, name)
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


def _errors(results: Sequence[object]) -> list[BaseException]:
    return [each for each in results if isinstance(each, BaseException)]


def _unless_lost(result: object) -> IncumbentError | None:
    """The error that reading again will not help against."""
    if isinstance(result, IncumbentError) and not isinstance(result, FateUnknown | NotSent):
        return result
    return None
