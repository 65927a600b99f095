"""Barriers in the simulated world: nobody passes too early, all come out alike, nobody hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tests.simulation.recipes import SESSION, Trial

from incumbent import aio
from incumbent.errors import BarrierTimeout, BrokenBarrier
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host

__all__ = ["BarrierTrial", "DoubleBarrierTrial"]


class BarrierTrial(Trial):
    """The first host puts it up and takes it down; nobody passes while it is surely up."""

    name = "barrier"
    seeds = 180
    faults_for = 10.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.may_be_down_at = float("inf")
        """When it was last possible that it is not up; infinity: it is possible now."""
        self.passed = self.raised = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        barrier = zk.barrier("/app/gate")
        if host.name == self.names[0]:
            self.may_be_down_at = float("inf")
            await barrier.remove()
            await asyncio.sleep(host.rng.expovariate(3))
            await barrier.create()
            self.may_be_down_at = self.world.now
            self.raised += 1
            await asyncio.sleep(host.rng.expovariate(1))
            return
        since = self.world.now
        if await barrier.wait(host.rng.choice([0, 0.05, 2.0, 5.0])):
            self.passed += 1
            if self.may_be_down_at < since:
                self.blame(f"passed at {self.world.now:.6f} s, up since {self.may_be_down_at:.6f}")
        await asyncio.sleep(host.rng.expovariate(10))

    def progressed(self) -> Mapping[str, int]:
        return {"it is put up": self.raised, "somebody passes": self.passed}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path != "/app/gate"]


class DoubleBarrierTrial(Trial):
    """Three of four hosts go in and out together, or all are told that it is broken."""

    name = "double-barrier"
    faults_for = 10.0
    names = ("n1", "n2", "n3", "n4")
    count = 3

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.here: dict[str, float] = {}
        """Until when a host is at the barrier: infinity while it says so itself."""
        self.went_in: dict[str, set[str]] = {}
        self.wanted_out: dict[str, set[str]] = {}
        self.outcomes: dict[str, set[str]] = {}
        self.rounds = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        rng = host.rng
        barrier = zk.double_barrier("/app/b", self.count, timeout=rng.choice([0.3, 3.0, 12.0]))
        me = f"{host.name} {host.processes[0].name} {self.world.now}"
        self.here[me] = float("inf")
        try:
            cancelled_after = rng.expovariate(10) if rng.random() < 0.1 else None
            async with asyncio.timeout(cancelled_after):
                await barrier.enter()
        except (BarrierTimeout, TimeoutError):
            self.here[me] = self.world.now
            return
        except BaseException:
            self.here[me] = self.world.now + 3 * SESSION  # its session may live on so long
            raise
        round_ = barrier._word.round
        self.entered(me, round_)
        await asyncio.sleep(rng.choice([0.0, 0.1, 3.0]) * rng.random())
        if rng.random() < 0.1:
            barrier.abandon()
            self.here[me] = self.world.now
            return
        self.wanted_out.setdefault(round_, set()).add(me)
        try:
            async with asyncio.timeout(rng.expovariate(10) if rng.random() < 0.1 else None):
                await barrier.leave()
            self.came_out(round_, "left")
        except TimeoutError:
            self.world.record("does not wait", round=round_)
        except BrokenBarrier as error:
            if error.is_certain:
                self.came_out(round_, "broken")
            raise
        finally:
            self.here[me] = self.world.now

    def entered(self, me: str, round_: str) -> None:
        members = self.went_in.setdefault(round_, set())
        members.add(me)
        self.world.record("is in", round=round_)
        if len(members) > self.count:
            self.blame(f"{len(members)} went in together: {sorted(members)}")
        here = [each for each, until in self.here.items() if until > self.world.now - SESSION]
        if len(here) < self.count:
            self.blame(f"{me} went in with {len(here)} there")

    def came_out(self, round_: str, how: str) -> None:
        self.world.record("is out", round=round_, how=how)
        outcomes = self.outcomes.setdefault(round_, set())
        outcomes.add(how)
        if len(outcomes) > 1:
            self.blame(f"of round {round_}, some left and some were told that it is broken")
        if how == "left":
            self.rounds += 1
            if (wanted := len(self.wanted_out[round_])) != self.count:
                self.blame(f"round {round_} left, when {wanted} wanted to")

    def progressed(self) -> Mapping[str, int]:
        return {"a round leaves": self.rounds}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path != "/app/b"]
