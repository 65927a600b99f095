"""A page of what happened; and a schedule made small."""

from __future__ import annotations

import random

import pytest

from incumbent.testing.disks import SimDisk
from incumbent.testing.faults import Fault
from incumbent.testing.shrink import shrink
from incumbent.testing.timeline import Timeline


def test_a_timeline_is_one_page_with_a_lane_for_each_host() -> None:
    timeline = Timeline("a <title>", lanes=["n1", "n2"])
    timeline.bar("n2", 1.0, 4.0, "leads", "held")
    timeline.bar("n2", 2.0, 3.0, "lease")
    timeline.mark("n3", 2.5, "crash & reset", "down")

    page = timeline.html(why="overlap", lines=[(2.5, "n3", "<gone>")])

    assert page.startswith("<!doctype html>")
    assert [name for name in ("n1", "n2", "n3") if f">{name}</text>" in page] == ["n1", "n2", "n3"]
    assert "leads: 1.000 to 4.000 s" in page
    assert "crash &amp; reset: 2.500000 s" in page
    assert "a &lt;title&gt;" in page
    assert "&lt;gone&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_bars_that_overlap_are_drawn_below_each_other() -> None:
    timeline = Timeline("")
    for start in (0.0, 1.0, 5.0):
        timeline.bar("n1", start, start + 2.0, "b")

    page = timeline.html()

    assert page.count('y="29"') == 2
    assert page.count('y="46"') == 1


def test_a_schedule_shrinks_to_the_two_faults_that_matter() -> None:
    faults = [Fault(at=float(n), kind="cut", a=f"n{n}", lasts=4.0) for n in range(40)]

    def fails(some: list[Fault]) -> bool:
        return {"n7", "n31"} <= {f.a for f in some if f.lasts >= 2.0}

    small = shrink(faults, fails)

    assert [(f.a, f.lasts) for f in small] == [("n7", 2.0), ("n31", 2.0)]


def test_shrinking_ends_after_so_many_runs_with_what_was_seen_to_fail() -> None:
    faults = [Fault(at=float(n), kind="cut", a="n1") for n in range(64)]
    runs = 0

    def fails(some: list[Fault]) -> bool:
        nonlocal runs
        runs += 1
        return len(some) >= 8

    small = shrink(faults, fails, most=10)

    assert runs == 10
    assert fails(small)


def test_a_disk_fails_the_nth_write_once() -> None:
    disk = SimDisk(random.Random(1))
    disk.fail(3)

    assert [disk.failing() for _ in range(5)] == [False, False, True, False, False]


def test_a_slow_disk_takes_longer_and_a_healed_one_does_not() -> None:
    disk = SimDisk(random.Random(1), usual=0.01)
    disk.slow_by, disk.is_full = 1.0, True
    assert disk.failing()
    assert all(0.5 <= disk.delay() <= 1.01 for _ in range(50))

    disk.heal()

    assert not disk.failing()
    assert all(disk.delay() <= 0.01 for _ in range(50))


def test_what_does_not_fail_cannot_be_made_smaller() -> None:
    with pytest.raises(ValueError, match="don't fail"):
        shrink([Fault(at=1.0, kind="cut", a="n1")], lambda some: False)
