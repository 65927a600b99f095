"""Four-letter words, and the counts that they show.

Rule of this file: the answers are Apache ZooKeeper's, line by line, since tools read them. They
show counters and the zxid, so they pass the release gate like any reply.
"""

from __future__ import annotations

from dataclasses import dataclass

from incumbent.server.tree import Tree

__all__ = ["RUOK", "SRVR", "WORDS", "Traffic", "answer"]

RUOK, SRVR = b"ruok", b"srvr"

WORDS = (RUOK, SRVR)
"""As a frame's length they would be over a gigabyte."""

_VERSION = "3.8.0-incumbent-0.1.0"
"""The version of Apache ZooKeeper that this server does as, and its own."""


@dataclass(slots=True)
class Traffic:
    """What went through a server since it started. Latencies are milliseconds."""

    received: int = 0
    sent: int = 0
    served: int = 0
    shortest: float = 0.0
    longest: float = 0.0
    total: float = 0.0

    def took(self, seconds: float, requests: int) -> None:
        """So many requests were served in one turn; each waited for all of it."""
        latency = seconds * 1000
        self.shortest = min(self.shortest, latency) if self.served else latency
        self.longest = max(self.longest, latency)
        self.total += latency * requests
        self.served += requests


def answer(word: bytes, tree: Tree, traffic: Traffic, connections: int, outstanding: int) -> bytes:
    """What is sent for a word before the connection is closed."""
    if word == RUOK:
        return b"imok"
    average = traffic.total / traffic.served if traffic.served else 0.0
    lines = (
        f"Zookeeper version: {_VERSION}, built on -",
        f"Latency min/avg/max: {traffic.shortest:.0f}/{average:.4g}/{traffic.longest:.0f}",
        f"Received: {traffic.received}",
        f"Sent: {traffic.sent}",
        f"Connections: {connections}",
        f"Outstanding: {outstanding}",
        f"Zxid: {tree.zxid:#x}",
        "Mode: standalone",
        f"Node count: {len(tree.nodes)}",
    )
    return "".join(f"{line}\n" for line in lines).encode()
