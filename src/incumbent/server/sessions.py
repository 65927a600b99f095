"""Sessions: their ids, passwords and timeouts, and which connection each one has.

Rule of this file: a password is an HMAC of the session id under the store's secret, so that it
needs no keeping, and cannot be worked out from the id that every Stat shows (Apache's can).
A session has at most one connection; who proves to own it takes it over, nobody else disturbs it.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Container

from incumbent.clock import Clock
from incumbent.server.expiry import Expiry
from incumbent.server.sasl import SaslExchange
from incumbent.server.store import Loaded
from incumbent.server.transactions import Author
from incumbent.wire import Id

__all__ = ["NO_PASSWORD", "Peer", "Sessions"]

NO_PASSWORD = bytes(16)
"""What goes with session id 0."""

_PREFIX = 1 << 56  # as Apache's first server: never negative, never an id that means something else


class Peer:
    """A connection as the service sees it: its session, and what it is to be sent, in order.

    ids     who it has shown to be: `ip` from the start
    author  the same for decisions; made anew when `ids` grows
    events  how many of `out` are no replies
    """

    def __init__(self) -> None:
        self.session_id = 0
        self.sasl: SaslExchange | None = None
        self.ids: tuple[Id, ...] = ()
        self.author: Author | None = None
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.events = 0
        self.is_connected = False  # its ConnectRequest was taken
        self.is_leaving = False  # nothing more is read; closed once `out` is sent
        self.is_cut = False  # closed at once, sent or not


class Sessions:
    """What is known of sessions beside the tree: nothing here outlives the process."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        clock: Clock,
        tick: float,
        rng: random.Random,
        timeouts: tuple[float, float] | None = None,
    ) -> None:
        self._secret = loaded.secret
        self._clock = clock
        self._shortest, self._longest = timeouts or (2 * tick, 20 * tick)
        self._rng = rng
        self._owners: dict[int, Peer] = {}
        now = clock.boottime()
        self.expiry = Expiry(tick, now)
        for session_id, timeout_ms in loaded.tree.sessions.items():  # a fresh full timeout
            self.expiry.track(session_id, timeout_ms / 1000, now)

    def new_id(self, taken: Container[int]) -> int:
        """Random, so that a client of a wiped server never finds its old id in a stranger's hands."""
        while True:
            session_id = _PREFIX | self._rng.getrandbits(56)
            if session_id not in taken:
                return session_id

    def grant(self, asked_ms: int) -> int:
        """Milliseconds granted: what was asked for, but neither too short nor too long."""
        return round(max(self._shortest * 1000, min(asked_ms, self._longest * 1000)))

    def password(self, session_id: int) -> bytes:
        """The 16 bytes that prove a session one's own."""
        message = session_id.to_bytes(8, "big", signed=True)
        return hmac.digest(self._secret, message, hashlib.sha256)[:16]

    def is_password(self, session_id: int, given: bytes) -> bool:
        return hmac.compare_digest(self.password(session_id), given)

    def attach(self, peer: Peer, session_id: int, timeout_ms: int) -> Peer | None:
        """The session is the peer's from now on; whoever had it before is returned."""
        before = self._owners.get(session_id)
        self._owners[session_id] = peer
        peer.session_id = session_id
        peer.is_connected = True
        self.expiry.track(session_id, timeout_ms / 1000, self._clock.boottime())
        return before

    def detach(self, peer: Peer) -> None:
        """The peer is gone; its session is not."""
        if self._owners.get(peer.session_id) is peer:
            del self._owners[peer.session_id]

    def heard(self, peer: Peer) -> None:
        """Something came from the peer: its session lives."""
        if self._owners.get(peer.session_id) is peer:
            self.expiry.touch(peer.session_id, self._clock.boottime())

    def end(self, session_id: int) -> Peer | None:
        """The session is over; the connection that it had."""
        self.expiry.remove(session_id)
        return self._owners.pop(session_id, None)
