"""A queue of contenders: a directory of ephemeral sequential znodes, the lowest number first.

To stand takes one flight: create2 and a listing, sent together; the parents too where they are
missing. The directory is a container, which the server deletes some time after its last child
left, so that "no such directory" is possible at any moment: then once more, with parents.

Rule of this file: whoever is cancelled while entering leaves no znode behind.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from incumbent.client import Client
from incumbent.errors import MixedDialects, NoNode
from incumbent.recipes.dialects import OURS, Contender, Dialect, detect
from incumbent.recipes.entry import TRIES, Entry, enter
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place
from incumbent.wire import GetData
from incumbent.wire.paths import problem

__all__ = ["Queue"]


class Queue:
    """The contenders at `path`.

    dialect   how they are named; None: as those who stand there are (one round trip more)
    rng       source of nonces
    ledger    the client's; only if the client has no other recipes may it be left out
    above     data for znodes above the directory, should they have to be made: path → data
    epoch_path  a persistent znode, made if need be, that counts holds: their fencing token
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
        epoch_path: str | None = None,
    ) -> None:
        for each in (path,) if epoch_path is None else (path, epoch_path):
            if wrong := problem(each):
                raise ValueError(f"{each!r}: {wrong}")
        if epoch_path is not None and epoch_path.startswith(f"{path}/"):
            raise ValueError(f"epoch_path={epoch_path!r}: below {path} only contenders may stand")
        self.client = client
        self.path = path
        self.dialect = dialect
        self.rng = rng
        self.ledger = ledger or Ledger(client)
        self.above = above or {}
        self.beside = tuple(beside)
        self.epoch_path = epoch_path

    async def enter(self, data: bytes = b"", *, is_reader: bool = False) -> Place:
        """Stand at the end of the queue; returns when the znode is made and the queue was read.

        `is_reader`: only writers keep us out, in a dialect that has readers.
        Waits through disconnections; bound it with `asyncio.timeout`. Cancelled, it leaves no
        znode behind. Raises `MixedDialects`, `QueueExhausted`, `SessionExpired` (the session
        ended meanwhile: enter again), `SessionClosed`, or what the server refused.
        """
        for _ in range(TRIES):
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
        entry = self.entry(data, dialect, is_reader=is_reader)
        return await enter(self.ledger, entry)

    def entry(self, data: bytes, dialect: Dialect, *, is_reader: bool = False) -> Entry:
        """One try to stand here."""
        return Entry(
            self.ledger,
            self.path,
            dialect,
            data,
            nonce=f"{self.rng.getrandbits(64):016x}",
            is_reader=is_reader,
            above=self.above,
            beside=self.beside,
            epoch_path=self.epoch_path,
        )
