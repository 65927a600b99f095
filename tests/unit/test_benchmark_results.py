"""RESULTS.md: each question has a block of its own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.__main__ import APART, QUESTIONS
from benchmarks.results import Figure, Outcome, block, document

ORDER = QUESTIONS + APART
FACTS = [("cpu", "some"), ("date", "today")]


def measured(title: str, value: float) -> str:
    return block(Outcome(title=title, figures=[Figure(who="ours", samples=[value])]), FACTS)


def test_a_question_that_is_asked_alone_changes_no_other_block() -> None:
    before = document("", {name: measured(name, 1.0) for name in ORDER}, ORDER)

    after = document(before, {"recipes": measured("recipes", 2.0)}, ORDER)

    old, new = before.split("<!-- "), after.split("<!-- ")
    differing = [one[:7] for one, other in zip(old, new, strict=True) if one != other]
    assert differing == ["recipes"]
    assert "| ours | 2.00 ms |" in after


def test_a_question_that_was_never_asked_before_finds_its_place_in_their_order() -> None:
    before = document("", {"failover": measured("f", 1.0), "client": measured("c", 1.0)}, ORDER)

    after = document(before, {"recipes": measured("r", 1.0)}, ORDER)

    assert after.index("<!-- failover -->") < after.index("<!-- recipes -->")
    assert after.index("<!-- recipes -->") < after.index("<!-- client -->")


def test_the_file_as_it_stands_is_such_a_document() -> None:
    text = (Path(__file__).parents[2] / "benchmarks" / "RESULTS.md").read_text()

    assert document(text, {}, ORDER) == text
