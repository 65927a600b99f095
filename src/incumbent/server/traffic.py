"""What went through a server since it started: counts, and how long things took.

Rule of this file: counting costs next to nothing. Everything that can be worked out when
somebody asks is worked out then.
"""

from __future__ import annotations

__all__ = ["Account", "Spread", "Traffic"]


class Spread:
    """Many values, of which the smallest, the largest, their number and their sum are kept."""

    __slots__ = ("count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = 0.0
        self.most = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """The same value so many times."""
        if times > 0:
            if value < self.least or not self.count:
                self.least = value
            if value > self.most:
                self.most = value
            self.total += value * times
            self.count += times

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


class Traffic:
    """A server's counters. Times are milliseconds.

    latency   of requests, from the beginning of the turn that served them until released
    reads     of those, the ones that changed nothing
    updates   and the others
    commits   how long the store took for a batch
    batches   how many transactions each batch had
    connects  connections that asked for a session
    rejected  connections turned away: too many from one address
    expired   sessions ended for their client's silence
    stale     connections that never asked for a session, closed
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As when the server started."""
        self.received = self.sent = 0
        self.bytes_received = self.bytes_sent = 0
        self.latency, self.reads, self.updates = Spread(), Spread(), Spread()
        self.commits, self.batches = Spread(), Spread()
        self.connects = self.rejected = self.expired = self.stale = 0

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


class Account:
    """What one connection asked and was told. Times are milliseconds.

    since_ms   wall time at which it was opened
    last       the first bytes of its last request: xid and type
    last_zxid  the zxid that the last reply showed
    last_ms    boottime of it
    """

    __slots__ = (
        "last",
        "last_latency",
        "last_ms",
        "last_zxid",
        "latency",
        "received",
        "sent",
        "since_ms",
    )

    def __init__(self) -> None:
        self.since_ms = 0
        self.reset()

    def reset(self) -> None:
        """As when it was opened."""
        self.received = self.sent = 0
        self.latency = Spread()
        self.last = b""
        self.last_latency = 0.0
        self.last_zxid = -1
        self.last_ms = 0

    def took(self, latency_ms: float, requests: int, zxid: int, now_ms: int) -> None:
        """So many of its requests were served in one turn."""
        self.latency.add(latency_ms, requests)
        self.last_latency, self.last_zxid, self.last_ms = latency_ms, zxid, now_ms
