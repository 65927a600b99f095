"""A log that grows, is renamed, and is read from its end, from a time, or from where one was."""

from __future__ import annotations

from pathlib import Path

import pytest

from incumbent.agent.tail import Tail


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def rotate(path: Path, files: int = 5) -> None:
    """As the log-writer does."""
    names = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, files))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        if newer.exists():
            newer.replace(older)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "web-0.log"


def last(path: Path, count: int) -> list[str]:
    tail = Tail(path)
    tail.begin_at_last(count)
    return list(tail.read())


def test_the_last_lines_reach_into_older_files(path: Path) -> None:
    write(path.with_name("web-0.log.2"), "1", "2")
    write(path.with_name("web-0.log.1"), "3", "4")
    write(path, "5", "6")

    assert last(path, 3) == ["4", "5", "6"]
    assert last(path, 4) == ["3", "4", "5", "6"]
    assert last(path, 100) == ["1", "2", "3", "4", "5", "6"]
    assert last(path, 0) == []


def test_the_last_lines_of_large_files_are_found_from_their_end(path: Path) -> None:
    lines = [f"{n} {'x' * (n % 301)}" for n in range(5000)]
    write(path.with_name("web-0.log.1"), *lines[:3000])
    write(path, *lines[3000:])

    for count in (1, 2, 999, 1999, 2000, 2001, 4000, 5000, 6000):
        assert last(path, count) == lines[-count:]


def test_following_goes_over_to_the_next_file_without_losing_a_line(path: Path) -> None:
    write(path, "1")
    tail = Tail(path)
    assert list(tail.read()) == ["1"]

    write(path, "2")
    rotate(path)
    assert list(tail.read()) == ["2"]  # the next one is not there yet
    write(path, "3")

    assert list(tail.read()) == ["3"]
    assert list(tail.read()) == []


def test_files_that_went_by_between_two_looks_are_read_all_the_same(path: Path) -> None:
    write(path, "1")
    tail = Tail(path)
    tail.begin_at_last(0)

    for line in "234":
        write(path, line)
        rotate(path)
    write(path, "5")

    assert list(tail.read()) == ["2", "3", "4", "5"]


def test_what_went_by_faster_than_it_was_read_is_said_to_be_missing(path: Path) -> None:
    write(path, "1")
    tail = Tail(path)
    assert list(tail.read()) == ["1"]

    for line in "2345678":
        rotate(path)
        write(path, line)
    seen = list(tail.read())

    assert "lines are missing here" in seen[0]
    assert seen[1:] == ["4", "5", "6", "7", "8"]


def test_a_file_deleted_by_hand_is_followed_by_the_new_one(path: Path) -> None:
    write(path, "1")
    tail = Tail(path)
    assert list(tail.read()) == ["1"]

    path.unlink()
    write(path, "2")

    assert list(tail.read()) == ["2"]


def test_an_unfinished_line_waits_for_its_end(path: Path) -> None:
    path.write_text("half")
    tail = Tail(path)
    tail.begin_at_last(10)
    assert list(tail.read()) == []

    write(path, " whole")

    assert list(tail.read()) == ["half whole"]


def test_a_line_without_an_end_comes_in_pieces(path: Path) -> None:
    path.write_text("x" * 3_000_000)
    tail = Tail(path)

    pieces = list(tail.read())

    assert len(pieces) > 1
    assert "".join(pieces) == "x" * sum(map(len, pieces))


def test_it_begins_at_a_time(path: Path) -> None:
    stamps = [f"2026-01-31T12:00:{n:02d}.000Z" for n in range(6)]
    write(path.with_name("web-0.log.1"), *(f"{at} a" for at in stamps[:3]))
    write(path, *(f"{at} b" for at in stamps[3:]))

    def since(at: str) -> list[str]:
        tail = Tail(path)
        tail.begin_at_time(at)
        return [line[:24] for line in tail.read()]

    assert since(stamps[4]) == stamps[4:]
    assert since(stamps[3]) == stamps[3:]
    assert since(stamps[1]) == stamps[1:]
    assert since("2025-01-01T00:00:00.000Z") == stamps
    assert since("2027-01-01T00:00:00.000Z") == []


