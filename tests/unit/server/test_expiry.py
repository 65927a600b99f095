"""When sessions end, and when not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from incumbent.server.expiry import Expiry

TICK = 2.0


def run(expiry: Expiry, now: float, until: float) -> tuple[float, list[int]]:
    """Look as often as asked to, on time; (time, overdue) of the first look that finds any."""
    while now < until:
        now += expiry.delay(now)
        if overdue := expiry.look(now):
            return now, overdue
    return now, []


def test_a_silent_session_ends_between_its_timeout_and_a_tick_later() -> None:
    for start in (0.0, 0.7, 1.99):
        expiry = Expiry(TICK, 100.0)
        expiry.track(7, 10.0, 100.0 + start)

        ended, overdue = run(expiry, 100.0, 200.0)

        assert overdue == [7]
        assert 10.0 < ended - 100.0 - start <= 10.0 + TICK + 0.01


def test_whoever_is_heard_of_stays() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)
    now = 0.0

    for _ in range(100):
        now += expiry.delay(now)
        assert expiry.look(now) == []
        expiry.touch(7, now)


def test_a_late_look_ends_nobody() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)
    expiry.delay(0.0)

    assert expiry.look(1000.0) == []


def test_time_during_which_the_server_stood_still_does_not_count() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 10.0, 0.0)
    expiry.delay(0.0)
    expiry.look(1000.0)

    ended, overdue = run(expiry, 1000.0, 1100.0)

    assert overdue == [7]
    assert 1009.0 < ended < 1000.0 + 10.0 + TICK


def test_a_touch_during_a_stall_counts_from_its_end() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)
    expiry.delay(0.0)
    expiry.touch(7, 500.0)
    expiry.look(500.0)

    ended, _ = run(expiry, 500.0, 600.0)

    assert ended > 500.0 + 4.0 - TICK / 2 - 0.01


def test_a_server_that_is_always_late_still_ends_sessions() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)
    now = 0.0

    for _ in range(100):
        now += expiry.delay(now) + 1.0
        if expiry.look(now):
            return
    raise AssertionError("the session never ended")


def test_a_removed_session_is_never_due_and_counts_as_overdue() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)

    expiry.remove(7)
    expiry.touch(7, 1.0)

    assert run(expiry, 0.0, 50.0)[1] == []
    assert expiry.is_overdue(7)


def test_busy_time_is_standing_still() -> None:
    expiry = Expiry(TICK, 0.0)
    expiry.track(7, 4.0, 0.0)
    now = 0.0
    for _ in range(60):
        now += expiry.delay(now)
        expiry.stand_still(now)

    assert expiry.look(now) == []
    assert not expiry.is_overdue(7)


@given(
    st.lists(st.tuples(st.sampled_from(["look", "late", "touch"]), st.integers(1, 3)), max_size=80)
)
def test_no_session_ends_before_its_timeout(steps: list[tuple[str, int]]) -> None:
    """Whatever the order of looks, stalls and signs of life."""
    expiry = Expiry(TICK, 0.0)
    now = 0.0
    timeouts = {1: 4.0, 2: 10.0, 3: 40.0}
    heard = dict.fromkeys(timeouts, 0.0)
    for session_id, timeout in timeouts.items():
        expiry.track(session_id, timeout, now)
    planned = expiry.delay(now)
    for step, who in steps:
        if step == "touch":
            now += 0.0
            expiry.touch(who, now)
            if who in heard:
                heard[who] = now
            continue
        now = planned if step == "look" else planned + who * 7.0
        for session_id in expiry.look(now):
            assert now - heard.pop(session_id) > timeouts[session_id]
            expiry.remove(session_id)
        planned = now + expiry.delay(now)
