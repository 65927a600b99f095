"""The heartbeat of a session: a quorum's word every S/10 while anyone relies on it.

A beat is multi[check(path)] on an ephemeral of ours: one small write however much depends on
the session. A ping keeps an idle session alive and proves nothing: a follower that is cut off
from its leader answers it.

Rule of this file: only a beat that was carried out counts (as does any other write of ours).
One that was refused, since its znode is gone, renews no lease; the next beat uses another open
path if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from incumbent.client.calls import Call
from incumbent.client.connection import Connection
from incumbent.client.traffic import Traffic
from incumbent.clock import Clock
from incumbent.lease import Lease, Numbers
from incumbent.wire import Check, Multi, Ping, Xid

__all__ = ["Beats", "Pulse"]


class Pulse(Protocol):
    """The session as its heartbeat sees it."""

    @property
    def lease(self) -> Lease: ...

    @property
    def numbers(self) -> Numbers: ...

    def wake(self) -> bool:
        """Look at the clock. Is the session connected?"""

    def relied_on(self) -> None:
        """Whether anyone relies on the lease has changed."""


class Beats:
    """Whose beats are open, and the timer that sends them.

    `governs`: someone relies on beats and one has proven the lease, so that the session is LOST
    at `lease.valid_until` whatever else the server answers.
    """

    def __init__(
        self, pulse: Pulse, traffic: Traffic, clock: Clock, log: Callable[[str], None]
    ) -> None:
        self._pulse = pulse
        self._traffic = traffic
        self._connection: Connection | None = None
        self._clock = clock
        self._log = log
        self._open: dict[str, int] = {}
        self._listeners: dict[int, Callable[[float], None]] = {}
        self._added = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._era = 0  # of sessions: a beat left open by an ended session is closed
        self.governs = False

    def open(self, path: str) -> _Beating:
        """While open, the session beats. Opened again for the same path it counts."""
        return _Beating(self, path)

    def begin(self, path: str) -> int:
        """What ends it again, in `close`."""
        self._open[path] = self._open.get(path, 0) + 1
        self._rely()
        if len(self._open) == 1 and self._pulse.wake() and not self._is_proven():
            self._beat()
        return self._era

    def close(self, path: str, era: int) -> None:
        if era == self._era:
            self._close(path)

    def watch(self, listener: Callable[[float], None]) -> Callable[[], None]:
        """Call `listener(sent_at)` at each acknowledged beat; the result takes it off again."""
        self._added = number = self._added + 1
        self._listeners[number] = listener

        def remove() -> None:
            self._listeners.pop(number, None)

        return remove

    def start(self, connection: Connection) -> None:
        """A connection is up."""
        self.stop()
        self._connection = connection
        if self._open:
            self._beat()
        self._schedule()

    def stop(self) -> None:
        """It is down."""
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """The session is over, and with it whatever relied on its beats."""
        self.stop()
        self._open.clear()
        self._era += 1
        self.governs = False

    def _close(self, path: str) -> None:
        self._open[path] -= 1
        if not self._open[path]:
            del self._open[path]
        if not self._open:  # the session may last longer now: its timer comes early, if anything
            self.governs = False

    def _schedule(self) -> None:
        beat = self._pulse.numbers.beat
        self._due_at = self._clock.boottime() + beat
        self._timer = asyncio.get_running_loop().call_later(beat, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._pulse.lease.late(self._clock.boottime() - self._due_at)
        if not self._pulse.wake() or self._connection is None:
            return
        self._schedule()
        if self._open:
            self._beat()
        elif self._clock.boottime() - self._connection.sent_at >= self._pulse.numbers.beat * 1.9:
            self._traffic.send_own(self._connection, Ping(), lambda call, value: None, Xid.PING)

    def _beat(self) -> None:
        if self._connection is not None:
            beat = Multi((Check(next(iter(self._open))),))
            self._traffic.send_own(self._connection, beat, self._answered)

    def _answered(self, call: Call, answer: object) -> None:
        assert call.sent_at is not None and isinstance(call.request, Multi)
        if isinstance(answer, Exception):
            self._refused(call.request.ops[0].path)
            return
        self._rely()
        for number in tuple(self._listeners):
            if number in self._listeners:
                self._tell(self._listeners[number], call.sent_at)

    def _is_proven(self) -> bool:
        """Has some other write proven the lease since the last beat was due? Then the next one
        comes no later than beats do."""
        lease = self._pulse.lease
        proven_at = lease.valid_until - lease.timeout + lease.margin
        return proven_at >= self._due_at - self._pulse.numbers.beat

    def _rely(self) -> None:
        """From the first proof on, whoever relies on beats is bound by the lease."""
        if self._open and not self.governs:
            self.governs = self._clock.boottime() < self._pulse.lease.valid_until
            if self.governs:
                self._pulse.relied_on()

    def _refused(self, path: str) -> None:
        if path in self._open:
            self._log(f"a beat on {path} was refused: it is gone")
            self._open[path] = self._open.pop(path)  # others first

    def _tell(self, listener: Callable[[float], None], sent_at: float) -> None:
        try:
            listener(sent_at)
        except Exception as error:  # a stranger's code: it must not harm the connection
            self._log(f"a beat listener failed: {error!r}")


class _Beating:
    """While it is entered, the session beats."""

    __slots__ = ("_beats", "_era", "_path")

    def __init__(self, beats: Beats, path: str) -> None:
        self._beats = beats
        self._path = path

    def __enter__(self) -> None:
        self._era = self._beats.begin(self._path)

    def __exit__(self, *error: object) -> None:
        self._beats.close(self._path, self._era)
