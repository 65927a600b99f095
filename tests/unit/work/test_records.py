"""Names of items, their records, and what follows from a record."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.errors import MalformedValue
from incumbent.wire.paths import problem
from incumbent.work.records import (
    MAX_ITEM,
    Record,
    Standing,
    encode,
    key_of,
    read_record,
    record_path,
    stand,
)

ITEMS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=1000).filter(
    lambda item: len(item.encode()) <= MAX_ITEM
)


@given(ITEMS)
def test_any_text_names_a_znode_and_comes_back(item: str) -> None:
    path = record_path("/work", item)
    name = encode(item)

    assert problem(path) is None
    assert len(name) <= 100
    assert read_record(path, Record(item=item).write(name)).item == item


@given(ITEMS, ITEMS)
def test_no_two_items_share_a_name(one: str, two: str) -> None:
    assert (encode(one) == encode(two)) == (one == two)


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("4711", "4711"),
        ("2026-11-28_a.b", "2026-11-28_a.b"),
        ("..", "%2E."),
        ("a/b c", "a%2Fb%20c"),
        ("%2F", "%252F"),
        ("~x", "%7Ex"),
        ("é", "%C3%A9"),
        ("x" * 100, "x" * 100),
    ],
)
def test_what_is_plain_stays_readable(item: str, name: str) -> None:
    assert encode(item) == name


def test_a_long_name_is_its_hash() -> None:
    assert re.fullmatch("~[0-9a-f]{64}", encode("x" * 101))


@pytest.mark.parametrize("item", ["", "x" * (MAX_ITEM + 1), "\ud800"])
def test_what_has_no_name_is_refused(item: str) -> None:
    with pytest.raises(ValueError, match="an item's name"):
        encode(item)


def test_a_key_is_the_path_s_and_the_item_s_alone() -> None:
    assert key_of("/a", "b") == key_of("/a", "b")
    assert len({key_of("/a", "b"), key_of("/a/b", ""), key_of("/a", "c"), key_of("/b", "b")}) == 4
    assert re.fullmatch("[0-9a-f]{32}", key_of("/a", "b"))


@pytest.mark.parametrize(
    ("record", "is_claimed", "standing"),
    [
        (None, False, Standing.FREE),
        (Record(item="x"), False, Standing.FREE),
        (Record(item="x"), True, Standing.CLAIMED),
        (Record(item="x", state="done"), False, Standing.DONE),
        (Record(item="x", state="parked"), False, Standing.PARKED),
        (Record(item="x", not_before=11.0, wait=5.0), False, Standing.WAITING),
        (Record(item="x", not_before=10.0, wait=5.0), False, Standing.FREE),
        (Record(item="x", not_before=3610.0, wait=5.0), False, Standing.FREE),
        (Record(item="x", not_before=11.0, wait=5.0), True, Standing.CLAIMED),
    ],
)
def test_how_it_stands(record: Record | None, is_claimed: bool, standing: Standing) -> None:
    assert stand(record, is_claimed=is_claimed, now=10.0) is standing


def test_a_try_without_an_end_is_a_death() -> None:
    record = Record(item="x").begun().begun()

    assert record.deaths == 2
    assert record.failed("why").deaths == 1
    assert record.not_begun().deaths == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"v":2,"state":"open"}',
        b'{"v":1,"state":"gone"}',
        b'{"v":1,"state":"open","tries":"x"}',
        b"\xff",
    ],
)
def test_what_is_no_record_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(MalformedValue, match="a record of work"):
        read_record("/w/00/x", data)


def test_unknown_keys_are_passed_over() -> None:
    assert read_record("/w/00/x", b'{"v":1,"state":"open","new":1}\nload').payload == b"load"
