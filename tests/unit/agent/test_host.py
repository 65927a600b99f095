"""The machine as an agent sees it: what the tree names is read without harm to the agent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from incumbent.agent.home import Home
from incumbent.agent.host import Machine
from incumbent.errors import SpecErrors
from incumbent.launch import LARGEST
from incumbent.spec import Spec

WEB = Spec(name="web", command=("sleep", "1"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(Home(tmp_path / "agent"), "n1", os.environ, "127.0.0.1:2181", print)


def test_a_template_is_rendered_as_it_stands(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"level ${LEVEL}\r\n")

    assert machine.rendered(WEB, "F", str(path), {"LEVEL": "3"}) == "level 3\r\n"


def test_a_template_that_is_no_file_or_has_no_end_holds_up_no_agent(
    machine: Machine, tmp_path: Path
) -> None:
    fifo, large = tmp_path / "fifo", tmp_path / "large"
    os.mkfifo(fifo)
    large.write_bytes(b"x" * (LARGEST + 1))

    for path, why in ((fifo, "name an ordinary one"), ("/dev/zero", "name an ordinary one")):
        with pytest.raises(SpecErrors, match=why):
            machine.rendered(WEB, "F", str(path), {})
    with pytest.raises(SpecErrors, match="larger than"):
        machine.rendered(WEB, "F", str(large), {})
