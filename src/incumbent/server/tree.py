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

from incumbent.server.acl import READ_ONLY_ACL
from incumbent.server.quota import QUOTAS, Quotas
from incumbent.wire import OPEN_ACL, Acl, EventType, Stat, paths
from incumbent.wire.protocol import CONTAINER_OWNER, MAX_SEQUENCE

__all__ = [
    "Change",
    "CreateNode",
    "DeleteNode",
    "EndSession",
    "Event",
    "OpenSession",
    "SetAcl",
    "SetNode",
    "Transaction",
    "Tree",
    "Znode",
    "deleted_paths",
    "touched_paths",
    "ttl_of",
    "ttl_owner",
]


class CreateNode(NamedTuple):
    """`owner` is the session of an ephemeral, `CONTAINER_OWNER` of a container, `ttl_owner(…)` of
    a znode with a time to live, else 0."""

    path: str
    data: bytes | None
    owner: int
    acl: tuple[Acl, ...] = OPEN_ACL


class DeleteNode(NamedTuple):
    path: str


class SetNode(NamedTuple):
    """`version` is the new one."""

    path: str
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    """`version` is the ACL's new one."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class OpenSession(NamedTuple):
    session_id: int
    timeout_ms: int


class EndSession(NamedTuple):
    """A session ends together with its ephemerals, all in one transaction."""

    session_id: int
    paths: tuple[str, ...]


Change: TypeAlias = CreateNode | DeleteNode | SetNode | SetAcl | OpenSession | EndSession


class Transaction(NamedTuple):
    """What happens at one zxid, all or nothing. `time_ms` is wall time, for the Stats."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


class Event(NamedTuple):
    """Something a watch may be set on. `acl` is the znode's: who may not read it learns nothing."""

    type: EventType
    path: str
    acl: tuple[Acl, ...] = OPEN_ACL


