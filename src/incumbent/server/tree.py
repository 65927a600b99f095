"""The znodes in memory, and what one transaction does to them.

Rule of this file: `apply` never refuses. A transaction was decided against this very tree
(see `transactions`) or read back from the disk; carrying it out is arithmetic, so that the
same transactions always give the same tree.

Two habits of Apache ZooKeeper 3.8 are kept, because clients see them: a znode stores how many
children were ever created (`creations`, the source of sequence suffixes) and shows
`creations * 2 - children` as its cversion; and the root answers to "" as well as to "/".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from incumbent.wire import EventType, Stat, paths
from incumbent.wire.protocol import CONTAINER_OWNER, MAX_SEQUENCE

__all__ = [
    "Change",
    "CreateNode",
    "DeleteNode",
    "EndSession",
    "Event",
    "OpenSession",
    "SetNode",
    "Transaction",
    "Tree",
    "Znode",
    "touched_paths",
]


class CreateNode(NamedTuple):
    """`owner` is the session of an ephemeral, `CONTAINER_OWNER` of a container, else 0."""

    path: str
    data: bytes | None
    owner: int


class DeleteNode(NamedTuple):
    path: str


class SetNode(NamedTuple):
    """`version` is the new one."""

    path: str
    data: bytes | None
    version: int


class OpenSession(NamedTuple):
    session_id: int
    timeout_ms: int


class EndSession(NamedTuple):
    """A session ends together with its ephemerals, all in one transaction."""

    session_id: int
    paths: tuple[str, ...]


Change: TypeAlias = CreateNode | DeleteNode | SetNode | OpenSession | EndSession


class Transaction(NamedTuple):
    """What happens at one zxid, all or nothing. `time_ms` is wall time, for the Stats."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


class Event(NamedTuple):
    """Something a watch may be set on."""

    type: EventType
    path: str


class Znode:
    """One znode. `children` keeps the order of creation."""

    __slots__ = (
        "children",
        "creations",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self,
        data: bytes | None = b"",
        *,
        czxid: int = 0,
        mzxid: int = 0,
        pzxid: int = 0,
        ctime: int = 0,
        mtime: int = 0,
        version: int = 0,
        creations: int = 0,
        owner: int = 0,
    ) -> None:
        self.data = data
        self.czxid = czxid
        self.mzxid = mzxid
        self.pzxid = pzxid
        self.ctime = ctime
        self.mtime = mtime
        self.version = version
        self.creations = creations
        self.owner = owner
        self.children: dict[str, None] = {}


_CONFIG = "/zookeeper/config"
_SYSTEM = ("/zookeeper", "/zookeeper/quota", _CONFIG)


