"""Queues, counters and values in the simulated world, and the sums that must come out.

Rule of this file: an account is kept by what was begun and what was acknowledged; whatever lies
between (an answer lost and said so, a process killed, a call cancelled) may be either.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter as Tally
from collections.abc import Mapping, Sequence

from tests.simulation.recipes import SESSION, Trial

from incumbent import aio
from incumbent.errors import BadVersion, FateUnknown, ItemUnknown, NoNode, NotSent
from incumbent.recipes.line import Item
from incumbent.server import Server
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host, Process
from incumbent.wire import Delete, Multi, Request

__all__ = ["CounterTrial", "QueueTrial", "ValueTrial"]


class QueueTrial(Trial):
    """Each item that was put is taken once, unless somebody was told that this is not known.

    An item may also be lost with the process that took it: then the server saw its deletion
    come from a process that is dead.
    """

    name = "queue"
    seeds = 180
    faults_for = 10.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.put: dict[bytes, str] = {}
        self.taken: Tally[bytes] = Tally()
        self.unknown: set[bytes] = set()
        self.deleted_by: dict[str, list[int]] = {}
        self.processes: dict[int, Process] = {}
        self.begun = 0

    async def serve(self, host: Host) -> None:
        self.server = Server(self.store, clock=host.clock, tick=0.2, rng=host.rng)
        self.server.on_request = self.asked
        await self.server.start("0.0.0.0", 2181)
        await self.server.wait()

    def asked(self, session_id: int, request: Request) -> None:
        for operation in request.ops if isinstance(request, Multi) else (request,):
            if isinstance(operation, Delete):
                self.deleted_by.setdefault(operation.path, []).append(session_id)

    def connect(self, host: Host) -> aio.Connecting:
        return aio.connect(
            "zk:2181",
            session_timeout=SESSION,
            tick=0.0,
            clock=host.clock,
            rng=host.rng,
            log=self.heard,
        )

    def heard(self, line: str) -> None:
        self.world.record("log", line=line)
        if found := re.search(r"(/app/q/item-\S+?):? ", line):
            self.unknown |= {data for data, path in self.put.items() if path == found[1]}

    async def use(self, zk: aio.Zk, host: Host) -> None:
        queue, rng = zk.queue("/app/q"), host.rng
        self.processes[zk.session_id] = host.processes[0]
        try:
            match rng.choice(["put", "put", "put", "take", "timed", "cancelled", "on", "multi"]):
                case "put":
                    await self.puts(zk, host)
                case "take":
                    self.takes(await queue.take(0))
                case "timed":
                    self.takes(await queue.take(rng.random()))
                case "cancelled":
                    taking = asyncio.create_task(queue.take())
                    await asyncio.wait([taking], timeout=rng.expovariate(20))
                    taking.cancel()
                    await asyncio.wait([taking])
                    if not taking.cancelled():
                        self.takes(taking.result())
                case "on":
                    async with queue.items() as items:
                        for _ in range(rng.randrange(5)):
                            self.takes(await items.take(rng.choice([0, 0.5])))
                case "multi":
                    await self.takes_in_a_transaction(zk)
        except ItemUnknown as error:
            self.unknown.add(error.data)
            raise
        await asyncio.sleep(rng.expovariate(5))

    async def puts(self, zk: aio.Zk, host: Host) -> None:
        self.begun += 1
        data = f"{self.begun}".encode()
        path = await zk.queue("/app/q").put(data, priority=host.rng.randrange(3))
        self.put[data] = path
        self.world.record("put", path=path)

    async def takes_in_a_transaction(self, zk: aio.Zk) -> None:
        item = await zk.queue("/app/q").peek()
        if item is None:
            return
        try:
            async with zk.transaction() as t:
                t.delete(item.path, item.version)
        except NoNode:
            return
        except FateUnknown:
            self.unknown.add(item.data)
            raise
        self.takes(item)

    def takes(self, item: Item | None) -> None:
        if item is not None:
            self.taken[item.data] += 1
            self.world.record("taken", path=item.path)

    def look(self) -> None:
        for data, number in self.taken.items():
            if number > 1:
                self.blame(f"item {data!r} was taken {number} times")

    def progressed(self) -> Mapping[str, int]:
        return {"an item is put": len(self.put), "an item is taken": self.taken.total()}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        here = {data for path, data in tree.items() if path.startswith("/app/q/")}
        for data, path in self.put.items():
            if self.taken[data] + (data in here) + (data in self.unknown) == 0:
                sessions = self.deleted_by.get(path, [])
                if not any(not self.processes[each].alive for each in sessions):
                    self.blame(f"lost: item {data!r}, {path}")
        for data in here:
            if self.taken[data]:
                self.blame(f"item {data!r} was taken and is still there")
        return [path for path in tree if not re.fullmatch(r"/app/q(/item-.*)?", path)]


class CounterTrial(Trial):
    """The number is that of the acknowledged additions, and of those of which it is not known."""

    name = "counter"
    seeds = 180
    faults_for = 10.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.begun = self.refused = 0
        self.sums: Tally[int] = Tally()

    async def use(self, zk: aio.Zk, host: Host) -> None:
        counter = zk.counter("/app/c")
        for _ in range(host.rng.randrange(1, 5)):
            self.begun += 1
            adding = asyncio.create_task(counter.add())
            is_cancelled = host.rng.random() < 0.1
            await asyncio.wait([adding], timeout=host.rng.expovariate(50) if is_cancelled else None)
            adding.cancel()
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    self.sums[await adding] += 1
            except FateUnknown:
                raise
            except Exception:
                self.refused += 1
                raise
            await asyncio.sleep(host.rng.expovariate(6))

    def look(self) -> None:
        if twice := [each for each, number in self.sums.items() if number > 1]:
            self.blame(f"two additions came to {twice}")

    def progressed(self) -> Mapping[str, int]:
        return {"it is added": self.sums.total()}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        number = int(tree.get("/app/c", b"0").split()[0])
        least, most = self.sums.total(), self.begun - self.refused
        if not least <= number <= most:
            self.blame(f"the counter is {number}, of {least} to {most} additions")
        return [path for path in tree if path != "/app/c"]


class ValueTrial(Trial):
    """Each version is one change's, a refused change is seen by nobody, followers go forward."""

    name = "value"
    seeds = 180
    faults_for = 10.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.begun = 0
        self.made: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.followed = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        value = zk.value("/app/v", "0")
        if host.rng.random() < 0.3:
            await self.follow(value, host)
            return
        data, version = await value.get()
        self.seen(data)
        await asyncio.sleep(host.rng.expovariate(50))
        self.begun += 1
        mine = f"{self.begun}".encode()
        try:
            made = await value.compare_and_set(mine, version)
        except (BadVersion, NotSent):
            self.refused.add(mine)
            return
        if made in self.made:
            self.blame(f"version {made} was made by {self.made[made]!r} and by {mine!r}")
        self.made[made] = mine
        if host.rng.random() < 0.5:
            self.seen(await value.update(lambda data: data))

    async def follow(self, value: object, host: Host) -> None:
        last = -1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(host.rng.uniform(0.1, 8)), value.follow() as following:  # type: ignore[attr-defined]
                async for data, version in following:
                    self.seen(data)
                    now = -1 if version is None else version
                    if now < last:
                        self.blame(f"a follower went back from version {last} to {now}")
                    last = now
                    self.followed += 1

    def seen(self, data: bytes) -> None:
        if data in self.refused:
            self.blame(f"{data!r} was refused, and stands there")

    def progressed(self) -> Mapping[str, int]:
        return {"it is set": len(self.made), "it is followed": self.followed}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        self.seen(tree.get("/app/v", b"0"))
        return [path for path in tree if path != "/app/v"]
