"""Another user, a umask and limits for a program, each under a real guardian that is root."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cgroups import cgroups, why_no_cgroups
from tests.programs.guardian_under_test import GuardianUnderTest, guardian
from tests.waiting import wait_until

from incumbent.guardian import kernel
from incumbent.guardian import messages as m
from incumbent.guardian.cgroup import Cgroup, hand_down

UID, GID, EXTRA = 61234, 61235, 61236  # nobody's
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's program")
contained = pytest.mark.parametrize(
    "containment",
    [
        "sealed",
        pytest.param(
            "contained", marks=pytest.mark.skipif(bool(why_no_cgroups()), reason=why_no_cgroups())
        ),
        "swept",
    ],
)
FORKS = "exec perl -e 'while (1) { defined(fork) or select(undef, undef, undef, 0.05) }'"
"""Each process goes on forking, also after one that failed (a shell would end)."""
WHO = {"uid": UID, "gid": GID, "groups": (GID, EXTRA)}


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may use: pytest's are closed to them."""
    with tempfile.TemporaryDirectory(prefix="incumbent-test-", dir="/tmp") as made:
        Path(made).chmod(0o777)
        yield Path(made)


def shell(g: GuardianUnderTest, script: str, **changes: object) -> m.Start:
    return g.nasty("plain", argv=("/bin/sh", "-c", script), **changes)


def told(g: GuardianUnderTest, script: str, **changes: object) -> list[str]:
    """What a script wrote into $OUT, line by line."""
    out = g.folder / "told"
    out.write_text("")
    out.chmod(0o666)
    agent = g.connected()
    agent.say(shell(g, f"({script}) >> {out} 2>&1; echo end >> {out}; sleep 1000", **changes))
    agent.expect(m.Started)
    wait_until(lambda: out.read_text().endswith("end\n"), what="the script to end")
    return out.read_text().splitlines()[:-1]


@as_root
@contained
def test_a_program_is_the_user_that_was_ordered_with_its_groups_and_no_rights(
    folder: Path, containment: str
) -> None:
    with guardian(folder) as g:
        said = told(
            g, "id -u; id -g; id -G; grep CapEff /proc/self/status", containment=containment, **WHO
        )

    assert said[:2] == [str(UID), str(GID)]
    assert set(said[2].split()) == {str(GID), str(EXTRA)}
    assert said[3].split() == ["CapEff:", "0" * 16]


@as_root
@contained
def test_another_users_program_dies_with_its_first_process(
    tmp_path: Path, containment: str
) -> None:
    """Becoming another user clears PDEATHSIG; the program asks for it anew."""
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(shell(g, "exec sleep 1000", containment=containment, **WHO))
        started = agent.expect(m.Started)
        agent.say(m.Seen(seat="web/0", epoch=1, pid=started.pid))
        g.process.send_signal(signal.SIGSTOP)  # it sweeps nothing
        pidfd = os.pidfd_open(started.main)

        os.kill(started.pid, signal.SIGKILL)

        wait_until(lambda: _is_dead(pidfd), what="the program to be dead")
        os.close(pidfd)


@as_root
@contained
def test_the_guardians_secrets_are_wiped_before_a_program_is_another_user(
    tmp_path: Path, containment: str
) -> None:
    with guardian(tmp_path) as g:
        secret = "5ec2e7" * 8
        agent = g.accept()
        agent.hello()
        agent.session(password=secret)
        agent.lease(60.0)
        agent.say(shell(g, "exec sleep 1000", containment=containment, **WHO))
        started = agent.expect(m.Started)

        for pid in (started.pid, started.main):
            assert not _has_in_memory(pid, secret.encode())


