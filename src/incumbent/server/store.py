"""Where transactions are kept: what a server asks of a store, and one in memory.

Rule of this file: a batch is all there or not at all, and it is there once `commit` returned.
A `commit` that raises `StoreFailed` left nothing behind that `load` would show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from incumbent.errors import IncumbentError
from incumbent.server.journal import pack_transactions, unpack_transactions
from incumbent.server.tree import Transaction, Tree

__all__ = ["Batch", "Loaded", "MemoryStore", "Store", "StoreFailed"]

Batch: TypeAlias = tuple[Transaction, ...]
"""Transactions that become durable together; their zxids follow one another."""


class StoreFailed(IncumbentError):
    """A batch could not be made durable; nothing of it is kept. `why` is the cause."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(where, why)

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a store held. `secret` makes session passwords and is as old as the store."""

    tree: Tree
    secret: bytes


class Store(Protocol):
    """Keeps transactions. One server uses it at a time, one call after the other."""

    def load(self) -> Loaded:
        """Everything committed so far. Raises `StoreFailed`."""

    async def commit(self, batch: Batch) -> None:
        """Durable when it returns. Raises `StoreFailed`, and then the batch never was."""

    def close(self) -> None:
        """Let go of it; nothing is lost by not calling this."""


class MemoryStore:
    """A store as durable as this object: it stands for the disk in tests and simulated worlds.

    A server that dies during `commit` leaves the batch out, one that dies after it leaves it in.

    delay     seconds that a commit takes, or a function that says so for each
    failing   given the number of the commit (from 1): does it fail?
    """

    def __init__(
        self,
        *,
        delay: float | Callable[[], float] = 0.0,
        failing: Callable[[int], bool] | None = None,
        secret: bytes = b"kept in memory",
    ) -> None:
        self.delay = delay
        self.failing = failing
        self.commits = 0
        self._secret = secret
        self._groups: list[bytes] = []

    def load(self) -> Loaded:
        tree = Tree()
        for group in self._groups:
            for transaction in unpack_transactions(group):
                tree.apply(transaction)
        return Loaded(tree=tree, secret=self._secret)

    async def commit(self, batch: Batch) -> None:
        self.commits += 1
        fails = self.failing is not None and self.failing(self.commits)
        seconds = self.delay() if callable(self.delay) else self.delay
        if seconds > 0:
            await asyncio.sleep(seconds)
        if fails:
            raise StoreFailed("memory", f"commit {self.commits} was told to fail")
        self._groups.append(pack_transactions(batch))

    def close(self) -> None:
        pass
