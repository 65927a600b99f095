"""Real programs that misbehave, under a real guardian: every row ends with nobody alive."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.cgroups import with_cgroups
from tests.programs.guardian_under_test import Agent, GuardianUnderTest, guardian
from tests.waiting import wait_until

from incumbent.guardian import kernel
from incumbent.guardian import messages as m
from incumbent.guardian.containment import probe

KINDS = [
    "plain",
    "ignores-stop",
    "daughter",
    "breeder",
    "fast-breeder",
    "floods",
    "closes-output",
    "stops-itself",
    "stopped-daughter",
]
SEALED_IMPOSSIBLE = probe()["sealed"]
with_sealed = pytest.mark.skipif(
    bool(SEALED_IMPOSSIBLE) and not os.environ.get("CI"), reason=SEALED_IMPOSSIBLE
)
CONTAINMENTS = [
    pytest.param("sealed", marks=with_sealed),
    pytest.param("contained", marks=with_cgroups),
    "swept",
]
contained = pytest.mark.parametrize("containment", CONTAINMENTS)
every_kind = pytest.mark.parametrize(
    ("kind", "containment"),
    [
        *(pytest.param(kind, "sealed", marks=with_sealed) for kind in KINDS),
        *((kind, "swept") for kind in KINDS),
        # what a contained tree has besides a swept one is for those who are hard to find
        *(
            pytest.param(kind, "contained", marks=with_cgroups)
            for kind in ("daughter", "fast-breeder", "stopped-daughter")
        ),
    ],
)


@every_kind
def test_a_stop_ends_the_whole_tree(tmp_path: Path, kind: str, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty(kind, containment=containment))

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.3))
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()


@every_kind
def test_the_guardians_death_ends_the_whole_tree(
    tmp_path: Path, kind: str, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty(kind, containment=containment))

        g.process.kill()
        g.process.wait()

        wait_until(g.all_dead, what="every program to be dead")


def test_the_guardians_death_ends_a_sealed_tree_whose_first_process_is_frozen(
    tmp_path: Path,
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("daughter"))
        os.kill(started.pid, signal.SIGSTOP)

        g.process.kill()
        g.process.wait()

        wait_until(g.all_dead, what="every program to be dead")


@contained
@pytest.mark.parametrize("kind", ["ignores-stop", "daughter", "stops-itself"])
def test_the_hard_deadline_holds_while_the_guardian_is_frozen(
    tmp_path: Path, kind: str, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty(kind, containment=containment))
        agent.lease(2.0)

        _ends_while_its_guardian_is_frozen(g, agent)


@contained
def test_the_hard_deadline_holds_from_the_start_on(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected(4.0)
        g.run(agent, g.nasty("ignores-stop", containment=containment))

        _ends_while_its_guardian_is_frozen(g, agent)


def _ends_while_its_guardian_is_frozen(g: GuardianUnderTest, agent: Agent) -> None:
    g.process.send_signal(signal.SIGSTOP)
    wait_until(g.all_dead, what="the tree to end itself")
    g.process.send_signal(signal.SIGCONT)
    agent.expect(m.Empty, epoch=1)


@contained
def test_each_margin_has_its_own_deadline(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        pidfds = []
        for hard in (2.5, 0.2):
            order = g.nasty(
                "ignores-stop", seat=f"s/{hard}", soft=3.0, hard=hard, containment=containment
            )
            agent.say(order)
            pidfds.append(os.pidfd_open(agent.expect(m.Started, seat=order.seat).main))
        agent.lease(4.0)

        g.process.send_signal(signal.SIGSTOP)

        early, late = pidfds
        wait_until(lambda: kernel.is_readable(early), what="the one with the larger margin to end")
        assert not kernel.is_readable(late)
        wait_until(lambda: kernel.is_readable(late), what="the other one to end")
        for each in pidfds:
            os.close(each)


@contained
def test_a_first_process_of_which_nothing_is_wanted_does_not_wake(
    tmp_path: Path, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        first = g.run(agent, g.nasty("plain", containment=containment)).pid
        state = Path(f"/proc/{first}/status")

        def woken() -> list[str]:
            return [line for line in state.read_text().splitlines() if "ctxt_switches" in line]

        wait_until(lambda: kernel.Process(first).state == "S", what="it to have said its words")
        before = woken()
        old_deadline = agent.lease(3.0)
        agent.lease(60.0)
        wait_until(lambda: kernel.boottime() > old_deadline, what="the old deadline to pass")

        assert woken() == before


@contained
def test_a_lease_prolonged_in_time_restarts_nothing(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("plain", containment=containment))
        agent.lease(1.6)

        for _ in range(12):
            time.sleep(0.1)  # a beat's rhythm, not a wait for something
            agent.lease(1.6)

        assert started.pid and started.main in g.living()


@contained
def test_at_soft_the_program_is_asked_and_at_hard_killed(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("ignores-stop", containment=containment))

        agent.lease(1.5)

        assert "soft deadline" in agent.expect(m.Stopping, epoch=1).why
        agent.expect(m.Empty, epoch=1)
        assert g.all_dead()


@contained
def test_a_program_in_the_background_is_a_failed_start_with_what_it_left(
    tmp_path: Path, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(g.nasty("background", containment=containment))

        agent.expect(m.Started)
        exited = agent.expect(m.Exited)
        agent.expect(m.Empty)

        assert (exited.code, exited.signal, exited.left) == (0, None, 1)
        assert exited.uptime < 5
        assert g.all_dead()


@contained
def test_an_exit_code_comes_back(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(g.nasty("exits", "7", containment=containment))

        exited = agent.expect(m.Exited)

        assert (exited.code, exited.signal, exited.left) == (7, None, 0)
        agent.expect(m.Empty)


@contained
def test_a_killed_main_is_told_by_its_signal(tmp_path: Path, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("plain", containment=containment))

        os.kill(started.main, signal.SIGKILL)
        exited = agent.expect(m.Exited)

        assert (exited.code, exited.signal) == (None, signal.SIGKILL)


@contained
@pytest.mark.parametrize(
    ("argv", "cwd", "says"),
    [
        (("/no/such/program",), "/", "No such file"),
        (("no-such-program-in-path",), "/", "No such file"),
        (("/etc/passwd",), "/", "Permission denied"),
        (("/",), "/", "Permission denied"),
        (("/bin/true",), "/no/such/folder", "/no/such/folder"),
        (("a\0b",), "/", "null"),
    ],
)
def test_what_cannot_be_executed_is_refused_for_good_with_the_reason(
    tmp_path: Path, argv: tuple[str, ...], cwd: str, says: str, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(g.nasty("plain", argv=argv, cwd=cwd, containment=containment))

        refused = agent.expect(m.Refused, epoch=1)

        assert refused.permanent
        assert says in refused.why
        g.run(agent, g.nasty("plain", containment=containment))


@contained
@pytest.mark.parametrize("kind", ["daughter", "fast-breeder"])
def test_a_killed_first_process_leaves_nobody(tmp_path: Path, kind: str, containment: str) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty(kind, containment=containment))

        os.kill(started.pid, signal.SIGKILL)
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()


@contained
@pytest.mark.parametrize("kind", ["daughter", "fast-breeder"])
def test_a_frozen_first_process_hinders_no_kill(
    tmp_path: Path, kind: str, containment: str
) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty(kind, containment=containment))
        os.kill(started.pid, signal.SIGSTOP)

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.2))
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()


@contained
def test_the_program_gets_its_environment_and_nothing_else(
    tmp_path: Path, containment: str
) -> None:
    told = tmp_path / "told"
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(
            agent,
            g.nasty(
                "tells",
                str(told),
                env={"INCUMBENT_SEAT": "web/0", "B": "x=y"},
                cwd=str(tmp_path),
                containment=containment,
            ),
        )

        env, fds, is_session_leader, stdin, blocked, _, cwd = told.read_text().splitlines()

    assert eval(env) == {"INCUMBENT_SEAT": "web/0", "B": "x=y"} | _added_by_python(env)
    assert eval(fds)[:3] == [0, 1, 2] and len(eval(fds)) == 4  # and the one that lists
    assert is_session_leader == "True"
    assert stdin == "'/dev/null'"
    assert blocked == "[]"
    assert cwd == str(tmp_path)


def _added_by_python(env: str) -> dict[str, str]:
    return {k: v for k, v in eval(env).items() if k == "LC_CTYPE"}


def test_an_unknown_containment_is_refused_for_good(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(g.nasty("plain", containment="wished-for"))

        assert agent.expect(m.Refused).permanent