class Znode:
    """One znode. `children` keeps the order of creation."""

    __slots__ = (
        "acl",
        "aversion",
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
        acl: tuple[Acl, ...] = OPEN_ACL,
        aversion: int = 0,
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
        self.acl = acl
        self.aversion = aversion
        self.children: dict[str, None] = {}


_CONFIG = "/zookeeper/config"
_SYSTEM = ("/zookeeper", "/zookeeper/quota", _CONFIG)

_TTL_OWNER = -(2**56)
"""The first byte of ephemeralOwner of a znode with a time to live (0xff as a signed long)."""


def ttl_owner(ttl_ms: int) -> int:
    """What stands in `owner` for a time to live, in ms."""
    return _TTL_OWNER | ttl_ms


def ttl_of(owner: int) -> int:
    """The time to live in ms that `owner` stands for; 0 if for none."""
    return owner - _TTL_OWNER if _TTL_OWNER <= owner < 0 else 0


class Tree:
    """All znodes and sessions as of `zxid`.

    nodes       by path; the root is there as "" and as "/"
    sessions    id → timeout in ms, as granted when it was created
    ephemerals  id → its paths, in the order of creation
    containers  the paths of all containers
    mortals     the paths of all znodes with a time to live
    quotas      the paths that have one, and what is below them
    size        bytes of all paths and data
    """

    __slots__ = (
        "_acls",
        "containers",
        "ephemerals",
        "mortals",
        "nodes",
        "quotas",
        "sessions",
        "size",
        "zxid",
    )

    def __init__(self) -> None:
        self.zxid = 0
        root = Znode()
        self.nodes: dict[str, Znode] = {"": root, "/": root}
        self.quotas = Quotas(self.nodes)
        self.sessions: dict[int, int] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.mortals: dict[str, None] = {}
        self._acls: dict[tuple[Acl, ...], tuple[Acl, ...]] = {OPEN_ACL: OPEN_ACL}
        for path in _SYSTEM:
            self.nodes[path] = Znode()
            if path == _CONFIG:  # Apache sets this ACL once, from version -1
                self.nodes[path].acl, self.nodes[path].aversion = READ_ONLY_ACL, -1
            self.nodes[paths.parent(path)].children[paths.name(path)] = None
        self.size = sum(map(len, self.nodes))

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
            node.acl = tree._one(node.acl)
            tree.nodes[path] = node
        for path, node in kept:
            if path != "/":
                tree.nodes[paths.parent(path)].children[paths.name(path)] = None
                tree._index(path, node.owner)
        tree.quotas.find()
        tree.size = sum(len(path) + _length(node.data) for path, node in tree.nodes.items() if path)
        return tree

    @classmethod
    def partial(cls, nodes: Iterable[tuple[str, Znode]]) -> Tree:
        """A tree of only some znodes, without their children: enough for `replay` on these."""
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
            node.aversion,
            max(node.owner, 0),  # a container shows no owner, a time to live neither
            _length(node.data),
            children,
            node.pzxid,
        )

    def apply(self, transaction: Transaction) -> list[Event]:
        """Carry out all changes; the events in the order in which they happened."""
        events: list[Event] = []
        for change in transaction.changes:
            self.carry_out(change, transaction.zxid, transaction.time_ms, events)
        self.zxid = transaction.zxid
        return events

    def replay(self, transaction: Transaction) -> None:
        """As `apply`, of a log that goes on from a state without some of the ephemerals that this
        log deletes: what happens to these shows in their parents only."""
        zxid, time_ms, changes = transaction
        for change in changes:
            if isinstance(change, EndSession):
                for path in change.paths:
                    self.replay(Transaction(zxid, time_ms, (DeleteNode(path),)))
                self.sessions.pop(change.session_id, None)
            elif isinstance(change, CreateNode | OpenSession) or change.path in self.nodes:
                self.carry_out(change, zxid, time_ms)
            elif isinstance(change, DeleteNode):
                self.nodes[paths.parent(change.path)].pzxid = zxid
        self.zxid = zxid

    def carry_out(
        self, change: Change, zxid: int, time_ms: int, events: list[Event] | None = None
    ) -> None:
        """One change of a transaction; what happened is added to `events`, if somebody listens.

        The caller sets `zxid` when all are done.
        """
        if type(change) is SetNode:  # these two first: they are most of what happens
            path, data, version = change
            node = self.nodes[path]
            more = _length(data) - _length(node.data)
            self.size += more
            node.data, node.version = data, version
            node.mzxid, node.mtime = zxid, time_ms
            if self.quotas.limited:
                self.size += self.quotas.changed(path, more)
            if events is not None:
                events.append(Event(EventType.CHANGED, path, node.acl))
            return
        if type(change) is CreateNode:
            self._create(change, zxid, time_ms, events)
            return
        match change:
            case DeleteNode(path):
                self._delete(path, zxid, events)
            case SetAcl(path, acl, version):
                node = self.nodes[path]
                node.acl, node.aversion = self._one(acl), version
            case OpenSession(session_id, timeout_ms):
                self.sessions[session_id] = timeout_ms
            case EndSession(session_id, gone):
                for path in gone:
                    self._delete(path, zxid, events)
                self.sessions.pop(session_id, None)

    def _create(
        self, change: CreateNode, zxid: int, time_ms: int, events: list[Event] | None
    ) -> None:
        path, data, owner, acl = change
        slash = path.rindex("/")
        above = path[:slash] or "/"
        parent = self.nodes[above]
        self.nodes[path] = Znode(
            data,
            czxid=zxid,
            mzxid=zxid,
            pzxid=zxid,
            ctime=time_ms,
            mtime=time_ms,
            owner=owner,
            acl=acl if acl is OPEN_ACL else self._one(acl),
        )
        parent.children[path[slash + 1 :]] = None
        if parent.creations < MAX_SEQUENCE:  # Apache's counter sticks, and pzxid with it
            parent.creations += 1
            parent.pzxid = zxid
        if owner:
            self._index(path, owner)
        self.size += len(path) + _length(data)
        if self.quotas.limited or path.startswith(QUOTAS):
            self.size += self.quotas.created(path, _length(data))
        if events is not None:
            events += (
                Event(EventType.CREATED, path, acl),
                Event(EventType.CHILD, above, parent.acl),
            )

    def _delete(self, path: str, zxid: int, events: list[Event] | None) -> None:
        slash = path.rindex("/")
        above = path[:slash] or "/"
        node = self.nodes.pop(path)
        parent = self.nodes[above]
        parent.children.pop(path[slash + 1 :], None)
        parent.pzxid = zxid
        size, owner = _length(node.data), node.owner
        self.size -= len(path) + size
        if self.quotas.limited:
            self.size += self.quotas.deleted(path, size)
        if owner > 0:
            owned = self.ephemerals.get(owner)
            if owned:
                owned.pop(path, None)
                if not owned:
                    del self.ephemerals[owner]
        elif owner == CONTAINER_OWNER:
            self.containers.pop(path, None)
        elif owner:
            self.mortals.pop(path, None)
        if events is not None:
            events.append(Event(EventType.DELETED, path, node.acl))
            events.append(Event(EventType.CHILD, above, parent.acl))

    def _index(self, path: str, owner: int) -> None:
        if owner == CONTAINER_OWNER:
            self.containers[path] = None
        elif owner < 0:
            self.mortals[path] = None
        elif owner:
            self.ephemerals.setdefault(owner, {})[path] = None

    def _one(self, acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
        """The same ACL, kept once however many znodes have it."""
        return self._acls.setdefault(acl, acl)


def touched_paths(change: Change) -> Iterable[str]:
    """Every path whose znode it changes, each before its parent, repeats included."""
    match change:
        case CreateNode() | DeleteNode():
            yield change.path
            yield paths.parent(change.path)
        case SetNode() | SetAcl():
            yield change.path
        case EndSession():
            for path in change.paths:
                yield path
                yield paths.parent(path)


def deleted_paths(change: Change) -> tuple[str, ...]:
    """The paths whose znodes it deletes."""
    match change:
        case DeleteNode(path):
            return (path,)
        case EndSession(_session, gone):
            return gone
    return ()


def _length(data: bytes | None) -> int:
    return 0 if data is None else len(data)


def _as_int32(value: int) -> int:
    """Java's int arithmetic: it wraps."""
    return (value + 2**31) % 2**32 - 2**31
