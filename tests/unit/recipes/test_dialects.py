"""Names of contenders: who is before whom, who is one at all, and what is refused."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.errors import MixedDialects, QueueExhausted
from incumbent.recipes.dialects import LAST_SEQUENCE, OURS, Dialect, detect, dialect

KAZOO = re.compile(r"(?:__lock__)(-?\d{10})$")  # kazoo 2.11, Lock._contenders_re
CURATOR = "_c_2b5a2e0c-94b3-4f0e-a1a2-0f4c7a2b9f11-lock-0000000003"
WORDS = {
    "curator-lock": ("lock-",),
    "curator-latch": ("latch-",),
    "curator-rw": ("__READ__", "__WRIT__"),
}
CURATORS = [dialect(each) for each in WORDS]


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
        ([CURATOR], "curator-lock"),
        ([CURATOR.replace("lock-", "latch-")], "curator-latch"),
        ([CURATOR.replace("lock-", "__READ__")], "curator-rw"),
        (["_c_9f8e7d6c5b4a39281706f5e4d3c2b1a0-lock-0000000003"], "curator-lock"),
    ],
)
def test_the_dialect_is_that_of_those_who_stand_there(children: list[str], expected: str) -> None:
    assert str(detect("/e", children)) == expected


@pytest.mark.parametrize(
    ("children", "named"),
    [
        (["_c_0-node_0000000003"], "_c_0-node_0000000003"),
        ([CURATOR, "a__lock__0000000001"], "a__lock__0000000001"),
        ([CURATOR, CURATOR.replace("lock-", "latch-")], CURATOR),
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


@pytest.mark.parametrize("text", ["", "plain", "plain:", "plain:a/b", "curator", "curator-lock:"])
def test_a_name_that_is_no_dialect_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="plain:node_"):
        dialect(text)


@given(st.text("abc_-", min_size=1))
def test_a_dialects_name_reads_back(prefix: str) -> None:
    assert dialect(str(Dialect("plain", prefix))) == Dialect("plain", prefix)
    for each in (OURS, *CURATORS):
        assert dialect(str(each)) == each


def as_curator(name: str, words: tuple[str, ...]) -> str:
    """What Curator 5.4 compares as text: what follows the last of its words, else all of it."""
    for word in words:
        at = name.rfind(word)
        name = name[at + len(word) :] if at >= 0 else name
    return name


@given(st.lists(st.tuples(st.uuids(), st.booleans(), st.integers(0, 2**31 - 1))), st.data())
def test_curator_sees_the_same_contenders_in_the_same_order(
    made: list[tuple[UUID, bool, int]], data: st.DataObject
) -> None:
    spoken = data.draw(st.sampled_from(CURATORS))
    words = WORDS[str(spoken)]
    children = list(
        {
            n: f"_c_{uuid}-{words[0 if reads and spoken.has_readers else -1]}{n:010d}"
            for uuid, reads, n in made
        }.values()
    )

    ranked = spoken.rank("/q", children)

    assert names(ranked) == sorted(children, key=lambda name: as_curator(name, words))
    assert [c.is_reader for c in ranked] == ["__READ__" in c.name for c in ranked]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), st.booleans())
def test_our_name_among_curators_is_one_of_theirs(session: int, nonce: int, reads: bool) -> None:
    for spoken in CURATORS:
        stem = spoken.stem(session, f"{nonce:016x}", is_reader=reads and spoken.has_readers)

        assert stem.startswith("_c_")
        assert stem[39] == "-"  # as ProtectedUtils looks for it
        assert UUID(stem[3:39]).int == ((session & (2**64 - 1)) << 64) + nonce
        contender = spoken.contender(f"{stem}0000000007")
        assert contender is not None
        assert (contender.sequence, contender.is_reader) == (7, reads and spoken.has_readers)
        assert detect("/q", [f"{stem}0000000007"]) == spoken


@pytest.mark.parametrize("other", ["config", "a__lock__0000000001", "x-lock-0000000001", "lock-1"])
def test_curator_counts_every_child_so_any_other_one_is_named(other: str) -> None:
    with pytest.raises(MixedDialects, match=other):
        dialect("curator-lock").rank("/q", [CURATOR, other])


def test_only_ours_and_curators_read_write_lock_tell_readers() -> None:
    assert [str(d) for d in (OURS, *CURATORS, Dialect("plain", "n_")) if d.has_readers] == [
        "ours",
        "curator-rw",
    ]


def test_a_reader_is_kept_out_by_writers_alone_and_a_writer_by_all() -> None:
    reader, writer = OURS.rank("/q", ["a__rlock__0000000001", "b__lock__0000000002"])

    assert not reader.keeps_out(a_reader=True)
    assert reader.keeps_out(a_reader=False)
    assert writer.keeps_out(a_reader=True)
    assert writer.keeps_out(a_reader=False)
