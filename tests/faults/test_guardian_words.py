"""What real programs say of themselves, and what the kernel says of them."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from tests.faults.test_guardian_trees import contained
from tests.programs.guardian_under_test import Agent, boottime, guardian
from tests.waiting import wait_until

from incumbent.guardian import messages as m


def heard(agent: Agent, **values: object) -> m.Told:
    return agent.expect(m.Told, **values)


@contained
@pytest.mark.parametrize("kind", ["speaks", "daughter-speaks"])
def test_a_program_says_that_it_is_ready_and_how_it_is(
    tmp_path: Path, kind: str, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()

        g.run(
            agent, g.nasty(kind, "READY=1\nSTATUS=all well", notify=True, containment=containment)
        )

        told = heard(agent, ready=True)
        assert told.status == "all well"


def test_each_word_of_systemds_protocol_that_we_know(tmp_path: Path) -> None:
    words = ["STOPPING=1", "EXTEND_TIMEOUT_USEC=2500000", "WATCHDOG=trigger", "MAINPID=1", "X"]
    with guardian(tmp_path) as g:
        agent = g.connected()

        g.run(agent, g.nasty("speaks", *words, notify=True))

        said = [heard(agent)]
        while not (any(t.hung for t in said) and any(t.stopping for t in said)):
            said.append(heard(agent))
        assert max(t.extend for t in said) == 2.5
        assert not any(t.ready for t in said)


@contained
def test_a_stranger_is_not_heard(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(
            agent, g.nasty("speaks", "STATUS=own", notify=True, containment=containment)
        )
        environ = Path(f"/proc/{started.main}/environ").read_bytes().split(b"\0")
        (address,) = [each[15:] for each in environ if each.startswith(b"NOTIFY_SOCKET=@")]
        heard(agent, status="own")

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", b"\0" + address)
        os.kill(started.main, signal.SIGSTOP)

        assert not heard(agent, frozen=True).ready  # said later, and passed on alone


@pytest.mark.parametrize("fd", [3, 4, 5, 60])
def test_the_first_line_on_a_descriptor_means_ready(tmp_path: Path, fd: int) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()

        g.run(agent, g.nasty("writes-a-line", str(fd), "up\n", ready_fd=fd))

        assert heard(agent).ready


def test_a_descriptor_closed_without_a_line_means_nothing(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("writes-a-line", "3", "no line", ready_fd=3))

        os.kill(started.main, signal.SIGSTOP)

        assert not heard(agent, frozen=True).ready


@contained
def test_a_program_stopped_by_a_signal_is_known_and_so_is_its_going_on(
    tmp_path: Path, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()

        started = g.run(agent, g.nasty("stops-itself", containment=containment))

        heard(agent, frozen=True)
        os.kill(started.main, signal.SIGCONT)
        heard(agent, frozen=False)


def test_a_chatterer_is_passed_on_ten_times_a_second_and_is_stopped_as_any_other(
    tmp_path: Path,
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("chatters", notify=True))
        heard(agent, alive=True)

        began_at = boottime()
        for _ in range(10):
            heard(agent, alive=True)

        assert boottime() - began_at >= 0.85
        agent.say(m.Stop(seat="web/0", epoch=1, grace=5.0))
        agent.expect(m.Empty, epoch=1)
        assert g.all_dead()


@contained
def test_the_hard_deadline_holds_for_a_chatterer_while_the_guardian_is_frozen(
    tmp_path: Path, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("chatters", notify=True, containment=containment))
        agent.lease(1.5)

        g.process.send_signal(signal.SIGSTOP)

        wait_until(g.all_dead, what="the tree to end itself")
        g.process.send_signal(signal.SIGCONT)
        agent.expect(m.Empty, epoch=1)


@contained
def test_a_hook_dies_with_its_guardian_as_a_program_does(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        hook = g.nasty("daughter", seat="web/0!live", beside=1, limit=60.0, containment=containment)
        g.run(agent, hook)

        g.process.kill()
        g.process.wait()

        wait_until(g.all_dead, what="every process to be dead")
