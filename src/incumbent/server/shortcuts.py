"""The requests that make up most of a server's day, answered without a detour over objects.

Rule of this file: a shortcut gives exactly what the long way gives, or declines. Whatever is
unusual about a request (a watch, an ACL, a refusal, bytes that are left over) is for the long way.
"""

from __future__ import annotations

import struct

from incumbent.server.tree import CreateNode, SetNode, Tree, Znode
from incumbent.wire import ANY_VERSION, OPEN_ACL, EventType, KeeperState, Op, Xid, paths
from incumbent.wire.record import ACLS, STAT_LAYOUT

__all__ = ["event_frame", "is_ping", "plain_read", "plain_write", "write_reply"]


def _in_bytes(op: Op) -> bytes:
    return int(op).to_bytes(4, "big")


def _open_acl() -> bytes:
    out = bytearray()
    ACLS.write(out, OPEN_ACL)
    return bytes(out)


_GET, _EXISTS, _PING = _in_bytes(Op.GET_DATA), _in_bytes(Op.EXISTS), _in_bytes(Op.PING)
_SET, _CREATE, _CREATE2 = _in_bytes(Op.SET_DATA), _in_bytes(Op.CREATE), _in_bytes(Op.CREATE2)
_PING_XID = int(Xid.PING).to_bytes(4, "big", signed=True)
_OPEN = _open_acl()
_INT = struct.Struct(">i")
_REPLY = struct.Struct(">i4sqi")  # the frame's length, xid, zxid, error
_REPLY_AND_LENGTH = struct.Struct(">i4sqii")
_EVENT = struct.Struct(">iiqiiii")  # the frame's length, header, type, state, the path's length
_HEADER_SIZE, _STAT_SIZE = 16, STAT_LAYOUT.size
_LAST_VERSION = 2**31 - 1
_CONNECTED = int(KeeperState.CONNECTED)


def is_ping(body: bytes) -> bool:
    return len(body) == 8 and body.endswith(_PING)


def plain_read(tree: Tree, body: bytes) -> bytes | None:
    """The framed reply to a ping, or to a getData or exists without a watch, of a znode that is
    there and open to all."""
    op = body[4:8]
    if op not in (_GET, _EXISTS):
        return _REPLY.pack(_HEADER_SIZE, _PING_XID, tree.zxid, 0) if is_ping(body) else None
    if body[-1] != 0 or len(body) < 13:
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
    if op == _EXISTS:
        return _stat_reply(tree, body[:4], node)
    data = node.data
    if data is None:
        return None
    size = len(data)
    head = _REPLY_AND_LENGTH.pack(
        _HEADER_SIZE + 4 + size + _STAT_SIZE, body[:4], tree.zxid, 0, size
    )
    return head + data + _packed_stat(node, size)


def plain_write(tree: Tree, session_id: int, body: bytes) -> CreateNode | SetNode | None:
    """What a setData does that is to be carried out, or a create that asks for an ACL open to all,
    where what is there is open to all. `session_id` is that of who asks."""
    op = body[4:8]
    try:
        if op == _SET:
            return _plain_set(tree, body)
        if op in (_CREATE, _CREATE2):
            return _plain_create(tree, session_id, body)
    except (struct.error, UnicodeDecodeError):
        pass
    return None


def _plain_set(tree: Tree, body: bytes) -> SetNode | None:
    (length,) = _INT.unpack_from(body, 8)
    end = 12 + length
    if length <= 0 or end + 8 > len(body):
        return None  # "" is no valid path, though the root answers to it
    (size,) = _INT.unpack_from(body, end)
    if size < 0 or end + 8 + size != len(body):
        return None
    path = body[12:end].decode()
    (version,) = _INT.unpack_from(body, end + 4 + size)
    node = tree.nodes.get(path)
    if node is None or node.acl is not OPEN_ACL or node.version == _LAST_VERSION:
        return None
    if version not in (ANY_VERSION, node.version):
        return None
    return SetNode(path, body[end + 4 : end + 4 + size], node.version + 1)


def _plain_create(tree: Tree, session_id: int, body: bytes) -> CreateNode | None:
    after = len(body) - 4 - len(_OPEN)  # where the data ends
    flags = int.from_bytes(body[-4:], "big")
    if flags > 3 or not body.startswith(_OPEN, after):
        return None
    (length,) = _INT.unpack_from(body, 8)
    end = 12 + length
    (size,) = _INT.unpack_from(body, end)
    if length <= 0 or size < 0 or end + 4 + size != after:
        return None
    path = body[12:end].decode()
    parent = tree.nodes.get(path[: path.rfind("/")] or "/")
    if parent is None or parent.owner > 0 or parent.acl is not OPEN_ACL:
        return None
    if flags & 2:
        path += f"{parent.creations:010d}"
    if path in tree.nodes or paths.problem(path) is not None:
        return None
    return CreateNode(path, body[end + 4 : after], session_id if flags & 1 else 0)


def write_reply(tree: Tree, body: bytes, change: CreateNode | SetNode) -> bytes:
    """The framed reply to a request that asked for a change which is carried out."""
    node = tree.nodes[change.path]
    if body[4:8] == _SET:
        return _stat_reply(tree, body[:4], node)
    path = change.path.encode()
    stat = _packed_stat(node, len(node.data or b"")) if body[4:8] == _CREATE2 else b""
    size = len(path)
    head = _REPLY_AND_LENGTH.pack(_HEADER_SIZE + 4 + size + len(stat), body[:4], tree.zxid, 0, size)
    return head + path + stat


def event_frame(kind: EventType, path: str) -> bytes:
    """The frame that tells a watcher: ten thousand of these may have to be made at once."""
    raw = path.encode()
    size = len(raw)
    return _EVENT.pack(_EVENT.size - 4 + size, Xid.EVENT, -1, 0, kind, _CONNECTED, size) + raw


def _stat_reply(tree: Tree, xid: bytes, node: Znode) -> bytes:
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
