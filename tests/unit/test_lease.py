"""The lease and its numbers, by table."""

from __future__ import annotations

import math

import pytest

from incumbent.errors import NumbersDontFit
from incumbent.lease import Lease, Numbers

S, TICK = 10.0, 2.0
LAG = 1.1  # tick/2 + tick/20
MARGIN = 0.1


def lease(tick: float | None = TICK) -> Lease:
    return Lease(S, tick)


# attached at 0; (sent, answered) of beats in order; what the last one proves
PROVEN = [
    ("no beat yet", [], -math.inf),
    ("the first beat proves the attach", [(0.5, 0.6)], 0.0),
    ("a beat counts from the one before it", [(2.0, 2.1), (4.0, 4.1)], 2.0),
    ("not from one whose answer is newer than the lag", [(3.5, 3.6), (4.0, 4.1)], 0.0),
    ("but from an older one", [(1.0, 1.1), (3.5, 3.6), (4.0, 4.1)], 1.0),
    ("answered late: it may have arrived late", [(1.0, 3.9), (4.0, 4.1)], 0.0),
    ("exactly the lag", [(1.0, 2.9), (4.0, 4.1)], 1.0),
    ("two in a row prove no more than the older one", [(4.0, 4.1), (4.001, 4.1)], 0.0),
]


@pytest.mark.parametrize(("_what", "beats", "base"), PROVEN, ids=[row[0] for row in PROVEN])
def test_what_a_row_of_beats_proves_on_an_ensemble(
    _what: str, beats: list[tuple[float, float]], base: float
) -> None:
    it = lease()
    it.attached(0.0)

    for sent_at, answered_at in beats:
        it.acknowledged(sent_at, answered_at)

    assert it.valid_until == base + S - MARGIN


def test_on_a_standalone_server_a_beat_counts_from_its_sending() -> None:
    it = lease(0.0)
    it.attached(0.0)
    it.acknowledged(4.0, 4.5)

    assert it.valid_until == 4.0 + S - MARGIN


def test_an_unknown_tick_is_taken_for_half_the_session() -> None:
    it = lease(None)
    it.attached(0.0)
    for sent_at in (1.0, 2.0, 3.0, 4.0, 5.0):
        it.acknowledged(sent_at, sent_at)

    assert it.report_lag == pytest.approx(2.75)
    assert it.valid_until == 2.0 + S - MARGIN


def test_a_ping_is_no_proof_but_a_later_beat_makes_it_count() -> None:
    it = lease()
    it.attached(0.0)
    it.touched(5.0, 5.1)
    assert it.valid_until == -math.inf

    it.acknowledged(7.0, 7.1)

    assert it.valid_until == 5.0 + S - MARGIN


def test_touches_of_another_connection_prove_nothing_on_this_one() -> None:
    it = lease()
    it.attached(0.0)
    it.touched(5.0, 5.1)
    it.attached(6.0)
    it.acknowledged(8.0, 8.1)

    assert it.valid_until == 6.0 + S - MARGIN


def test_an_attach_takes_nothing_away() -> None:
    it = lease(0.0)
    it.attached(0.0)
    it.acknowledged(5.0, 5.1)
    it.attached(5.5)

    assert it.valid_until == 5.0 + S - MARGIN


def test_a_smaller_grant_counts_at_once_and_a_larger_one_never() -> None:
    it = lease(0.0)
    it.attached(0.0)
    it.acknowledged(1.0, 1.0)
    it.granted(4.0)
    it.granted(20.0)

    assert it.valid_until == pytest.approx(1.0 + 4.0 * 0.99)


def test_an_ended_lease_stays_over() -> None:
    it = lease(0.0)
    it.attached(0.0)
    it.end()
    it.acknowledged(1.0, 1.0)

    assert it.valid_until == -math.inf


def test_late_wake_ups_are_taken_off_up_to_a_bound_and_forgotten_slowly() -> None:
    it = lease()
    it.late(0.2)
    assert it.margin == pytest.approx(MARGIN + 0.2)
    it.late(60.0)  # the machine stood still
    assert it.margin == pytest.approx(MARGIN + S / 20)
    for _ in range(500):
        it.late(0.0)
    assert it.margin == pytest.approx(MARGIN, abs=0.01)


def test_an_idle_session_keeps_a_handful_of_touches() -> None:
    it = lease()
    it.attached(0.0)
    for i in range(100_000):
        it.touched(i * 0.01, i * 0.01 + 0.001)

    assert len(it._touches) < 15


@pytest.mark.parametrize(
    ("session", "tick", "grace"),
    [
        (10.0, 0.0, 3.0),
        (10.0, 2.0, 3.0),
        (30.0, 0.0, 10.0),
        (30.0, 2.0, 10.0),
        (10.0, None, 2.4),  # the tick is not known: what is left
        (30.0, None, 8.2),
        (4.0, 2.0, 0.96),
    ],
)
def test_the_defaults_fit_and_the_grace_gives_way(
    session: float, tick: float | None, grace: float
) -> None:
    numbers = Numbers.of(session, tick=tick)

    numbers.fit()
    assert numbers.stop_grace == pytest.approx(grace)


def test_a_session_too_short_for_its_servers_is_refused() -> None:
    with pytest.raises(NumbersDontFit, match="raise session_timeout"):
        Numbers.of(2.0, tick=2.0).fit()


def test_the_defaults_tolerate_the_outages_that_are_promised() -> None:
    assert Numbers.of(10.0, tick=0.0).tolerated_outage == pytest.approx(4.4)
    assert Numbers.of(30.0, tick=2.0).tolerated_outage == pytest.approx(13.2)


def test_a_stop_grace_that_does_not_fit_is_refused_with_the_sum_and_the_most_that_fits() -> None:
    with pytest.raises(NumbersDontFit) as caught:
        Numbers.of(10.0, tick=0.0, stop_grace=6.0).fit()

    assert "5 s are needed" in str(caught.value)
    assert "stop_grace can be at most 4.4 s" in str(caught.value)
