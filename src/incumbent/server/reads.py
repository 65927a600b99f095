"""Requests that change no znode: what is answered, and the watches that are set on the way.

Rule of this file: everything here is answered from the tree as it is; the one thing that is
changed is the table of watches. The order of the checks is Apache ZooKeeper 3.8's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from incumbent.errors import NoNode, Refused
from incumbent.server.acl import require, shown, user_names
from incumbent.server.sessions import Peer
from incumbent.server.tree import Event, Tree, Znode
from incumbent.server.watches import Watches
from incumbent.wire import (
    OPEN_ACL,
    AclAndStat,
    AclPerm,
    AddWatch,
    CheckWatches,
    ChildrenAndStat,
    DataAndStat,
    Err,
    EventType,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Id,
    MultiRead,
    Op,
    OpError,
    RemoveWatches,
    Request,
    SetWatches,
    SetWatches2,
    Stat,
    Sync,
    WatchMode,
    WatchType,
    WhoAmI,
)

__all__ = ["READS", "set_again"]


def _exists(tree: Tree, watches: Watches[Peer], peer: Peer, request: Exists) -> Stat:
    path = request.path
    if path is None:
        raise Refused("", Err.MARSHALLING)
    if "\0" in path:
        raise Refused(path, Err.BAD_ARGUMENTS)
    if request.watch:
        watches.add_data(path, peer)
    if path not in tree.nodes:
        raise NoNode(path)
    return tree.stat(path)


def _get_data(tree: Tree, watches: Watches[Peer], peer: Peer, request: GetData) -> DataAndStat:
    path = request.path
    node = _readable(tree, peer, path)
    if request.watch:
        watches.add_data(path, peer)
    return DataAndStat(node.data, tree.stat(path))


def _get_children(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: GetChildren | GetChildren2
) -> list[str]:
    node = _readable(tree, peer, request.path)
    if request.watch:
        watches.add_child(request.path, peer)
    return list(node.children)


def _get_children2(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: GetChildren2
) -> ChildrenAndStat:
    names = _get_children(tree, watches, peer, request)
    return ChildrenAndStat(names, tree.stat(request.path))


def _multi_read(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: MultiRead
) -> list[tuple[Op, Any]]:
    if any(op.path is None for op in request.ops):
        raise Refused("", Err.MARSHALLING)
    answers: list[tuple[Op, Any]] = []
    for op in request.ops:
        try:
            node = _readable(tree, peer, op.path)
        except Refused as refused:
            answers.append((Op.ERROR, OpError(refused.code)))
            continue
        if isinstance(op, GetData):
            answers.append((op.op, DataAndStat(node.data, tree.stat(op.path))))
        else:
            answers.append((op.op, list(node.children)))
    return answers


def _get_acl(tree: Tree, watches: Watches[Peer], peer: Peer, request: GetAcl) -> AclAndStat:
    node = _node(tree, request.path)
    require(request.path, node.acl, AclPerm.READ | AclPerm.ADMIN, peer.ids)
    return AclAndStat(shown(node.acl, peer.ids), tree.stat(request.path))


def _get_all_children_number(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: GetAllChildrenNumber
) -> int:
    path = request.path
    node = _readable(tree, peer, path)
    if path == "/":
        return len(tree.nodes) - 2  # the root is there twice
    if path == "":
        return len(tree.nodes) - 1  # Apache counts "/" as a child of ""
    count, waiting = 0, [(path, node)]
    while waiting:
        above, node = waiting.pop()
        count += len(node.children)
        waiting += [
            (below, tree.nodes[below])
            for below in (f"{above}/{name}" for name in node.children)
            if tree.nodes[below].children
        ]
    return count


def _get_ephemerals(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: GetEphemerals
) -> list[str]:
    own = list(tree.ephemerals.get(peer.session_id, ()))
    prefix = request.prefix or ""
    if prefix.strip() in ("", "/"):
        return own
    return [path for path in own if path.startswith(prefix)]


def _who_am_i(tree: Tree, watches: Watches[Peer], peer: Peer, request: WhoAmI) -> list[Id]:
    return user_names(peer.ids)


def _sync(tree: Tree, watches: Watches[Peer], peer: Peer, request: Sync) -> str:
    return request.path


def _add_watch(tree: Tree, watches: Watches[Peer], peer: Peer, request: AddWatch) -> int:
    if request.path is None or request.mode not in (WatchMode.PERSISTENT, WatchMode.RECURSIVE):
        raise Refused("", Err.MARSHALLING)
    watches.add_lasting(request.path, peer, WatchMode(request.mode))
    return 0


def _check_watches(tree: Tree, watches: Watches[Peer], peer: Peer, request: CheckWatches) -> None:
    if request.path is None:
        raise Refused("", Err.MARSHALLING)
    if not watches.has(request.path, _watch_type(request)):
        raise Refused(request.path, Err.NO_WATCHER)


def _remove_watches(tree: Tree, watches: Watches[Peer], peer: Peer, request: RemoveWatches) -> None:
    if not watches.remove(request.path, peer, _watch_type(request)):
        raise Refused(request.path, Err.NO_WATCHER)


READS: Mapping[type[Request], Callable[[Tree, Watches[Peer], Peer, Any], Any]] = {
    GetData: _get_data,
    Exists: _exists,
    GetChildren: _get_children,
    GetChildren2: _get_children2,
    Sync: _sync,
    MultiRead: _multi_read,
    GetAcl: _get_acl,
    GetAllChildrenNumber: _get_all_children_number,
    GetEphemerals: _get_ephemerals,
    WhoAmI: _who_am_i,
    AddWatch: _add_watch,
    CheckWatches: _check_watches,
    RemoveWatches: _remove_watches,
}
"""By type of request: the function that gives the answer's value, or raises a `Refused`."""


