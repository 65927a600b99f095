"""The simulated cables: links between hosts, and one direction of a connection over a link.

Rule of this file: a pipe delivers its segments in order and loses none. One that meets a blocked
link, or a host that is down or asleep, waits, and arrives some time after the way is free, since
TCP sends it again.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from incumbent.testing.loop import SimLoop

if TYPE_CHECKING:
    from incumbent.testing.kernel import Socket, Stack

__all__ = ["Link", "Network", "Pipe"]

_RETRANSMIT = 0.2
_LONGEST_RETRANSMIT = 10.0


class Link:
    """One direction between two hosts. `delay`, `jitter` in seconds, `loss` a probability."""

    def __init__(self, source: str, target: str, *, delay: float, jitter: float) -> None:
        self.source = source
        self.target = target
        self.delay = delay
        self.jitter = jitter
        self.loss = 0.0
        self.blocked = False

    def draw(self, rng: random.Random) -> float:
        """How long the next segment takes; a lost one is sent again."""
        took = self.delay + (self.jitter * rng.random() if self.jitter else 0.0)
        while self.loss and rng.random() < self.loss:
            took += _RETRANSMIT
        return took


class Pipe:
    """One direction of one connection: segments in order, each with its time of arrival."""

    __slots__ = (
        "inflight",
        "last",
        "link",
        "name",
        "network",
        "queue",
        "since",
        "source",
        "target",
    )

    def __init__(self, network: Network, link: Link, source: Socket, target: Socket) -> None:
        self.network = network
        self.link = link
        self.source = source
        self.target = target
        self.name = f"{source.name}>{target.stack.name}"
        self.queue: deque[tuple[float, str, bytes]] = deque()
        self.last = 0.0
        self.inflight = 0  # bytes sent that the receiving program has not read
        self.since = math.inf  # waiting for a free way since then

    def send(self, kind: str, data: bytes = b"") -> None:
        network = self.network
        self.last = max(self.last, network.loop.now + self.link.draw(network.rng))
        self.inflight += len(data)
        self.queue.append((self.last, kind, data))
        if len(self.queue) == 1:
            network.at(self.last, self.due)

    def due(self) -> None:
        """Deliver what has arrived by now."""
        network = self.network
        now = network.loop.now
        while self.queue and self.queue[0][0] <= now:
            if self.link.blocked or not self.target.stack.answers:
                self.stall()
                return
            _, kind, data = self.queue.popleft()
            network.trace("net", f"{self.name} {kind} {len(data)} {zlib.crc32(data):08x}")
            self.target.arrive(kind, data)
        if self.queue:
            network.at(self.queue[0][0], self.due)

    def stall(self) -> None:
        if self.source.gone:  # nobody is left who would send it again
            self.queue = deque(s for s in self.queue if s[1] == "RST")
        if self.queue:
            self.since = self.network.loop.now
            self.network.stalled[self] = None

    def retry(self) -> None:
        """The way is free: the next retransmission comes at most as late as the outage was long."""
        network = self.network
        outage = network.loop.now - self.since
        self.since = math.inf
        wait = network.rng.random() * min(max(outage, _RETRANSMIT), _LONGEST_RETRANSMIT)
        first = network.loop.now + self.link.draw(network.rng) + wait
        self.queue = deque((max(at, first), kind, data) for at, kind, data in self.queue)
        self.last = self.queue[-1][0]
        network.at(self.queue[0][0], self.due)


class Network:
    """All links and stacks of a world."""

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        trace: Callable[[str, str], None],
        *,
        delay: float,
        jitter: float,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.delay = delay
        self.jitter = jitter
        self.stacks: dict[str, Stack] = {}
        self.stalled: dict[Pipe, None] = {}
        self.connections = 0
        self._links: dict[tuple[str, str], Link] = {}
        self._context = loop.enter(loop.outside)

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.loop.call_at(when, what, context=self._context)

    def link(self, source: Stack, target: Stack) -> Link:
        key = (source.name, target.name)
        if key not in self._links:
            near = source is target
            self._links[key] = Link(
                *key,
                delay=self.delay / 10 if near else self.delay,
                jitter=self.jitter / 10 if near else self.jitter,
            )
        return self._links[key]

    @property
    def links(self) -> list[Link]:
        return [self._links[key] for key in sorted(self._links)]

    def wake(self) -> None:
        """Something healed, came up or woke: send again what can get through now."""
        for pipe in list(self.stalled):
            if not pipe.link.blocked and pipe.target.stack.answers:
                del self.stalled[pipe]
                if pipe.queue:
                    pipe.retry()
