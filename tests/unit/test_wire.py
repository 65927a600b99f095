"""Every record survives the way to bytes and back, and no bytes crash a reader."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.errors import LocalWireError, RemoteWireError, WireError
from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AclAndStat,
    AddWatch,
    AuthPacket,
    Check,
    CheckWatches,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateTtl,
    DataAndStat,
    Delete,
    EventType,
    Exists,
    FrameDecoder,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Id,
    KeeperState,
    Multi,
    MultiRead,
    Op,
    OpError,
    Ping,
    Reconfig,
    RemoveWatches,
    ReplyHeader,
    Sasl,
    SetAcl,
    SetData,
    SetWatches,
    SetWatches2,
    Stat,
    Sync,
    WatchEvent,
    WhoAmI,
    decode_request,
    frame,
)
from incumbent.wire.jute import Reader

STAT = Stat(1, 2, 3, 4, 5, 6, 7, -(2**63), 8, 9, 10)
ACL = [Acl(31, "world", "anyone"), Acl(1, "digest", "a:b")]
REQUESTS = [
    Create("/a", b"x", ACL, 3),
    Create("/a", None, list(OPEN_ACL)),
    Create2("/ü", b"", ACL, 1),
    CreateContainer("/c", b"", ACL),
    Delete("/a", 3),
    Exists("/a", True),
    GetData("/a", False),
    SetData("/a", None, 7),
    GetChildren("/", True),
    GetChildren2("/", False),
    Sync("/a"),
    Ping(),
    CloseSession(),
    AuthPacket(0, "digest", b"u:p"),
    SetWatches(5, ["/a"], [], ["/b", "/c"]),
    SetWatches2(5, ["/a"], [], ["/b"], ["/p"], ["/r", "/"]),
    AddWatch("/a", 1),
    CheckWatches("/a", 2),
    RemoveWatches("/a", 3),
    GetAcl("/a"),
    SetAcl("/a", ACL, 4),
    GetAllChildrenNumber("/a"),
    GetEphemerals("/"),
    CreateTtl("/a", b"", ACL, 6, 2**40 - 1),
    Check("/a", 3),
    Reconfig(None, "1", None, -1),
    Sasl(b"token"),
    WhoAmI(),
    MultiRead([]),
    MultiRead([GetData("/a"), GetChildren("/b")]),
    Multi([]),
    Multi([CreateTtl("/a", None, ACL, 5, 7)]),
    Multi([Create("/a", b"", ACL, 0), Check("/b", 2), Delete("/c", -1), SetData("/d", b"1", 0)]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_a_request_reads_back_as_it_was_written(request_):
    assert decode_request(request_.encode(42)) == (42, request_.op, request_)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_a_request_cut_short_is_the_other_ends_fault(request_):
    body = request_.encode(1)

    for cut in range(8, len(body)):
        with pytest.raises(RemoteWireError):
            decode_request(body[:cut])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Create, "/a0000000001"),
        (Create2, Created("/a", STAT)),
        (Exists, STAT),
        (GetData, DataAndStat(None, STAT)),
        (GetData, DataAndStat(b"", STAT)),
        (GetChildren, ["a", "ü"]),
        (GetChildren2, (["a"], STAT)),
        (Delete, None),
        (Sync, "/a"),
        (GetAcl, AclAndStat(ACL, STAT)),
        (GetAllChildrenNumber, 3),
        (GetEphemerals, ["/a", "/b"]),
        (AddWatch, 0),
        (Sasl, None),
        (WhoAmI, [Id("ip", "127.0.0.1"), Id("digest", "user")]),
    ],
)
def test_an_answer_reads_back_as_it_was_written(kind, value):
    assert kind.decode_answer(Reader(kind.encode_answer(value))) == value


def test_a_multis_results_keep_their_types_and_errors():
    done = [(Op.CREATE, "/a"), (Op.CHECK, None), (Op.SET_DATA, STAT), (Op.DELETE, None)]
    refused = [(Op.ERROR, OpError(0)), (Op.ERROR, OpError(-101)), (Op.ERROR, OpError(-2))]

    for results in (done, refused, []):
        back = Multi.decode_answer(Reader(Multi.encode_answer(results)))
        assert back == [result for _, result in results]


def test_the_connect_frames_have_the_sizes_that_apache_sends():
    password = b"p" * 16

    assert len(ConnectResponse(10_000, 1, password).encode()) == 37
    assert len(ConnectResponse(10_000, 1, password, read_only=None).encode()) == 36
    for read_only in (None, False, True):
        request = ConnectRequest(7, 10_000, 1, password, read_only)
        assert ConnectRequest.decode(request.encode()) == request


def test_an_event_reads_back():
    event = WatchEvent(EventType.DELETED, KeeperState.CONNECTED, "/a")
    reader = Reader(event.encode())

    assert ReplyHeader.read(reader) == ReplyHeader(-1, -1, 0)
    assert WatchEvent.read(reader) == event


def test_frames_come_out_whole_however_the_stream_is_cut():
    bodies = [b"", b"a", b"bc" * 100]
    stream = b"".join(map(frame, bodies))

    for size in (1, 2, 3, 7, len(stream)):
        decoder = FrameDecoder(1000)
        out = [b for i in range(0, len(stream), size) for b in decoder.feed(stream[i : i + size])]
        assert out == bodies


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x03\xe9"])
def test_a_frame_over_the_limit_is_refused_before_its_body_is_kept(length):
    with pytest.raises(RemoteWireError):
        FrameDecoder(1000).feed(length)


@given(st.binary(max_size=200), st.sampled_from([int(op) for op in Op]))
def test_no_bytes_crash_a_reader(body, op):
    head = b"\0\0\0\1" + op.to_bytes(4, "big", signed=True)
    for data in (body, head + body):
        with contextlib.suppress(WireError):
            decode_request(data)
    for kind in (GetData, GetChildren2, Multi, MultiRead, Create2, GetAcl, WhoAmI):
        with contextlib.suppress(WireError):
            kind.decode_answer(Reader(body))


def test_what_cannot_be_written_is_our_own_fault():
    with pytest.raises(LocalWireError):
        Delete("/a", 2**31).encode(1)
    with pytest.raises(LocalWireError):
        Delete("/\ud800").encode(1)
