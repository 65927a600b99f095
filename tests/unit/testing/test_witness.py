"""The test program testifies truly, also when it is killed, and about what it leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from incumbent.testing import witness
from incumbent.testing.auditor import audit


class Stage:
    """Starts witnesses of one seat and reads their journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, epoch: int = 1, **settings: Any) -> subprocess.Popen[bytes]:
        env = {"INCUMBENT_SEAT": "web/0", "INCUMBENT_NODE": "n1", "INCUMBENT_EPOCH": str(epoch)}
        argv = witness.command(str(self.journal), str(self.folder), *options)
        process = subprocess.Popen(argv, env={**os.environ, **env}, **settings)
        self.started.append(process)
        return process

    def events(self, kind: str = "", epoch: int = 0) -> list[dict[str, Any]]:
        text = self.journal.read_text() if self.journal.exists() else ""
        whole = [json.loads(x) for x in text.splitlines(keepends=True) if x.endswith("\n")]
        return [e for e in whole if kind in ("", e["event"]) and (not epoch or e["epoch"] == epoch)]

    def until(self, true: Callable[[], object], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "it did not come in time"
            time.sleep(0.005)

    def lock_is_free(self) -> bool:
        with (self.folder / "web-0.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def verdict(self) -> list[str]:
        return [
            v.split(":")[0] for v in audit(self.journal.read_text().splitlines(True)).violations
        ]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    pids = {e["pid"] for e in stage.events()} - {p.pid for p in stage.started}
    for process in stage.started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    for pid in pids:  # children that it left behind; only ours hold this stage's lock
        if not stage.lock_is_free():
            os.kill(pid, signal.SIGKILL)
    stage.until(stage.lock_is_free)


def test_it_writes_start_ticks_and_stop(stage: Stage) -> None:
    process = stage.start("--exit-after", "0.2", "--code", "7")

    assert process.wait(20) == 7
    events = [e["event"] for e in stage.events()]
    assert (events[0], events[-1]) == ("start", "stop")
    assert set(events[1:-1]) == {"tick"}
    assert stage.events()[0]["seat"] == "web/0"
    assert stage.verdict() == []


def test_sigterm_stops_it(stage: Stage) -> None:
    process = stage.start("--stop-takes", "0.1")
    stage.until(lambda: stage.events("tick"))

    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 0
    assert [e["event"] for e in stage.events()][-1] == "stop"


def test_it_can_ignore_sigterm(stage: Stage) -> None:
    process = stage.start("--ignore-term")
    stage.until(lambda: stage.events("tick"))

    process.send_signal(signal.SIGTERM)
    seen = len(stage.events())
    stage.until(lambda: len(stage.events()) > seen + 20)

    assert process.poll() is None


def test_a_second_one_records_the_overlap(stage: Stage) -> None:
    stage.start(epoch=1)
    stage.until(lambda: stage.events("tick", 1))

    stage.start(epoch=2)
    stage.until(lambda: stage.events("tick", 2))

    assert [e["epoch"] for e in stage.events("overlap")] == [2]
    assert "overlap" in stage.verdict()


def test_the_lock_ends_with_sigkill_and_the_next_is_clean(stage: Stage) -> None:
    process = stage.start(epoch=1)
    stage.until(lambda: stage.events("tick"))

    process.kill()
    process.wait()
    assert stage.start("--exit-after", "0.05", epoch=2).wait(20) == 0

    assert stage.verdict() == []


def test_a_descendant_that_is_left_is_an_overlap_of_the_next(stage: Stage) -> None:
    process = stage.start("--fork", epoch=1)
    stage.until(lambda: len({e["pid"] for e in stage.events("tick")}) == 2)

    process.kill()
    process.wait()
    stage.start("--exit-after", "0.05", epoch=2).wait(20)

    assert len(stage.events("overlap", 2)) == 1


def test_in_the_background_the_parent_ends_and_the_program_lives(stage: Stage) -> None:
    process = stage.start("--background")

    assert process.wait(20) == 0
    stage.until(lambda: len(stage.events("tick")) > 3)

    (pid,) = {e["pid"] for e in stage.events()}
    assert pid != process.pid
    assert os.getsid(pid) == pid


def test_flooding_stdout_never_stops_its_clock(stage: Stage) -> None:
    process = stage.start("--flood", stdout=subprocess.PIPE)
    assert process.stdout is not None

    assert len(process.stdout.read(300_000)) == 300_000
    seen = len(stage.events("tick"))
    stage.until(lambda: len(stage.events("tick")) > seen + 10)  # nobody reads any more

    process.stdout.close()
    seen = len(stage.events("tick"))
    stage.until(lambda: len(stage.events("tick")) > seen + 10)


def test_it_can_close_stdout(stage: Stage) -> None:
    process = stage.start("--close-stdout", stdout=subprocess.PIPE)
    assert process.stdout is not None

    assert process.stdout.read() == b""
    stage.until(lambda: stage.events("tick"))


def test_beside_a_program_it_ticks_and_the_program_holds_the_lock(stage: Stage) -> None:
    process = stage.start("--", "sleep", "1000", epoch=1)
    stage.until(lambda: stage.events("tick"))
    (witness_pid,) = {e["pid"] for e in stage.events("tick")}

    os.kill(witness_pid, signal.SIGKILL)
    held = not stage.lock_is_free()
    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == -signal.SIGTERM
    assert held
    stage.until(stage.lock_is_free)
    assert stage.verdict() == []
