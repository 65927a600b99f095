"""A counter that many add to: every acknowledged addition counts once.

The znode holds the number, and after it the nonces of the last few additions: `42 9f3c… 07aa…`.
So an addition whose answer was lost is read back even if others added since: its nonce is there,
or, since every change left one and there are no more changes than nonces, it was not made. Where
that does not tell either (more changes, or a stranger's, or another znode), `FateUnknown`.

Rule of this file: the number changes only together with a nonce, over a version that was read.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from incumbent.client import Client
from incumbent.errors import (
    BadVersion,
    FateUnknown,
    IncumbentError,
    MalformedValue,
    NoNode,
    SessionExpired,
)
from incumbent.recipes.flight import flight
from incumbent.recipes.ledger import Pause
from incumbent.recipes.readback import read_back
from incumbent.recipes.value import write_at
from incumbent.wire import GetData, Stat
from incumbent.wire.paths import problem

__all__ = ["Count", "Counter", "was_made"]

_KEPT = 16
"""Additions that are remembered."""

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Count:
    """What a counter's znode holds; `version` None: there is none."""

    number: int
    nonces: tuple[str, ...] = ()
    version: int | None = None
    czxid: int = 0

    @classmethod
    def read(cls, path: str, data: bytes | None, stat: Stat) -> Count:
        """Raises `MalformedValue`."""
        number, *nonces = (data or b"").split() or [b"0"]
        try:
            return cls(int(number), tuple(n.decode() for n in nonces), stat.version, stat.czxid)
        except ValueError:
            raise MalformedValue(path, data or b"", "a whole number") from None

    def plus(self, number: int, nonce: str) -> Count:
        return Count(self.number + number, (*self.nonces, nonce)[-_KEPT:])

    @property
    def data(self) -> bytes:
        return " ".join((str(self.number), *self.nonces)).encode()


def was_made(before: Count, now: Count, nonce: str) -> bool | None:
    """Was the addition with this nonce, over `before`, made? `now` was read after it had been or
    never will be. None: that cannot be known."""
    if nonce in now.nonces:
        return True
    if now.version is None:
        return False if before.version is None else None
    if before.version is None:
        changes = now.version + 1
    elif now.czxid == before.czxid:
        changes = now.version - before.version
    else:
        return None
    return False if changes <= len(now.nonces) else None


class Counter:
    """The counter at `path`, a persistent znode that the first addition makes."""

    def __init__(self, client: Client, path: str, *, initial: int = 0, rng: random.Random) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        _whole(initial)
        self.client = client
        self.path = path
        self.initial = initial
        self._rng = rng
        self._last: Count | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> int:
        """The number, as the server that we are connected to knows it. One round trip. Raises
        `MalformedValue` if it is none."""
        return (await self._read()).number

    async def add(self, number: int = 1) -> int:
        """Add to it, also less than nothing; the sum.

        One round trip, two more if others added since we last did. Raises `FateUnknown` if an
        answer was lost and whether we added is not known; any other error: we did not.
        Cancelled, it may have been added. Additions by one counter go one at a time.
        """
        _whole(number)
        async with self._turn:
            while True:
                before = self._last or await self._read()
                after = before.plus(number, f"{self._rng.getrandbits(48):012x}")
                if await self._write(before, after):
                    return after.number

    async def _write(self, before: Count, after: Count) -> bool:
        """Was it made? False: somebody was faster."""
        pause, doubt = Pause(), ""
        self._last = None
        for _ in range(_TRIES):
            try:
                stat = await write_at(self.client, self.path, after.data, before.version)
                self._last = Count(after.number, after.nonces, stat.version, stat.czxid)
                return True
            except SessionExpired:  # it was not sent; the next session will do
                await pause.take()
                continue
            except BadVersion:
                if not doubt:
                    return False
            except FateUnknown as lost:
                doubt = lost.why
            try:
                (answer,) = await read_back(self.client, GetData(self.path))
                now = self._count(answer)
            except IncumbentError as error:
                raise FateUnknown(f"adding to {self.path}", f"{doubt}; {error}") from None
            made = was_made(before, now, after.nonces[-1])
            if made is None:
                raise FateUnknown(f"adding to {self.path}", f"{doubt}; others changed it since")
            if made:
                self._last = now
                return True
            if now.version != before.version:
                return False
        raise FateUnknown(f"adding to {self.path}", "one connection after the other was lost")

    async def _read(self) -> Count:
        (answer,) = await flight(self.client, GetData(self.path))
        return self._count(answer)

    def _count(self, answer: object) -> Count:
        if isinstance(answer, NoNode):
            return Count(self.initial)
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, tuple)
        return Count.read(self.path, *answer)


def _whole(number: int) -> None:
    """Anything else would spoil the counter for everybody."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{number!r} cannot be counted: a whole number is needed")
