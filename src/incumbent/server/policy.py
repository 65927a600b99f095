"""What a server allows: its settings, apart from where it listens and keeps its data.

Rule of this file: every limit has a default with which no client can take the server's memory
or all of its connections; Apache ZooKeeper's default where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from incumbent.wire import MAX_FRAME

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of a server; each names Apache's.

    min_timeout, max_timeout seconds that a session lasts; None for 2 and 20 ticks
    sasl                     secrets of users by name, for SASL DIGEST-MD5; None: not spoken
    super_digest             `super:` and the base64 of its SHA-1: who shows this may do all
                             (zookeeper.DigestAuthenticationProvider.superDigest)
    schemes                  schemes of ids beyond `ip` and `digest` that ACLs may name, such as
                             `x509` and `sasl`; who has such an id is for TLS and SASL to say
    ttl_znodes               znodes with a time to live may be made (extendedTypesEnabled)
    connections_per_address  0 for any number (maxClientCnxns)
    frame_bytes              largest request (jute.maxbuffer)
    requests_waiting         of one connection; no more is read from it then (globalOutstandingLimit)
    reply_bytes              that one client may leave unread before its connection is closed
    all_reply_bytes          that all clients together may; then the one with the most is closed
    """

    min_timeout: float | None = None
    max_timeout: float | None = None
    sasl: Mapping[str, bytes] | None = field(default=None, repr=False)
    super_digest: str | None = field(default=None, repr=False)
    schemes: tuple[str, ...] = ()
    ttl_znodes: bool = False
    connections_per_address: int = 60
    frame_bytes: int = MAX_FRAME
    requests_waiting: int = 1000
    reply_bytes: int = 64 * 1024 * 1024
    all_reply_bytes: int = 256 * 1024 * 1024

    def timeouts(self, tick: float) -> tuple[float, float]:
        """The shortest and the longest session, in seconds."""
        return self.min_timeout or 2 * tick, self.max_timeout or 20 * tick
