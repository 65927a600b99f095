"""Configuration that changes takes effect once, soon, and whole."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.settling import Settling, due_at, look

OLD = {"LEVEL": "1"}


def settled() -> Settling:
    return Settling(in_effect=OLD, seen=OLD)


def test_nothing_changed_is_never_due() -> None:
    assert due_at(settled(), 5.0, 60.0) == math.inf


def test_it_takes_effect_a_pause_after_the_last_change() -> None:
    changed = look(look(settled(), {"LEVEL": "2"}, 100.0), {"LEVEL": "3"}, 103.0)

    assert due_at(changed, 5.0, 60.0) == 108.0


def test_changes_without_end_do_not_put_it_off_for_ever() -> None:
    changed = settled()
    for second in range(100):
        changed = look(changed, {"LEVEL": str(second + 2)}, 100.0 + second)

    assert due_at(changed, 5.0, 60.0) == 160.0


def test_what_was_changed_back_is_no_change() -> None:
    assert look(look(settled(), {"LEVEL": "2"}, 1.0), OLD, 2.0) == settled()


CHANGES = st.lists(st.tuples(st.floats(0.0, 9.0), st.sampled_from("1234")), max_size=30)


@given(CHANGES, st.floats(0.01, 10.0), st.floats(10.0, 60.0))
def test_everybody_ends_with_the_last_and_never_later_than_the_bound(
    changes: list[tuple[float, str]], debounce: float, most: float
) -> None:
    now, effects, settling = 100.0, 0, settled()
    waited_since = math.inf
    for pause, value in [*changes, (0.0, "final")]:
        until = now + pause
        while (due := due_at(settling, debounce, most)) <= until:
            assert due - waited_since <= most + 1e-9
            now, effects, waited_since = max(now, due), effects + 1, math.inf
            settling = Settling(in_effect=settling.seen, seen=settling.seen)
        now = until
        settling = look(settling, {"LEVEL": value}, now)
        if settling.seen != settling.in_effect:
            waited_since = min(waited_since, now)
        else:
            waited_since = math.inf

    assert due_at(settling, debounce, most) < math.inf
    assert settling.seen == {"LEVEL": "final"}
    assert effects <= sum(pause for pause, _ in changes) / max(debounce, 1e-9) + 1
