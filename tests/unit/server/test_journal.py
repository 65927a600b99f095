"""What is written of a znode is read again, whichever of the two ways it takes."""

from __future__ import annotations

import pytest

from incumbent.errors import WireError
from incumbent.server.journal import (
    pack_transactions,
    pack_znode,
    unpack_transactions,
    unpack_znode,
)
from incumbent.server.tree import Change, CreateNode, DeleteNode, SetNode, Transaction, Znode
from incumbent.wire import OPEN_ACL, Acl


@pytest.mark.parametrize("data", [None, b"", b"x", b"y" * 1000])
@pytest.mark.parametrize("acl", [OPEN_ACL, (Acl(1, "world", "anyone"), Acl(31, "ip", "::1"))])
@pytest.mark.parametrize("aversion", [0, -1])
def test_a_znode_comes_back(data: bytes | None, acl: tuple[Acl, ...], aversion: int) -> None:
    node = Znode(
        data,
        czxid=1,
        mzxid=2**62,
        pzxid=3,
        ctime=4,
        mtime=5,
        version=-6,
        creations=7,
        owner=-(2**63),
        acl=acl,
        aversion=aversion,
    )

    again = unpack_znode(pack_znode(node))

    assert all(getattr(again, name) == getattr(node, name) for name in Znode.__slots__)


def test_a_torn_znode_is_no_znode() -> None:
    whole = pack_znode(Znode(b"some data"))

    for end in range(len(whole)):
        with pytest.raises(WireError):
            unpack_znode(whole[:end])


@pytest.mark.parametrize(
    "change",
    [
        SetNode("/ü", b"data", -5),
        SetNode("/a", None, 1),
        CreateNode("/a", b"", 2**62),
        CreateNode("/a", None, 0),
        CreateNode("/a", b"data", -(2**63), (Acl(1, "world", "anyone"),)),
        DeleteNode("/a"),
    ],
)
def test_a_change_alone_is_written_as_among_others(change: Change) -> None:
    end = DeleteNode("/end")
    alone = pack_transactions([Transaction(1, 2, (change,))])
    both = pack_transactions([Transaction(1, 2, (change, end))])
    last = pack_transactions([Transaction(1, 2, (end,))])

    head = 20
    assert both[head:] == alone[head:] + last[head:]
    assert unpack_transactions(alone) == [Transaction(1, 2, (change,))]
