"""The lease is never longer than the session, in a model of an ensemble whose followers report late.

The model is dumb on purpose: a leader with one number per session, followers that collect
touches and hand them over when the leader's ping comes, requests that go through the leader
behind those reports. Whatever the client sends and whenever a follower dies: as long as its
lease says that the session lives, it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from incumbent.lease import Lease

S, TICK = 10.0, 2.0


@dataclass
class Ensemble:
    """What the leader knows of one session (`renewed_at`), and what one follower has not told it."""

    renewed_at: float
    next_ping: float
    untold: bool = False
    is_alive: bool = True

    def until(self, now: float) -> None:
        """The leader's pings up to now; each answer renews if there was a touch since the last."""
        while self.next_ping <= now:
            if self.is_alive and self.untold:
                self.renewed_at = self.next_ping
                self.untold = False
            self.next_ping += TICK / 2

    def touch(self, now: float) -> None:
        self.until(now)
        self.untold = True

    def attach(self, now: float, phase: float) -> None:
        """On another follower: it asks the leader, which renews."""
        self.until(now)
        self.renewed_at = max(self.renewed_at, now)
        self.untold, self.is_alive = False, True
        self.next_ping = now + phase * TICK / 2


@dataclass(frozen=True)
class Step:
    """Something is sent, `after` seconds after the last. An attach waits for its answer."""

    after: float
    kind: str  # ping, beat, attach
    trip: float = 0.0  # seconds for the way there
    back: float = 0.0  # and for the way back


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0.001, 0.05, 0.3, 0.9, 1.0, 1.1, 1.5, 2.5]),
        st.sampled_from(["ping", "beat", "beat", "beat", "attach"]),
        st.sampled_from([0.0, 0.001, 0.02, 0.4, 1.5, 3.0]),
        st.sampled_from([0.0, 0.001, 0.02, 0.4, 1.5]),
    ),
    max_size=30,
)


def run(script: list[Step], phase: float, lease: Lease) -> None:
    """Raises AssertionError if the lease believes for longer than the leader would."""
    ensemble = Ensemble(renewed_at=0.0, next_ping=phase * TICK / 2)
    lease.attached(0.0)
    sent_at = arrives_at = answered_at = 0.0
    events: list[tuple[float, int, str, Step, float]] = []
    for number, step in enumerate(script):
        sent_at = max(sent_at + step.after, answered_at if step.kind == "attach" else 0.0)
        arrives_at = max(arrives_at, sent_at + step.trip)  # in order, both ways
        answered_at = max(answered_at, arrives_at + step.back)
        events.append((arrives_at, 2 * number, "arrives", step, sent_at))
        events.append((answered_at, 2 * number + 1, "answered", step, sent_at))
        if step.kind == "attach":
            sent_at = answered_at
    for now, _, what, step, sent_at in sorted(events, key=lambda event: event[:2]):
        ensemble.until(now)
        if now >= ensemble.renewed_at + S:
            return  # expired; the client would be told
        if what == "arrives" and step.kind == "attach":
            ensemble.attach(now, phase)
        elif what == "arrives":
            ensemble.touch(now)
        elif step.kind == "attach":
            lease.attached(sent_at)
        elif step.kind == "beat":
            lease.acknowledged(sent_at, now)
        else:
            lease.touched(sent_at, now)
        # The follower may die at this instant: what it has not told is never told.
        too_long = lease.valid_until - (ensemble.renewed_at + S)
        assert too_long <= 0, f"believed {too_long:.3f} s too long at {now:.3f}"


@given(steps, st.floats(0.001, 1.0))
@example([Step(2.5, "ping", 0.0), Step(0.9, "beat", 0.0), Step(0.001, "beat", 0.0)], 0.9)
@example([Step(0.05, "beat", 3.0), Step(2.5, "beat")], 0.9)
@settings(max_examples=400, deadline=None)
def test_a_lease_never_outlives_its_session(script: list[Step], phase: float) -> None:
    run(script, phase, Lease(S, TICK))


class Naive(Lease):
    """An acknowledged beat is taken for a renewed session."""

    __slots__ = ()

    def acknowledged(self, sent_at: float, now: float) -> None:
        self._base = max(self._base, sent_at)


class PreviousOrLag(Lease):
    """max(base, min(t of the beat before, t - lag)): it takes touches for regular."""

    __slots__ = ("before",)

    def attached(self, sent_at: float) -> None:
        super().attached(sent_at)
        self.before = -math.inf

    def acknowledged(self, sent_at: float, now: float) -> None:
        assert self._attach_at is not None
        base = max(self._attach_at, min(self.before, sent_at - self.report_lag))
        self._base, self.before = max(self._base, base), sent_at


class BySending(Lease):
    """A touch counts from a lag after its sending, though it may have been under way for long."""

    __slots__ = ()

    def acknowledged(self, sent_at: float, now: float) -> None:
        super().acknowledged(sent_at, sent_at)


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        (Naive, [Step(0.9, "beat")]),
        # a report without a touch, two beats, and the follower is gone
        (PreviousOrLag, [Step(2.5, "beat"), Step(2.5, "beat"), Step(0.001, "beat")]),
        (BySending, [Step(0.05, "beat"), Step(1.5, "beat", 3.0), Step(2.5, "beat")]),
    ],
)
def test_the_model_catches_rules_that_believe_too_long(
    rule: type[Lease], script: list[Step]
) -> None:
    believed_too_long = 0
    for phase in range(1, 51):
        lease = rule(S / 0.99, TICK)  # so that the margin hides nothing
        try:
            run(script, phase / 50, lease)
        except AssertionError:
            believed_too_long += 1
    assert believed_too_long


@given(steps, st.floats(0.001, 1.0))
@settings(max_examples=100, deadline=None)
def test_without_followers_a_beat_is_worth_its_whole_session(
    script: list[Step], phase: float
) -> None:
    lease = Lease(S, 0.0)
    lease.attached(0.0)
    now = renewed_at = 0.0
    for step in script:
        now += step.after
        if step.kind == "attach":
            lease.attached(now)
        elif step.kind == "beat":
            lease.acknowledged(now, now + step.trip)
            renewed_at = now
            assert lease.valid_until == pytest.approx(renewed_at + S * 0.99)
        now += step.trip
