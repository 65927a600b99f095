"""Trees in a cgroup of their own, each under a real guardian."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cgroups import cgroups, with_cgroups
from tests.programs.guardian_under_test import guardian
from tests.waiting import wait_until

from incumbent.agent.home import Home
from incumbent.guardian import messages as m
from incumbent.guardian.cgroup import Cgroup, end_cgroup, find_own, name_of

pytestmark = with_cgroups


def test_a_trees_cgroup_is_there_while_it_lives_and_gone_after_its_proof(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("plain", containment="contained"))
        procs = (Path(g.cgroup) / "cgroup.procs").read_text().split()

        assert {str(started.pid), str(started.main)} <= set(procs)

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.0))
        agent.expect(m.Empty, epoch=1)
        assert not Path(g.cgroup).exists()


def test_who_leaves_its_cgroup_is_killed_as_a_child(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        elsewhere = str(cgroups() / "cgroup.procs")
        g.run(agent, g.nasty("leaves-cgroup", elsewhere, containment="contained"))

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.3))
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()


def test_who_leaves_its_tree_is_killed_with_its_cgroup(tmp_path: Path) -> None:
    """Nobody can leave a subreaper; somebody who was put into the cgroup has never been in it."""
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("plain", containment="contained"))
        with subprocess.Popen(["sleep", "1000"]) as guest:
            (Path(g.cgroup) / "cgroup.procs").write_text(str(guest.pid))

            agent.say(m.Stop(seat="web/0", epoch=1, grace=0.3))
            agent.expect(m.Empty, epoch=1)

            assert guest.wait(10) == -signal.SIGKILL


def test_a_cgroup_that_the_program_makes_below_is_killed_and_removed_too(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("plain", containment="contained"))
        inner = Path(g.cgroup) / "made-by-the-program"
        inner.mkdir()
        with subprocess.Popen(["sleep", "1000"]) as guest:
            (inner / "cgroup.procs").write_text(str(guest.pid))
            os.kill(started.main, signal.SIGKILL)
            agent.expect(m.Empty, epoch=1)

            assert guest.wait(10) == -signal.SIGKILL
        assert not inner.exists()


def test_a_cgroup_that_cannot_be_made_is_a_refusal_with_the_reason(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()

        agent.say(g.nasty("plain", containment="contained", cgroup="/no/such/cgroup"))

        assert "No such file" in agent.expect(m.Refused, epoch=1).why


def test_a_sealed_tree_may_have_a_cgroup_too(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        path = cgroups() / name_of(g.marker, "web/0", 1)
        started = g.run(agent, g.nasty("daughter", cgroup=str(path)))
        assert str(started.pid) in (path / "cgroup.procs").read_text().split()

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.3))
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()
        wait_until(lambda: not path.exists(), what="its cgroup to be gone")


def test_what_an_earlier_life_left_in_a_cgroup_is_ended_though_it_was_never_written_down(
    tmp_path: Path,
) -> None:
    owner = f"test-{os.getpid()}"
    cgroup = Cgroup(f"{cgroups()}/{name_of(owner, 'web/0', 3)}", {})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as left:
        (cgroup.path / "cgroup.procs").write_text(str(left.pid))
        home = Home(tmp_path)
        home.lock()

        home.end_leftovers(lambda _line: None, owner=owner, cgroups=cgroups())

        assert left.wait(10) == -signal.SIGKILL
    assert not cgroup.path.exists()
    cgroup.close()


def test_a_cgroup_that_is_gone_has_nobody_in_it(tmp_path: Path) -> None:
    assert end_cgroup(tmp_path / "gone", 0.0)


def test_our_own_cgroup_is_found_by_what_the_kernel_says(tmp_path: Path) -> None:
    """Also where only a part of the hierarchy is mounted, under a name with a space in it."""
    point = tmp_path / "a point"
    (point / "unit.service").mkdir(parents=True)
    (point / "unit.service" / "cgroup.procs").touch()
    shown = str(point).replace(" ", "\\040")
    (tmp_path / "cgroup").write_text("1:cpu:/\n0::/system.slice/unit.service\n")
    (tmp_path / "mountinfo").write_text(
        f"30 20 0:26 / /sys rw - sysfs sysfs rw\n31 30 0:27 /system.slice {shown} rw - cgroup2 x rw\n"
    )

    assert find_own(tmp_path) == point / "unit.service"
