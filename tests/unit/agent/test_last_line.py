"""The last line of a program that failed, and the lost sessions that a machine remembers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from incumbent.agent.home import Home
from incumbent.agent.host import last_line
from incumbent.agent.steadiness import Loss

AT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC).timestamp()


def test_it_is_the_last_one_with_any_text_without_its_time(tmp_path: Path) -> None:
    log = tmp_path / "web-0.log"
    log.write_bytes(
        b"2026-01-31T12:00:00.100Z starting\n"
        b"2026-01-31T12:00:01.000Z cannot open \xff/data\n"
        b"2026-01-31T12:00:01.001Z   \n"
    )

    assert last_line(log, AT) == "cannot open �/data"


def test_what_an_earlier_run_said_is_not_this_ones(tmp_path: Path) -> None:
    log = tmp_path / "web-0.log"
    log.write_text("2026-01-31T12:00:00.100Z cannot open /data\n")

    assert last_line(log, AT + 1) == ""
    assert last_line(tmp_path / "missing.log", AT) == ""


def test_a_long_line_and_a_large_log_cost_no_more(tmp_path: Path) -> None:
    log = tmp_path / "web-0.log"
    log.write_text("x" * 100_000 + "\n2026-01-31T12:00:00.100Z " + "y" * 1000 + "\n")

    assert last_line(log, AT) == "y" * 160


def test_lost_sessions_are_remembered_and_a_spoiled_file_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    losses = [Loss(at=AT, why="soft deadline", ran=["web/0"]), Loss(at=AT + 1, why="", ran=[])]

    home.remember_losses(losses)

    assert home.losses() == losses
    (tmp_path / "lost-sessions.json").write_text('[{"at": 1}]')
    assert home.losses() == []
