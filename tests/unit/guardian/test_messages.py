"""The line protocol between guardian and agent."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.errors import LocalWireError, RemoteWireError
from incumbent.guardian import codec
from incumbent.guardian import messages as m

EXITED = m.Exited(seat="web/0", epoch=3, code=None, signal=9, uptime=1.5, left=2)
TOLD = m.Told(seat="web/0", epoch=3, ready=True, extend=1.5, status="é", frozen=False)
ONE_OF_EACH: list[m.Message] = [
    m.Hello(generation=1, pid=7),
    m.Session(generation=1, passport={"session_id": 1, "password": "ff"}, hosts="h:1"),
    m.Alive(generation=2),
    m.Lease(generation=2, valid_until=12.0, last_zxid=99),
    m.Start(
        generation=1,
        seat="web/0",
        epoch=3,
        soft=4.0,
        hard=0.5,
        argv=("/bin/true", "x\ny"),
        env={"A": "é"},
        cwd="/",
        breadcrumb=None,
        log="/l",
    ),
    m.Start(
        generation=1,
        seat="web/0!live",
        epoch=3,
        soft=4.0,
        hard=0.5,
        argv=("/bin/true",),
        env={},
        cwd="/",
        beside=2,
        limit=1.5,
    ),
    m.Stop(seat="web/0", epoch=3, grace=0.0),
    m.Seen(seat="web/0", epoch=3, pid=9),
    m.Paused(paused=True, number=1),
    m.Bye(code=0),
    m.Welcome(generation=1, guardian_pid=5),
    m.Welcome(
        generation=2,
        guardian_pid=5,
        passport={"session_id": 1},
        hosts="h:1",
        lease=3.5,
        seats=(
            m.SeatReport(seat="web/0", epoch=3, pid=9, start_time=1, state="empty", exited=EXITED),
            m.SeatReport(seat="a/0", epoch=1, pid=9, start_time=1, state="running", told=TOLD),
        ),
        settings={"root": "/incumbent"},
    ),
    m.Started(seat="web/0", epoch=3, pid=9, start_time=1, main=10),
    m.Refused(seat="web/0", epoch=3, why="no", permanent=True),
    m.Stopping(seat="web/0", epoch=3, why="ordered"),
    EXITED,
    TOLD,
    m.Empty(seat="web/0", epoch=3),
    m.Stuck(seat="web/0", epoch=3),
    m.LeaseAck(valid_until=1.25),
    m.Shutdown(why="SIGTERM"),
]


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda each: each.tag)
def test_a_message_survives_its_line(message: m.Message) -> None:
    line = codec.encode(message)

    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert codec.decode(line) == message


@given(cuts=st.lists(st.integers(0, 3000), max_size=20))
def test_the_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    stream = b"".join(codec.encode(each) for each in ONE_OF_EACH)
    places = sorted({0, *[min(cut, len(stream)) for cut in cuts], len(stream)})
    splitter = codec.Splitter()

    found = [
        message for a, b in itertools.pairwise(places) for message in splitter.feed(stream[a:b])
    ]

    assert found == ONE_OF_EACH


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"t":"NOPE"}', "unknown message 'NOPE'"),
        (b'{"t":["HELLO"]}', "unknown message"),
        (b'{"t":"ALIVE"}', "ALIVE: generation is missing"),
        (b'{"t":"ALIVE","generation":"1"}', "generation: expected an integer"),
        (b'{"t":"ALIVE","generation":true}', "generation: expected an integer"),
        (b'{"t":"ALIVE","generation":1,"x":2}', "unknown field 'x'"),
        (b'{"t":"PAUSED","paused":1}', "expected true or false"),
        (b'{"t":"LEASE_ACK","valid_until":NaN}', "expected a finite number"),
        (b'{"t":"STOP","seat":"a","epoch":1,"grace":1e999}', "expected a finite number"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(line: bytes, says: str) -> None:
    with pytest.raises(RemoteWireError, match=says.replace("[", r"\[")):
        codec.decode(line)


def test_a_start_whose_hard_deadline_comes_before_the_soft_one_is_refused() -> None:
    line = codec.encode(ONE_OF_EACH[4]).replace(b'"soft":4.0', b'"soft":0.1')

    with pytest.raises(RemoteWireError, match="soft >= hard"):
        codec.decode(line)


def test_a_number_that_is_not_finite_is_not_sent() -> None:
    with pytest.raises(LocalWireError, match="LEASE_ACK"):
        codec.encode(m.LeaseAck(valid_until=float("inf")))


def test_a_line_without_end_is_refused() -> None:
    splitter = codec.Splitter()

    with pytest.raises(RemoteWireError, match="more than"):
        list(splitter.feed(b"x" * (codec.MAX_LINE + 1)))


def test_secrets_and_environments_do_not_show_in_a_repr() -> None:
    shown = repr(m.Session(generation=1, passport={"password": "c0ffee"}, hosts="h"))

    assert "c0ffee" not in shown
