"""Components in cgroups, on real nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cgroups import with_cgroups
from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

WEB = '[component.web]\ncommand = ["sh", "-c", "sleep 1000; true"]\nisolation = "contained"\n'


@with_cgroups
def test_a_contained_instance_that_nobody_saw_die_is_waited_for_and_ended_by_its_node(
    tmp_path: Path,
) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        nodes.start("n1"), nodes.start("n2")
        nodes.apply(WEB)
        row = nodes.wait("web", "running", containment="contained")
        here = nodes.named(row["node"])
        seat = nodes.cluster().components[0].seats[0]
        assert seat.breadcrumbs[-1].containment == "contained"

        first = int(Path(f"/proc/{row['pid']}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(first, signal.SIGSTOP)  # so that it ends nothing when its guardian dies
        here.kill()
        wait_until(lambda: nodes.row("web")["state"] == "unproven", 20.0, "its session to end")
        assert is_alive(row["pid"])
        assert f"confirm-dead {here.name}" in nodes.row("web")["why"]

        here.start_again()
        again = nodes.wait("web", "running", epoch=2)

        assert not is_alive(row["pid"])
        assert again["containment"] == "contained"
