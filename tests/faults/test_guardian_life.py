"""A real guardian and its agents: who dies, who is started again, how everything ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import ends_with_us
from tests.programs.guardian_under_test import GuardianUnderTest, guardian
from tests.waiting import wait_until

from incumbent.guardian import messages as m


def test_a_killed_agent_is_followed_by_one_that_knows_session_and_seats(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        first = g.connected()
        welcome = first.history[0]
        assert isinstance(welcome, m.Welcome) and welcome.passport is None
        started = g.run(first, g.nasty("plain", breadcrumb="/b/1"))

        os.kill(first.pid, signal.SIGKILL)
        second = g.accept()
        welcome = second.hello()

        assert welcome.generation == 2
        assert welcome.passport is not None
        assert (welcome.passport["session_id"], welcome.passport["last_zxid"]) == (0x1234, 9)
        assert welcome.settings == {"made_by": "test"}
        (report,) = welcome.seats
        assert (report.pid, report.start_time) == (started.pid, started.start_time)
        assert (report.state, report.breadcrumb) == ("running", "/b/1")
        assert started.main in g.living()
        second.lease(60)
        second.say(m.Stop(seat="web/0", epoch=1, grace=0.5))
        second.expect(m.Empty, epoch=1)


@pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2)])
def test_closed_standard_descriptors_do_no_harm(tmp_path: Path, closed: tuple[int, ...]) -> None:
    shut = " ".join(f"{fd}>&-" for fd in closed)
    with guardian(tmp_path, prefix=["/bin/sh", "-c", f'exec "$@" {shut}', "sh"]) as g:
        agent = g.connected()
        for log in (None, str(tmp_path / "web-0.log")):
            g.run(agent, g.nasty("says", "hello", log=log))
            agent.say(m.Stop(seat="web/0", epoch=g.epoch, grace=0.2))
            agent.expect(m.Empty, epoch=g.epoch)

        log = tmp_path / "web-0.log"
        wait_until(lambda: log.exists() and "hello" in log.read_text(), what="its output")


def test_an_agent_that_goes_silent_is_killed_and_replaced(tmp_path: Path) -> None:
    with guardian(tmp_path, beat=0.2) as g:
        first = g.accept()
        first.hello()

        os.kill(first.pid, signal.SIGSTOP)
        second = g.accept()

        assert second.hello().generation == 2
        assert "no ALIVE" in g.errors


def test_an_agent_that_talks_nonsense_is_replaced(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        first = g.connected()
        started = g.run(first, g.nasty("plain"))

        first.sock.sendall(b"hello?\n")
        second = g.accept()

        assert second.hello().seats[0].state == "running"
        assert started.main in g.living()


def test_release_ends_programs_and_guardian_with_the_agent(tmp_path: Path) -> None:
    with guardian(tmp_path, policy="release") as g:
        agent = g.connected()
        g.run(agent, g.nasty("daughter"))

        os.kill(agent.pid, signal.SIGKILL)

        assert g.process.wait(20) == 1
        assert g.all_dead()
        assert "session not closed" in g.errors  # there is no server


def test_a_crash_looping_agent_ends_everything(tmp_path: Path) -> None:
    with guardian(tmp_path, session_timeout=600.0) as g:
        agent = g.connected()
        agent.session(s_min_ms=600_000)
        g.run(agent, g.nasty("plain"))

        for _ in range(2):
            os.kill(agent.pid, signal.SIGKILL)
            agent = g.accept()
        os.kill(agent.pid, signal.SIGKILL)

        assert g.process.wait(20) == 1
        assert g.all_dead()


def test_an_agent_that_cannot_be_started_is_an_exit_code(tmp_path: Path) -> None:
    guard = Path(__file__).parents[1] / "programs" / "guard.py"

    done = subprocess.run(
        [sys.executable, str(guard), "{}", "/no/such/agent"], capture_output=True, timeout=20
    )

    assert done.returncode == 1
    assert b"/no/such/agent cannot be started" in done.stderr


def test_sigterm_is_forwarded_and_the_agents_bye_decides(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("plain"))

        g.process.terminate()
        assert agent.expect(m.Shutdown).why == "SIGTERM"
        agent.say(m.Stop(seat="web/0", epoch=1, grace=1.0))
        agent.expect(m.Empty)
        agent.say(m.Bye(code=4))

        assert g.process.wait(10) == 4
        assert_gone(agent.pid)


def test_a_second_sigint_ends_at_once(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("ignores-stop", stop_grace=100.0))

        g.process.send_signal(signal.SIGINT)
        agent.expect(m.Shutdown)
        g.process.send_signal(signal.SIGINT)

        assert g.process.wait(20) == 1
        assert g.all_dead()
        assert_gone(agent.pid)


def test_the_agent_outlives_its_guardian_and_can_prove_the_trees_dead(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("daughter"))
        pidfd = os.pidfd_open(started.pid)

        g.process.kill()
        g.process.wait()

        assert select.select([pidfd], [], [], 10)[0]
        assert g.all_dead()
        os.close(pidfd)


def test_the_guardian_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    guard = Path(__file__).parents[1] / "programs" / "guard.py"
    listener = socket.socket(socket.AF_UNIX)
    address = f"/tmp/incumbent-test-{os.getpid()}-parent.sock"
    listener.bind(address)
    listener.listen()
    listener.settimeout(15)
    agent = guard.with_name("relaying_agent.py")
    parent_code = (
        "import os, subprocess, sys, time\n"
        'options = \'{"parent": %d, "beat": 60}\' % os.getpid()\n'
        f"child = subprocess.Popen([sys.executable, {str(guard)!r}, options,"
        f" sys.executable, {str(agent)!r}, {address!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code], stdout=subprocess.PIPE, preexec_fn=ends_with_us()
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    pidfd = os.pidfd_open(pid)
    listener.accept()

    parent.kill()
    parent.wait()

    assert select.select([pidfd], [], [], 10)[0]
    os.close(pidfd)
    Path(address).unlink()


def test_no_zombie_is_left_behind(tmp_path: Path) -> None:
    with guardian(tmp_path, policy="release") as g:  # which keeps no spare agent
        agent = g.connected()
        for _ in range(3):
            agent.say(g.nasty("background", containment="swept"))
            started = agent.expect(m.Started)
            agent.say(m.Seen(seat="web/0", epoch=g.epoch, pid=started.pid))
            agent.expect(m.Empty)

        # the agent, and the relay of a stderr that is a file
        wait_until(lambda: len(children(g)) == 2, what="only the agent to be left")


def test_orphans_that_fall_to_the_guardian_are_reaped(tmp_path: Path) -> None:
    """As PID 1 in a container it gets everybody's; here those of its agent."""
    with guardian(tmp_path, agent=["/bin/sh", "-c", '(sleep 0.3 &); exec "$@"', "agent"]) as g:
        agent = g.accept()
        wait_until(lambda: len(children(g)) == 3, what="the orphan")

        wait_until(lambda: len(children(g)) == 2, what="it to be reaped")

        assert agent.hello().generation == 1


