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
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
    Unimplemented,
)
from incumbent.server.acl import Keeper, require
from incumbent.server.tree import (
    Change,
    CreateNode,
    DeleteNode,
    EndSession,
    SetNode,
    Tree,
    ttl_of,
    ttl_owner,
)
from incumbent.server.tree import SetAcl as SetNodeAcl
from incumbent.wire import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    AclPerm,
    Check,
    Create,
    Create2,
    CreateContainer,
    CreateFlag,
    CreateTtl,
    Delete,
    Err,
    Id,
    Multi,
    MultiOp,
    Op,
    SetAcl,
    SetData,
    paths,
)
from incumbent.wire.protocol import CONTAINER_OWNER, MAX_SEQUENCE, MAX_TTL_MS

__all__ = [
    "Author",
    "MultiRefused",
    "Step",
    "decide",
    "decide_multi",
    "end_session",
    "reapable",
]

_TTL_FLAGS = (CreateFlag.TTL, CreateFlag.TTL_SEQUENTIAL)

_INDELIBLE = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})
_SEQUENTIAL = (
    CreateFlag.SEQUENTIAL,
    CreateFlag.EPHEMERAL_SEQUENTIAL,
    CreateFlag.TTL_SEQUENTIAL,
)
_EPHEMERAL = (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENTIAL)


class Author(NamedTuple):
    """For whom it is decided: a session, the ids it has shown, and the rules of its server."""

    session_id: int
    ids: Sequence[Id]
    keeper: Keeper
    has_ttl: bool


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


def decide(tree: Tree, author: Author, request: MultiOp | SetAcl) -> Step:
    """What a single write does. Raises a `Refused`."""
    return _Decision(tree, author).step(request)


def decide_multi(tree: Tree, author: Author, request: Multi) -> list[Step]:
    """What a multi does, operation by operation. Raises `MultiRefused`."""
    decision = _Decision(tree, author, is_multi=True)
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


def reapable(tree: Tree, now_ms: int) -> list[DeleteNode]:
    """Containers that had children and have none now; childless znodes past their time to live."""
    used = [
        path
        for path in tree.containers
        if tree.nodes[path].creations and not tree.nodes[path].children
    ]
    late = [
        path
        for path in tree.mortals
        if not (node := tree.nodes[path]).children and now_ms - node.mtime > ttl_of(node.owner)
    ]
    return [DeleteNode(path) for path in used + late]


@dataclass(slots=True)
class _Sketch:
    """What a decision must know of a znode that the request itself would already have changed."""

    version: int
    aversion: int
    creations: int
    owner: int
    children: int
    acl: tuple[Acl, ...]


