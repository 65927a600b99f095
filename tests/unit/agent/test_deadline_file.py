"""The file that tells COMMAND its deadline."""

from __future__ import annotations

import os
from pathlib import Path

from incumbent.agent.deadline_file import DeadlineFile


def test_it_has_the_newest_number_and_goes_when_it_is_over(tmp_path: Path) -> None:
    file = DeadlineFile({"XDG_RUNTIME_DIR": str(tmp_path)})

    file.write(10_000.5)
    file.write(10_001.25)

    assert Path(file.path).read_text() == "10001.250000\n"
    assert Path(file.path).parent == tmp_path
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_killed_agents_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / "incumbent-left.deadline"
    recent = tmp_path / "incumbent-recent.deadline"
    other = tmp_path / "incumbent-other.deadline"
    left.write_text("1.5\n")
    recent.write_text("9990.5\n")
    other.write_text("not a number")

    DeadlineFile({"XDG_RUNTIME_DIR": str(tmp_path)}).write(10_000.0)

    assert (left.exists(), recent.exists(), other.exists()) == (False, True, True)


def test_a_node_removes_what_others_have_left_and_goes_on_with_its_own(tmp_path: Path) -> None:
    left = tmp_path / "incumbent-n0 1.deadline"
    left.write_text("1.5\n")
    (tmp_path / "incumbent-n1 1.deadline").write_text("2.5\n")
    file = DeadlineFile({"XDG_RUNTIME_DIR": str(tmp_path)}, name="n1 1")

    file.write(10_000.0)

    assert [path.name for path in tmp_path.iterdir()] == ["incumbent-n1 1.deadline"]


def test_where_nothing_can_be_written_there_is_no_file(tmp_path: Path) -> None:
    file = DeadlineFile({"XDG_RUNTIME_DIR": str(tmp_path)})
    file.write(1.0)
    Path(file.path).unlink()
    tmp_path.rmdir()

    file.write(2.0)

    assert not Path(file.path).exists()


def test_what_others_put_there_holds_up_nobody_and_is_not_written_into(tmp_path: Path) -> None:
    """Anybody may make files where it stands: /dev/shm, a folder for temporary files."""
    (tmp_path / "incumbent-endless.deadline").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "incumbent-pipe.deadline")
    victim = tmp_path / "victim"
    victim.write_text("of somebody")
    (tmp_path / "incumbent-n1.deadline.new").symlink_to(victim)
    file = DeadlineFile({"XDG_RUNTIME_DIR": str(tmp_path)}, name="n1")

    file.write(10_000.0)

    assert Path(file.path).read_text() == "10000.000000\n"
    assert victim.read_text() == "of somebody"
