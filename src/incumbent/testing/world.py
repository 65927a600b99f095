"""A world of hosts in one thread: they run the real code, crash, freeze, sleep, drift and are cut
off from each other, and every run of a seed is the same run.

    with World(seed) as world:
        server, n1 = world.host("zk"), world.host("n1")
        async def story() -> None:
            server.run(serve(server.clock))
            ...
        world.run(story())

The story runs outside of all hosts: it sees the world's true time, and no fault touches it.

Rule of this file: true time, faults and the trace belong to the world; whatever runs on a host
has only that host's clock, names and network.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import random
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from incumbent.testing.hosts import Host, HostClock, Process, ProcessKilled
from incumbent.testing.loop import Domain, SimFuture, SimTask
from incumbent.testing.network import Link, Network
from incumbent.testing.sockets import Factory, SimSocket, WorldLoop
from incumbent.testing.transports import SimTransport

__all__ = ["Host", "HostClock", "Process", "ProcessKilled", "World", "here"]

T = TypeVar("T")


def here() -> str:
    """The name of the host and process whose code asks; "world" outside of any."""
    domain = Domain.current()
    return "world" if domain is None else domain.name


class World:
    """Everything of one run of one seed.

    `delay` and `jitter` are the links' at first, in seconds; `drift` bounds how fast or slow a
    host's clocks may be (0.004: by 0.4 %, drawn per host); `limit` is virtual seconds. Leaving
    the world raises AssertionError for every failure of a process that nobody waited for and
    every error that asyncio reported, unless `strict` is False.
    """

    def __init__(
        self,
        seed: int,
        *,
        delay: float = 0.0002,
        jitter: float = 0.0002,
        drift: float = 0.0,
        limit: float = 3600.0,
        strict: bool = True,
    ) -> None:
        self.seed = seed
        self.drift = drift
        self.strict = strict
        self.loop = WorldLoop(random.Random(f"{seed}/order"))
        self.loop.limit = limit
        self.loop.set_exception_handler(self._on_problem)
        self.rng = random.Random(f"{seed}/story")
        self.network = Network(
            self.loop, random.Random(f"{seed}/network"), self._trace, delay=delay, jitter=jitter
        )
        self.loop.network = self.network
        self.hosts: dict[str, Host] = {}
        self.processes: list[Process] = []
        self.problems: list[str] = []
        self.marks: list[tuple[float, str, str, float]] = []
        self._lines: list[tuple[float, str, str]] = []
        self._over = False
        self._collects = False

    def __enter__(self) -> Self:
        self._collects = gc.isenabled()
        gc.disable()  # when a cycle is found depends on what ran before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            if self._collects:
                gc.enable()
        if error is None and self.strict:
            failed = [
                f"{p.domain.name} failed, and nobody waited for it: {p.failure!r}"
                for p in self.processes
                if p.failure and not p.looked_at and not isinstance(p.failure, ProcessKilled)
            ]
            if failed or self.problems:
                raise AssertionError("\n".join([f"seed {self.seed}:", *failed, *self.problems]))

    def close(self) -> None:
        """End everything; the trace stays readable."""
        if self._over:
            return
        self._over = True
        outside = self.loop.kill(self.loop.outside)
        for process in self.processes:
            if process.alive:
                process.kill()
        for process in self.processes:
            process.close()
        self.loop.lay_to_rest(outside)
        self.loop.close()

    # -- running -------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """True time, in seconds since the world began."""
        return self.loop.now

    def run(self, story: Coroutine[Any, Any, T], *, limit: float | None = None) -> T:
        """Run `story` outside of all hosts until it ends; `limit` in virtual seconds from now."""
        if limit is not None:
            self.loop.limit = self.now + limit
        return self.loop.run_until_complete(story)

    def host(self, name: str, *, drift: float | None = None) -> Host:
        """The host of this name, made at the first call."""
        if name not in self.hosts:
            address = f"10.0.0.{len(self.hosts) + 1}"
            if drift is None:
                own = random.Random(f"{self.seed}/drift/{name}")
                drift = own.uniform(-self.drift, self.drift) if self.drift else 0.0
            host = self.hosts[name] = Host(self, name, address, drift)
            self.network.stacks[address] = host.stack
            self.loop.names[name] = (address,)
        return self.hosts[name]

    # -- the network ---------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """One direction between two hosts: set its `delay`, `jitter`, `loss`."""
        return self.network.link(self.host(source).stack, self.host(target).stack)

    def cut(self, a: str, b: str) -> None:
        """Nothing passes either way; nobody is told."""
        self.note(f"cut {a} and {b}")
        self.link(a, b).blocked = self.link(b, a).blocked = True

    def block(self, source: str, target: str) -> None:
        """A one-way black hole."""
        self.note(f"block {source} to {target}")
        self.link(source, target).blocked = True

    def isolate(self, name: str) -> None:
        """Cut off from every other host."""
        for other in self.hosts:
            if other != name:
                self.cut(name, other)

    def heal(self, a: str, b: str) -> None:
        self.note(f"heal {a} and {b}")
        self.link(a, b).blocked = self.link(b, a).blocked = False
        self.network.wake()

    def heal_all(self) -> None:
        """Every link is free again, without loss; disks work; who is frozen, thaws; who sleeps,
        wakes. Hosts that are down stay down.
        """
        self.note("heal all")
        for link in self.network.links:
            link.blocked, link.loss = False, 0.0
            near = link.source == link.target
            link.delay = self.network.delay / (10 if near else 1)
            link.jitter = self.network.jitter / (10 if near else 1)
        for host in self.hosts.values():
            host.disk.heal()
            host.resume()
            host.thaw()
        self.network.wake()

    def reset(self, a: str, b: str) -> None:
        """RST to both ends of every connection between the two."""
        self.note(f"reset {a} and {b}")
        self.host(a).stack.reset(self.host(b).stack)

    def socketpair(self, host: Host) -> tuple[SimSocket, SimSocket]:
        """Two joined sockets on one host, each for `create_connection(sock=…)` in a process."""
        near, far = host.stack.pair()
        return SimSocket(near), SimSocket(far)

    async def pair(
        self, a: Process, factory_a: Factory, b: Process, factory_b: Factory
    ) -> tuple[tuple[SimTransport, Any], tuple[SimTransport, Any]]:
        """A joined pair of transports between two processes of one host."""
        assert a.host is b.host, "a socketpair joins processes of one host"
        near, far = self.socketpair(a.host)
        one = a.spawn(self.loop.create_connection(factory_a, sock=near), "pair")
        two = b.spawn(self.loop.create_connection(factory_b, sock=far), "pair")
        return await one, await two

    # -- what happened -------------------------------------------------------------------------

    def mark(self, lane: str, label: str, *, lasts: float = 0.0) -> None:
        """Something for the timeline, at this moment: (time, lane, label, seconds) in `marks`."""
        self.marks.append((self.now, lane, label, lasts))

    def note(self, text: str) -> None:
        """A line of the trace by the world itself."""
        self._trace("world", text)

    def record(self, what: str, **fields: object) -> None:
        """A line of the trace by whoever runs; the dead and what comes after the end are not heard."""
        domain = Domain.current()
        if self._over or (domain is not None and domain.dead):
            return
        self._trace(
            here(), f"{what} {json.dumps(fields, sort_keys=True, default=repr)}" if fields else what
        )

    def _trace(self, who: str, text: str) -> None:
        if not self._over:
            self._lines.append((self.loop.now, who, text))

    @property
    def lines(self) -> list[tuple[float, str, str]]:
        """The trace: world time, who, what. "net" are deliveries, "world" is what is done to it."""
        return list(self._lines)

    def trace(self) -> str:
        """Everything that was delivered, recorded or done to the world, a line each."""
        return "".join(f"{at:.6f} {who}: {text}\n" for at, who, text in self._lines)

    def digest(self) -> str:
        return hashlib.sha256(self.trace().encode()).hexdigest()

    def _on_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        future = context.get("future")
        if isinstance(future, SimFuture | SimTask) and future.domain.dead:
            return  # whoever would have looked at it was killed before
        error = context.get("exception")
        text = f"{self.now:.6f} {here()}: {context.get('message')}{f': {error!r}' if error else ''}"
        self._trace("world", f"problem: {text}")
        if not self._over:
            self.problems.append(text)
