"""`incumbent demo` keeps its word: four acts with receipts, a verdict, and nothing left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.children import ends_with_us
from tests.e2e.nodes import INCUMBENT
from tests.waiting import wait_until

from incumbent.cli.demo.journals import Journals, verdict
from incumbent.cli.demo.table import NodeNow, Now, SeatNow, plain_table
from incumbent.cli.explain import Row
from incumbent.guardian.containment import probe

MOVED = r"receipt  {what} +(n\d) → (?!\1)n\d +[\d,]+ ms down  \w+, epoch \d+\n"


class Running:
    """A demo whose temporary folder is below `folder`, and what it has printed."""

    def __init__(self, folder: Path, *options: str, stdout: int | None = None) -> None:
        self.folder = folder
        self._out = folder / "printed"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("INCUMBENT_")}
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [*INCUMBENT, "demo", *options],
                cwd=folder,
                env={**clean, "TMPDIR": str(self.tmp), "TERM": "xterm"},
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )

    @property
    def text(self) -> str:
        return self._out.read_text()

    def wait_for(self, words: str, timeout: float = 60.0) -> None:
        wait_until(lambda: words in self.text, timeout, f"{words!r}; it printed:\n{self.text}")

    def ends(self, timeout: float = 90.0) -> int:
        return self.process.wait(timeout)

    def left(self) -> list[str]:
        """Processes that have to do with its folder, by command line, folder or open files."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                marks = [(entry / "cmdline").read_bytes().decode(errors="replace")]
                links = [entry / "cwd", *(entry / "fd").iterdir()]
                marks += [str(link.readlink()) for link in links]
                if any(f"{self.tmp}/" in mark for mark in marks):
                    found.append(f"{entry.name} {marks[0]}")
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Running]]:
    begun: list[Running] = []

    class Begun(Running):
        def __init__(self, *options: str, stdout: int | None = None) -> None:
            super().__init__(tmp_path, *options, stdout=stdout)
            begun.append(self)

    yield Begun  # type: ignore[misc]
    for running in begun:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGINT)
            running.process.send_signal(signal.SIGINT)
            running.ends(30)


def test_it_plays_its_acts_and_the_auditor_finds_it_clean(start: type[Running]) -> None:
    demo = start()

    code = demo.ends()

    text = demo.text
    assert code == 0, text
    assert re.search(r"receipt  agent killed +n\d +0 ms down  \w+ still pid \d+\n", text), text
    assert "in the same session" in text
    assert re.search(MOVED.format(what="guardian killed"), text), text
    if probe()["sealed"] == "":
        assert re.search(MOVED.format(what="node killed"), text), text
    else:
        assert "Kill a whole node: skipped." in text
    assert re.search(MOVED.format(what="handed over"), text), text
    assert re.search(r"^The auditor: clean \(\d+ starts", text, re.MULTILINE), text
    assert "\x1b" not in text, "plain where it is piped"
    assert max(map(len, text.splitlines())) <= 80
    assert demo.left() == []
    assert list(demo.tmp.iterdir()) == []


def test_what_cannot_be_shown_is_said_and_a_dirty_journal_is_no_success(
    start: type[Running],
) -> None:
    demo = start("--swept")
    demo.wait_for("4/4")
    (journal,) = demo.tmp.glob("*/web.jsonl")
    line = json.loads(journal.read_text().splitlines()[-1])
    with journal.open("a") as file:
        file.write(json.dumps({**line, "event": "overlap"}) + "\n")

    code = demo.ends()

    assert code == 1, demo.text
    assert "Kill a whole node: skipped." in demo.text
    assert "node killed" not in demo.text
    assert re.search(r"The auditor: NOT CLEAN, 1 violations .*\noverlap: web/0", demo.text)
    assert demo.left() == []
    assert journal.exists(), "what the auditor complains of is kept"


def test_in_a_terminal_the_table_moves_and_ctrl_c_leaves_nothing(start: type[Running]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    os.set_blocking(ours, False)
    demo = start(stdout=theirs)
    seen = bytearray()

    def shown(words: str) -> bool:
        with suppress(BlockingIOError):
            seen.extend(os.read(ours, 65536))
        return words in seen.decode(errors="replace")

    wait_until(lambda: shown("2/4"), 60, "the second act")
    demo.process.send_signal(signal.SIGINT)
    wait_until(lambda: shown("Nothing is left running") or None, 30, "the end")
    code = demo.ends(10)
    os.close(theirs)
    os.close(ours)

    text = seen.decode(errors="replace")
    assert code == 130
    assert text.count("guardian ") > 10, "drawn again and again"
    assert "\x1b[32m" in text
    assert demo.left() == []
    assert list(demo.tmp.iterdir()) == []


def test_the_verdict_is_the_auditors(tmp_path: Path) -> None:
    journals = Journals(tmp_path, ["web"])
    file = tmp_path / "web.jsonl"

    def write(epoch: int, event: str) -> None:
        at = journals.note("input")
        line = {"boottime_ns": at, "seat": "web/0", "epoch": epoch, "node": "n1", "pid": 7}
        with file.open("a") as out:
            out.write(json.dumps({**line, "event": event}) + "\n")

    assert verdict([*journals.files, file], 20.0)[0] is False, "nothing proves nothing"
    write(1, "start")
    write(2, "start")
    assert verdict(journals.files, 20.0) == (True, "clean (2 starts, 0 torn at a file's end)")

    write(1, "tick")
    is_clean, words = verdict(journals.files, 20.0)

    assert not is_clean
    assert words.startswith("NOT CLEAN, 1 violations")


def test_a_journal_is_read_on_from_its_last_whole_line(tmp_path: Path) -> None:
    journals = Journals(tmp_path, ["web"])
    line = '{"boottime_ns": 5, "seat": "web/0", "epoch": 1, "node": "n1", "pid": 7, "event": "start"}\n'
    file = tmp_path / "web.jsonl"
    assert journals.lives("web") == {}

    file.write_text(line + line[:20])
    first = journals.lives("web")[1].seen_ns
    file.write_text(line + line.replace("5", "9"))

    assert first == 5
    assert (journals.lives("web")[1].began_ns, journals.lives("web")[1].seen_ns) == (5, 9)


def test_the_table_has_a_column_for_each_node() -> None:
    web = Row(component="web", seat=0, copies=1, state="running", node="n2", pid=42, epoch=3)
    job = Row(component="job", seat=0, copies=1, state="running", node="n1", pid=41, epoch=1)
    now = Now(
        nodes=[
            NodeNow(name="n1", killed=("guardian", "agent")),
            NodeNow(name="n2", guardian=20, agent=21),
            NodeNow(name="n3", agent=31),
        ],
        seats={
            "web": SeatNow(row=web, line=["n2", "n3"], work="answers 200"),
            "job": SeatNow(row=job, line=["n1", "n2"], is_alive=False),
        },
    )

    lines = plain_table(now)

    assert lines == [
        "         n1         n2         n3         epoch  work",
        "guardian killed     20         gone",
        "agent    killed     21         31",
        "web      ·          42         next           3  answers 200",
        "job      killed     next       ·              1  does not answer",
    ]
