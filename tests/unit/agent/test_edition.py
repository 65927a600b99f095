"""What an instance is started with can be put together again from what operators wrote before."""

from __future__ import annotations

import pytest

from incumbent.agent.edition import Edition, current, earlier_one
from incumbent.spec import Spec, decode, earlier, is_same, program, stored
from incumbent.spec.config import Use

USES = {"LEVEL": Use(key="web.level"), "RULES": Use(key="web.rules", file=True)}


def spec(word: str = "a", **more: object) -> Spec:
    return Spec(name="web", command=("web", word), config=USES, **more)  # type: ignore[arg-type]


def edition(of: Spec, level: str = "1", rules: str = "r") -> Edition:
    return current(of, program(of), {"web.level": level, "web.rules": rules, "other": "x"})


VALUES = {"web.level": ["3", "2", "1"], "web.rules": ["r"]}


def test_an_earlier_one_is_made_of_an_earlier_spec_and_earlier_values() -> None:
    before = edition(spec("a"))

    found = earlier_one(before.mark, spec("c"), [spec("b"), spec("a")], VALUES)

    assert found is not None
    assert (found.mark, found.values) == (before.mark, before.values)


def test_what_is_not_of_the_program_stays_as_it_is_now() -> None:
    found = earlier_one(edition(spec("a")).mark, spec("b", copies=5), [spec("a")], VALUES)

    assert found is not None and (found.spec.command[1], found.spec.copies) == ("a", 5)


@pytest.mark.parametrize(
    ("before", "values"),
    [([], VALUES), ([spec("a")], {"web.level": ["3"], "web.rules": ["r"]})],
    ids=["the spec", "a value"],
)
def test_what_is_not_kept_cannot_be_gone_back_to(
    before: list[Spec], values: dict[str, list[str]]
) -> None:
    assert earlier_one(edition(spec("a")).mark, spec("b"), before, values) is None


def test_values_that_change_nothing_are_no_part_of_the_mark() -> None:
    one, other = (edition(spec(on_config="none"), level=level) for level in "12")

    assert one.mark == other.mark and one.digests != other.digests


def test_a_key_that_is_not_set_is_named() -> None:
    assert current(spec(), "", {"web.level": "1"}).unset == "web.rules"


def test_a_component_keeps_the_specs_that_it_had_newest_first_and_each_once() -> None:
    data = b""
    for word in "aabcaddefgh":
        data = stored(spec(word), data)

    assert decode(data, "").command[1] == "h"
    assert [each.command[1] for each in earlier(data)] == list("gfeda")


def test_it_is_the_same_whatever_it_had_before() -> None:
    data = stored(spec("b"), stored(spec("a")))

    assert is_same(data, spec("b")) and not is_same(data, spec("a"))
    assert not is_same(b"", spec("a")) and not is_same(b"{", spec("a"))


def test_a_change_of_what_is_not_the_program_is_nothing_to_go_back_to() -> None:
    assert earlier(stored(spec("a", copies=3), stored(spec("a")))) == []


def test_earlier_specs_never_make_a_spec_too_large_to_be_written() -> None:
    data = b""
    for n in range(6):
        data = stored(spec(f"{n}" * 50_000), data)
        assert len(data) <= 128 * 1024
    assert [each.command[1][0] for each in earlier(data)] == ["4"]
    assert earlier(stored(spec("b" * 200_000), data)) == []