def test_it_goes_on_where_another_one_was_also_in_a_renamed_file(path: Path) -> None:
    write(path, "1", "2", "3")
    first = Tail(path)
    first.begin_at_last(2)
    assert first.batch() == ["2", "3"]
    place = first.place
    first.close()

    write(path, "4")
    rotate(path)
    write(path, "5")
    second = Tail(path)
    second.begin_after(place)

    assert list(second.read()) == ["4", "5"]


def test_where_it_was_is_gone_and_that_is_said(path: Path) -> None:
    write(path, "1", "2")
    tail = Tail(path)

    tail.begin_after((1, 10**9))

    seen = list(tail.read())
    assert "lines are missing here" in seen[0]
    assert seen[1:] == ["1", "2"]


def test_another_file_under_the_same_inode_is_not_the_one_it_was_in(path: Path) -> None:
    write(path, "1", "2")
    first = Tail(path)
    first.begin_at_last(2)
    assert first.batch() == ["1", "2"]
    place = first.place
    first.close()

    path.write_text("")  # the inode stays, as where it is given to a new file
    write(path, "3", "4", "5")
    second = Tail(path)
    second.begin_after(place)

    seen = list(second.read())
    assert "lines are missing here" in seen[0]
    assert seen[1:] == ["3", "4", "5"]


def test_a_file_that_was_emptied_is_read_from_its_beginning_and_that_is_said(path: Path) -> None:
    write(path, "1", "2", "3")
    tail = Tail(path)
    assert list(tail.read()) == ["1", "2", "3"]

    path.write_text("")
    write(path, "4")

    seen = list(tail.read())
    assert "lines may be missing here" in seen[0]
    assert seen[1:] == ["4"]
    write(path, "5")
    assert list(tail.read()) == ["5"]


def test_a_half_line_of_a_file_that_was_emptied_is_no_part_of_the_next(path: Path) -> None:
    path.write_text("whole\nhalf of something long")
    tail = Tail(path)
    assert list(tail.read()) == ["whole"]

    path.write_text("")
    write(path, "4")

    assert list(tail.read())[1:] == ["4"]


def test_no_file_is_left_open(path: Path) -> None:
    write(path.with_name("web-0.log.1"), "1")
    write(path, "2")
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(10):
        tail = Tail(path)
        tail.begin_at_last(1)
        assert list(tail.read()) == ["2"]
        tail.close()
        tail = Tail(path)
        tail.begin_after((0, 0))
        tail.close()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_file_is_left_open_where_another_one_cannot_be_opened(path: Path) -> None:
    write(path, "2")
    older = path.with_name(f"{path.name}.1")
    older.symlink_to(older.name)  # ELOOP, for root too
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(10):
        with pytest.raises(OSError, match="symbolic links"):
            Tail(path).begin_at_last(1)

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_written_after_the_end_was_set_is_not_given(path: Path) -> None:
    """Else whoever asks for three lines gets four of a program that writes; and one that writes
    faster than is read is read for ever."""
    write(path, "1", "2")
    tail, none = Tail(path), Tail(path.with_name("absent.log"))
    tail.end_here()
    none.end_here()
    write(path, "3")
    write(path.with_name("absent.log"), "too late")
    tail.begin_at_last(2)
    write(path, "4")

    assert list(tail.read()) == ["1", "2"]
    assert list(none.read()) == []
    rotate(path)
    write(path, "5")
    assert list(tail.read()) == []


def test_nor_what_a_next_file_has_by_then(path: Path) -> None:
    write(path.with_name("web-0.log.1"), "1")
    write(path, "2", "3")
    tail, whole = Tail(path), Tail(path)
    tail.end_here()
    whole.end_here()
    write(path, "4")
    rotate(path)
    write(path, "5", "6")
    tail.begin_at_last(1)

    assert list(tail.read()) == ["3"]
    assert list(whole.read()) == ["1", "2", "3"]


def test_the_end_is_that_of_the_newest_file_there_is(path: Path) -> None:
    write(path, "1", "2")
    rotate(path)  # and the log-writer has not made the next one yet
    tail = Tail(path)
    tail.end_here()
    write(path, "3")
    tail.begin_at_last(1)

    assert list(tail.read()) == ["2"]
