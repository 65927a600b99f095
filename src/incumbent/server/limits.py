"""How much of the server one client may take, and all clients together.

Rule of this file: whoever is over a limit loses a connection, never a session, and nobody else
loses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from incumbent.server.policy import Policy

__all__ = ["Limits"]

Caller = TypeVar("Caller", bound=Hashable)


class Limits(Generic[Caller]):
    """Counts connections by address, and bytes that were sent and not taken."""

    __slots__ = ("_addresses", "_all_unread", "_log", "_policy", "_told", "_unread")

    def __init__(self, policy: Policy, log: Callable[[str], None]) -> None:
        self._policy = policy
        self._log = log
        self._addresses: dict[str, int] = {}
        self._told: dict[str, None] = {}
        self._unread: dict[Caller, int] = {}
        self._all_unread = 0

    def admits(self, address: str) -> bool:
        """May one more connection from there be kept? It is counted then: `left` takes it back."""
        most, now = self._policy.connections_per_address, self._addresses.get(address, 0)
        if 0 < most <= now:
            if address not in self._told:
                self._told[address] = None
                self._log(
                    f"{address} has {now} connections, more are turned away; "
                    "to admit more, raise the limit of connections per address"
                )
            return False
        self._addresses[address] = now + 1
        return True

    def left(self, address: str) -> None:
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]
            self._told.pop(address, None)

    def unread(self, caller: Caller, size: int) -> list[Caller]:
        """So many bytes wait for the caller to read; whose connections must be closed now."""
        self._all_unread += size - self._unread.pop(caller, 0)
        if size:
            self._unread[caller] = size
        over = [caller] if size > self._policy.reply_bytes else []
        if not over and self._all_unread > self._policy.all_reply_bytes:
            over = [max(self._unread, key=lambda other: self._unread[other])]
        for one in over:
            self._log(
                f"a client left {self._unread[one]} bytes unread and is cut off; its session stays"
            )
            self._all_unread -= self._unread.pop(one)
        return over
