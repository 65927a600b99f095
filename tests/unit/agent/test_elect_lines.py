"""Lines to a terminal or pipe that is full or gone: never waited for, news not lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.waiting import eventually

from incumbent.agent.lines import Lines, Role

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def fill(pipe: Pipe) -> int:
    """Fill it; returns how many bytes it holds."""
    os.set_blocking(pipe[1], False)
    size = 0
    try:
        while True:
            size += os.write(pipe[1], b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(pipe[1], True)
        return size


def drain(pipe: Pipe, size: int) -> None:
    while size > 0:
        size -= len(os.read(pipe[0], size))


def test_a_full_pipe_is_not_waited_for_and_news_come_when_it_is_read(pipe: Pipe) -> None:
    size = fill(pipe)
    lines = Lines(pipe[1])
    lines.news("first")
    lines.reminder("nothing new")
    drain(pipe, size)

    lines.news("second")

    assert os.read(pipe[0], 100) == b"first\nsecond\n"


def test_a_reminder_is_written_once_news_are(pipe: Pipe) -> None:
    size = fill(pipe)
    lines = Lines(pipe[1])
    lines.news("news")
    drain(pipe, size)

    lines.reminder("again")

    assert os.read(pipe[0], 100) == b"news\nagain\n"


def test_a_pipe_that_nobody_will_read_is_no_error(pipe: Pipe) -> None:
    os.close(pipe[0])
    lines = Lines(pipe[1])

    lines.news("to nobody")
    lines.reminder("to nobody")


def test_a_prefix_comes_with_the_time_of_day(pipe: Pipe) -> None:
    Lines(pipe[1], "elect: ").news("started")

    assert os.read(pipe[0], 100)[8:] == b" elect: started\n"


async def test_a_role_is_said_again_until_another_one_is_played(pipe: Pipe) -> None:
    role = Role(Lines(pipe[1]), every=0.01)
    read = bytearray()
    os.set_blocking(pipe[0], False)

    def said() -> bytes:
        with suppress(BlockingIOError):
            read.extend(os.read(pipe[0], 4096))
        return bytes(read)

    role.play("leader")
    await eventually(lambda: said().count(b"leader\n") >= 3, what="the role to be repeated")
    role.play("no more", lasts=False)

    assert not role.lasts
    assert said().endswith(b"no more\n")
