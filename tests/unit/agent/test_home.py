"""An agent's data directory: one node, one folder, and never somebody else's programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from incumbent.agent.home import Home, HomeInUse
from incumbent.agent.instance import Instance


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