class _Decision:
    """The tree as it would be after the steps decided so far."""

    __slots__ = ("_author", "_is_multi", "_sketches", "_tree")

    def __init__(self, tree: Tree, author: Author, *, is_multi: bool = False) -> None:
        self._tree = tree
        self._author = author
        self._is_multi = is_multi
        self._sketches: dict[str, _Sketch | None] = {}

    def step(self, request: MultiOp | SetAcl) -> Step:
        match request:
            case Create() | Create2() | CreateContainer() | CreateTtl():
                return self._create(request)
            case Delete(path, version):
                return self._delete(path, version)
            case SetData(path, data, version):
                return self._set(path, data, version)
            case Check(path, version):
                _validate(path)
                node = self._node(path)
                self._require(path, node, AclPerm.READ)
                _expect(path, node.version, version)
                return Step(Op.CHECK, None)
            case SetAcl(path, acl, version):
                _validate(path)
                kept = self._author.keeper.accept(path, acl, self._author.ids)
                node = self._node(path)
                self._require(path, node, AclPerm.ADMIN)
                _expect(path, node.aversion, version)
                return Step(Op.SET_ACL, SetNodeAcl(path, kept, _next(node.aversion)))

    def _create(self, request: Create | Create2 | CreateContainer | CreateTtl) -> Step:
        path, flags = request.path, request.flags
        op, owner = self._kind(request)
        above = _parent(path)
        acl = self._author.keeper.accept(path, request.acl, self._author.ids)
        parent = self._node(above)
        self._require(path, parent, AclPerm.CREATE)
        if flags in _SEQUENTIAL:
            path += f"{parent.creations:010d}"
        _validate(path)
        if self._find(path) is not None:
            raise NodeExists(path)
        if parent.owner > 0:
            raise NoChildrenForEphemerals(path)
        parent.children += 1
        parent.creations = min(parent.creations + 1, MAX_SEQUENCE)
        self._sketches[path] = _Sketch(0, 0, 0, owner, 0, acl)
        return Step(op, CreateNode(path, request.data, owner, acl))

    def _kind(self, request: Create | Create2 | CreateContainer | CreateTtl) -> tuple[Op, int]:
        """(what a multi answers it as, the owner of the znode).

        Apache goes by the operation outside a multi, inside one by the flags.
        """
        flags, op = request.flags, request.op
        if self._is_multi and flags in _TTL_FLAGS and op is not Op.CREATE_TTL:
            raise Refused(request.path, Err.MARSHALLING)  # Apache stumbles over these
        if flags in _TTL_FLAGS and not self._author.has_ttl:
            raise Unimplemented(request.path)
        if not CreateFlag.PERSISTENT <= flags <= CreateFlag.TTL_SEQUENTIAL:
            raise BadArguments(request.path)
        if flags in _TTL_FLAGS:
            ttl_ms = request.ttl_ms if isinstance(request, CreateTtl) else -1
            if not 0 < ttl_ms <= MAX_TTL_MS:
                raise BadArguments(request.path)
            return Op.CREATE2, ttl_owner(ttl_ms)
        if self._is_multi:
            op = Op.CREATE_CONTAINER if flags == CreateFlag.CONTAINER else Op.CREATE
        elif op is Op.CREATE_TTL:
            raise BadArguments(request.path)
        if op is Op.CREATE_CONTAINER:
            return Op.CREATE2, CONTAINER_OWNER
        return Op.CREATE, self._author.session_id if flags in _EPHEMERAL else 0

    def _delete(self, path: str, version: int) -> Step:
        above = _parent(path)
        if path in _INDELIBLE:
            raise BadArguments(path)
        parent = self._node(above)
        self._require(path, parent, AclPerm.DELETE)
        node = self._node(path)
        _expect(path, node.version, version)
        if node.children:
            raise NotEmpty(path)
        parent.children -= 1
        self._sketches[path] = None
        return Step(Op.DELETE, DeleteNode(path))

    def _set(self, path: str, data: bytes | None, version: int) -> Step:
        _validate(path)
        node = self._node(path)
        self._require(path, node, AclPerm.WRITE)
        _expect(path, node.version, version)
        node.version = _next(node.version)
        return Step(Op.SET_DATA, SetNode(path, data, node.version))

    def _require(self, path: str, node: _Sketch, perm: int) -> None:
        if node.acl is not OPEN_ACL:
            require(path, node.acl, perm, self._author.ids)

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
        sketch = _Sketch(
            node.version,
            node.aversion,
            node.creations,
            node.owner,
            len(node.children),
            node.acl,
        )
        self._sketches[path] = sketch
        return sketch


def _parent(path: str) -> str:
    """The path above, of one that need not be valid."""
    if path is None:
        raise Refused("", Err.MARSHALLING)
    slash = path.rfind("/")
    if slash < 0 or "\0" in path:
        raise BadArguments(path)
    return path[:slash] or "/"


def _validate(path: str) -> None:
    if paths.problem(path) is not None:
        raise BadArguments(path)


def _expect(path: str, version: int, expected: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise BadVersion(path)


def _next(version: int) -> int:
    """Java's int arithmetic: after 2^31 - 1 comes -2^31."""
    return version + 1 if version < 2**31 - 1 else -(2**31)
