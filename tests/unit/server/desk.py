"""A service without sockets or time of its own: requests by hand, a clock by hand.

Rule of this file: `settle` is the only place where what was decided becomes durable and seen.
"""

from __future__ import annotations

import random
from typing import Any

from incumbent.server.service import Service
from incumbent.server.sessions import Peer
from incumbent.server.store import Loaded
from incumbent.server.tree import Transaction, Tree
from incumbent.wire import ConnectRequest, ConnectResponse, ReplyHeader, Request, WatchEvent, Xid
from incumbent.wire.jute import Reader

__all__ = ["Desk", "HandClock"]


class HandClock:
    """Time that moves only when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def boottime(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class Desk:
    """One service and its peers; `journal` is everything that it decided."""

    def __init__(self, tree: Tree | None = None, *, tick: float = 2.0, seed: int = 1) -> None:
        self.clock = HandClock()
        self.log: list[str] = []
        self.journal: list[Transaction] = []
        self.service = Service(
            Loaded(tree=tree or Tree(), secret=b"secret"),
            clock=self.clock,
            tick=tick,
            rng=random.Random(seed),
            log=self.log.append,
        )

    def peer(self, **asked: Any) -> Peer:
        """A peer with a new session, or the one asked for."""
        peer = Peer()
        self.greet(peer, **asked)
        return peer

    def greet(self, peer: Peer, **asked: Any) -> ConnectResponse | None:
        """The handshake; None where it was not answered."""
        fields = {"last_zxid": 0, "timeout_ms": 10_000, "session_id": 0, "password": bytes(16)}
        self.service.handle(peer, ConnectRequest(**(fields | asked)).encode())
        self.settle()
        frames = self.frames(peer)
        return ConnectResponse.decode(frames[0]) if frames else None

    def send(self, peer: Peer, request: Request, xid: int = 1) -> None:
        self.service.handle(peer, request.encode(xid))

    def call(self, peer: Peer, request: Request, xid: int = 1) -> tuple[int, Any]:
        """(error, value) of one request; events before it are dropped."""
        self.send(peer, request, xid)
        self.settle()
        reader = Reader(self.frames(peer)[-1])
        header = ReplyHeader.read(reader)
        value = request.decode_answer(reader) if header.err == 0 and reader.left else None
        return header.err, value

    def settle(self) -> None:
        self.journal += self.service.take()
        self.service.released()

    def pass_time_until_one_is_overdue(self) -> list[int]:
        """The sessions that are, as of the look that found them."""
        expiry, overdue = self.service.sessions.expiry, list[int]()
        while not overdue:
            self.clock.now += expiry.delay(self.clock.now)
            overdue = expiry.look(self.clock.now)
        return overdue

    def frames(self, peer: Peer) -> list[bytes]:
        """What the peer was sent since the last call."""
        taken = [frame[4:] for frame in peer.out]
        peer.out.clear()
        return taken

    def events(self, peer: Peer) -> list[WatchEvent]:
        """The events among what the peer was sent since the last call."""
        events = []
        for body in self.frames(peer):
            reader = Reader(body)
            if ReplyHeader.read(reader).xid == Xid.EVENT:
                events.append(WatchEvent.read(reader))
        return events
