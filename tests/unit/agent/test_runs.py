"""What `once` concludes from the runs of a key."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.period import Every
from incumbent.agent.runs import KEPT, Run, Runs, UnreadableRuns, Verdict, What, decide, read_runs


def run(period: str, state: str = "done", nonce: str = "", every: str = "") -> Run:
    return Run(
        period=period,
        state=state,
        node="n1",
        pid=1,
        nonce=nonce or period,
        token=1,
        started=0.0,
        every=every,
    )


def runs(*them: Run) -> Runs:
    found = Runs()
    for each in them:
        found = found.put(each)
    return found


def what(found: Runs, period: str, *, retry: bool = False, is_first: bool = True) -> What:
    return decide(found, period, retry=retry, is_first=is_first).what


def test_nothing_known_is_claimed() -> None:
    assert decide(Runs(), "", retry=False, is_first=False) == Verdict(What.CLAIM)
    assert what(runs(run("1")), "2") is What.CLAIM


def test_what_is_done_stays_done() -> None:
    for retry in (False, True):
        assert what(runs(run("")), "", retry=retry) is What.DONE
        assert what(runs(run("1"), run("2")), "1", retry=retry) is What.DONE


def test_running_while_nobody_is_before_us_is_interrupted() -> None:
    left = runs(run("1", "running"))

    assert what(left, "1") is What.INTERRUPTED
    assert what(left, "1", retry=True) is What.CLAIM
    assert what(left, "1", is_first=False) is What.CLAIM  # it may live: stand in line


def test_an_interrupted_run_stays_so_until_somebody_retries() -> None:
    left = runs(run("1", "interrupted"))

    assert what(left, "1") is What.INTERRUPTED
    assert what(left, "1", retry=True) is What.CLAIM


@pytest.mark.parametrize("state", ["done", "running", "interrupted"])
def test_a_period_older_than_a_known_one_is_over(state: str) -> None:
    assert what(runs(run("2", state)), "1", retry=True) is What.OVER
    assert what(runs(run("1", "interrupted"), run("2", state)), "1", retry=True) is What.OVER


def test_with_and_without_periods_do_not_mix() -> None:
    assert what(runs(run("")), "1") is What.MIXED
    assert what(runs(run("1")), "") is What.MIXED


def test_periods_of_two_kinds_do_not_mix() -> None:
    """A crontab that says 1d and no longer 1h would lose a day in silence."""
    hourly = runs(run("2026-11-29T10:00:00Z", every=str(Every(3600))))
    today = "2026-11-29T00:00:00Z"

    def verdict(found: Runs, every: Every) -> What:
        return decide(found, today, every=str(every), retry=False, is_first=True).what

    assert verdict(hourly, Every(86400)) is What.MIXED
    assert verdict(hourly, Every(3600)) is What.OVER
    assert verdict(hourly, Every(3600, "Europe/Berlin")) is What.OVER, "a zone is for whole days"
    assert verdict(runs(run("2026-11-29T10:00:00Z")), Every(86400)) is What.OVER, "none is known"

    daily = runs(run("2026-11-29T10:00:00Z", every=str(Every(86400))))
    assert verdict(daily, Every(86400, "Europe/Berlin")) is What.MIXED


@given(st.lists(st.integers(0, 60), max_size=80))
def test_whatever_comes_in_whatever_order_no_period_is_claimed_twice(order: list[int]) -> None:
    known, claimed = Runs(), []
    for number in order:
        period = f"{number:02}"
        if what(known, period, retry=True) is What.CLAIM:
            claimed.append(period)
            known = known.put(run(period))

    assert len(claimed) == len(set(claimed))
    assert len(known.runs) <= KEPT
    assert [each.period for each in known.runs] == claimed[-KEPT:]


def test_a_record_is_read_as_it_was_written() -> None:
    record = runs(run("1"), run("2", "running"))

    assert read_runs(record.write(), "/k") == record
    assert read_runs(b"", "/k") == Runs()


def test_a_run_under_way_whose_holder_has_left_the_line_is_interrupted() -> None:
    there, gone = run("1", "running", "a"), run("2", "running", "b")
    there, gone = (msgspec.structs.replace(r, token=t) for r, t in ((there, 7), (gone, 8)))
    over = run("3")

    seen = runs(there, gone, over).seen_with({7})

    assert seen.runs == [there, gone.interrupted(), over]
    assert gone.interrupted().state == "interrupted"
    assert seen.runs[1].as_object()["code"] is None


@pytest.mark.parametrize("data", [b"x", b"[]", b"{}", b'{"v":2,"runs":[]}', b'{"v":1,"runs":[1]}'])
def test_what_is_no_record_is_never_guessed_at(data: bytes) -> None:
    with pytest.raises(UnreadableRuns, match="incumbent zk get /k"):
        read_runs(data, "/k")


def test_a_retry_takes_the_place_of_the_run_that_was_interrupted() -> None:
    record = runs(run("1", "interrupted", "a")).put(run("1", "running", "b"))

    assert [each.nonce for each in record.runs] == ["b"]
    assert record.with_nonce("a") is None
    assert record.without("b").runs == []