class Tree:
    """All znodes and sessions as of `zxid`.

    nodes       by path; the root is there as "" and as "/"
    sessions    id → timeout in ms, as granted when it was created
    ephemerals  id → its paths, in the order of creation
    containers  the paths of all containers
    """

    __slots__ = ("containers", "ephemerals", "nodes", "sessions", "zxid")

    def __init__(self) -> None:
        self.zxid = 0
        root = Znode()
        self.nodes: dict[str, Znode] = {"": root, "/": root}
        self.sessions: dict[int, int] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        for path in _SYSTEM:
            self.nodes[path] = Znode()
            self.nodes[paths.parent(path)].children[paths.name(path)] = None

    @classmethod
    def restored(
        cls, zxid: int, nodes: Iterable[tuple[str, Znode]], sessions: Iterable[tuple[int, int]]
    ) -> Tree:
        """A tree from what was kept of it; system znodes that never changed may be missing."""
        tree = cls()
        tree.zxid = zxid
        tree.sessions.update(sessions)
        kept = list(nodes)
        for path, node in kept:
            if path == "/":
                tree.nodes[""] = node
            if path in tree.nodes:  # the system's: its children here are the system's too
                node.children.update(tree.nodes[path].children)
            tree.nodes[path] = node
        for path, node in kept:
            if path != "/":
                tree.nodes[paths.parent(path)].children[paths.name(path)] = None
                tree._index(path, node.owner)
        return tree

    @classmethod
    def partial(cls, nodes: Iterable[tuple[str, Znode]]) -> Tree:
        """A tree of only some znodes, without their children: enough for `apply` on these."""
        tree = cls()
        for path, node in nodes:
            tree.nodes[path] = node
            tree._index(path, node.owner)
        tree.nodes[""] = tree.nodes["/"]
        return tree

    def stat(self, path: str) -> Stat:
        """The Stat of an existing znode."""
        node = self.nodes[path]
        children = len(node.children)
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            _as_int32(node.creations * 2 - children),
            -1 if path == _CONFIG else 0,  # Apache sets that znode's ACL once, from version -1
            max(node.owner, 0),  # a container shows no owner
            len(node.data) if node.data is not None else 0,
            children,
            node.pzxid,
        )

    def apply(self, transaction: Transaction) -> list[Event]:
        """Carry out all changes; the events in the order in which they happened."""
        events: list[Event] = []
        for change in transaction.changes:
            events += self.carry_out(change, transaction.zxid, transaction.time_ms)
        self.zxid = transaction.zxid
        return events

    def carry_out(self, change: Change, zxid: int, time_ms: int) -> list[Event]:
        """One change of a transaction. The caller sets `zxid` when all are done."""
        match change:
            case CreateNode(path, data, owner):
                return self._create(path, data, owner, zxid, time_ms)
            case SetNode(path, data, version):
                node = self.nodes[path]
                node.data, node.version = data, version
                node.mzxid, node.mtime = zxid, time_ms
                return [Event(EventType.CHANGED, path)]
            case DeleteNode(path):
                return self._delete(path, zxid)
            case OpenSession(session_id, timeout_ms):
                self.sessions[session_id] = timeout_ms
                return []
            case EndSession(session_id, gone):
                events: list[Event] = []
                for path in gone:
                    events += self._delete(path, zxid)
                self.sessions.pop(session_id, None)
                return events

    def _create(
        self, path: str, data: bytes | None, owner: int, zxid: int, time_ms: int
    ) -> list[Event]:
        above = paths.parent(path)
        parent = self.nodes[above]
        self.nodes[path] = Znode(
            data,
            czxid=zxid,
            mzxid=zxid,
            pzxid=zxid,
            ctime=time_ms,
            mtime=time_ms,
            owner=owner,
        )
        parent.children[paths.name(path)] = None
        if parent.creations < MAX_SEQUENCE:  # Apache's counter sticks, and pzxid with it
            parent.creations += 1
            parent.pzxid = zxid
        self._index(path, owner)
        return [Event(EventType.CREATED, path), Event(EventType.CHILD, above)]

    def _delete(self, path: str, zxid: int) -> list[Event]:
        above = paths.parent(path)
        node = self.nodes.pop(path)
        parent = self.nodes[above]
        parent.children.pop(paths.name(path), None)
        parent.pzxid = zxid
        if node.owner == CONTAINER_OWNER:
            self.containers.pop(path, None)
        elif node.owner and (owned := self.ephemerals.get(node.owner)):
            owned.pop(path, None)
            if not owned:
                del self.ephemerals[node.owner]
        return [Event(EventType.DELETED, path), Event(EventType.CHILD, above)]

    def _index(self, path: str, owner: int) -> None:
        if owner == CONTAINER_OWNER:
            self.containers[path] = None
        elif owner:
            self.ephemerals.setdefault(owner, {})[path] = None


def touched_paths(transaction: Transaction) -> Iterable[str]:
    """Every path whose znode the transaction changes, parents included, repeats included."""
    for change in transaction.changes:
        match change:
            case CreateNode() | DeleteNode():
                yield change.path
                yield paths.parent(change.path)
            case SetNode():
                yield change.path
            case EndSession():
                for path in change.paths:
                    yield path
                    yield paths.parent(path)


def _as_int32(value: int) -> int:
    """Java's int arithmetic: it wraps."""
    return (value + 2**31) % 2**32 - 2**31
