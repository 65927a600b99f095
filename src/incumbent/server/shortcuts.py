"""The two requests that make up most of a server's day, answered without a detour over objects.

Rule of this file: a shortcut gives exactly what the long way gives, or declines. Whatever is
unusual about a request (a watch, an ACL, a refusal, bytes that are left over) is for the long way.
"""

from __future__ import annotations

import struct

from incumbent.server.tree import SetNode, Tree, Znode
from incumbent.wire import ANY_VERSION, OPEN_ACL, Op
from incumbent.wire.record import STAT_LAYOUT

__all__ = ["plain_get", "plain_set", "stat_reply"]

_GET = int(Op.GET_DATA).to_bytes(4, "big")
_SET = int(Op.SET_DATA).to_bytes(4, "big")
_INT = struct.Struct(">i")
_REPLY = struct.Struct(">i4sqi")  # the frame's length, xid, zxid, error
_REPLY_AND_LENGTH = struct.Struct(">i4sqii")
_HEADER_SIZE, _STAT_SIZE = 16, STAT_LAYOUT.size
_LAST_VERSION = 2**31 - 1


def plain_get(tree: Tree, body: bytes) -> bytes | None:
    """The framed reply to a getData without a watch, of a znode that is there and open to all."""
    if body[4:8] != _GET or body[-1] != 0:
        return None
    path = body[12:-1]
    if int.from_bytes(body[8:12], "big") != len(path):
        return None
    try:
        node = tree.nodes.get(path.decode())
    except UnicodeDecodeError:
        return None
    if node is None or node.acl is not OPEN_ACL:
        return None
    data = node.data
    if data is None:
        return None
    size = len(data)
    head = _REPLY_AND_LENGTH.pack(
        _HEADER_SIZE + 4 + size + _STAT_SIZE, body[:4], tree.zxid, 0, size
    )
    return head + data + _packed_stat(node, size)


def plain_set(tree: Tree, body: bytes) -> SetNode | None:
    """What a setData does that is to be carried out, on a znode that is there and open to all."""
    if body[4:8] != _SET:
        return None
    try:
        (length,) = _INT.unpack_from(body, 8)
        end = 12 + length
        if length <= 0 or end + 8 > len(body):
            return None  # "" is no valid path, though the root answers to it
        (size,) = _INT.unpack_from(body, end)
        if size < 0 or end + 8 + size != len(body):
            return None
        path = body[12:end].decode()
        (version,) = _INT.unpack_from(body, end + 4 + size)
    except (struct.error, UnicodeDecodeError):
        return None
    node = tree.nodes.get(path)
    if node is None or node.acl is not OPEN_ACL or node.version == _LAST_VERSION:
        return None
    if version not in (ANY_VERSION, node.version):
        return None
    return SetNode(path, body[end + 4 : end + 4 + size], node.version + 1)


def stat_reply(tree: Tree, xid: bytes, path: str) -> bytes:
    """The framed reply that shows a znode's Stat."""
    node = tree.nodes[path]
    data = node.data
    stat = _packed_stat(node, 0 if data is None else len(data))
    return _REPLY.pack(_HEADER_SIZE + _STAT_SIZE, xid, tree.zxid, 0) + stat


def _packed_stat(node: Znode, size: int) -> bytes:
    """As `Tree.stat` has it; `size` is that of the data."""
    children = len(node.children)
    cversion = (node.creations * 2 - children + 2**31) % 2**32 - 2**31
    owner = node.owner
    return STAT_LAYOUT.pack(
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        cversion,
        node.aversion,
        owner if owner > 0 else 0,
        size,
        children,
        node.pzxid,
    )
