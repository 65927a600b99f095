"""Marks of done items, taken away when they are old enough.

A worker remembers the marks that it has made and takes them away itself, by its own clock. What
a worker leaves that ends is found by the others, who look at one shard after the other, each
once per `keep_done`: by the servers' clock, which we know from the znodes of our claims. That
clock may be set; so a mark goes only twice the lag after we have seen that it is old, and then
every copy has what it stands for, whatever the clocks say.

Records that are open, without a claim, and unchanged for a day (or ten times `keep_done`) are of
items that nobody lists any more: they go too. Parked ones stay.

Rule of this file: a mark goes only at the version at which it was read or made.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from incumbent.client import Client
from incumbent.errors import IncumbentError, MalformedValue, NoNode
from incumbent.recipes.flight import flight
from incumbent.wire import Delete, GetData, MultiRead
from incumbent.work.records import SHARDS, read_record

__all__ = ["Sweeper"]

_MOST = 100_000
"""Marks of our own that we remember; of more, the others' way takes care."""

_FLIGHT = 500
_DAY = 86_400.0


class Sweeper:
    """One worker's part of the sweeping. `server_time` tells what the servers' clock shows at
    least now, in seconds; None: not known yet."""

    def __init__(
        self,
        client: Client,
        path: str,
        keep_done: float,
        lag: float,
        *,
        rng: random.Random,
        server_time: Callable[[], float | None],
    ) -> None:
        self._client = client
        self._path = path
        self._keep_done = keep_done
        self._lag = lag
        self._rng = rng
        self._server_time = server_time
        self._own: deque[tuple[float, str, int]] = deque(maxlen=_MOST)

    def marked(self, path: str, version: int) -> None:
        """We have marked this record as done, and it has this version."""
        self._own.append((self._client.clock.boottime() + self._keep_done, path, version))

    async def run(self) -> None:
        """Until cancelled."""
        shards: list[str] = []  # what is made while we go through them has no old marks
        step = self._keep_done / len(SHARDS)
        while True:
            for shard in shards or [""]:
                await asyncio.sleep(min(10.0, step) * self._rng.uniform(0.8, 1.2))
                with suppress(IncumbentError):  # a mark that stays does no harm
                    await self._sweep_own()
                    if shard:
                        await self._sweep_shard(f"{self._path}/{shard}")
            with suppress(IncumbentError):
                found = await self._client.children(self._path)
                shards = [name for name in found if name in SHARDS]
                self._rng.shuffle(shards)
            step = self._keep_done / max(1, len(shards))

    async def _sweep_own(self) -> None:
        now = self._client.clock.boottime()
        while self._own and self._own[0][0] <= now:
            due = [self._own.popleft() for _ in range(min(_FLIGHT, len(self._own)))]
            later = [each for each in due if each[0] > now]
            self._own.extendleft(reversed(later))
            deletes = [Delete(path, version) for at, path, version in due if at <= now]
            await flight(self._client, *deletes)

    async def _sweep_shard(self, shard: str) -> None:
        now = self._server_time()
        if now is None:
            return
        try:
            names = await self._client.children(shard)
        except NoNode:
            return
        ours = {path for _, path, _ in self._own}
        paths = [path for name in names if (path := f"{shard}/{name}") not in ours]
        old: list[Delete] = []
        for start in range(0, len(paths), _FLIGHT):
            piece = paths[start : start + _FLIGHT]
            answers = await self._client.submit(MultiRead(tuple(map(GetData, piece))))
            for path, answer in zip(piece, answers, strict=True):
                if not isinstance(answer, BaseException):
                    data, stat = answer
                    if stat.numChildren == 0 and self._is_old(path, data, now - stat.mtime / 1000):
                        old.append(Delete(path, stat.version))
        if old:
            await asyncio.sleep(2 * self._lag)
        for start in range(0, len(old), _FLIGHT):
            await flight(self._client, *old[start : start + _FLIGHT])

    def _is_old(self, path: str, data: bytes | None, age: float) -> bool:
        try:
            record = read_record(path, data)
        except MalformedValue:
            return False
        if record.state == "open":
            return age >= max(_DAY, 10 * self._keep_done, 2 * record.wait)
        return record.state == "done" and age >= self._keep_done
