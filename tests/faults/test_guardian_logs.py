"""A program's output: written, rotated, and never a reason for the program to wait or die."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.disks import small_disk
from tests.programs.guardian_under_test import GuardianUnderTest, guardian
from tests.waiting import wait_until

from incumbent.guardian import kernel
from incumbent.guardian import messages as m

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (.*)\n")


def test_each_line_has_its_time_and_the_programs_bytes(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("says", "one\ntwo\n\nfour"))

        log = tmp_path / "web-0.log"
        wait_until(lambda: log.exists() and log.read_text().count("\n") == 4, what="four lines")

    assert LINE.findall(log.read_text()) == ["one", "two", "", "four"]


def test_the_next_epoch_goes_on_in_the_same_file(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        for word in ("first", "second", "third"):
            g.run(agent, g.nasty("says", word))
            agent.say(m.Stop(seat="web/0", epoch=g.epoch, grace=0))
            agent.expect(m.Empty, epoch=g.epoch)

        log = tmp_path / "web-0.log"
        wait_until(lambda: log.exists() and log.read_text().count("\n") == 3, what="three lines")

    assert LINE.findall(log.read_text()) == ["first", "second", "third"]


def test_a_killed_writer_is_replaced_and_the_program_goes_on(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("floods"))
        writer = wait_until(lambda: writers(g, agent.pid, started.pid), what="a writer")

        os.kill(writer[0], signal.SIGKILL)
        log = tmp_path / "web-0.log"
        wait_until(lambda: writers(g, agent.pid, started.pid) not in ([], writer), what="another")
        size = total(log)
        wait_until(lambda: total(log) > size + 1000, what="more output")

        assert started.main in g.living()


def test_a_frozen_writer_is_replaced(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("floods"))
        writer = wait_until(lambda: writers(g, agent.pid, started.pid), what="a writer")

        os.kill(writer[0], signal.SIGSTOP)

        wait_until(lambda: writers(g, agent.pid, started.pid) not in ([], writer), what="another")


def test_a_writer_that_a_flood_keeps_busy_is_not_taken_for_frozen(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("floods"))
        writer = wait_until(lambda: writers(g, agent.pid, started.pid), what="a writer")

        until = time.monotonic() + 4.5  # four looks of the guardian
        wait_until(lambda: time.monotonic() > until, what="four looks")

        assert writers(g, agent.pid, started.pid) == writer


def test_a_flood_is_kept_in_five_files_of_ten_megabytes(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        g.run(agent, g.nasty("floods"))

        wait_until((tmp_path / "web-0.log.4").exists, 60, what="the fifth file")
        agent.say(m.Stop(seat="web/0", epoch=1, grace=0))
        agent.expect(m.Empty)

    files = [tmp_path / "web-0.log", *(tmp_path / f"web-0.log.{n}" for n in (1, 2, 3, 4))]
    # The log's writer has yet to read what was in the pipe, and may be amid a rotation.
    wait_until(lambda: sorted(tmp_path.glob("web-0.log*")) == files, what="five files")
    assert all(each.stat().st_size <= 10_000_000 for each in files)


def test_a_full_disk_stops_nothing_and_the_lost_lines_are_counted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk, guardian(tmp_path) as g:
        filler = disk / "filler"
        agent = g.connected()
        filler.write_bytes(b"x" * 900_000)
        started = g.run(agent, g.nasty("floods", log=str(disk / "web-0.log")))
        wait_until(lambda: full(disk), what="the disk to be full")

        agent.lease(60)  # the guardian is fine
        assert started.main in g.living()
        agent.say(m.Stop(seat="web/0", epoch=1, grace=1.0))
        agent.expect(m.Empty)
        filler.unlink()
        g.run(agent, g.nasty("says", "again", log=str(disk / "web-0.log")))
        wait_until(
            lambda: "again" in (disk / "web-0.log").read_text(), what="the log to work again"
        )


def test_a_deleted_log_folder_is_made_again_and_nobody_waits(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    with guardian(tmp_path) as g:
        agent = g.connected()
        started = g.run(agent, g.nasty("floods", log=str(folder / "web-0.log")))
        wait_until(lambda: (folder / "web-0.log").exists(), what="the log")

        shutil.rmtree(folder, ignore_errors=True)

        wait_until(lambda: (folder / "web-0.log").exists(), what="the log again")
        agent.lease(60)
        assert started.main in g.living()


def test_where_no_log_can_be_written_the_program_runs_and_its_lines_are_counted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logs"
    folder.write_text("no folder")
    with guardian(tmp_path) as g:
        agent = g.connected()
        program = "n=0; while [ $n -lt 99999 ]; do echo $n; n=$((n+1)); done; echo done; sleep 999"
        argv = ("sh", "-c", program)
        agent.say(g.nasty("plain", argv=argv, log=str(folder / "web-0.log")))
        started = agent.expect(m.Started)
        wait_until(lambda: "sleep" in kernel.Process(started.main).state + _children(started.main))

        folder.unlink()

        log = folder / "web-0.log"
        wait_until(lambda: log.exists() and _accounted_for(log) == 100_000, what="every line")
        assert "lines lost" in log.read_text()


def _accounted_for(log: Path) -> int:
    """Lines that are there, and those that are said to be lost."""
    text = log.read_text()
    lost = [int(each) for each in re.findall(r"\[incumbent: (\d+) lines lost\]", text)]
    return sum(lost) + len(text.splitlines()) - len(lost)


def _children(pid: int) -> str:
    """The command lines of its children."""
    found = ""
    for child in kernel.descendants([pid]):
        with suppress(OSError):
            found += Path(f"/proc/{child.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def test_no_log_means_our_own_output(tmp_path: Path) -> None:
    with guardian(tmp_path) as g:
        agent = g.connected()
        program = ("sh", "-c", "echo to our own stderr >&2")
        agent.say(g.nasty("plain", argv=program, log=None))
        agent.expect(m.Empty)

        wait_until(lambda: "to our own stderr" in g.errors, what="its output")


def writers(g: GuardianUnderTest, *others: int) -> list[int]:
    """The guardian's children that are neither agent, spare nor first process: log writers.

    The relay of the guardian's own stderr, which is a file here, came before all others."""
    pid = g.process.pid
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return sorted(each for each in found if each not in others and not is_agent(each))[1:]


def is_agent(pid: int) -> bool:
    """Executed anew, with a link: writers and first processes are forks of the guardian."""
    try:
        return b"--link-fd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def total(log: Path) -> int:
    return sum(each.stat().st_size for each in log.parent.glob(log.name + "*") if each.exists())


def full(folder: Path) -> bool:
    return os.statvfs(folder).f_bfree == 0
