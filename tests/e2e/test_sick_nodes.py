"""Nodes on which something is sick: a process that nothing kills, a disk that is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.disks import fill, small_disk
from tests.e2e.nodes import Nodes, is_alive
from tests.waiting import wait_until

WEB = '[component.web]\ncommand = "sleep 1000"\n'


@contextmanager
def unkillable(pid: int, folder: Path) -> Iterator[None]:
    """Inside, not even SIGKILL ends it: frozen by cgroup v1, it is as if it hung in the kernel."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [point for _, point, kind, how, *_ in mounts if kind == "cgroup" and "freezer" in how]
    if not found:
        folder.mkdir()
        mount = ["mount", "-t", "cgroup", "-o", "freezer", "incumbent-tests", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("there is no cgroup v1 freezer here, and none can be mounted")
        found = [str(folder)]
    cgroup = Path(found[0]) / f"incumbent-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"the cgroup v1 freezer cannot be used here: {error}")
    try:
        (cgroup / "cgroup.procs").write_text(str(pid))
        (cgroup / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (cgroup / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (cgroup / "cgroup.procs").read_text(), 10, "it to be dead")
        cgroup.rmdir()
        if found == [str(folder)]:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("isolation", ["sealed", "swept"])
def test_what_nothing_kills_is_stuck_keeps_its_breadcrumb_and_blocks_every_other_start(
    tmp_path: Path, isolation: str
) -> None:
    with Nodes(tmp_path, session=2.0) as nodes:
        nodes.start("n1"), nodes.start("n2")
        nodes.apply(f'{WEB}isolation = "{isolation}"\n')
        row = nodes.wait("web", "running")
        here = nodes.named(row["node"])
        with unkillable(row["pid"], tmp_path / "freezer"):
            assert nodes.cli("stop", "web").returncode == 0
            nodes.wait("web", "stuck", timeout=30.0)
            here.guardian.wait_for_complaint("alive after SIGKILL")
            nodes.cli("start", "web")
            here.guardian.send(15)  # it may not leave either

            states = [nodes.row("web")["state"] for _ in range(20)]

            assert set(states) == {"stuck"}
            seat = nodes.cluster().components[0].seats[0]
            assert [crumb.epoch for crumb in seat.breadcrumbs] == [row["epoch"]]
            assert here.guardian.code is None and is_alive(row["pid"])
        again = nodes.wait("web", "running", timeout=30.0)
        assert again["epoch"] > row["epoch"] and again["node"] != here.name


def test_on_a_full_disk_stop_start_status_and_failover_go_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "n1", "2m") as disk, Nodes(tmp_path, session=2.0) as nodes:
        node = nodes.start("n1")
        nodes.apply(
            f'{WEB}\n[component.chatty]\ncommand = ["sh", "-c", "while echo x; do :; done"]\n'
        )
        nodes.wait("web", "running"), nodes.wait("chatty", "running")
        fill(disk)

        assert nodes.cli("stop", "web").returncode == 0
        nodes.wait("web", "stopped")
        assert nodes.cli("start", "web").returncode == 0
        row = nodes.wait("web", "running", node="n1")
        assert "n1" in nodes.cli("status").stdout

        nodes.start("n2")
        node.kill_guardian()
        nodes.wait("web", "running", node="n2")
        nodes.wait("chatty", "running", node="n2")
        with suppress(KeyError):
            assert not is_alive(row["pid"])


def test_a_node_that_is_given_very_much_at_once_starts_it_in_turn_and_keeps_its_lease(
    tmp_path: Path,
) -> None:
    names = [f"c{n}" for n in range(100)]
    with Nodes(tmp_path, session=2.0) as nodes:
        node = nodes.start("n1")
        nodes.apply("".join(f'[component.{name}]\ncommand = "sleep 1000"\n' for name in names))

        def running() -> int:
            seats = node.status().get("seats", {})
            return sum(each["state"] == "running" for each in seats.values())

        wait_until(lambda: running() == len(names), 60.0, "all of it to run")
        assert "soft deadline" not in "".join(node.guardian.complaints())
