"""A seed that fails leaves its schedule, a page with its timeline, and can be made small."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.election import Election
from tests.simulation.shrink import kind_of_failure

from incumbent.testing.faults import Fault
from incumbent.testing.shrink import shrink


class Blamed(Election):
    """Every crash of n1 is taken for a failure."""

    async def progress(self) -> None:
        if any(lane == "n1" and label == "crash" for _, lane, label, _ in self.world.marks):
            self.blame("blamed: n1 crashed")


FAULTS = [
    Fault(at=1.0, kind="cut", a="n2", b="zk", lasts=3.0),
    Fault(at=2.0, kind="crash", a="n1", lasts=4.0),
    Fault(at=3.0, kind="freeze", a="n3", lasts=1.0),
]


def test_a_failing_seed_writes_its_timeline_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELINES", str(tmp_path))

    with pytest.raises(AssertionError, match="n1 crashed") as failed:
        Blamed(5, faults=FAULTS).run()

    page = (tmp_path / "election-5.html").read_text()
    assert str(tmp_path / "election-5.html") in "".join(failed.value.__notes__)
    assert "blamed: n1 crashed" in page
    assert "lease of 0x" in page
    assert "crash: 2.000 to 6.000 s" in page
    assert "crash n1 for 4.000 s" in "".join(failed.value.__notes__)


def test_a_failing_schedule_shrinks_to_the_fault_that_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIMELINES", "0")

    def fails(some: list[Fault]) -> bool:
        try:
            Blamed(5, faults=some).run()
        except AssertionError:
            return True
        return False

    small = shrink(FAULTS, fails)

    assert [(fault.kind, fault.a) for fault in small] == [("crash", "n1")]


def test_a_seed_that_does_not_fail_has_no_kind_of_failure() -> None:
    assert kind_of_failure("election", 5, (), FAULTS) is None
