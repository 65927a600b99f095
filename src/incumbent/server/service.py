"""What each request does: requests in, replies, events and transactions out.

Rule of this file: nothing is sent from here. Replies and events are put on their peer's list in
the order in which things happened, transactions on the service's; whoever drives the service
makes the transactions durable first and lets the lists go afterwards.

The tree, the watches and the lists already show what was decided but is not yet durable. If it
cannot be made durable, the whole service is thrown away and made anew from the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from incumbent.clock import Clock
from incumbent.errors import Refused, RemoteWireError
from incumbent.server import transactions
from incumbent.server.acl import Keeper, permits
from incumbent.server.policy import Policy
from incumbent.server.reads import READS, set_again
from incumbent.server.sasl import SaslExchange, SaslRefused
from incumbent.server.sessions import NO_PASSWORD, Peer, Sessions
from incumbent.server.shortcuts import event_frame, plain_read, plain_write, write_reply
from incumbent.server.store import Loaded
from incumbent.server.tree import (
    Change,
    CreateNode,
    EndSession,
    Event,
    OpenSession,
    SetNode,
    Transaction,
)
from incumbent.server.tree import SetAcl as SetNodeAcl
from incumbent.server.watches import Watches
from incumbent.wire import (
    OPEN_ACL,
    AclPerm,
    AuthPacket,
    Check,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Create,
    Create2,
    CreateContainer,
    Created,
    CreateTtl,
    Delete,
    Err,
    Id,
    MalformedRequest,
    Multi,
    MultiOp,
    MultiResult,
    Op,
    OpError,
    Ping,
    Reconfig,
    ReplyHeader,
    Request,
    Sasl,
    SetAcl,
    SetData,
    SetWatches,
    SetWatches2,
    Xid,
    decode_request,
    frame,
)

__all__ = ["Service"]


class Service:
    """All that a server knows, driven one request at a time.

    transactions  decided since `take` was last called; not durable yet
    is_writable   false while the store fails: writes are refused, reads go on
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        clock: Clock,
        tick: float,
        rng: random.Random,
        log: Callable[[str], None],
        on_request: Callable[[int, Request], None] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.keeper = Keeper(self.policy)
        self.tree = loaded.tree
        self.watches: Watches[Peer] = Watches()
        self.transactions: list[Transaction] = []
        self.is_writable = True
        self.on_request = on_request
        self.spares_ephemerals: Callable[[int], bool] | None = None  # see Server
        self.unproven = 0  # credentials that proved nothing
        timeouts = self.policy.timeouts(tick)
        self.sessions = Sessions(loaded, clock=clock, tick=tick, rng=rng, timeouts=timeouts)
        self._rng = rng
        self._clock = clock
        self._log = log
        self._changed: dict[Peer, None] = {}

    def take(self) -> tuple[Transaction, ...]:
        """What must become durable before `released` is called."""
        taken = tuple(self.transactions)
        self.transactions.clear()
        return taken

    def released(self) -> list[Peer]:
        """Every peer whose list or state changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def forget(self, peer: Peer) -> None:
        """Its connection is gone; its session is not."""
        self.leave(peer)
        peer.is_cut = True

    def leave(self, peer: Peer) -> None:
        """Close it when what it was sent so far is out."""
        self.watches.drop(peer)
        self.sessions.detach(peer)
        peer.is_leaving = True
        self._changed[peer] = None

    def expire(self, session_ids: Iterable[int]) -> Iterator[Transaction]:
        """End those that are still overdue. Not while nothing can be made durable.

        Each by one transaction, in pieces: between two, the loop may turn. Until all are done,
        nothing may be shown that the transaction changes, which is what is yielded.
        """
        for session_id in session_ids:
            if not self.is_writable or session_id not in self.tree.sessions:
                continue
            if self.sessions.expiry.is_overdue(session_id):
                self._log(f"session {session_id:#x} expired")
                yield from self._ending(session_id)
                self._ended(session_id)

    def end(self, session_id: int) -> None:
        """End a session against its client's will, and its connection with it."""
        for _ in self._ending(session_id):
            pass
        self._ended(session_id)

    def reap(self) -> None:
        """Delete what nobody needs any more, each by its own transaction."""
        if self.is_writable:
            for change in transactions.reapable(self.tree, self._wall_ms()):
                self._commit((change,))

    def probe(self) -> Transaction:
        """A transaction that changes nothing, to learn whether the store works again."""
        return Transaction(self.tree.zxid + 1, self._wall_ms(), ())

    # -- one frame of a peer

    def handle(self, peer: Peer, body: bytes) -> None:
        """One frame, in the order in which they came."""
        if peer.is_leaving:
            return
        if not peer.is_connected:
            self._connect(peer, body)
            return
        if len(body) >= 8 and self.on_request is None and self._handle_at_once(peer, body):
            return
        try:
            xid, _op, request = decode_request(body)
        except MalformedRequest as malformed:
            self._reply(peer, malformed.xid, Err.MARSHALLING)
            return
        except RemoteWireError:
            self.leave(peer)
            return
        if request is None:
            self._send(peer, ReplyHeader(xid, -1, Err.UNIMPLEMENTED).encode())
            return
        if self.on_request is not None:
            self.on_request(peer.session_id, request)
        try:
            self._serve(peer, xid, request)
        except Refused as refused:
            self._reply(peer, xid, refused.code)

    def _handle_at_once(self, peer: Peer, body: bytes) -> bool:
        """What most requests are; False if this is none of those."""
        reply = plain_read(self.tree, body)
        if reply is None:
            change = None
            if self.is_writable:
                change = plain_write(self.tree, peer.session_id, body)
            if change is None:
                return False
            self._carry_out((change,))
            reply = write_reply(self.tree, body, change)
        self._post(peer, reply)
        return True

    def _connect(self, peer: Peer, body: bytes) -> None:
        try:
            asked = ConnectRequest.decode(body)
        except RemoteWireError as error:
            self._log(f"a connection that began with no handshake was closed: {error}")
            self.leave(peer)
            return
        if asked.last_zxid > self.tree.zxid:
            self._log(
                f"a client that has seen zxid {asked.last_zxid:#x} was turned away, "
                f"this server is at {self.tree.zxid:#x}"
            )
            self.leave(peer)
            return
        session_id, timeout_ms = asked.session_id, self.sessions.grant(asked.timeout_ms)
        if session_id == 0:
            if not self.is_writable:
                self.leave(peer)
                return
            session_id = self.sessions.new_id(self.tree.sessions)
            self._commit((OpenSession(session_id, timeout_ms),))
        elif not self._is_owner(session_id, asked.password):
            answer = ConnectResponse(0, 0, NO_PASSWORD, self._shape(asked))
            self._send(peer, answer.encode())
            self.leave(peer)
            return
        before = self.sessions.attach(peer, session_id, timeout_ms)
        if before is not None:
            self.leave(before)
        password = self.sessions.password(session_id)
        answer = ConnectResponse(timeout_ms, session_id, password, self._shape(asked))
        self._send(peer, answer.encode())

    def _is_owner(self, session_id: int, password: bytes) -> bool:
        known = session_id in self.tree.sessions
        return known and self.sessions.is_password(session_id, password)

    @staticmethod
    def _shape(asked: ConnectRequest) -> bool | None:
        """Old clients know no read-only flag; they are answered without one."""
        return None if asked.read_only is None else False

    # -- one request

    def _serve(self, peer: Peer, xid: int, request: Request) -> None:
        """Answer one request. Raises a `Refused`."""
        read = READS.get(type(request))
        if read is not None:
            self._answer(peer, xid, request, read(self.tree, self.watches, peer, request))
            return
        match request:
            case Create() | Create2() | CreateContainer() | Delete() | SetData():
                self._write(peer, xid, request)
            case Multi():
                self._answer(peer, xid, request, self.outcome(peer, request))
            case Ping():
                self._answer(peer, Xid.PING, request, None)
            case SetAcl() | CreateTtl() | Check():
                self._write(peer, xid, request)
            case SetWatches() | SetWatches2():
                for event in set_again(self.tree, self.watches, peer, request):
                    self._tell([peer], event)
                self._answer(peer, xid, request, None)
            case AuthPacket():
                self._authenticate(peer, xid, request)
            case Sasl(token):
                self._sasl(peer, xid, token or b"")
            case Reconfig():
                raise Refused("", Err.RECONFIG_DISABLED)
            case CloseSession():
                self._check_writable()
                for _ in self._ending(peer.session_id):
                    pass
                self.sessions.end(peer.session_id)
                self._answer(peer, xid, request, None)
                self.leave(peer)
            case _:
                raise Refused("", Err.UNIMPLEMENTED)

    def _authenticate(self, peer: Peer, xid: int, request: AuthPacket) -> None:
        ids = self.keeper.ids(request.scheme, request.auth)
        err = Err.AUTH_FAILED if ids is None else Err.OK
        self._send(peer, ReplyHeader(xid, 0, err).encode())
        if ids is None:
            self.unproven += 1
            self.leave(peer)
        else:
            peer.ids = tuple(dict.fromkeys((*peer.ids, *ids)))
            peer.author = None

    def _author(self, peer: Peer) -> transactions.Author:
        if peer.author is None:
            peer.author = transactions.Author(
                peer.session_id, peer.ids, self.keeper, self.policy.ttl_znodes
            )
        return peer.author

    def _sasl(self, peer: Peer, xid: int, token: bytes) -> None:
        """One step; who fails is told so and has to go, as Apache does it."""
        answer: bytes | None = None
        err = Err.OK
        if self.policy.sasl is not None:
            if peer.sasl is None or peer.sasl.name is not None:
                peer.sasl = SaslExchange(self.policy.sasl, f"{self._rng.getrandbits(128):032x}")
            try:
                answer = peer.sasl.step(token)
            except SaslRefused as refused:
                self._log(str(refused))
                self.unproven += 1
                err = Err.AUTH_FAILED
        if peer.sasl is not None and peer.sasl.name is not None:
            peer.ids += (Id("sasl", peer.sasl.name),)
            peer.author = None
        self._send(peer, ReplyHeader(xid, 0, err).encode() + Sasl.encode_answer(answer))
        if err is not Err.OK:
            self.leave(peer)

    def _write(self, peer: Peer, xid: int, request: MultiOp | SetAcl) -> None:
        self._check_writable()
        step = transactions.decide(self.tree, self._author(peer), request)
        if isinstance(request, Create) and isinstance(step.change, CreateNode):
            self._carry_out((step.change,))  # it is answered without a Stat
            self._answer(peer, xid, request, step.change.path)
            return
        (result,) = self._commit((step.change,)) if step.change else (None,)
        self._answer(peer, xid, request, result)

    def outcome(self, peer: Peer, request: Multi) -> list[tuple[Op, MultiResult]]:
        """Carry out a multi; what it is answered. Raises a `Refused` if it cannot be read."""
        if any(op.path is None for op in request.ops):
            raise Refused("", Err.MARSHALLING)
        self._check_writable()
        try:
            steps = transactions.decide_multi(self.tree, self._author(peer), request)
        except transactions.MultiRefused as refused:
            if refused.refused.code == Err.MARSHALLING:
                raise refused.refused from None
            after = len(request.ops) - refused.index - 1
            codes: list[int] = [Err.OK] * refused.index
            codes += [refused.refused.code, *[Err.RUNTIME_INCONSISTENCY] * after]
            return [(Op.ERROR, OpError(code)) for code in codes]
        changes = tuple(step.change for step in steps if step.change is not None)
        results = iter(self._commit(changes) if changes else ())
        answers: list[tuple[Op, MultiResult]] = []
        for step in steps:
            result = next(results) if step.change is not None else None
            if step.op is Op.CREATE and isinstance(result, Created):
                result = result.path
            answers.append((step.op, result))
        return answers

    # -- changes and their consequences

    def _commit(self, changes: tuple[Change, ...]) -> list[MultiResult]:
        """One transaction, carried out; per change what a client is told of it."""
        results: list[MultiResult] = []
        self._carry_out(changes, lambda change: results.append(self._result(change)))
        return results

    def _carry_out(
        self, changes: tuple[Change, ...], then: Callable[[Change], None] | None = None
    ) -> None:
        """One transaction, `then` called after each of its changes; its events are told."""
        zxid, time_ms = self.tree.zxid + 1, self._wall_ms()
        events: list[Event] | None = None if self.watches.is_empty else []
        for change in changes:
            self.tree.carry_out(change, zxid, time_ms, events)
            if then is not None:
                then(change)
        self.tree.zxid = zxid
        if events:
            self._tell_of(events)
        self.transactions.append(Transaction(zxid, time_ms, changes))

    def _result(self, change: Change) -> MultiResult:
        match change:
            case CreateNode(path):
                return Created(path, self.tree.stat(path))
            case SetNode(path) | SetNodeAcl(path):
                return self.tree.stat(path)
        return None

    def _ending(self, session_id: int) -> Iterator[Transaction]:
        """As `_carry_out`, of the end of a session, with a pause after each piece of it."""
        change = transactions.end_session(self.tree, session_id)
        if self.spares_ephemerals is not None and self.spares_ephemerals(session_id):
            change = EndSession(session_id, ())
        transaction = Transaction(self.tree.zxid + 1, self._wall_ms(), (change,))
        zxid, time_ms, _changes = transaction
        events: list[Event] = []
        for piece in range(0, len(change.paths) or 1, _PIECE):
            if piece:
                yield transaction
            part = EndSession(session_id, change.paths[piece : piece + _PIECE])
            self.tree.carry_out(part, zxid, time_ms, events)
        for piece in range(0, len(events), _PIECE):
            if len(events) > _PIECE:
                yield transaction
            self._tell_of(events[piece : piece + _PIECE])
        self.tree.zxid = zxid
        self.transactions.append(transaction)

    def _ended(self, session_id: int) -> None:
        owner = self.sessions.end(session_id)
        if owner is not None:
            self.leave(owner)
            owner.is_cut = True

    def _check_writable(self) -> None:
        if not self.is_writable:
            raise Refused("", _SYSTEM_ERROR)

    def _wall_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    # -- what peers are sent

    def _tell_of(self, events: Iterable[Event]) -> None:
        for event in events:
            watchers = self.watches.fire(event)
            if watchers:
                self._tell(watchers, event)

    def _tell(self, peers: Iterable[Peer], event: Event) -> None:
        framed = event_frame(event.type, event.path)
        if event.acl is not OPEN_ACL:
            peers = [peer for peer in peers if permits(event.acl, AclPerm.READ, peer.ids)]
        for peer in peers:
            if not peer.is_leaving:
                self._post(peer, framed)
                peer.events += 1

    def _answer(self, peer: Peer, xid: int, request: Request, value: Any) -> None:
        header = ReplyHeader(xid, self.tree.zxid, Err.OK).encode()
        self._send(peer, header + request.encode_answer(value))

    def _reply(self, peer: Peer, xid: int, err: int) -> None:
        self._send(peer, ReplyHeader(xid, self.tree.zxid, err).encode())

    def _send(self, peer: Peer, body: bytes) -> None:
        if not peer.is_leaving:
            self._post(peer, frame(body))

    def _post(self, peer: Peer, framed: bytes) -> None:
        peer.out.append(framed)
        peer.out_bytes += len(framed) - 4
        self._changed[peer] = None


_PIECE = 1000
"""Znodes deleted, and events told, between two pauses while a session ends: some milliseconds."""

_SYSTEM_ERROR = -1
"""ZooKeeper's SystemError: nothing was done. Answered to writes while the store fails."""
