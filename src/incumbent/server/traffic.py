"""What went through a server since it started: counts, and how long things took.

Rule of this file: counting costs next to nothing. Everything that can be worked out when
somebody asks is worked out then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Account", "Spread", "Traffic"]


@dataclass(slots=True)
class Spread:
    """Many values, of which the smallest, the largest, their number and their sum are kept."""

    count: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """The same value so many times."""
        if times > 0:
            self.least = min(self.least, value) if self.count else value
            self.most = max(self.most, value)
            self.total += value * times
            self.count += times

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Traffic:
    """A server's counters. Times are milliseconds.

    latency      of requests, from the beginning of the turn that served them until released
    reads        of those, the ones that changed nothing
    updates      and the others
    commits      how long the store took for a batch
    batches      how many transactions each batch had
    connects     connections that asked for a session
    rejected     connections turned away: too many from one address
    expired      sessions ended for their client's silence
    stale        connections that never asked for a session, closed
    """

    received: int = 0
    sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    latency: Spread = field(default_factory=Spread)
    reads: Spread = field(default_factory=Spread)
    updates: Spread = field(default_factory=Spread)
    commits: Spread = field(default_factory=Spread)
    batches: Spread = field(default_factory=Spread)
    connects: int = 0
    rejected: int = 0
    expired: int = 0
    stale: int = 0

    def took(self, seconds: float, requests: int, writes: int = 0) -> None:
        """So many requests were served in one turn; each waited for all of it."""
        latency = seconds * 1000
        writes = min(writes, requests)
        self.latency.add(latency, requests)
        self.updates.add(latency, writes)
        self.reads.add(latency, requests - writes)

    def committed(self, seconds: float, transactions: int) -> None:
        """A batch of so many transactions became durable."""
        self.commits.add(seconds * 1000)
        self.batches.add(transactions)

    def reset(self) -> None:
        """As when the server started."""
        fresh = Traffic()
        for name in Traffic.__slots__:
            setattr(self, name, getattr(fresh, name))


@dataclass(slots=True)
class Account:
    """What one connection asked and was told. Times are milliseconds.

    since_ms   wall time at which it was opened
    last       the first bytes of its last request: xid and type
    last_zxid  the zxid that the last reply showed
    last_ms    boottime of it
    """

    since_ms: int = 0
    received: int = 0
    sent: int = 0
    latency: Spread = field(default_factory=Spread)
    last: bytes = b""
    last_latency: float = 0.0
    last_zxid: int = -1
    last_ms: int = 0

    def took(self, latency_ms: float, requests: int, zxid: int, now_ms: int) -> None:
        """So many of its requests were served in one turn."""
        self.latency.add(latency_ms, requests)
        self.last_latency, self.last_zxid, self.last_ms = latency_ms, zxid, now_ms

    def reset(self) -> None:
        """As when it was opened."""
        fresh = Account(since_ms=self.since_ms)
        for name in Account.__slots__:
            setattr(self, name, getattr(fresh, name))
