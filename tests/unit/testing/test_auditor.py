"""Nine bad journals and their good twin: the auditor must catch each, and only for its own fault."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from incumbent.testing import auditor
from incumbent.testing.auditor import Expectations, audit

_MS = 1_000_000


def line(at_ms: int, event: str, epoch: int = 0, node: str = "", **more: Any) -> str:
    pid = 100 + epoch if epoch else 0
    fields = {"boottime_ns": at_ms * _MS, "seat": "web", "epoch": epoch, "node": node, "pid": pid}
    return json.dumps({**fields, "event": event, **more}) + "\n"


def life(start_ms: int, end_ms: int, epoch: int, node: str, *, stops: bool = True) -> list[str]:
    """One instance: start, a tick every 5 ms, and a stop unless it was killed."""
    ticks = [line(at, "tick", epoch, node) for at in range(start_ms + 1, end_ms, 5)]
    owner = line(start_ms - 1, "owner", epoch, node)
    end = [line(end_ms, "stop", epoch, node)] if stops else []
    return [owner, line(start_ms, "start", epoch, node), *ticks, *end]


def good() -> list[str]:
    """Started on n1, killed; on n2 after a fault healed; moved to n3; stopped; started again."""
    return [
        *life(100, 200, 1, "n1", stops=False),
        line(200, "fault"),
        line(300, "healed"),
        *life(400, 500, 2, "n2"),
        line(500, "moved", **{"from": "n2", "to": "n3"}),
        *life(510, 600, 3, "n3"),
        line(605, "stop-ordered"),
        line(700, "healed"),
        line(800, "start-ordered"),
        *life(810, 900, 4, "n3"),
    ]


def complaints(lines: list[str], **expected: Any) -> list[str]:
    verdict = audit(lines, Expectations(within=0.15, **expected))
    return [violation.split(":")[0] for violation in verdict.violations]


def test_a_good_journal_is_clean() -> None:
    assert complaints(good()) == []
    assert audit(good()).starts == 4


def test_overlap_by_the_lock() -> None:
    assert complaints([*good(), line(410, "overlap", 2, "n2")]) == ["overlap"]


def test_overlap_by_time() -> None:
    journal = [*life(100, 200, 1, "n1"), *life(190, 300, 2, "n2")]

    assert complaints(journal) == ["overlap"]


def test_overlap_with_a_descendant_that_lives_on() -> None:
    child = json.loads(line(195, "tick", 1, "n1"))
    child["pid"] = 4711
    journal = [*life(100, 150, 1, "n1"), json.dumps(child) + "\n", *life(190, 300, 2, "n2")]

    assert complaints(journal) == ["overlap"]


def test_an_overlap_inside_a_longer_one_hides_nothing() -> None:
    journal = [*life(100, 400, 1, "n1"), *life(150, 160, 2, "n2"), *life(300, 350, 3, "n3")]

    assert complaints(journal) == ["overlap", "overlap"]


def test_equal_epochs() -> None:
    assert complaints([*life(100, 200, 5, "n1"), *life(300, 400, 5, "n2")]) == ["equal epochs"]


def test_equal_epochs_on_the_same_node() -> None:
    assert complaints([*life(100, 200, 5, "n1"), *life(300, 400, 5, "n1")]) == ["equal epochs"]


def test_an_epoch_going_back() -> None:
    journal = [*life(100, 200, 5, "n1"), *life(300, 400, 4, "n2")]

    assert complaints(journal) == ["epoch going back"]


def test_a_start_after_a_stop_was_ordered() -> None:
    journal = [*life(100, 200, 1, "n1"), line(210, "stop-ordered"), *life(220, 300, 2, "n1")]

    assert complaints(journal) == ["start after a stop was ordered"]
    assert complaints(journal, settle=0.05) == []


def test_no_start_after_healing() -> None:
    journal = [*life(100, 200, 1, "n1"), line(250, "fault"), line(300, "healed")]

    assert complaints([*journal, *life(500, 600, 2, "n2")]) == ["no start after healing"]
    assert complaints([*journal, *life(400, 600, 2, "n2")]) == []
    assert complaints(journal) == ["no start after healing"]
    assert complaints([*journal, line(310, "fault")]) == []


def test_a_seat_that_never_showed_up_is_missed_too() -> None:
    wanted = json.loads(line(1, "start-ordered"))
    wanted["seat"] = "db"
    journal = [json.dumps(wanted) + "\n", *good()]

    assert complaints(journal).count("no start after healing") == 2


def test_a_process_without_owner() -> None:
    journal = [x for x in good() if not ('"owner"' in x and '"epoch": 2' in x)]

    assert complaints(journal) == ["process without owner"]
    assert (
        complaints([x for x in good() if '"owner"' not in x], owners=True).count(
            "process without owner"
        )
        == 4
    )


def test_a_process_that_outlives_its_owner() -> None:
    assert complaints([*good(), line(450, "owner-gone", 2)]) == ["process without owner"]
    assert complaints([*good(), line(505, "owner-gone", 2)]) == []


def test_a_move_undone() -> None:
    back = line(650, "moved", **{"from": "n3", "to": "n2"})

    assert complaints([*good(), back]) == ["move undone"]
    assert complaints([*good(), back, line(640, "input")]) == []


def test_an_empty_journal_proves_nothing() -> None:
    assert complaints([]) == ["empty"]
    assert complaints([line(1, "owner", 1, "n1")]) == ["empty"]


def test_a_torn_line_in_the_middle() -> None:
    lines = good()
    lines[5] = lines[5][:40] + "\n"

    assert complaints(lines) == ["torn line 6"]


def test_two_lines_that_ran_into_each_other() -> None:
    lines = good()
    lines[5] = lines[5][:40] + lines[6]
    del lines[6]

    assert complaints(lines) == ["torn line 6"]


def test_the_torn_last_line_of_a_killed_writer_is_fine() -> None:
    verdict = audit([*good(), line(901, "tick", 4, "n3")[:40]], Expectations(within=0.15))

    assert verdict.clean
    assert verdict.torn == 1


def test_a_line_with_a_wrong_type_or_an_unknown_event_is_no_line() -> None:
    lines = [*good(), line(901, "pause"), line(902, "tick").replace('"epoch": 0', '"epoch": "0"')]

    assert complaints(lines) == [f"strange line {len(lines) - 1}", f"strange line {len(lines)}"]


def test_life_without_a_start() -> None:
    assert complaints([x for x in good() if '"start"' not in x or '"epoch": 3' not in x]) == [
        "life without a start"
    ]


@pytest.mark.parametrize(
    ("journal", "code"), [(good(), 0), ([*good(), line(410, "overlap", 2, "n2")], 1), ([], 1)]
)
def test_as_a_program(journal: list[str], code: int, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("".join(journal[:20]))
    second.write_text("".join(journal[20:]))

    done = subprocess.run(
        [sys.executable, auditor.__file__, "--within", "0.15", str(first), str(second)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (code, "")
    assert ("NOT CLEAN" in done.stdout) == bool(code)


def test_it_is_short_and_imports_nothing_of_ours() -> None:
    source = Path(auditor.__file__).read_text()
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }

    assert len(source.splitlines()) <= 200
    assert imported <= set(sys.stdlib_module_names)