def set_again(
    tree: Tree, watches: Watches[Peer], peer: Peer, request: SetWatches | SetWatches2
) -> Iterable[Event]:
    """Set the watches that a client had set elsewhere; the events of those that it missed."""
    lasting = (request.persistent, request.recursive) if isinstance(request, SetWatches2) else ()
    lists = (request.data, request.exist, request.child, *lasting)
    if any(path is None for each in lists for path in each):
        raise Refused("", Err.MARSHALLING)
    nodes, since = tree.nodes, request.relative_zxid
    for path in request.data:
        if path not in nodes:
            yield Event(EventType.DELETED, path)
        elif nodes[path].mzxid > since:
            yield Event(EventType.CHANGED, path)
        else:
            watches.add_data(path, peer)
    for path in request.exist:
        if path in nodes:
            yield Event(EventType.CREATED, path)
        else:
            watches.add_data(path, peer)
    for path in request.child:
        if path not in nodes:
            yield Event(EventType.DELETED, path)
        elif nodes[path].pzxid > since:
            yield Event(EventType.CHILD, path)
        else:
            watches.add_child(path, peer)
    for mode, listed in zip((WatchMode.PERSISTENT, WatchMode.RECURSIVE), lasting, strict=False):
        for path in listed:
            watches.add_lasting(path, peer, mode)


def _node(tree: Tree, path: str | None) -> Znode:
    node = tree.nodes.get(path)  # type: ignore[arg-type]
    if node is None:
        raise NoNode(path) if path is not None else Refused("", Err.MARSHALLING)
    return node


def _readable(tree: Tree, peer: Peer, path: str) -> Znode:
    node = _node(tree, path)
    if node.acl is not OPEN_ACL:
        require(path, node.acl, AclPerm.READ, peer.ids)
    return node


def _watch_type(request: CheckWatches | RemoveWatches) -> WatchType:
    if request.type not in (1, 2, 3):
        raise Refused("", Err.MARSHALLING)
    return WatchType(request.type)
