"""A queue's line against what is really there: listings that arrive late, events meanwhile."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from incumbent.recipes.line import MOST_LOSSES, Line, number_of, stem_of
from incumbent.wire import EventType, KeeperState, WatchEvent

NAMES = [
    f"{stem_of(priority, f'{number:016x}')}{number:010d}"
    for number, priority in enumerate((5, 1, 5, 0, 999, 1))
]

STEPS = st.lists(
    st.one_of(
        st.sampled_from(NAMES), st.sampled_from(["ask", "answer", "deliver", "read", "edit"])
    ),
    max_size=60,
)


def event(name: str, kind: EventType) -> WatchEvent:
    return WatchEvent(kind, KeeperState.CONNECTED, f"/q/{name}")


@settings(max_examples=300)
@given(STEPS)
def test_it_ends_as_the_server_does_whatever_came_in_between(steps: list[str]) -> None:
    """One connection carries events and answers in the order of what they tell; but events are
    heard at once, an answer is read when its task has its turn."""
    line, there = Line("/q"), set[str]()
    sent: list[WatchEvent | list[str]] = []
    line.begin()
    line.listed([])
    unread: list[list[str]] = []
    is_asked = is_answered = False

    def deliver() -> None:
        told = sent.pop(0)
        if isinstance(told, list):
            unread.append(told)
        else:
            assert line.heard(told)

    for step in steps:
        if step in NAMES:
            there ^= {step}
            sent.append(event(step, EventType.CREATED if step in there else EventType.DELETED))
        elif step == "ask" and not is_asked:
            line.begin()
            is_asked, is_answered = True, False
        elif step == "answer" and is_asked and not is_answered:
            sent.append(["notes", *sorted(there)])
            is_answered = True
        elif step == "read" and unread:
            line.listed(unread.pop())
            is_asked = False
        elif step == "edit":
            sent += [event(name, EventType.CHANGED) for name in sorted(there)[:1]]
        elif step == "deliver" and sent:
            deliver()
    while sent:
        deliver()
    if unread:
        line.listed(unread.pop())

    taken = []
    while name := line.choose(0, lambda n: 0):
        taken.append(name)
        line.remove(name)
    assert taken == sorted(there, key=lambda name: (int(name[5:8]), number_of(name)))


@given(st.integers(0, MOST_LOSSES), st.integers(0, 40), st.data())
def test_who_lost_races_takes_one_of_the_first_few(
    losses: int, number: int, data: st.DataObject
) -> None:
    line = Line("/q")
    names = [f"{stem_of(100, f'{k:016x}')}{k:010d}" for k in range(number)]
    line.begin()
    line.listed(reversed(names))

    last = names[-1] if names else ""
    chosen = line.choose(losses, lambda n: data.draw(st.integers(0, n - 1)), without=last)

    assert chosen in names[: 1 << losses] if number > 1 else chosen is None


def test_one_who_only_listens_keeps_no_more_than_there_is() -> None:
    line = Line("/q")
    for number in range(10_000):
        name = f"{stem_of(100, f'{number:016x}')}{number:010d}"
        line.heard(event(name, EventType.CREATED))
        line.heard(event(name, EventType.DELETED))

    assert len(line) == 0
    assert len(line._heap) < 100
