"""A server's bytes as frames: however they are cut, and whatever length they claim."""

from __future__ import annotations

import random

import pytest

from incumbent.client.answers import Answers, Oversize
from incumbent.errors import RemoteWireError
from incumbent.wire import frame


@pytest.mark.parametrize("seed", range(50))
def test_however_the_bytes_are_cut_the_frames_are_the_same(seed: int) -> None:
    draw = random.Random(seed)
    bodies = [draw.randbytes(draw.choice((0, 1, 16, 99, 100, 101, 500))) for _ in range(30)]
    stream = b"".join(map(frame, bodies))
    answers = Answers(100, passes=True)

    got = []
    while stream:
        size = draw.choice((1, 2, 3, 5, 50, 700))
        got += list(answers.feed(stream[:size]))
        stream = stream[size:]

    assert got == [body if len(body) <= 100 else Oversize(len(body)) for body in bodies]
    assert not answers._rest


def test_a_length_that_cannot_be_one_breaks_the_protocol() -> None:
    for answers, length in ((Answers(10, passes=True), -1), (Answers(10, passes=False), 11)):
        with pytest.raises(RemoteWireError):
            list(answers.feed(length.to_bytes(4, "big", signed=True)))


def test_of_a_frame_too_large_nothing_is_kept() -> None:
    answers = Answers(10, passes=True)

    assert list(answers.feed((1 << 30).to_bytes(4, "big"))) == [Oversize(1 << 30)]
    for _ in range(1024):
        assert list(answers.feed(bytes(1 << 20))) == []
        assert not answers._rest
    assert list(answers.feed(frame(b"next"))) == [b"next"]
