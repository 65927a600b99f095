"""A recipe's trial on three servers instead of one: followers lag, leaders go, sessions move.

Rule of this file: what is judged stays the trial's; only where its clients connect differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from tests.simulation.recipes import LONGEST_FAULT, SESSION, Trial

from incumbent import aio
from incumbent.testing.ensemble import Ensemble
from incumbent.testing.faults import ALL_KINDS, Fault, draw, inflict
from incumbent.testing.world import Host

__all__ = ["on_ensemble"]

SERVERS = ("zk1", "zk2", "zk3")
TICKS = (0.4, 1.0, 2.0)  # two of the longest make a session

T = TypeVar("T", bound=Trial)


def on_ensemble(trial: type[T]) -> type[T]:
    """The same trial there."""

    class OnEnsemble(trial):  # type: ignore[misc,valid-type]
        name = f"{trial.name}-ensemble"

        def __init__(
            self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
        ) -> None:
            super().__init__(seed, kinds=("reset",), faults=())
            tick = self.rng.choice(TICKS)
            self.ensemble = Ensemble(self.world, SERVERS, tick=tick)
            self.ensemble.on_commit = self.committed
            self.tick = self.rng.choice([tick, None])
            self.progress_within += 5 + 6 * tick
            own = tuple(self.ensemble.kinds)
            drawn = draw(
                self.rng,
                hosts=self.names,
                servers=(*SERVERS, "zk leader"),
                duration=self.faults_for,
                longest=LONGEST_FAULT,
                kinds=kinds or (*ALL_KINDS, *own, *own),
                on_servers=own,
                sparing=("jump boottime",),
            )
            self.faults = drawn if faults is None else list(faults)

        def connect(self, host: Host) -> aio.Connecting:
            return aio.connect(
                self.ensemble.hosts,
                session_timeout=SESSION,
                tick=self.tick,
                clock=host.clock,
                rng=host.rng,
                log=self.heard,
            )

        def heard(self, line: str) -> None:
            told = getattr(super(), "heard", None)
            if told is not None:
                told(line)

        def boot(self, name: str) -> None:
            if name in SERVERS:
                self.ensemble.boot(name)
            elif name != "zk":
                super().boot(name)

        def who(self, name: str) -> str:
            return (self.ensemble.leader or SERVERS[0]) if name == "zk leader" else name

        async def story(self) -> None:
            for name in (*SERVERS, *self.names):
                self.boot(name)
            watch = asyncio.ensure_future(self.watch())
            more = self.ensemble.kinds
            await inflict(self.world, self.faults, more=more, on_up=self.boot, who=self.who)
            self.world.note("healed")
            self.healed_at = self.world.now
            await self.progress()
            await self.progress()
            await asyncio.sleep(self.calm)
            await self.settle()
            watch.cancel()

    return OnEnsemble
