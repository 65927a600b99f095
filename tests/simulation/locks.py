"""Locks in the simulated world, each use of another kind: waited for, tried, timed, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.recipes import Trial

from incumbent import aio
from incumbent.errors import LockTimeout
from incumbent.recipes.hold import Hold
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host

__all__ = ["LockTrial"]


class LockTrial(Trial):
    """One holder at a time, with tokens that rise."""

    name = "lock"

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.grace = self.rng.choice([None, 0.0])
        self.tokens: list[int] = []

    async def use(self, zk: aio.Zk, host: Host) -> None:
        kind = host.rng.choice(["waits", "waits", "timed", "tries", "cancelled"])
        with contextlib.suppress(LockTimeout, TimeoutError):
            match kind:
                case "timed":
                    timeout = host.rng.choice([0.0, 0.05, 2.0])
                    await self.within(host, zk.lock("/app/l", timeout=timeout, grace=self.grace))
                case "tries":
                    await self.within(host, zk.try_lock("/app/l", grace=self.grace))
                case "cancelled":
                    async with asyncio.timeout(host.rng.expovariate(5)):
                        await self.within(host, zk.lock("/app/l", grace=self.grace))
                case _:
                    await self.within(host, zk.lock("/app/l", grace=self.grace))
        await asyncio.sleep(host.rng.expovariate(5))

    async def within(self, host: Host, guarded: Any) -> None:
        async with guarded as hold:
            if hold is not None:
                self.acquired(host, hold)
                await asyncio.sleep(host.rng.choice([0.0, 0.1, 1.0, 6.0]) * host.rng.random())
                hold.ensure()

    def acquired(self, host: Host, hold: Hold) -> None:
        if self.tokens and hold.fencing_token <= self.tokens[-1]:
            self.blame(f"a token did not rise: {self.tokens[-1]}, {hold.fencing_token}")
        self.tokens.append(hold.fencing_token)
        self.believes(host, hold)

    def look(self) -> None:
        held = self.held()
        if len(held) > 1:
            self.blame(f"overlap at {self.world.now:.6f} s: {', '.join(map(str, held))}")

    def progressed(self) -> Mapping[str, int]:
        return {"a lock is taken": len(self.tokens)}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path != "/app/l"]