def test_a_guardian_can_be_pid_1(tmp_path: Path) -> None:
    with guardian(
        tmp_path, prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    ) as g:
        agent = g.connected()
        for containment in ("sealed", "swept"):
            g.run(agent, g.nasty("daughter", containment=containment))
            agent.say(m.Stop(seat="web/0", epoch=g.epoch, grace=0.2))
            agent.expect(m.Empty, epoch=g.epoch)

        agent.say(m.Bye(code=5))

        assert g.process.wait(15) == 5
        assert g.all_dead()


def test_secrets_are_in_no_memory_but_the_guardians_and_the_agents(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        secret = "5ec2e7" * 8
        agent.session(password=secret)
        agent.lease(60)
        g.run(agent, g.nasty("plain"))

        assert memory_has(g.process.pid, secret)
        for pid in sorted(children(g) - {agent.pid}):
            assert not memory_has(pid, secret), Path(f"/proc/{pid}/stat").read_text()


def children(g: GuardianUnderTest) -> set[int]:
    pid = g.process.pid
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def memory_has(pid: int, secret: str) -> bool:
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, *_ = line.split()
            start, end = (int(each, 16) for each in span.split("-"))
            if "r" not in access or "[v" in line:
                continue
            memory.seek(start)
            if secret.encode() in memory.read(end - start):
                return True
    return False


def assert_gone(pid: int) -> None:
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what=f"{pid} to be gone")


def test_a_storm_of_signals_is_stood_while_lines_are_written(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        for _ in range(10_000):
            g.process.send_signal(signal.SIGCHLD)

        g.run(agent, g.nasty("plain"))

        agent.lease(60.0)


def test_told_to_stop_while_many_programs_start_it_leaves_none(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        starts = [g.nasty("plain", seat=f"c{n}/0") for n in range(30)]
        agent.say(*starts)
        agent.expect(m.Started)

        g.process.send_signal(signal.SIGTERM)
        agent.expect(m.Shutdown)
        agent.say(m.Bye(code=0))

        assert g.process.wait(30) == 0
        assert g.all_dead()
