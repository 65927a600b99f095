"""A value that many read and some change: compare-and-set by the znode's version.

The znode holds the bare bytes, for everyone to read and to edit by hand. So nothing in it tells
whose a change was, and an answer that was lost is concluded from version and data: the version
that we had stands: not done, again; the next version with other bytes: somebody else's; with
ours, or a later version: not known, and said so.

Rule of this file: nothing is written over a version that was not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from incumbent.client import Client
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    NodeExists,
    NoNode,
    NotSent,
    Refused,
    SessionExpired,
)
from incumbent.recipes.content import as_bytes
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Pause
from incumbent.recipes.readback import read_back
from incumbent.wire import Create, Create2, Created, GetData, Stat, WatchEvent
from incumbent.wire.paths import ancestors, problem

__all__ = ["Following", "Value", "Versioned", "write_at"]

_TRIES = 5


class Versioned(NamedTuple):
    """A value and the version of its znode; None: there is no znode, `data` is the default."""

    data: bytes
    version: int | None


async def write_at(client: Client, path: str, data: bytes, version: int | None) -> Stat:
    """Write over exactly this version; None: make the znode, and what is missing above it.

    Raises `BadVersion` if it is another one, `FateUnknown` as it is.
    """
    if version is not None:
        try:
            return await client.set(path, data, version)
        except NoNode:
            raise BadVersion(path) from None
    above: list[Create] = []
    for _ in range(_TRIES):
        *results, made = await flight(client, *above, Create2(path, data))
        if isinstance(made, Created):
            return made.stat
        if isinstance(made, NodeExists):
            raise BadVersion(path)
        if not isinstance(made, NoNode):
            break
        if why := why_not_made(client, path, results):
            raise why
        above = [Create(each) for each in ancestors(path)]
    assert isinstance(made, BaseException)
    raise made


class Value:
    """The value at `path`, a persistent znode that the first change makes."""

    def __init__(self, client: Client, path: str, default: str | bytes = b"") -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.client = client
        self.path = path
        self.default = as_bytes(default)

    async def get(self) -> Versioned:
        """What it is, as the server that we are connected to knows it. One round trip."""
        try:
            data, stat = await self.client.get(self.path)
        except NoNode:
            return Versioned(self.default, None)
        return Versioned(data, stat.version)

    async def compare_and_set(self, data: str | bytes, version: int | None) -> int:
        """Change it if its version is this one; the new version. One round trip.

        Raises `BadVersion`: somebody was faster, nothing was done. `FateUnknown`: the answer was
        lost, and whether this change was made is not known.
        """
        if version is not None and version < 0:
            raise ValueError(f"version={version}: one that was read, or None to make the znode")
        body, doubt = as_bytes(data), ""
        after = 0 if version is None else version + 1
        for _ in range(_TRIES):
            try:
                return (await write_at(self.client, self.path, body, version)).version
            except BadVersion:
                if not doubt:
                    raise
            except FateUnknown as lost:
                doubt = lost.why
            try:
                (now,) = await read_back(self.client, GetData(self.path))
            except IncumbentError as error:
                raise self._unknown(f"{doubt}; {error}") from None
            if isinstance(now, NoNode):
                if version is not None:
                    raise self._unknown(f"{doubt}; it was deleted since")
            elif isinstance(now, Refused):
                raise self._unknown(f"{doubt}; {now}")
            elif now.stat.version != version:
                if now.stat.version != after or (now.data or b"") == body:
                    raise self._unknown(f"{doubt}; it was changed since")
                raise BadVersion(self.path)
        raise self._unknown("one connection after the other was lost")

    def _unknown(self, why: str) -> FateUnknown:
        return FateUnknown(f"setting {self.path}", why)

    async def update(self, change: Callable[[bytes], str | bytes]) -> bytes:
        """Replace it by `change(value)`, which is called again when somebody was faster.

        Two round trips, two more for each race lost. Raises `FateUnknown` as `compare_and_set`.
        """
        while True:
            data, version = await self.get()
            new = as_bytes(change(data))
            try:
                await self.compare_and_set(new, version)
            except BadVersion:
                continue
            return new

    async def set(self, data: str | bytes) -> int:
        """Replace whatever it is; the new version. Raises `FateUnknown` as `compare_and_set`."""
        while True:
            _, version = await self.get()
            try:
                return await self.compare_and_set(data, version)
            except BadVersion:
                continue

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Following]:
        """Have it in memory, kept up to date: `async with value.follow() as following`, then
        `following.now` costs nothing, and `async for versioned in following` tells changes."""
        following = Following(self)
        task = self.client.here().create_task(following.keep())
        try:
            await following.begun(task)
            yield following
        finally:
            task.cancel()
            await asyncio.wait([task])
            self.client.unwatch(self.path, following.heard)


class Following:
    """A value in memory. While disconnected it is what was read last."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self._now: Versioned | None = None
        self._told: Versioned | None = None
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._error: IncumbentError | None = None

    @property
    def now(self) -> Versioned:
        """The newest that is known."""
        assert self._now is not None
        return self._now

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Versioned:
        """The next one that differs from the last one told, the present one first. Changes in
        quick succession give the last. Raises `SessionClosed`."""
        while self._now is None or self._now == self._told:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        self._told = self._now
        return self._now

    async def begun(self, task: asyncio.Task[None]) -> None:
        while self._now is None and not task.done():
            self._news.clear()
            await self._news.wait()
        if self._now is None and self._error is not None:
            raise self._error

    def heard(self, event: WatchEvent) -> None:
        self._changed.set()

    async def keep(self) -> None:
        pause = Pause()
        try:
            while True:
                self._changed.clear()
                try:
                    self._now = await self._read()
                except (FateUnknown, NotSent, SessionExpired):
                    await pause.take()
                    continue
                pause = Pause()
                self._news.set()
                await self._changed.wait()
        except IncumbentError as error:
            self._error = error
        finally:
            self._news.set()

    async def _read(self) -> Versioned:
        client, path = self._value.client, self._value.path
        while True:
            try:
                data, stat = await client.get(path, watcher=self.heard)
                return Versioned(data, stat.version)
            except NoNode:
                if await client.exists(path, watcher=self.heard) is None:
                    return Versioned(self._value.default, None)
