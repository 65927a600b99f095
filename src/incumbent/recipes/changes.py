"""The changes of a cache as a stream: the net difference, for readers of any speed.

Rule of this file: nothing piles up and nothing is left out: for each znode one difference waits, from
what its reader was told last to what is shown now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from incumbent.recipes.picture import Change, Znode

if TYPE_CHECKING:
    from incumbent.recipes.cache import Cache

__all__ = ["Changes"]


class Changes:
    """What changed, znode by znode. For one reader at a time.

    Nothing piles up: of a znode that changed several times before somebody looked, the net
    difference is told, and one that came and went is not told at all.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._before: dict[str, Znode | None] = dict.fromkeys(cache.snapshot())
        self._resumed: set[str] = set()
        self._news = asyncio.Event()

    async def next(self, timeout: float | None = None) -> Change:
        """The next change. Raises TimeoutError after `timeout` seconds without one, and
        `SessionClosed`, or what ended the cache, when there will be none any more."""
        async with asyncio.timeout(timeout):
            while True:
                while self._before:
                    path = next(iter(self._before))
                    before = self._before.pop(path)
                    resumed = path in self._resumed
                    self._resumed.discard(path)
                    after = self._cache.get(path)
                    if before is not after:
                        return Change(path=path, before=before, after=after, resumed=resumed)
                self._cache._raise_if_over()
                self._news.clear()
                await self._news.wait()

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        return await self.next()

    def _put(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._before.setdefault(change.path, change.before)
            if change.resumed:
                self._resumed.add(change.path)
        self._news.set()
