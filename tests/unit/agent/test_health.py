"""The verdict on a program's health: a function of what was told and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent import health as h
from incumbent.agent.health import Health
from incumbent.guardian.messages import Told
from incumbent.spec import Check

ASKED = Check(way="http", target="http://x", interval=2.0, timeout=1.0, failures=3)
WATCHDOG = Check(way="notify", interval=5.0, timeout=1.0)
READY = Check(way="notify", interval=1.0, timeout=1.0, within=10.0)
READY_ASKED = Check(way="tcp", target="x:1", interval=1.0, timeout=1.0, within=10.0)


def begun(ready: Check | None = None, live: Check | None = None, **more: Any) -> Health:
    return h.begin(ready, live, 3.0, 100.0, **more)


def say(health: Health, now: float = 100.0, **said: Any) -> Health:
    return h.told(health, Told(seat="web/0", epoch=1, **said), now)


def ask(health: Health, *problems: str, at: float = 101.0) -> Health:
    for problem in problems:
        check = h.what_to_ask(health)
        assert check is not None
        health = h.checked(health, check, problem, at)
    return health


def test_running_is_not_ready_until_the_program_says_so() -> None:
    health = begun(READY)

    before, after = h.verdict(health, 101.0), h.verdict(say(health, ready=True), 101.0)

    assert (before.state, before.why, before.until) == ("running", "not ready yet", 110.0)
    assert (after.state, after.why) == ("ready", "")


def test_without_a_ready_check_it_is_running_and_up() -> None:
    assert h.verdict(begun(), 1e9).state == "running"
    assert begun().is_ready


def test_not_ready_in_time_is_a_failure_with_its_newest_reason() -> None:
    health = ask(begun(READY_ASKED), "x:1: connection refused")

    assert h.verdict(health, 109.9).why == "not ready yet: x:1: connection refused"
    assert h.verdict(health, 110.0).failed == "not ready within 10 s: x:1: connection refused"


def test_more_time_can_be_asked_for_before_it_is_ready() -> None:
    health = say(begun(READY), 109.0, extend=5.0)

    assert not h.verdict(health, 113.9).failed
    assert h.verdict(health, 114.0).failed == "not ready within 14 s"


def test_only_noes_in_a_row_are_a_failure() -> None:
    two = ask(begun(live=ASKED), "no", "no")

    assert h.verdict(two, 101.0).why == "2 of 3 checks failed: no"
    assert h.verdict(ask(two, "", "no", "no"), 101.0).failed == ""
    assert h.verdict(ask(two, "no"), 101.0).failed == "3 checks in a row failed: no"


def test_a_silent_watchdog_is_a_failure_and_a_word_puts_it_off() -> None:
    health = begun(live=WATCHDOG)

    assert h.verdict(health, 104.9).until == 105.0
    assert h.verdict(health, 105.0).failed == "no WATCHDOG=1 for 5 s"
    assert not h.verdict(say(health, 104.0, alive=True), 108.9).failed


def test_a_program_stopped_by_a_signal_is_seen_though_the_kernel_accepts_for_it() -> None:
    frozen = say(begun(live=ASKED), frozen=True)

    assert "stopped by a signal" in h.verdict(say(begun(), frozen=True), 101.0).why
    assert "stopped by a signal" in h.verdict(ask(frozen, "", "", ""), 101.0).failed
    assert not h.verdict(ask(say(frozen, frozen=False), "", "", ""), 101.0).failed


def test_whoever_says_that_it_hangs_is_believed() -> None:
    assert "WATCHDOG=trigger" in h.verdict(say(begun(), hung=True), 100.0).failed


def test_one_that_is_about_to_end_is_not_asked_and_has_its_grace() -> None:
    health = say(begun(live=ASKED), stopping=True)

    assert h.what_to_ask(health) is None
    assert h.verdict(health, 102.9).state == "stopping"
    assert "STOPPING=1" in h.verdict(health, 103.0).failed


def test_a_respawned_agent_takes_no_ready_program_for_a_late_one() -> None:
    health = begun(READY, WATCHDOG, was_ready=True)

    assert h.verdict(health, 104.0).state == "ready"
    assert not h.verdict(health, 104.0).failed


def test_an_answer_to_what_is_asked_no_more_says_nothing() -> None:
    health = ask(begun(READY_ASKED, ASKED), "")

    assert h.checked(health, READY_ASKED, "late no", 102.0) == health


def test_time_that_we_slept_through_counts_against_nobody() -> None:
    health = h.slept(begun(READY, WATCHDOG), 600.0)

    assert not h.verdict(health, 705.0).failed
    assert not h.verdict(h.slept(begun(live=WATCHDOG), 600.0), 704.0).failed


EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),
        st.sampled_from(["yes", "no", "ready", "alive", "extend", "frozen", "thawed", "stopping"]),
    ),
    max_size=40,
)
CHECKS = st.tuples(
    st.sampled_from([None, READY, READY_ASKED]), st.sampled_from([None, ASKED, WATCHDOG])
)


@given(CHECKS, EVENTS)
def test_whatever_happens_the_rules_hold(
    checks: tuple[Check | None, Check | None], events: list[tuple[float, str]]
) -> None:
    now, health = 100.0, begun(*checks)
    noes = 0
    for pause, event in events:
        now += pause
        check = h.what_to_ask(health)
        if event in ("yes", "no") and check is not None:
            is_live = health.is_ready
            health = h.checked(health, check, "" if event == "yes" else "no", now)
            noes = noes + 1 if is_live and (event == "no" or health.is_frozen) else 0
        elif event in ("ready", "alive", "stopping"):
            health = say(health, now, **{event: True})
        elif event == "extend":
            health = say(health, now, extend=1.0)
        elif event in ("frozen", "thawed"):
            health = say(health, now, frozen=event == "frozen")

        verdict = h.verdict(health, now)

        assert verdict.failed or verdict.until > now, "a verdict that holds until the past"
        if verdict.state == "ready":
            assert checks[0] is not None and health.ready_at is not None
        if checks[1] is ASKED and noes >= 3 and health.stopping_at is None:
            assert verdict.failed, "three noes in a row"
        if verdict.failed and health.is_ready and checks[1] is ASKED:
            assert noes >= 3 or health.stopping_at is not None
        if not verdict.failed and verdict.until < 1e9:
            assert h.verdict(health, verdict.until).failed, "it said until when it holds"


@pytest.mark.parametrize("failures", [1, 3])
def test_a_hang_is_noticed_within_interval_times_failures_and_one_timeout(failures: int) -> None:
    """Asked at its interval, right after a yes; each no takes the whole timeout."""
    check = Check(way="tcp", target="x:1", interval=2.0, timeout=1.5, failures=failures)
    health, now, hung_at = begun(live=check), 100.0, 100.0
    while not h.verdict(health, now).failed:
        now += 2.0
        health = h.checked(health, check, "no answer", now + 1.5)

    assert now + 1.5 - hung_at <= check.budget