@as_root
def test_a_user_can_write_where_its_output_goes(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        agent.say(shell(g, "echo hello > /dev/stdout; echo there > /dev/stderr; sleep 9", **WHO))

        log = g.folder / "web-0.log"
        wait_until(lambda: log.exists() and "there" in log.read_text(), what="both lines")
        assert "hello" in log.read_text()


@as_root
def test_what_the_user_may_not_execute_or_enter_is_refused_for_good(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with guardian(tmp_path) as g:
        agent = g.connected()

        agent.say(g.nasty("plain", argv=("/bin/true",), cwd=str(closed), **WHO))

        refused = agent.expect(m.Refused)
        assert refused.permanent and "Permission denied" in refused.why


def test_umask_and_rlimits_are_what_was_ordered(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        said = told(
            g,
            "umask; ulimit -n; ulimit -H -n; ulimit -c; ulimit -s",
            umask=0o027,
            limits={"RLIMIT_NOFILE": 99, "RLIMIT_CORE": 0, "RLIMIT_STACK": 8 << 20},
        )

    assert said == ["0027", "99", "99", "0", "8192"]


def test_a_limit_that_cannot_be_had_is_refused_for_good_and_named(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()

        agent.say(g.nasty("plain", limits={"RLIMIT_NOFILE": 1 << 40}))

        refused = agent.expect(m.Refused)
        assert refused.permanent and "RLIMIT_NOFILE cannot be 1099511627776 here" in refused.why


def test_a_guardian_takes_all_the_descriptors_it_may_and_its_programs_get_what_was_allowed(
    tmp_path: Path,
) -> None:
    out = tmp_path / "told"
    with guardian(tmp_path, prefix=["prlimit", "--nofile=70:500"]) as g:
        agent = g.connected()

        for n in range(20):
            agent.say(shell(g, f"(ulimit -S -n; ulimit -H -n) >> {out}; sleep 1000", seat=f"s/{n}"))
        wait_until(lambda: out.exists() and len(out.read_text().split()) == 40, what="all to say")
    assert sorted(out.read_text().split()) == 20 * ["500"] + 20 * ["70"]


@as_root
def test_a_deadlines_timer_is_shared_and_goes_with_the_last_tree_that_has_it(
    tmp_path: Path,
) -> None:
    def timers() -> int:
        found = []
        for each in Path(f"/proc/{g.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.append(str(each.readlink()))
        return found.count("anon_inode:[timerfd]")

    with guardian(tmp_path) as g:
        agent = g.connected()
        before = timers()
        orders = [shell(g, "exec sleep 1000", seat=f"s/{n}", hard=n % 2 / 10) for n in range(6)]

        for order in orders:
            agent.say(order)
            started = agent.expect(m.Started, seat=order.seat)
            agent.say(m.Seen(seat=order.seat, epoch=order.epoch, pid=started.pid))

        assert timers() == before + 2
        for order in orders:
            agent.say(m.Stop(seat=order.seat, epoch=order.epoch, grace=0.0))
            agent.expect(m.Empty, seat=order.seat)
        wait_until(lambda: timers() == before, what="the timers to be closed")


def test_a_start_for_which_there_are_no_descriptors_is_refused_and_costs_none(
    tmp_path: Path,
) -> None:
    """With a policy that starts no spare agent, which would take two."""
    limited = ["prlimit", "--nofile=64:64"]
    with guardian(tmp_path, prefix=limited, policy="release") as g:
        agent = g.connected()

        def start(name: str) -> m.Started | m.Refused:
            order = shell(g, "exec sleep 1000", seat=name)
            agent.say(order)
            return agent.expect((m.Started, m.Refused), epoch=order.epoch)

        running: list[m.Started] = []
        while isinstance(said := start(f"s/{len(running)}"), m.Started):
            running.append(said)
        for _ in range(60):
            said = start("one/0")
            assert isinstance(said, m.Refused), "descriptors came from nowhere"
            assert not said.permanent and "Too many open files" in said.why
        last = running[-1]
        agent.say(m.Seen(seat=last.seat, epoch=last.epoch, pid=last.pid))
        agent.say(m.Stop(seat=last.seat, epoch=last.epoch, grace=0.0))
        agent.expect(m.Empty, seat=last.seat)

        assert isinstance(start("one/0"), m.Started)


@as_root
@contained
def test_a_fork_bomb_within_its_limit_is_ended_as_a_whole(folder: Path, containment: str) -> None:
    with guardian(folder) as g:
        Path(f"{g.ready}.lock").touch()
        Path(f"{g.ready}.lock").chmod(0o666)
        agent = g.connected()
        bomb = f"exec 9>>{g.ready}.lock; flock 9; trap '' TERM; touch {g.ready}; {FORKS}"
        agent.say(shell(g, bomb, containment=containment, limits={"RLIMIT_NPROC": 60}, **WHO))
        agent.expect(m.Started)
        wait_until(lambda: _count(UID) > 40, what="the bomb to go off")

        agent.say(m.Stop(seat="web/0", epoch=1, grace=0.2))
        agent.expect(m.Empty, epoch=1)

        assert g.all_dead()
        assert _count(UID) == 0


def test_a_cgroups_limits_are_written_before_anybody_is_in_it(tmp_path: Path) -> None:
    """On a folder that looks like one: not every machine hands controllers down."""
    for file in ("cgroup.kill", "cgroup.events"):
        (tmp_path / file).write_text("populated 0")

    with pytest.raises(PermissionError):  # epoll knows that it is no cgroup
        Cgroup(str(tmp_path), {"memory.max": "1048576", "pids.max": "10"})

    assert (tmp_path / "memory.max").read_text() == "1048576"
    assert (tmp_path / "pids.max").read_text() == "10"


@pytest.mark.skipif(bool(why_no_cgroups()), reason=why_no_cgroups())
def test_what_a_cgroup_can_limit_the_kernel_limits_and_what_it_cannot_is_said(
    tmp_path: Path,
) -> None:
    """What it can: as far as cgroups of version 2 have controllers on this machine."""
    controllers, why = hand_down(cgroups())

    assert controllers <= {"cpu", "memory", "pids"}
    assert bool(why) == (controllers != {"cpu", "memory", "pids"})
    with guardian(tmp_path) as g:
        agent = g.connected()

        def start(script: str, **limits: str) -> Path:
            """The cgroup of a program with these limits, which has begun."""
            named = {name.replace("_", "."): limit for name, limit in limits.items()}
            agent.say(shell(g, script, containment="contained", cgroup_limits=named))
            agent.expect(m.Started, epoch=g.epoch)
            return Path(g.cgroup)

        def stop() -> None:
            agent.say(m.Stop(seat="web/0", epoch=g.epoch, grace=0.0))
            agent.expect(m.Empty, epoch=g.epoch)

        if "pids" in controllers:
            cgroup = start(FORKS, pids_max="12")
            wait_until(
                lambda: "max 0" not in (cgroup / "pids.events").read_text(), what="a refusal"
            )
            assert int((cgroup / "pids.current").read_text()) <= 12
            stop()
        if "memory" in controllers:
            cgroup = start(
                "perl -e '$all = \"x\" x (256 << 20); sleep 1000'; sleep 1000",
                memory_max="33554432",
            )
            wait_until(
                lambda: "\nmax 0\n" not in (cgroup / "memory.events").read_text(), what="a refusal"
            )
            assert int((cgroup / "memory.current").read_text()) <= 33554432
            stop()
        if "cpu" in controllers:
            cgroup = start("while :; do :; done", cpu_max="10000 100000")
            wait_until(
                lambda: "nr_throttled 0" not in (cgroup / "cpu.stat").read_text(), what="a pause"
            )
            stop()


def _count(uid: int) -> int:
    """How many processes of that user live."""
    found = 0
    for process in kernel.processes():
        with suppress(OSError):
            found += not process.is_dead and Path(f"/proc/{process.pid}").stat().st_uid == uid
    return found


def _is_dead(pidfd: int) -> bool:
    return kernel.is_readable(pidfd)


def _has_in_memory(pid: int, needle: bytes) -> bool:
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, *_rest = line.split()
            if "r" not in access or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            memory.seek(start)
            try:
                if needle in memory.read(end - start):
                    return True
            except OSError:
                continue
    return False
