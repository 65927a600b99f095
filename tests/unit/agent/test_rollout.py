"""A change reaches a component's copies a few at a time, and no further than it works."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.rollout import Copy, Rules, Step, Wanted, again, failed, look, target
from incumbent.agent.tree import Mark, Rollout, altered

OLD, NEW, NEWER = Mark(program="old"), Mark(program="new"), Mark(program="newer")
WANTED = Wanted(mark=NEW, zxid=20)
THREE = Rules(copies=3, max_parallel=1, auto_revert=False)
BACK = Rules(copies=3, max_parallel=1, auto_revert=True)
ONE = Rules(copies=1, max_parallel=1, auto_revert=False)


def copy(number: int, mark: Mark = OLD, *, is_up: bool = True) -> Copy:
    return Copy(number=number, mark=mark, is_up=is_up)


def under_way(**seats: str) -> Rollout:
    numbered = {key[1:]: state for key, state in seats.items()}
    return Rollout(new=NEW, good=OLD, zxid=20, at=1.0, seats=numbered)  # type: ignore[arg-type]


def stopped(**seats: str) -> Rollout:
    return altered(under_way(**seats), state="stopped", why="copy 0: exited with 1")


ROWS = [
    # (the record, the copy, rules) → (what is done, the state then, whose turn it is or was)
    ("nothing changed, no record", None, copy(0, NEW), THREE, ("keep", None, None)),
    ("a single copy needs no record", None, copy(0), ONE, ("change", None, None)),
    ("a change is begun first", None, copy(0), THREE, ("keep", "under way", {})),
    ("a turn is written down", under_way(), copy(0), THREE, ("keep", "under way", {"0": "going"})),
    (
        "then it is taken",
        under_way(_0="going"),
        copy(0),
        THREE,
        ("change", "under way", {"0": "going"}),
    ),
    (
        "the next one waits",
        under_way(_0="going"),
        copy(1),
        THREE,
        ("keep", "under way", {"0": "going"}),
    ),
    (
        "what runs is not yet up",
        under_way(_0="going"),
        copy(0, NEW, is_up=False),
        THREE,
        ("keep", "under way", {"0": "going"}),
    ),
    (
        "what is up lets the next one go",
        under_way(_0="going"),
        copy(0, NEW),
        THREE,
        ("keep", "under way", {"0": "up"}),
    ),
    (
        "the next one's turn",
        under_way(_0="up"),
        copy(1),
        THREE,
        ("keep", "under way", {"0": "up", "1": "going"}),
    ),
    (
        "when all are up it is done",
        under_way(_0="up", _1="up", _2="going"),
        copy(2, NEW),
        THREE,
        ("keep", "done", {"0": "up", "1": "up", "2": "up"}),
    ),
    (
        "one that went down again is waited for",
        under_way(_0="up"),
        copy(0, NEW, is_up=False),
        THREE,
        ("keep", "under way", {"0": "going"}),
    ),
    (
        "a copy that there is no more is not waited for",
        under_way(_7="going"),
        copy(1),
        THREE,
        ("keep", "under way", {"7": "going", "1": "going"}),
    ),
    (
        "in a stopped one nobody has a turn",
        stopped(_0="going"),
        copy(1),
        THREE,
        ("keep", "stopped", {"0": "going"}),
    ),
    (
        "nor one whose turn had just come",
        stopped(_0="going", _1="going"),
        copy(1),
        THREE,
        ("keep", "stopped", {"0": "going"}),
    ),
]


@pytest.mark.parametrize(
    ("record", "who", "rules", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_what_a_look_leads_to(
    record: Rollout | None,
    who: Copy,
    rules: Rules,
    expected: tuple[str, str | None, dict[str, str] | None],
) -> None:
    step = look(record, who, WANTED, rules, 5.0)

    after = step.record
    assert (step.do, after and after.state, None if after is None else after.seats) == expected


def test_an_agent_that_lags_behind_does_not_bring_the_older_change_back() -> None:
    step = look(under_way(), copy(1), Wanted(mark=NEWER, zxid=10), THREE, 5.0)

    assert (step.record, step.do) == (under_way(), "keep")
    assert "has yet to hear" in step.why


def test_a_newer_change_takes_over_and_counts_those_that_are_still_down() -> None:
    step = look(under_way(_0="up", _1="going"), copy(2), Wanted(mark=NEWER, zxid=30), THREE, 5.0)

    assert step.record is not None
    assert (step.record.new, step.record.good, step.record.seats) == (NEWER, OLD, {"1": "going"})
    assert [each.state for each in step.record.before] == ["replaced"]


def test_what_is_done_is_what_one_goes_back_to() -> None:
    done = altered(under_way(_0="up", _1="up", _2="up"), state="done")

    step = look(done, copy(0, NEW), Wanted(mark=NEWER, zxid=30), THREE, 5.0)

    assert step.record is not None and step.record.good == NEW


def test_the_first_failure_stops_it_and_is_named() -> None:
    step = failed(
        under_way(_0="going"), copy(0, NEW), "exit 1", WANTED, THREE, 5.0, can_revert=True
    )

    assert step.record is not None
    assert (step.do, step.record.state, step.record.why) == ("keep", "stopped", "copy 0: exit 1")


def test_with_auto_revert_it_goes_back_and_the_failure_is_the_changes() -> None:
    step = failed(
        under_way(_0="up", _1="going"), copy(1, NEW), "exit 1", WANTED, BACK, 5.0, can_revert=True
    )

    assert step.record is not None
    assert (step.do, step.record.state) == ("pardon", "reverted")
    assert step.record.seats == {"1": "going"}, "the one that is up waits for its turn"
    assert look(step.record, copy(0, NEW), WANTED, BACK, 6.0).why.endswith("after copy 1")


@pytest.mark.parametrize(
    "record",
    [altered(under_way(_0="going"), good=None), altered(under_way(_0="going"), good=NEW)],
    ids=["unknown", "the same"],
)
def test_where_there_is_nothing_to_go_back_to_it_stops(record: Rollout) -> None:
    step = failed(record, copy(0, NEW), "exit 1", WANTED, BACK, 5.0, can_revert=True)

    assert step.record is not None and step.record.state == "stopped"


def test_a_failure_of_what_ran_before_is_none_of_its_business() -> None:
    record = under_way(_0="going")

    step = failed(record, copy(1, OLD), "exit 1", WANTED, THREE, 5.0, can_revert=True)

    assert step == Step(record=record)


@pytest.mark.parametrize(
    ("record", "number", "expected"),
    [
        (None, 0, NEW),
        (under_way(), 0, NEW),
        (stopped(_0="going"), 0, NEW),
        (stopped(_0="going"), 1, OLD),
        (altered(stopped(_0="going"), good=None), 1, NEW),
        (altered(stopped(), state="reverted"), 0, OLD),
        (altered(stopped(), state="reverted", new=NEWER), 0, NEW),
    ],
    ids=[
        "no record",
        "under way",
        "stopped, had its turn",
        "stopped, had none",
        "stopped, nothing else known",
        "reverted",
        "of an earlier change",
    ],
)
def test_what_a_copy_that_is_down_is_started_with(
    record: Rollout | None, number: int, expected: Mark
) -> None:
    assert target(record, number, NEW, THREE) == expected


def test_retry_goes_on_with_what_has_failed() -> None:
    retried = again(stopped(_0="going"))

    assert retried is not None
    assert (retried.state, retried.why) == ("under way", "")
    assert again(under_way()) == under_way()


def test_what_is_down_when_it_is_tried_again_counts_on() -> None:
    retried = again(stopped(_0="going", _1="up"))

    step = look(retried, copy(2), WANTED, THREE, 5.0)

    assert step == Step(record=retried, why="waits for its turn in the roll-out, after copy 0")


def test_with_fewer_copies_it_is_done_when_those_are_up() -> None:
    two = Rules(copies=2, max_parallel=1, auto_revert=True)

    step = look(under_way(_0="up", _1="up", _2="going"), copy(0, NEW), WANTED, two, 5.0)

    assert step.record is not None and step.record.state == "done"


# ── any order of events


@dataclass
class Play:
    """Copies, each led by somebody who looks when it is its turn to."""

    rules: Rules
    bad: bool
    record: Rollout | None = None
    wanted: Wanted = field(default_factory=lambda: Wanted(mark=OLD, zxid=1))
    runs: list[Mark] = field(default_factory=list)
    up: list[bool] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    """Copies that are down because they were changed."""

    def __post_init__(self) -> None:
        self.runs = [OLD] * self.rules.copies
        self.up = [True] * self.rules.copies

    def fails(self, mark: Mark) -> bool:
        return self.bad and mark == NEW

    def look(self, number: int) -> None:
        who = Copy(number=number, mark=self.runs[number], is_up=self.up[number])
        step = look(self.record, who, self.wanted, self.rules, 1.0)
        assert step.do == "keep" or step.record == self.record, "acted before it was written"
        self.record = step.record
        if step.do == "change":
            was_up = self.up[number]
            self.begin(number)
            if was_up:
                self.taken.add(number)
            assert len(self.taken) <= self.rules.max_parallel

    def begin(self, number: int) -> None:
        self.runs[number] = target(self.record, number, self.wanted.mark, self.rules)
        self.up[number] = False

    def settle(self, number: int) -> None:
        """What was started is up, or has failed and is started again."""
        if self.up[number]:
            return
        if not self.fails(self.runs[number]):
            self.up[number] = True
            self.taken.discard(number)
            return
        who = Copy(number=number, mark=self.runs[number], is_up=False)
        step = failed(self.record, who, "bad", self.wanted, self.rules, 1.0, can_revert=True)
        self.record = step.record
        self.begin(number)

    def crash(self, number: int) -> None:
        """Its node dies: another one starts it, with whatever is the target."""
        self.taken.discard(number)
        self.begin(number)

    def retry(self, _number: int) -> None:
        self.record = again(self.record)

    def rest(self) -> None:
        for _ in range(12 * self.rules.copies):
            for number in range(self.rules.copies):
                self.look(number)
                self.settle(number)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "settle", "settle", "crash", "change", "retry"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(1, 3), st.booleans(), st.booleans())
def test_never_more_are_taken_down_and_all_end_with_the_last_change_or_what_was_before(
    events: list[tuple[str, int]], most: int, is_bad: bool, reverts: bool
) -> None:
    play = Play(rules=Rules(copies=5, max_parallel=most, auto_revert=reverts), bad=is_bad)
    marks = [NEW, NEWER, OLD, NEW]
    for event, number in events:
        if event == "change":
            zxid = play.wanted.zxid + 1
            play.wanted = Wanted(mark=marks[zxid % len(marks)], zxid=zxid)
        else:
            getattr(play, event)(number)
    if play.wanted.mark == OLD:
        play.wanted = Wanted(mark=NEW, zxid=play.wanted.zxid + 1)

    play.rest()

    if not play.fails(play.wanted.mark):
        assert play.runs == [play.wanted.mark] * 5 and all(play.up)
        assert play.record is None or play.record.state == "done"
    elif reverts and play.record is not None and play.record.state == "reverted":
        assert play.runs == [play.record.good] * 5 and all(play.up)
    else:
        assert play.record is not None and play.record.state == "stopped"
