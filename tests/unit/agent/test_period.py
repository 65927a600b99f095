"""Which period an instant is in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.period import DAY, Every, duration

LENGTHS = st.sampled_from([1, 30, 60, 900, 3600, 7 * 3600, DAY, 2 * DAY, 7 * DAY])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Europe/London", "America/St_Johns"])
INSTANTS = st.floats(min_value=0, max_value=4e9, allow_nan=False)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("every", "instant", "begin"),
    [
        (Every(3600), "2026-11-27T23:15:27+00:00", "2026-11-27T23:00:00Z"),
        (Every(3600), "2026-11-27T23:00:00+00:00", "2026-11-27T23:00:00Z"),
        (Every(900), "2026-11-27T23:59:59.9+00:00", "2026-11-27T23:45:00Z"),
        (Every(DAY), "2026-11-27T23:15:27+00:00", "2026-11-27T00:00:00Z"),
        (Every(7 * DAY), "2026-11-27T23:15:27+00:00", "2026-11-23T00:00:00Z"),  # a Monday
        (Every(DAY, "Europe/Berlin"), "2026-11-27T23:15:27+00:00", "2026-11-27T23:00:00Z"),
        (Every(DAY, "Europe/Berlin"), "2026-07-01T00:30:00+02:00", "2026-06-30T22:00:00Z"),
    ],
)
def test_periods_begin_where_the_clock_says(every: Every, instant: str, begin: str) -> None:
    assert every.start(at(instant)) == begin


def test_each_midnight_of_a_zone_begins_a_day_also_where_the_clocks_are_changed() -> None:
    every = Every(DAY, "Europe/London")
    nights = [f"2026-03-{day:02}T00:30:00+0{day > 29:d}:00" for day in range(26, 32)]

    begins = [every.start(at(night)) for night in nights]

    assert len(set(begins)) == len(nights)
    assert begins == sorted(begins)


@given(LENGTHS, ZONES, INSTANTS, INSTANTS)
def test_begins_sort_by_time_and_no_instant_is_before_its_own(
    seconds: int, zone: str, one: float, other: float
) -> None:
    every = Every(seconds, zone)
    earlier, later = sorted([one, other])

    assert every.start(earlier) <= every.start(later)
    begin = datetime.strptime(every.start(later), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    age = datetime.fromtimestamp(later, UTC) - begin
    slack = timedelta(hours=2) if zone != "UTC" and seconds % DAY == 0 else timedelta()
    assert timedelta() <= age < timedelta(seconds=seconds) + slack


@given(LENGTHS, ZONES, INSTANTS)
def test_a_begin_is_in_its_own_period(seconds: int, zone: str, instant: float) -> None:
    every = Every(seconds, zone)

    begin = every.start(instant)

    assert every.start(at(begin.replace("Z", "+00:00"))) == begin


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3600), ("1d", DAY), ("2w", 14 * DAY)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "0h", "1.5h", "-1h", "1 h", "1y", "9999999s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 1h"):
        duration(text)
