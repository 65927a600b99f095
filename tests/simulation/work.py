"""Work in the simulated world: a model database with copies that lag, and who charged whom.

The database is the judge's: closing an order is done at one true instant, and each host reads
it as it was `LAG` before. A charge is not conditional on anything but what the host has read and
what it believes: no idempotency key, no fencing token, no conditional write helps it here. So
whatever lets two begin one order, or begin it again on what a copy says, is seen as two charges.

A clock that runs ahead of the world, as no suspended machine's does, would make the lag shorter
than stated: "jump boottime" is not drawn.

Rule of this file: a charge counts when it happens, by the world's true time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.recipes import Trial

from incumbent import aio
from incumbent.errors import NodeExists, NoNode, Taken
from incumbent.testing.faults import ALL_KINDS, Fault
from incumbent.testing.world import Host, Process
from incumbent.work import Claim, Work

__all__ = ["NaiveTrial", "WorkQueueTrial", "WorkTrial"]

LAG = 0.5
"""Seconds, as stated to the library; the copies lag for a little less, for clocks drift."""

KEEP_DONE = 8.0

OLDEST_LIST = 9.0  # seconds: older than the marks, as a process that was frozen has it


class WorkTrial(Trial):
    """Each order is charged once, and all of them are in the end."""

    name = "work"
    faults_for = 3.0
    look_every = 0.5  # besides whenever somebody begins
    orders = 4

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        kinds = kinds or [kind for kind in ALL_KINDS if kind != "jump boottime"]
        self.names = ("n1", "n2") if seed % 4 else ("n1", "n2", "n3")
        super().__init__(seed, kinds=kinds, faults=faults)
        self.closed_at: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self.at_work: dict[str, list[tuple[Process, Claim]]] = {}
        self.poisoned = {f"o{number}" for number in self.rng.sample(range(self.orders), 2)}
        self.arrivals = sorted(self.rng.uniform(0, self.faults_for) for _ in range(self.orders))
        self.begun = 0

    # -- the model database

    def arrived(self) -> list[str]:
        """By now."""
        return [f"o{n}" for n, at in enumerate(self.arrivals) if at <= self.world.now]

    def is_closed(self, order: str, *, ago: float) -> bool:
        """As a copy shows it that is so far behind."""
        return self.closed_at.get(order, float("inf")) <= self.world.now - ago

    def charge(self, order: str) -> None:
        if order in self.closed_at:
            self.blame(f"{order} was charged twice")
        self.closed_at[order] = self.world.now
        self.world.record("charged", order=order)

    # -- what a server does

    async def use(self, zk: aio.Zk, host: Host) -> None:
        async with zk.work("/app", lag=LAG, keep_done=KEEP_DONE) as work:
            match host.rng.choice(["run", "run", "claims", "one", "cancelled"]):
                case "run":
                    stop = asyncio.get_running_loop().call_later(
                        host.rng.uniform(0.5, 4), work.stop
                    )
                    await work.run(
                        lambda: self.listed(host),
                        lambda claim: self.settle_order(claim, host),
                        workers=3,
                        tries=1_000,
                        idle=0.7,
                    )
                    stop.cancel()
                case "claims":
                    with contextlib.suppress(OSError):
                        batch = host.rng.choice([3, 50])
                        async for claim in work.claims(self.listed(host), batch=batch):
                            async with claim:
                                await self.settle_order(claim, host)
                            if host.rng.random() < 0.1:
                                break
                case "one":
                    item = host.rng.choice(self.listed(host) or ["none"])
                    with contextlib.suppress(Taken, OSError):
                        async with work.claim(item) as claim:
                            await self.settle_order(claim, host)
                case "cancelled":
                    taking = asyncio.create_task(self.take(work, host))
                    await asyncio.wait([taking], timeout=host.rng.expovariate(10))
                    taking.cancel()
                    await asyncio.wait([taking])
                    if not taking.cancelled() and (error := taking.exception()) is not None:
                        raise error
        await asyncio.sleep(host.rng.expovariate(2))

    async def take(self, work: Work, host: Host) -> None:
        for found in (await work.take(self.listed(host))).values():
            if isinstance(found, Claim):
                found.give_back()

    def listed(self, host: Host) -> list[str]:
        """A list of pending orders, more or less old."""
        ago = host.rng.choice([LAG * 0.9, host.rng.uniform(0, OLDEST_LIST)])
        return [order for order in self.arrived() if not self.is_closed(order, ago=ago)]

    async def settle_order(self, claim: Claim, host: Host) -> None:
        with self.working(claim, host):
            await asyncio.sleep(host.rng.expovariate(20))
            if claim.item == "none" or self.is_closed(claim.item, ago=LAG * 0.9):
                return
            await asyncio.sleep(host.rng.expovariate(host.rng.choice([1, 20])))
            claim.ensure()
            if claim.item in self.poisoned and self.failures.get(claim.item, 0) < 2:
                self.failures[claim.item] = self.failures.get(claim.item, 0) + 1
                raise OSError("poisoned")
            if host.rng.random() < 0.05:
                self.charge(claim.item)  # and no more was heard of it
                raise OSError("charged, and then an error")
            self.charge(claim.item)
            self.begun += 1

    @contextlib.contextmanager
    def working(self, claim: Claim, host: Host) -> Iterator[None]:
        last = self.tokens.get(claim.item, 0)
        if claim.fencing_token <= last:
            self.blame(f"{claim.item}: token {claim.fencing_token} after {last}")
        self.tokens[claim.item] = claim.fencing_token
        entry = (host.processes[0], claim)
        self.at_work.setdefault(claim.item, []).append(entry)
        self.look_at(claim.item)
        try:
            yield
        finally:
            self.at_work[claim.item].remove(entry)

    # -- what is judged

    def look_at(self, item: str) -> None:
        believing = [
            process.host.name
            for process, claim in self.at_work.get(item, ())
            if process.alive and claim.remaining() > 0
        ]
        if len(believing) > 1:
            self.blame(f"{item} is believed by {', '.join(believing)} at once")

    def look(self) -> None:
        for item in self.at_work:
            self.look_at(item)

    def progressed(self) -> Mapping[str, int]:
        """Orders keep arriving, so that each of them is settled in the end."""
        if self.world.now > self.arrivals[-1] and len(self.closed_at) < self.orders:
            return {"orders are closed": len(self.closed_at)}
        return {}

    async def progress(self) -> None:
        deadline = self.world.now + self.progress_within
        while len(self.closed_at) < self.orders:
            if self.world.now > deadline:
                left = [f"o{n}" for n in range(self.orders) if f"o{n}" not in self.closed_at]
                self.blame(f"lost within {self.progress_within:g} s of healing: {left}")
                return
            await asyncio.sleep(0.3)

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        """Claims; and marks older than what sweeps them are looked at elsewhere."""
        return [path for path in tree if path.endswith("/c")]


class WorkQueueTrial(Trial):
    """Each item that was put is done in the end, none by two at a time, and once unless a claim was
    lost, or its worker died, between its effect and its end."""

    name = "work-queue"
    faults_for = 5.0
    look_every = 0.5
    most = 20  # items

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.put: set[bytes] = set()
        self.putting: dict[bytes, Process] = {}
        self.finished: set[bytes] = set()
        self.ending: set[bytes] = set()
        self.at_work: dict[bytes, list[tuple[Process, Claim]]] = {}
        self.begun = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        async with zk.work_queue("/app/q", tries=1_000) as queue:
            for _ in range(host.rng.randrange(1, 6)):
                if self.begun < self.most and host.rng.random() < 0.5:
                    self.begun += 1
                    data = f"{self.begun}".encode()
                    delay = host.rng.choice([0.0, host.rng.uniform(0, 2)])
                    self.putting[data] = host.processes[0]
                    try:
                        await queue.put(data, delay=delay)
                        self.put.add(data)
                    finally:
                        del self.putting[data]
                elif host.rng.random() < 0.2:
                    taking = asyncio.create_task(queue.take())
                    await asyncio.wait([taking], timeout=host.rng.expovariate(10))
                    taking.cancel()
                    await asyncio.wait([taking])
                    if not taking.cancelled() and (claim := taking.result()) is not None:
                        claim.give_back()
                elif (claim := await queue.take(host.rng.choice([0, 0.5]))) is not None:
                    await self.handle(claim, host)
        await asyncio.sleep(host.rng.expovariate(5))

    async def handle(self, claim: Claim, host: Host) -> None:
        entry = (host.processes[0], claim)
        self.at_work.setdefault(claim.payload, []).append(entry)
        self.look_at(claim.payload)
        try:
            async with claim:
                await asyncio.sleep(host.rng.expovariate(host.rng.choice([1, 20])))
                if host.rng.random() < 0.1:
                    await claim.fail("so")
                    return
                claim.ensure()
                if claim.payload in self.finished:
                    self.blame(f"{claim.payload!r} was given out after it was done")
                self.ending.add(claim.payload)
                await claim.done()
                self.finished.add(claim.payload)
        finally:
            self.at_work[claim.payload].remove(entry)

    def look_at(self, item: bytes) -> None:
        believing = [
            process.host.name
            for process, claim in self.at_work.get(item, ())
            if process.alive and claim.remaining() > 0
        ]
        if len(believing) > 1:
            self.blame(f"{item!r} is believed by {', '.join(believing)} at once")

    def look(self) -> None:
        for item in self.at_work:
            self.look_at(item)

    def progressed(self) -> Mapping[str, int]:
        return {}

    async def progress(self) -> None:
        """All that is there comes out: what was put for certain is done, or was done by one whose
        answer was lost, and then it is gone."""
        deadline = self.world.now + self.progress_within
        while await self.left():
            if self.world.now > deadline:
                self.blame(f"still in the queue {self.progress_within:g} s after healing")
                return
            await asyncio.sleep(0.5)

    async def left(self) -> bool:
        """Is anything still there, or on its way? Nothing more is put."""
        self.begun = self.most
        if any(process.alive for process in self.putting.values()):
            return True
        judge = self.world.host("judge")
        found: list[str] = []

        async def ask() -> None:
            async with self.connect(judge) as zk:
                with contextlib.suppress(NoNode):
                    found.extend(await zk.children("/app/q"))

        await judge.run(ask(), "main").wait()
        return bool(found)

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        if lost := self.put - self.ending:
            self.blame(f"gone, and nobody has done it: {lost}")
        return [path for path in tree if path != "/app/q"]


class NaiveTrial(WorkTrial):
    """The pseudo-code of the paper: see that the order is pending, make a znode, process, close,
    delete it. It must be caught."""

    name = "naive"
    faults_for = 5.0
    orders = 10

    async def use(self, zk: aio.Zk, host: Host) -> None:
        await zk.ensure("/app")
        for order in self.listed(host):
            if self.is_closed(order, ago=0) or await zk.exists(f"/app/{order}"):
                continue
            try:
                made = await zk.create(f"/app/{order}", ephemeral=True)
            except NodeExists:
                continue
            await asyncio.sleep(host.rng.expovariate(5))
            self.charge(order)
            with contextlib.suppress(NoNode):
                await zk.delete(made.path)
        await asyncio.sleep(host.rng.expovariate(5))
