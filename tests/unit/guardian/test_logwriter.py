"""The log writer without a guardian: stamps, rotation, sick disks."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest
from tests.waiting import wait_until

from incumbent.guardian.logwriter import Rotating, Stamp, _Spool, write_log

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


def unstamped(data: bytes) -> bytes:
    return STAMP.sub(b"|", data)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\n", b"b\n"], b"|a\n|b\n"),
        ([b"a", b"b\nc", b"\n"], b"|ab\n|c\n"),
        ([b"\n\n"], b"|\n|\n"),
        ([b"\xff\x00\r\n"], b"|\xff\x00\r\n"),
        ([b"no end"], b"|no end"),
    ],
)
def test_a_line_has_one_stamp_however_it_comes(pieces: list[bytes], expected: bytes) -> None:
    stamp = Stamp()

    assert unstamped(b"".join(stamp.put_on(piece) for piece in pieces)) == expected


def test_full_files_move_up_and_the_oldest_goes(tmp_path: Path) -> None:
    log = Rotating(tmp_path / "a.log", size=10, files=3)

    for n in range(6):
        log.write(b"line %d\n" % n)

    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "a.log": "line 5\n",
        "a.log.1": "line 4\n",
        "a.log.2": "line 3\n",
    }


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    Rotating(tmp_path / "a" / "b" / "c.log").write(b"x\n")

    assert (tmp_path / "a" / "b" / "c.log").read_text() == "x\n"


def test_a_file_deleted_by_hand_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = Rotating(path)
    log.write(b"one\n")
    path.unlink()

    def again() -> bool:
        log.write(b"two\n")
        return path.exists()

    wait_until(again, what="the file to be made again")


def test_what_a_sick_disk_loses_is_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    lose = _Spool.lose

    def counted(spool: _Spool, lines: int) -> bool:
        lost.append(lines)
        return lose(spool, lines)

    monkeypatch.setattr(_Spool, "lose", counted)
    place = tmp_path / "folder"
    place.write_text("a file where the folder should be")
    read_end, write_end = os.pipe()
    writer = threading.Thread(target=write_log, args=(read_end, place / "a.log"))
    writer.start()
    os.write(write_end, b"one\ntwo\n")
    wait_until(lambda: lost, what="the lines to be lost")

    place.unlink()
    os.write(write_end, b"three\n")
    log = place / "a.log"
    wait_until(lambda: log.exists() and b"three" in log.read_bytes(), what="the log")
    os.close(write_end)
    writer.join(10)
    os.close(read_end)

    assert unstamped(log.read_bytes()) == b"|[incumbent: 2 lines lost]\n|three\n"


def test_a_note_stands_before_the_first_line(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"hello\n")
    os.close(write_end)

    write_log(read_end, tmp_path / "a.log", "replaced")
    os.close(read_end)

    said = unstamped((tmp_path / "a.log").read_bytes())
    assert said == b"|[incumbent: replaced]\n|hello\n"
