"""An agent's data directory: one node, one folder, and never somebody else's programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from incumbent.agent.home import Home, HomeInUse
from incumbent.agent.instance import Instance
from incumbent.runtime_file import boot_id, start_time


def home(folder: Path) -> Home:
    made = Home(folder)
    made.lock()
    return made


def test_a_nodes_id_is_made_once(tmp_path: Path) -> None:
    one = home(tmp_path / "n1")

    assert one.node_id(lambda: "aa") == "aa"
    assert one.node_id(lambda: "bb") == "aa"


def test_a_folder_is_used_by_one_agent(tmp_path: Path) -> None:
    one = home(tmp_path)

    with pytest.raises(HomeInUse):
        home(tmp_path)
    assert one.folder == tmp_path


def test_a_copied_folder_is_another_node_and_ends_nothing_of_the_originals(tmp_path: Path) -> None:
    original = home(tmp_path / "n1")
    original.node_id(lambda: "aa")
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running = Instance(
        seat="web/0", epoch=1, breadcrumb="/b", containment="sealed", pid=program.pid
    )
    original.remember("owner", {"web/0": running})
    shutil.copytree(tmp_path / "n1", tmp_path / "copy")

    copy = home(tmp_path / "copy")
    said: list[str] = []
    copy.end_leftovers(said.append)

    assert copy.node_id(lambda: "bb") == "bb"
    assert said == []
    assert program.poll() is None
    original.end_leftovers(said.append)
    assert program.wait(10.0) == -9
    assert len(said) == 1


def _tree(home_: Home, pid: int, **changes: object) -> dict[str, object]:
    return {
        "seat": "web/0",
        "epoch": 1,
        "pid": pid,
        "start_time": start_time(pid),
        "boot_id": boot_id(),
        "owner": "owner",
        "folder": str(home_.folder.stat().st_ino),
        **changes,
    }


@pytest.mark.parametrize(
    "changes", [{"start_time": 1}, {"boot_id": "an earlier one"}, {"folder": "1"}]
)
def test_a_stranger_that_has_a_recorded_pid_by_now_is_left_alone(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    one = home(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "trees.json").write_text(json.dumps([_tree(one, stranger.pid, **changes)]))

        one.end_leftovers(lambda _line: None)

        assert stranger.poll() is None
        (tmp_path / "trees.json").write_text(json.dumps([_tree(one, stranger.pid)]))
        one.end_leftovers(lambda _line: None)
        assert stranger.wait(10) == -9


def test_a_file_of_configuration_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from incumbent.agent.home import Home
home = Home(Path(sys.argv[1]))
home.write_config("web/0", "E", "old", None)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    home.write_config("web/0", "E", "x" * 5000, None)
except OSError:
    print("refused")
"""
    folder = tmp_path / "agent"
    told = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )

    assert told.stdout == "refused\n"
    assert (folder / "config" / "web-0" / "E").read_text() == "old"
