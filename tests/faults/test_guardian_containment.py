"""The first process of a tree, driven without a guardian's loop; also as somebody who is not root."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.waiting import wait_until

from incumbent.guardian import kernel
from incumbent.guardian.actions import (
    Event,
    MainExited,
    SeatStarted,
    SpawnFailed,
    SpawnSeat,
    TreeEmpty,
)
from incumbent.guardian.containment import CONTAINMENTS, Tree, probe
from incumbent.guardian.messages import Start

NOBODY = 65534
contained = pytest.mark.parametrize("containment", [c for c in CONTAINMENTS if c != "contained"])
"""That one needs a cgroup, and has its tests in test_guardian_cgroups.py."""


def shell(script: str, containment: str) -> Start:
    return Start(
        generation=1,
        seat="web/0",
        epoch=1,
        soft=1.0,
        hard=0.5,
        argv=("/bin/sh", "-c", script),
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        containment=containment,
    )


class Watched:
    """A tree and all the events it has given so far."""

    def __init__(
        self,
        script: str,
        containment: str,
        soft_at: float = math.inf,
        hard_at: float = math.inf,
        output: int | None = None,
    ) -> None:
        action = SpawnSeat(shell(script, containment), soft_at, hard_at, 0)
        self.deadline = kernel.BoottimeTimer()
        self.deadline.set(hard_at)
        self.tree = Tree(action, self.deadline, (), output)
        self.events: list[Event] = []
        self.is_dead = False

    def until(self, kind: type[Event]) -> Event:
        def look() -> Event | None:
            self.events += self.tree.on_channel()
            if not self.is_dead and self.tree.is_dead:
                self.is_dead = True
                self.events += self.tree.on_death(kernel.children)
            return next((each for each in self.events if isinstance(each, kind)), None)

        found = wait_until(look, what=f"{kind.__name__}; so far {self.events}")
        assert found is not None
        return found


@contextmanager
def watched(script: str, containment: str, **options: object) -> Iterator[Watched]:
    found = Watched(script, containment, **options)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        kernel.sweep(found.tree.pid)
        if not found.tree.is_reaped:
            kernel.kill(found.tree.pidfd)
            wait_until(lambda: found.tree.is_dead, what="the first process to be dead")
            found.tree.reap()
        found.deadline.close()


def as_nobody(check: Callable[[], None]) -> None:
    """Run `check` in a forked child that is not root; its failure is ours."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_machine_for_our_tests_can_do_both() -> None:
    assert probe() == {"sealed": "", "swept": ""}


@contained
def test_someone_who_is_not_root_has_the_same_containments(containment: str) -> None:
    def check() -> None:
        assert probe()[containment] == ""
        with watched("(setsid sleep 1000 &); sleep 1000", containment) as w:
            started = w.until(SeatStarted)
            assert isinstance(started, SeatStarted)
            wait_until(lambda: len(kernel.descendants([w.tree.pid])) >= 2, what="a daughter")
            w.tree.signal(signal.SIGTERM)
            ended = w.until(MainExited)
            assert isinstance(ended, MainExited) and ended.signal == signal.SIGTERM
            w.until(TreeEmpty)
            assert not [each for each in kernel.descendants([w.tree.pid]) if not each.is_dead]

    as_nobody(check)


def test_in_a_user_namespace_the_program_is_who_it_was_and_has_no_rights() -> None:
    read_end, write_end = os.pipe()

    def check() -> None:
        script = "id -u; id -g; grep CapEff /proc/self/status"
        with watched(script, "sealed", output=write_end) as w:
            ended = w.until(MainExited)
            assert isinstance(ended, MainExited) and ended.code == 0, ended
            w.until(TreeEmpty)

    as_nobody(check)

    uid, gid, rights = os.read(read_end, 4096).decode().splitlines()
    os.close(read_end)
    os.close(write_end)
    if os.geteuid() == 0:
        assert (uid, gid) == (str(NOBODY), str(NOBODY))
    assert int(rights.split()[1], 16) == 0


def test_in_a_namespace_the_program_sees_only_its_own_processes(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with watched(f"echo /proc/[0-9]* > {told}", "sealed") as w:
        w.until(TreeEmpty)

    assert told.read_text().split() == ["/proc/1", "/proc/2"]
    assert Path(f"/proc/{os.getpid()}").exists()  # our own /proc is what it was


@contained
def test_after_its_soft_deadline_nothing_is_executed(containment: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with watched(f"touch {told}", containment, soft_at=1.0) as w:
        failed = w.until(SpawnFailed)

    assert isinstance(failed, SpawnFailed)
    assert "soft deadline has passed" in failed.why and not failed.permanent
    assert not told.exists()


@contained
def test_a_deadline_that_comes_nearer_is_noticed(containment: str) -> None:
    with watched("sleep 1000", containment) as w:
        w.until(SeatStarted)

        w.deadline.set(1.0)  # long ago

        w.until(TreeEmpty)


@contained
def test_a_guardian_killed_at_any_moment_of_a_start_leaves_nobody(containment: str) -> None:
    marker = f"exec sleep 10{os.getpid()}"  # seconds: nobody else sleeps as long as that
    for attempt in range(40):
        pid = os.fork()
        if pid == 0:
            try:
                Watched(marker, containment)
                signal.pause()
            finally:
                os._exit(0)
        time.sleep(attempt * 0.0003)  # not a wait: the moment of the kill
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    wait_until(lambda: not running(f"10{os.getpid()}"), what="everybody to be dead")


def running(word: str) -> list[int]:
    """Pids of living processes with this word in their command line."""
    found = []
    for each in kernel.processes():
        with suppress(OSError):
            line = Path(f"/proc/{each.pid}/cmdline").read_bytes()
            if word.encode() in line and not each.is_dead:
                found.append(each.pid)
    return found


def test_wiping_leaves_no_copy_and_nothing_else() -> None:
    secret = os.urandom(16).hex()
    keep = "k" * 40

    def check() -> None:
        needle = secret.encode()
        copies = [needle + b"x", bytearray(b"y" + needle), {"password": str(needle, "ascii")}]
        kernel.wipe([needle])
        assert not any(needle)
        assert copies[0] == bytes(32) + b"x" and copies[1] == b"y" + bytes(32)
        assert set(copies[2]["password"]) == {"\0"}  # type: ignore[call-overload]
        assert keep == "k" * 40

    as_nobody(check)


def test_a_timer_of_boottime_rings_and_can_be_moved() -> None:
    timer = kernel.BoottimeTimer()
    now = kernel.boottime()

    timer.set(now + 1000)
    assert not kernel.is_readable(timer.fd)
    timer.set(now + 0.01)
    assert kernel.is_readable(timer.fd, 5)
    timer.clear()
    timer.set(math.inf)
    assert not kernel.is_readable(timer.fd, 0.05)
    timer.close()
