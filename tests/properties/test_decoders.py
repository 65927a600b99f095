"""No bytes crash a decoder, and none makes it keep more than came.

CI tries some thousands; the long form a million: `pytest -m soak tests/properties/test_decoders.py`
(FUZZ for how many, SEED for which).
"""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from incumbent.errors import RemoteWireError
from incumbent.server.journal import unpack_transactions, unpack_znode
from incumbent.wire import (
    OPEN_ACL,
    Acl,
    AddWatch,
    AuthPacket,
    Check,
    ConnectRequest,
    ConnectResponse,
    Create,
    Create2,
    CreateTtl,
    Delete,
    FrameDecoder,
    GetAcl,
    GetChildren,
    GetChildren2,
    GetData,
    Multi,
    MultiRead,
    Op,
    ReplyHeader,
    Request,
    Sasl,
    SetAcl,
    SetData,
    SetWatches2,
    WatchEvent,
    WhoAmI,
    decode_request,
    frame,
)
from incumbent.wire.jute import STRING, Reader, read_strings, vector

LIMIT = 4096
SEEDS: list[bytes] = [
    request.encode(7)
    for request in (
        Create("/a", b"x", [Acl(31, "digest", "a:b"), *OPEN_ACL], 3),
        Create2("/ü", None),
        CreateTtl("/t", b"", OPEN_ACL, 5, 7),
        Delete("/a", 1),
        SetData("/a", b"data"),
        SetAcl("/a", OPEN_ACL),
        GetChildren2("/a", True),
        AuthPacket(0, "digest", b"u:p"),
        Sasl(b"token"),
        AddWatch("/a", 1),
        SetWatches2(5, ["/a", "/b"], [], ["/c"], ["/d"], ["/"]),
        Multi([Create("/a"), Check("/b"), SetData("/c", b"1"), Delete("/d")]),
        MultiRead([GetData("/a"), GetChildren("/b")]),
    )
]
SEEDS += [ConnectRequest(1, 10_000, 2, b"p" * 16).encode(), b"", b"\0" * 8]
ANSWERS: list[type[Request]] = [
    *(Create, Create2, GetData, GetChildren, GetChildren2, GetAcl, Multi, MultiRead, WhoAmI, Sasl)
]
NASTY = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\xff\xff\xff")


def mangled(rng: random.Random) -> bytes:
    """A body that was once whole, or never was."""
    body = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0:
                del body[at:]
            case 1:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                body[at : at + 4] = rng.choice(NASTY)
            case 3:
                body[at:at] = rng.randbytes(rng.randrange(9))
            case 4:
                body[4:8] = rng.choice(list(Op)).to_bytes(4, "big", signed=True)
            case 5:
                body += body[at:]
    return bytes(body)


def decoders() -> Iterable[Callable[[bytes], object]]:
    yield decode_request
    yield ConnectRequest.decode
    yield ConnectResponse.decode
    yield lambda body: ReplyHeader.read(Reader(body))
    yield lambda body: WatchEvent.read(Reader(body))
    yield unpack_znode
    for kind in ANSWERS:
        yield lambda body, kind=kind: kind.decode_answer(Reader(body))  # type: ignore[misc]


def cut_at_will(rng: random.Random) -> None:
    """A stream of frames and of what is none, in portions: what comes out is what went in."""
    decoder = FrameDecoder(LIMIT)
    bodies = [mangled(rng)[:LIMIT] for _ in range(rng.randrange(5))]
    stream = b"".join(map(frame, bodies))
    is_broken = rng.random() < 0.3
    if is_broken:
        stream += rng.choice((b"\xff\xff\xff\xff", (LIMIT + 1).to_bytes(4, "big"))) + b"tail"
    out: list[bytes] = []
    refused = False
    at = 0
    while at < len(stream) and not refused:
        size = rng.choice((1, 2, 3, 7, 50, 1000))
        try:
            out += decoder.feed(stream[at : at + size])
        except RemoteWireError:
            refused = True
        at += size
    assert refused == is_broken
    assert out == bodies[: len(out)]
    assert refused or out == bodies
    assert len(decoder._rest) <= LIMIT + 4


def fuzz(seed: int, times: int) -> None:
    rng = random.Random(seed)
    every = list(decoders())
    for _ in range(times):
        body = mangled(rng)
        for decode in (decode_request, rng.choice(every)):
            try:
                decode(body)
            except RemoteWireError:
                continue
        if rng.random() < 0.05:
            cut_at_will(rng)


@pytest.mark.parametrize("seed", range(4))
def test_no_bytes_crash_a_decoder(seed: int) -> None:
    fuzz(seed, 1500)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_inputs_crash_no_decoder() -> None:
    fuzz(int(os.environ.get("SEED", "0")), int(os.environ.get("FUZZ", "1000000")))


def test_a_short_body_that_claims_to_be_long_takes_no_memory() -> None:
    claims = [
        SetWatches2(0, [], [], [], [], []).encode(1)[:16] + b"\x7f\xff\xff\xff",
        Create("/a").encode(1)[:14] + b"\x7f\xff\xff\xff",
        b"\0\0\0\1"
        + int(Op.MULTI).to_bytes(4, "big")
        + b"\0\0\0\1\0\xff\xff\xff\xff\x7f\xff\xff\xff",
    ]
    tracemalloc.start()
    try:
        for body in claims * 100:
            with pytest.raises(RemoteWireError):
                decode_request(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


def test_a_journal_that_is_none_says_so() -> None:
    rng = random.Random(1)
    for _ in range(500):
        body = rng.randbytes(rng.randrange(60))
        try:
            unpack_transactions(body)
        except RemoteWireError:
            continue


def test_a_list_of_strings_is_read_as_any_other_vector_is() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(3000):
        body = bytearray()
        strings = [rng.choice([None, "", "a", "é" * 3, "x" * 50]) for _ in range(rng.randrange(5))]
        vector(STRING).write(body, strings)
        for _ in range(rng.choice([0, 0, 1, 2])):
            body[rng.randrange(len(body))] = rng.randrange(256)
        whole = bytes(body[: rng.choice([len(body), len(body), rng.randrange(len(body))])])

        results = [_outcome(read, whole) for read in (vector(STRING).read, read_strings)]

        assert results[0] == results[1]
        refused += isinstance(results[0], str)
    assert refused > 500


def _outcome(read: Callable[[Reader], object], body: bytes) -> object:
    reader = Reader(body)
    try:
        return read(reader), reader.pos
    except RemoteWireError as error:
        return str(error)
