"""Names of contenders: who is before whom, who is one at all, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.errors import MixedDialects, QueueExhausted
from incumbent.recipes.dialects import LAST_SEQUENCE, OURS, Dialect, detect, dialect

KAZOO = re.compile(r"(?:__lock__)(-?\d{10})$")  # kazoo 2.11, Lock._contenders_re
CURATOR = "_c_2b5a2e0c-94b3-4f0e-a1a2-0f4c7a2b9f11-lock-0000000003"


def names(contenders: object) -> list[str]:
    return [c.name for c in contenders]  # type: ignore[attr-defined]


def test_order_is_by_the_ten_digits_whatever_stands_before_them() -> None:
    children = ["zz__lock__0000000001", "aa__lock__0000000003", "mm__rlock__0000000002"]

    ranked = OURS.rank("/q", children)

    assert names(ranked) == [
        "zz__lock__0000000001",
        "mm__rlock__0000000002",
        "aa__lock__0000000003",
    ]


def test_our_name_begins_with_the_session_and_ends_as_kazoo_wants_it() -> None:
    stem = OURS.stem(-1, "00ab")

    assert stem == "ffffffffffffffff-00ab__lock__"
    assert KAZOO.search(stem + "0000000007")


@given(st.lists(st.tuples(st.text("abcdef0123456789-", min_size=1), st.integers(0, 2**31 - 1))))
def test_kazoo_sees_the_same_contenders_in_the_same_order(made: list[tuple[str, int]]) -> None:
    sequences = {n: text for text, n in made}
    children = [f"{text}__lock__{n:010d}" for n, text in sequences.items()]

    ranked = OURS.rank("/q", children)

    as_kazoo = sorted((m for c in children if (m := KAZOO.search(c))), key=lambda m: m.groups())
    assert names(ranked) == [m.string for m in as_kazoo]


@pytest.mark.parametrize(
    "child",
    [CURATOR, "node_0000000001", "0000000001", "a__lock__00000000012", "entry-100-0000000001"],
)
def test_a_sequential_name_of_another_dialect_is_named(child: str) -> None:
    with pytest.raises(MixedDialects, match=child):
        OURS.rank("/q", ["a__lock__0000000000", child])


def test_a_name_that_is_not_sequential_is_passed_over_as_kazoo_does() -> None:
    assert names(OURS.rank("/q", ["config", "a__lock__0000000000"])) == ["a__lock__0000000000"]


def test_a_plain_directory_has_nothing_but_its_prefix_and_ten_digits() -> None:
    plain = dialect("plain:node_")

    assert names(plain.rank("/e", ["node_0000000010", "node_0000000009"])) == [
        "node_0000000009",
        "node_0000000010",
    ]
    for other in ("config", "node_1", "xnode_0000000001", "a__lock__0000000001"):
        with pytest.raises(MixedDialects, match=other):
            plain.rank("/e", ["node_0000000009", other])


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([], "ours"),
        (["config"], "ours"),
        (["a__lock__0000000001", "b__rlock__0000000002"], "ours"),
        (["node_0000000001", "node_0000000002"], "plain:node_"),
        (["n_0000000001"], "plain:n_"),
        (["config", "n_0000000001"], "plain:n_"),
    ],
)
def test_the_dialect_is_that_of_those_who_stand_there(children: list[str], expected: str) -> None:
    assert str(detect("/e", children)) == expected


@pytest.mark.parametrize(
    ("children", "named"),
    [
        ([CURATOR], CURATOR),
        (["guid1-lock-0000000001"], "guid1-lock-0000000001"),
        (["0000000001"], "0000000001"),
        (["node_0000000001", "n_0000000002"], "node_0000000001"),
        (["a__lock__0000000001", "node_0000000002"], "node_0000000002"),
    ],
)
def test_a_dialect_that_is_not_certain_is_not_guessed(children: list[str], named: str) -> None:
    with pytest.raises(MixedDialects, match=named):
        detect("/e", children)


@pytest.mark.parametrize("sequence", [LAST_SEQUENCE, 2**31 - 1, -2147483648])
def test_nobody_is_let_in_near_the_counters_end(sequence: int) -> None:
    with pytest.raises(QueueExhausted, match=str(sequence)):
        OURS.admit("/q", f"a__lock__{sequence:010d}")


def test_a_counter_that_has_wrapped_gives_no_order() -> None:
    with pytest.raises(QueueExhausted):
        OURS.rank("/q", ["a__lock__-2147483648", "b__lock__0000000001"])


@pytest.mark.parametrize("text", ["", "plain", "plain:", "plain:a/b", "curator-lock"])
def test_a_name_that_is_no_dialect_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="plain:node_"):
        dialect(text)


@given(st.text("abc_-", min_size=1))
def test_a_dialects_name_reads_back(prefix: str) -> None:
    assert dialect(str(Dialect(prefix))) == Dialect(prefix)
    assert dialect(str(OURS)) == OURS
