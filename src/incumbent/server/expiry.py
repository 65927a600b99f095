"""When a session ends because its client fell silent.

Rule of this file: the server's time stands still while the server does. Time that passed
because we looked late (a pause of the machine, a long collection, a slow disk) is not held
against anyone, and a late look ends no session: what its clients sent meanwhile may not have
been read yet.

Sessions are kept in buckets of one tick: one ends between its timeout and one tick more after
it was last heard of.
"""

from __future__ import annotations

import math

__all__ = ["Expiry"]


class Expiry:
    """Timeouts of sessions, in the server's own time. All times are boottime seconds.

    Ask `look(now)` for who is overdue, `due(now)` for who will be, and `delay(now)` for when to look next.
    """

    __slots__ = (
        "_bucket_of",
        "_buckets",
        "_planned",
        "_seen",
        "_slack",
        "_tick",
        "_time",
        "_was_late",
        "timeouts",
    )

    def __init__(self, tick: float, now: float) -> None:
        self.timeouts: dict[int, float] = {}
        self._tick = tick
        self._slack = max(tick / 10, 0.02)
        self._time = 0.0  # the server's time, as of `_seen`
        self._seen = now
        self._planned = now
        self._was_late = False
        self._bucket_of: dict[int, int] = {}
        self._buckets: dict[int, dict[int, None]] = {}

    def track(self, session_id: int, timeout: float, now: float) -> None:
        """Begin, or go on with another timeout (seconds)."""
        self.timeouts[session_id] = timeout
        self.touch(session_id, now)

    def touch(self, session_id: int, now: float) -> None:
        """The session was heard of; nothing happens if it is not tracked."""
        timeout = self.timeouts.get(session_id)
        if timeout is None:
            return
        bucket = math.floor((self._time_at(now) + timeout) / self._tick) + 1
        if self._bucket_of.get(session_id) != bucket:
            self._leave_bucket(session_id)
            self._bucket_of[session_id] = bucket
            self._buckets.setdefault(bucket, {})[session_id] = None

    def remove(self, session_id: int) -> None:
        self._leave_bucket(session_id)
        self.timeouts.pop(session_id, None)

    def is_overdue(self, session_id: int) -> bool:
        """As of the last look; an unknown session is."""
        bucket = self._bucket_of.get(session_id)
        return bucket is None or bucket * self._tick <= self._time

    def due(self, now: float) -> list[tuple[float, list[int]]]:
        """Seconds left, and the sessions that end then unless heard of; the first first."""
        time = self._time_at(now)
        return [
            (bucket * self._tick - time, list(self._buckets[bucket]))
            for bucket in sorted(self._buckets)
        ]

    def look(self, now: float) -> list[int]:
        """Who is overdue, the longest first. Nobody, if this look comes late."""
        is_late = now - self._planned > self._slack
        self._time = self._time_at(now)
        self._seen = now
        was_late, self._was_late = self._was_late, is_late
        if is_late and not was_late:  # two in a row: what was sent before the first was read
            return []
        reached = math.floor(self._time / self._tick)
        due = sorted(bucket for bucket in self._buckets if bucket <= reached)
        return [session_id for bucket in due for session_id in self._buckets[bucket]]

    def delay(self, now: float) -> float:
        """Seconds until the next look: at the end of a tick, at most half a tick away."""
        time = self._time_at(now)
        to_tick = (math.floor(time / self._tick) + 1) * self._tick - time
        delay = max(min(to_tick, self._tick / 2), 0.001)
        self._planned = now + delay
        return delay

    def stand_still(self, now: float) -> None:
        """The server was busy with itself since the last look: none of that time counts."""
        self._seen = now
        self._planned = now
        self._was_late = False

    def _time_at(self, now: float) -> float:
        """The server's time: what lies beyond the planned look, and its slack, does not count."""
        awake = self._planned - self._seen
        passed = now - self._seen
        return self._time + (passed if passed <= awake + self._slack else max(awake, 0.0))

    def _leave_bucket(self, session_id: int) -> None:
        bucket = self._bucket_of.pop(session_id, None)
        if bucket is not None:
            members = self._buckets[bucket]
            del members[session_id]
            if not members:
                del self._buckets[bucket]
