"""How long a session may be believed in, and whether a system's times leave room to stop.

Rule of this file: every bound errs towards "over already". An acknowledged request is not yet
a renewed session: on an ensemble a follower reports its clients to the leader only in its
answer to the leader's ping, every tick/2 (measured on Apache 3.8: S = 20 s, an ephemeral gone
15.54 s after the sending of an acknowledged beat). So an acknowledged beat proves a renewal
only as of an *earlier* request: one whose answer had come `report_lag` before the beat was sent.
That request had reached the follower by then, the follower has since reported it, and the
beat, which went through the leader behind that report, shows that the report arrived.

All times are seconds of CLOCK_BOOTTIME, handed in; nothing here reads a clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache

from incumbent.errors import NumbersDontFit

__all__ = ["Lease", "Numbers"]


class Lease:
    """The bound on believing in one session, at one client.

    The driver's contract:
    1. `attached(sent_at)` when a ConnectRequest sent at that time was granted;
    2. `touched(sent_at, now)` for each answered request of any kind, in the order of sending;
    3. `acknowledged(sent_at, now)` instead, for a write (a beat): a quorum has the session;
    4. `granted(timeout)` at each attach: the smallest one ever counts;
    5. `late(seconds)` when a timer woke up later than asked;
    6. `end()` when the session is over, by anyone's word. It stays over.
    """

    __slots__ = ("_attach_at", "_base", "_touches", "ended", "lateness", "tick", "timeout")

    def __init__(self, timeout: float, tick: float | None) -> None:
        """`timeout` as granted, seconds; `tick` of the ensemble, 0 for a standalone server
        (no follower: no discount), None if unknown (then half of the timeout, the most it can be).
        """
        self.timeout = timeout
        self.tick = tick
        self.lateness = 0.0
        self.ended = False
        self._base = -math.inf
        self._attach_at: float | None = None
        self._touches: deque[tuple[float, float]] = deque()  # (sent, answered) on this connection

    @property
    def margin(self) -> float:
        """Seconds taken off: two clocks' rates may differ by 1 %, and we wake up late."""
        return self.timeout * 0.01 + self.lateness

    @property
    def valid_until(self) -> float:
        """The session certainly exists before this instant; -inf before the first proof."""
        if self.ended:
            return -math.inf
        return self._base + self.timeout - (self.timeout * 0.01 + self.lateness)  # `margin`

    def granted(self, timeout: float) -> None:
        self.timeout = min(self.timeout, timeout)

    def attached(self, sent_at: float) -> None:
        """A new connection: what another follower has heard proves nothing here."""
        self._attach_at = sent_at
        self._touches.clear()

    def touched(self, sent_at: float, now: float) -> None:
        """An answer came at `now`. Forgetting one is harmless, so only a few are kept."""
        lag, touches = self.report_lag, self._touches
        if not touches or sent_at - touches[-1][0] >= lag / 8:
            touches.append((sent_at, now))
        while (
            len(touches) > 1 and touches[1][1] <= now - lag
        ):  # every later beat finds [1] or newer
            touches.popleft()

    def acknowledged(self, sent_at: float, now: float) -> None:
        if self._attach_at is not None:
            self._base = max(self._base, self._attach_at)
        if self.tick == 0:
            self._base = max(self._base, sent_at)
            return
        while self._touches and self._touches[0][1] <= sent_at - self.report_lag:
            self._base = max(self._base, self._touches.popleft()[0])
        self.touched(sent_at, now)

    @property
    def report_lag(self) -> float:
        """How long a follower may keep a touch to itself: tick/2 and some slack."""
        return _report_lag(self.timeout / 2 if self.tick is None else self.tick)

    def late(self, seconds: float) -> None:
        """A slow decay: one late wake-up counts for some hundred beats.

        At most S/20 at once: a machine that stood still for seconds will not do so again each
        time, and its lease, with that much taken off, would not allow anything for minutes.
        """
        self.lateness = max(min(seconds, self.timeout / 20), self.lateness * 0.99)

    def end(self) -> None:
        self.ended = True


def _report_lag(tick: float) -> float:
    return tick / 2 + max(0.05, tick / 20) if tick else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A session's times, in seconds. `fit()` tells whether programs can be stopped before it ends."""

    session: float
    beat: float
    silence: float
    """Nothing heard for this long while something is outstanding: drop the connection."""
    reconnect: float
    """Cap of the back-off between attempts to connect."""
    tick: float
    kill_time: float
    """From SIGKILL to a proven empty tree."""
    stop_grace: float
    """From the stop signal to SIGKILL, when stopping because the session may end."""

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls, session: float, *, tick: float | None = None, stop_grace: float | None = None
    ) -> Numbers:
        """The defaults for a session timeout. `tick`: see `Lease`. Without a wish the stop grace
        is the usual one, or where that doesn't fit what is left of the session.
        """
        usual_grace = 0.3 * session if session < 20 else session / 3
        numbers = cls(
            session=session,
            beat=session / 10,
            silence=session / 5,
            reconnect=min(5.0, session / 10),
            tick=session / 2 if tick is None else tick,
            kill_time=min(0.5, session / 20),
            stop_grace=usual_grace if stop_grace is None else stop_grace,
        )
        if stop_grace is not None or numbers.needed <= numbers.room:
            return numbers
        return replace(numbers, stop_grace=max(0.0, usual_grace + numbers.room - numbers.needed))

    @property
    def margin(self) -> float:
        return self.session * 0.01

    @property
    def room(self) -> float:
        """What is left of the session after margin, kill and stop."""
        return self.session - self.margin - self.kill_time - self.stop_grace

    @property
    def needed(self) -> float:
        """What a reconnect after a silent loss takes at most."""
        return self.beat + self.silence + self.reconnect + self.staleness

    @property
    def staleness(self) -> float:
        """How much older than the last beat a proven renewal may be: whole beats (see `Lease`)."""
        return self.beat * max(1, math.ceil(_report_lag(self.tick) / self.beat))

    @property
    def tolerated_outage(self) -> float:
        """An outage up to this long stops nothing."""
        return self.room - self.beat - self.staleness

    @property
    def soft(self) -> float:
        """Seconds before `valid_until` at which the stop ladder begins."""
        return self.kill_time + self.stop_grace

    @property
    def hard(self) -> float:
        """Seconds before `valid_until` at which whatever is left is killed."""
        return self.kill_time

    def __str__(self) -> str:
        return (
            f"beat {self.beat:g} + silence {self.silence:g} + reconnect {self.reconnect:g} + "
            f"staleness {self.staleness:g} = {self.needed:g} s; "
            f"session {self.session:g} - margin {self.margin:g} - kill {self.kill_time:g} - "
            f"stop_grace {self.stop_grace:g} = {self.room:g} s"
        )

    def fit(self) -> None:
        """Raises `NumbersDontFit` with this system's sum."""
        if self.needed > self.room + 1e-9:
            most = self.session - self.margin - self.kill_time - self.needed
            if most > 0:
                advice = (
                    f"stop_grace can be at most {most:.3g} s with this session timeout: lower "
                    "it, or raise session_timeout"
                )
            else:
                advice = "raise session_timeout, or lower the ensemble's tickTime"
            raise NumbersDontFit(
                f"{self.needed:g} s are needed, {self.room:.3g} s are there: {self}", advice
            )
