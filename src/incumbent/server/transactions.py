"""Requests become transactions, or are refused: every rule about what may be written.

Rule of this file: nothing is changed here. A request is decided against the tree plus what
the same request would already have changed (`_Sketch`), so that the operations of a multi see
each other and a refused one leaves no trace.

The order of the checks is Apache ZooKeeper 3.8's, observed: which error wins when several
apply is part of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from incumbent.errors import (
    BadArguments,
    BadVersion,
    InvalidACL,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
    Unimplemented,
)
from incumbent.server.tree import Change, CreateNode, DeleteNode, EndSession, SetNode, Tree
from incumbent.wire import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Create2,
    CreateContainer,
    CreateFlag,
    Delete,
    Multi,
    MultiOp,
    Op,
    SetData,
    paths,
)
from incumbent.wire.protocol import CONTAINER_OWNER, MAX_SEQUENCE

__all__ = ["TTL_FLAGS", "MultiRefused", "Step", "decide", "decide_multi", "end_session", "reapable"]

TTL_FLAGS = (5, 6)
"""Create flags of znodes with a time to live, which this server does not know."""

_INDELIBLE = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})
_READ_ONLY = "/zookeeper/config"
_SEQUENTIAL = (CreateFlag.SEQUENTIAL, CreateFlag.EPHEMERAL_SEQUENTIAL)
_EPHEMERAL = (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENTIAL)


class Step(NamedTuple):
    """One decided operation: the type its answer has in a multi, and what it changes, if anything."""

    op: Op
    change: Change | None


class MultiRefused(Exception):
    """The operation at `index` was refused with `refused`; nothing of the multi is done."""

    def __init__(self, index: int, refused: Refused) -> None:
        self.index = index
        self.refused = refused
        super().__init__(index, refused)


def decide(tree: Tree, session_id: int, request: MultiOp) -> Step:
    """What a single write does. Raises a `Refused`."""
    return _Decision(tree, session_id).step(request)


def decide_multi(tree: Tree, session_id: int, request: Multi) -> list[Step]:
    """What a multi does, operation by operation. Raises `MultiRefused`."""
    decision = _Decision(tree, session_id)
    steps: list[Step] = []
    for index, op in enumerate(request.ops):
        try:
            steps.append(decision.step(op))
        except Refused as refused:
            raise MultiRefused(index, refused) from None
    return steps


def end_session(tree: Tree, session_id: int) -> EndSession:
    """The end of a session, by itself or by expiry."""
    return EndSession(session_id, tuple(tree.ephemerals.get(session_id, ())))


def reapable(tree: Tree) -> list[DeleteNode]:
    """Containers that had children and have none now."""
    return [
        DeleteNode(path)
        for path in tree.containers
        if tree.nodes[path].creations and not tree.nodes[path].children
    ]


@dataclass(slots=True)
class _Sketch:
    """What a decision must know of a znode that the request itself would already have changed."""

    version: int
    creations: int
    owner: int
    children: int


class _Decision:
    """The tree as it would be after the steps decided so far."""

    __slots__ = ("_session_id", "_sketches", "_tree")

    def __init__(self, tree: Tree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id
        self._sketches: dict[str, _Sketch | None] = {}

    def step(self, request: MultiOp) -> Step:
        match request:
            case Create() | Create2() | CreateContainer():
                return self._create(request)
            case Delete(path, version):
                return self._delete(path, version)
            case SetData(path, data, version):
                return self._set(path, data, version)
            case Check(path, version):
                _validate(path)
                _expect(path, self._node(path).version, version)
                return Step(Op.CHECK, None)

    def _create(self, request: Create | Create2 | CreateContainer) -> Step:
        path, flags = request.path, request.flags
        if flags in TTL_FLAGS:
            raise Unimplemented(path)
        if not CreateFlag.PERSISTENT <= flags <= CreateFlag.CONTAINER:
            raise BadArguments(path)
        above = _parent(path)
        _accept_acl(path, request.acl)
        parent = self._node(above)
        if above == _READ_ONLY:
            raise NoAuth(path)
        if flags in _SEQUENTIAL:
            path += f"{parent.creations:010d}"
        _validate(path)
        if self._find(path) is not None:
            raise NodeExists(path)
        if parent.owner and parent.owner != CONTAINER_OWNER:
            raise NoChildrenForEphemerals(path)
        is_container = request.op is Op.CREATE_CONTAINER or flags == CreateFlag.CONTAINER
        owner = CONTAINER_OWNER if is_container else self._session_id if flags in _EPHEMERAL else 0
        parent.children += 1
        parent.creations = min(parent.creations + 1, MAX_SEQUENCE)
        self._sketches[path] = _Sketch(0, 0, owner, 0)
        op = Op.CREATE2 if is_container else Op.CREATE
        return Step(op, CreateNode(path, request.data, owner))

    def _delete(self, path: str, version: int) -> Step:
        above = _parent(path)
        if path in _INDELIBLE:
            raise BadArguments(path)
        parent = self._node(above)
        node = self._node(path)
        if above == _READ_ONLY:
            raise NoAuth(path)
        _expect(path, node.version, version)
        if node.children:
            raise NotEmpty(path)
        parent.children -= 1
        self._sketches[path] = None
        return Step(Op.DELETE, DeleteNode(path))

    def _set(self, path: str, data: bytes | None, version: int) -> Step:
        _validate(path)
        node = self._node(path)
        if path == _READ_ONLY:
            raise NoAuth(path)
        _expect(path, node.version, version)
        node.version = _next(node.version)
        return Step(Op.SET_DATA, SetNode(path, data, node.version))

    def _node(self, path: str) -> _Sketch:
        found = self._find(path)
        if found is None:
            raise NoNode(path)
        return found

    def _find(self, path: str) -> _Sketch | None:
        if path in self._sketches:
            return self._sketches[path]
        node = self._tree.nodes.get(path)
        if node is None:
            return None
        sketch = _Sketch(node.version, node.creations, node.owner, len(node.children))
        self._sketches[path] = sketch
        return sketch


def _parent(path: str) -> str:
    """The path above, of one that need not be valid."""
    slash = path.rfind("/")
    if slash < 0 or "\0" in path:
        raise BadArguments(path)
    return path[:slash] or "/"


def _validate(path: str) -> None:
    if paths.problem(path) is not None:
        raise BadArguments(path)


def _accept_acl(path: str, acl: Sequence[Acl]) -> None:
    """Until this server keeps ACLs, only the open one is taken: better refused than ignored."""
    if not acl or any(entry != OPEN_ACL[0] for entry in acl):
        raise InvalidACL(path)


def _expect(path: str, version: int, expected: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise BadVersion(path)


def _next(version: int) -> int:
    """Java's int arithmetic: after 2^31 - 1 comes -2^31."""
    return version + 1 if version < 2**31 - 1 else -(2**31)
