"""Locks in the simulated world, each use of another kind: waited for, tried, timed, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.recipes import Belief, Trial

from incumbent import aio
from incumbent.client import State
from incumbent.errors import IncumbentError, LockTimeout
from incumbent.recipes.hold import Hold
from incumbent.server.tree import CreateNode, DeleteNode, EndSession, SetNode, Transaction
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host

__all__ = ["LockTrial", "MultiLockTrial", "RwLockTrial", "SemaphoreTrial"]


class _Trial(Trial):
    faults_for = 12.0


class LockTrial(_Trial):
    """One holder at a time, with tokens that rise."""

    name = "lock"
    seeds = 180

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.grace = self.rng.choice([None, 0.0])
        self.epochs = self.rng.choice([None, None, "/app/epoch"])
        self.tokens: list[int] = []

    async def use(self, zk: aio.Zk, host: Host) -> None:
        how: dict[str, Any] = {"grace": self.grace, "epoch_path": self.epochs}
        kind = host.rng.choice(["waits", "waits", "timed", "tries", "cancelled"])
        with contextlib.suppress(LockTimeout, TimeoutError):
            match kind:
                case "timed":
                    timeout = host.rng.choice([0.0, 0.05, 2.0])
                    await self.within(host, zk.lock("/app/l", timeout=timeout, **how))
                case "tries":
                    await self.within(host, zk.try_lock("/app/l", **how))
                case "cancelled":
                    async with asyncio.timeout(host.rng.expovariate(5)):
                        await self.within(host, zk.lock("/app/l", **how))
                case _:
                    await self.within(host, zk.lock("/app/l", **how))
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
        return [path for path in tree if path not in ("/app/l", self.epochs)]


class RwLockTrial(_Trial):
    """Readers together, a writer alone, nobody overtakes, both go on."""

    name = "rwlock"
    seeds = 140

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.grace = self.rng.choice([None, 0.0])
        self.dialect = self.rng.choice(["ours", "ours", "curator-rw"])
        self.epochs = self.rng.choice([None, None, "/app/epoch"])
        self.reading = self.writing = self.shared = 0
        self.tokens: list[int] = []

    async def use(self, zk: aio.Zk, host: Host) -> None:
        """Two at a time in one session, each one of a random kind."""
        await asyncio.gather(self.once(zk, host), self.once(zk, host))

    async def once(self, zk: aio.Zk, host: Host) -> None:
        rng = host.rng
        lock = zk.rwlock("/app/rw", dialect=self.dialect, epoch_path=self.epochs)
        kind = rng.choice(["reads", "reads", "writes"])
        with contextlib.suppress(LockTimeout, TimeoutError, IncumbentError):
            match rng.choice(["waits", "waits", "timed", "tries", "cancelled"]):
                case "timed":
                    timeout = rng.choice([0.0, 0.05, 2.0])
                    guarded = (lock.read if kind == "reads" else lock.write)(
                        timeout=timeout, grace=self.grace
                    )
                    await self.within(host, kind, guarded)
                case "tries":
                    guarded = (lock.try_read if kind == "reads" else lock.try_write)(
                        grace=self.grace
                    )
                    await self.within(host, kind, guarded)
                case way:
                    guarded = (lock.read if kind == "reads" else lock.write)(grace=self.grace)
                    async with asyncio.timeout(rng.expovariate(5) if way == "cancelled" else None):
                        await self.within(host, kind, guarded)
        await asyncio.sleep(rng.expovariate(5))

    async def within(self, host: Host, kind: str, guarded: Any) -> None:
        async with guarded as hold:
            if hold is None:
                return
            if kind == "reads":
                self.reading += 1
            else:
                self.writing += 1
                if self.tokens and hold.fencing_token <= self.tokens[-1]:
                    self.blame("a writer's token did not rise")
                self.tokens.append(hold.fencing_token)
            self.believes(host, hold, kind)
            await asyncio.sleep(host.rng.choice([0.0, 0.1, 1.0, 5.0]) * host.rng.random())
            hold.ensure()

    def look(self) -> None:
        held = self.held()
        writers = [belief for belief in held if belief.kind == "writes"]
        if writers and len(held) > 1:
            self.blame(f"overlap at {self.world.now:.6f} s: {', '.join(map(str, held))}")
        self.shared += len(held) > 1

    def progressed(self) -> Mapping[str, int]:
        return {"somebody reads": self.reading, "somebody writes": self.writing}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path not in ("/app/rw", self.epochs)]


class SemaphoreTrial(_Trial):
    """Never more inside than the size allowed, whatever it was changed to and when.

    What the server made durable is the judge's: every size and every contender by its zxid. Who is
    inside had, at some moment since its create, fewer before it than the size then allowed.
    """

    name = "semaphore"
    seeds = 60
    calm = 16.0  # in which many stay long: who is forgotten then waits long

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.grace = self.rng.choice([None, 0.0])
        self.first_size = self.rng.randint(1, 3)
        self.changes = self.rng.random() < 0.6
        self.epochs = self.rng.choice([None, None, "/app/epoch"])
        self.numbers: set[int] = set()
        self.sizes: list[tuple[int, int]] = []  # since which zxid, which
        self.standing: dict[str, int] = {}  # name → its czxid
        self.owners: dict[str, int] = {}  # name → its session
        self.committed_at = 0.0
        self.due: dict[str, float] = {}  # name → since when there is room for it
        self.entered = self.most = self.resized = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        """Three at a time in one session."""
        await asyncio.gather(*(self.once(zk, host) for _ in range(3)))
        if self.changes and host.rng.random() < 0.3 and not self.is_over:
            self.resized += 1
            await zk.semaphore("/app/s").resize(host.rng.randint(1, 4))

    async def once(self, zk: aio.Zk, host: Host) -> None:
        rng = host.rng
        semaphore = zk.semaphore("/app/s", size=self.first_size, epoch_path=self.epochs)
        with contextlib.suppress(LockTimeout, TimeoutError, IncumbentError):
            match rng.choice(["waits", "waits", "timed", "tries", "cancelled"]):
                case "timed":
                    timeout = rng.choice([0.0, 0.05, 2.0])
                    await self.within(host, semaphore.acquire(timeout=timeout, grace=self.grace))
                case "tries":
                    await self.within(host, semaphore.try_acquire(grace=self.grace))
                case way:
                    async with asyncio.timeout(rng.expovariate(5) if way == "cancelled" else None):
                        await self.within(host, semaphore.acquire(grace=self.grace))
        await asyncio.sleep(rng.expovariate(5))

    async def within(self, host: Host, guarded: Any) -> None:
        async with guarded as hold:
            if hold is None:
                return
            self.entered += 1
            if self.epochs is not None:
                if hold.fencing_token in self.numbers:
                    self.blame(f"{hold.fencing_token} was counted twice")
                self.numbers.add(hold.fencing_token)
            if hold.name in self.standing and self.before(hold.name) >= self.allowed([hold.name]):
                self.blame(f"{hold.name} is inside after {self.before(hold.name)} others")
            self.believes(host, hold)
            times = [0.0, 0.1, 1.0, 5.0] if self.world.now < self.healed_at else [0.0, 7.0]
            await asyncio.sleep(host.rng.choice(times) * host.rng.random())
            hold.ensure()

    def committed(self, transaction: Transaction) -> None:
        self.committed_at = self.world.now
        for change in transaction.changes:
            if isinstance(change, CreateNode | SetNode) and change.path == "/app/s":
                self.sizes.append((transaction.zxid, int(change.data or b"")))
            elif isinstance(change, CreateNode) and change.path.startswith("/app/s/queue/"):
                name = change.path.rpartition("/")[2]
                self.standing[name], self.owners[name] = transaction.zxid, change.owner
            elif isinstance(change, DeleteNode):
                self.standing.pop(change.path.rpartition("/")[2], None)
            elif isinstance(change, EndSession):
                for path in change.paths:
                    self.standing.pop(path.rpartition("/")[2], None)

    def before(self, name: str) -> int:
        return sum(czxid < self.standing[name] for czxid in self.standing.values())

    def allowed(self, names: Sequence[str]) -> int:
        """The largest size since the first of these came."""
        since = min((self.standing.get(name, 0) for name in names), default=0)
        later = [size for zxid, size in self.sizes if zxid > since]
        then = [size for zxid, size in self.sizes if zxid <= since]
        return max([*later, *then[-1:]])

    def look(self) -> None:
        held = self.held()
        self.most = max(self.most, len(held))
        if held and len(held) > self.allowed([belief.hold.name for belief in held]):
            self.blame(f"{len(held)} inside at {self.world.now:.6f} s: {', '.join(map(str, held))}")
        if self.world.now > self.healed_at + 8.0:  # all are connected, and what was owed is done
            self.look_for_forgotten({belief.hold.name for belief in held})

    def look_for_forgotten(self, inside: set[str]) -> None:
        """Nobody whose session lives stands where there is room for it and waits on."""
        live = {c.session_id for p, c in self.clients if p.alive and c.state is State.CONNECTED}
        first = sorted(self.standing, key=lambda name: self.standing[name])[: self.sizes[-1][1]]
        now = self.world.now
        self.due = {
            name: self.due.get(name, now)
            for name in first
            if name not in inside and self.owners[name] in live
        }
        if now > self.committed_at + 0.6:  # a server that cannot write, or one whom nobody asks to
            self.due.clear()
        for name, since in self.due.items():
            if now - since > (0.3 if self.epochs is None else 0.6):
                self.blame(f"{name} waits, with room for it since {since:.6f} s")

    def progressed(self) -> Mapping[str, int]:
        return {"somebody gets in": self.entered}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path not in ("/app/s", "/app/s/queue", self.epochs)]


class MultiLockTrial(_Trial):
    """All or none of several locks, in any order of their paths, beside single ones."""

    name = "multilock"
    paths = ("/app/a", "/app/b", "/app/c")

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.grace = self.rng.choice([None, 0.0])
        self.epochs = self.rng.choice([None, None, "/app/epoch"])
        self.tokens = dict.fromkeys(self.paths, 0)
        self.several = self.single = 0

    async def use(self, zk: aio.Zk, host: Host) -> None:
        await asyncio.gather(self.once(zk, host), self.once(zk, host))

    async def once(self, zk: aio.Zk, host: Host) -> None:
        rng = host.rng
        paths = rng.sample(self.paths, rng.choice([2, 2, 3]))
        multilock = zk.multilock(paths, epoch_path=self.epochs)
        with contextlib.suppress(LockTimeout, TimeoutError, IncumbentError):
            match rng.choice(["waits", "waits", "timed", "tries", "cancelled", "single"]):
                case "single":
                    path = rng.choice(self.paths)
                    lock = zk.lock(path, grace=self.grace, epoch_path=self.epochs)
                    await self.within(host, lock)
                case "timed":
                    timeout = rng.choice([0.0, 0.05, 2.0])
                    await self.within(host, multilock.acquire(timeout=timeout, grace=self.grace))
                case "tries":
                    await self.within(host, multilock.try_acquire(grace=self.grace))
                case way:
                    async with asyncio.timeout(rng.expovariate(5) if way == "cancelled" else None):
                        await self.within(host, multilock.acquire(grace=self.grace))
        await asyncio.sleep(rng.expovariate(5))

    async def within(self, host: Host, guarded: Any) -> None:
        async with guarded as hold:
            if hold is None:
                return
            paths = hold.path.split(", ")
            for path in paths:
                if hold.fencing_token <= self.tokens[path]:
                    self.blame(f"{path}: a token did not rise: {hold.fencing_token}")
                self.tokens[path] = hold.fencing_token
            self.several += len(paths) > 1
            self.single += len(paths) == 1
            self.believes(host, hold, hold.path)
            await asyncio.sleep(host.rng.choice([0.0, 0.1, 1.0, 5.0]) * host.rng.random())
            hold.ensure()

    def look(self) -> None:
        taken: dict[str, Belief] = {}
        for belief in self.held():
            for path in belief.kind.split(", "):
                if path in taken:
                    self.blame(f"overlap at {self.world.now:.6f} s: {belief}, {taken[path]}")
                taken[path] = belief

    def progressed(self) -> Mapping[str, int]:
        return {"several are taken": self.several, "one is taken": self.single}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path not in (*self.paths, self.epochs)]
