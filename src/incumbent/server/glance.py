"""What may be answered while a commit is under way.

Rule of this file: an answer given here reveals nothing of what is being committed. It is about
znodes that the commit does not touch, and its header has the zxid from before.

So a slow disk delays only those who write, and those who read what was just written. A client
whose earlier request waits for the commit waits too: replies keep the order of requests. It may
be told before an event that waits, since it shows nothing of the event's cause.
"""

from __future__ import annotations

from incumbent.errors import Refused, RemoteWireError
from incumbent.server.connection import Connection
from incumbent.server.quota import QUOTAS
from incumbent.server.reads import READS
from incumbent.server.service import Service
from incumbent.server.sessions import Peer
from incumbent.server.store import Batch
from incumbent.server.tree import touched_paths
from incumbent.wire import (
    Check,
    Err,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    Multi,
    Op,
    Ping,
    ReplyHeader,
    Request,
    Xid,
    decode_request,
    frame,
)

__all__ = ["Glance", "may_wait", "only_reads"]

_READS = {
    int(op).to_bytes(4, "big")
    for op in (Op.PING, Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2)
}
_OPS = _READS | {int(Op.MULTI).to_bytes(4, "big")}


def may_wait(connection: Connection) -> bool:
    """Is all that it asks perhaps answered beside a commit?"""
    if not connection.is_connected:
        return False
    return all(body is not None and body[4:8] in _OPS for body in connection.queue)


def only_reads(connection: Connection) -> bool:
    """Is nothing that it asks a write? Then it gains nothing by sharing a commit with others."""
    return all(body is not None and body[4:8] in _READS for body in connection.queue)


class Glance:
    """Answers beside one batch that `service` has decided and that is not durable yet."""

    __slots__ = ("_batch", "_hidden", "_service", "_zxid")

    def __init__(self, service: Service, batch: Batch) -> None:
        self._service = service
        self._batch = batch
        self._zxid = batch[0].zxid - 1
        self._hidden: frozenset[str] | None = None

    def answer(self, peer: Peer, body: bytes) -> bytes | None:
        """The whole frame of the answer to a request, or None: it has to wait."""
        if body[4:8] not in _OPS or not peer.is_connected or peer.is_leaving:
            return None
        if len(peer.out) != peer.events:
            return None
        try:
            xid, _op, request = decode_request(body)
        except RemoteWireError:
            return None
        if request is None or not self._is_apart(request):
            return None
        service = self._service
        if service.on_request is not None:
            service.on_request(peer.session_id, request)
        try:
            value = self._value(peer, request)
        except Refused as refused:
            return frame(ReplyHeader(xid, self._zxid, refused.code).encode())
        if isinstance(request, Ping):
            xid = Xid.PING
        header = ReplyHeader(xid, self._zxid, Err.OK).encode()
        return frame(header + request.encode_answer(value))

    def _is_apart(self, request: Request) -> bool:
        """Is all that it is about untouched by the batch?"""
        match request:
            case Ping():
                return True
            case Exists(path) | GetData(path) | GetChildren(path) | GetChildren2(path):
                return self._is_untouched(path)
            case Multi(ops):
                return all(isinstance(op, Check) and self._is_untouched(op.path) for op in ops)
        return False

    def _is_untouched(self, path: str | None) -> bool:
        if self._hidden is None:
            self._hidden = frozenset(
                path
                for transaction in self._batch
                for change in transaction.changes
                for path in touched_paths(change)
            )
        if not path or path.startswith(QUOTAS):  # "" is another name of the root
            return False
        return path not in self._hidden

    def _value(self, peer: Peer, request: Request) -> object:
        service = self._service
        if isinstance(request, Ping):
            return None
        if isinstance(request, Multi):
            return service.outcome(peer, request)
        return READS[type(request)](service.tree, service.watches, peer, request)
