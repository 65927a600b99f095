"""One server of a simulated ensemble: its clients, its own tree, and its time as a follower.

Reads, pings and watches are served from the server's own tree, whatever it knows of the others;
everything else goes to the leader. An answer from there is given once the tree has what it
tells of. The tree follows what is committed, as late as `lag` says.

Rule of this file: the leader learns who of our clients lives only in our answer to its ping
(and at an attach). A request that we forward tells it nothing, as at Apache's.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from incumbent.errors import RemoteWireError
from incumbent.server.connection import Connection
from incumbent.server.journal import unpack_transactions
from incumbent.server.policy import Policy
from incumbent.server.service import Service
from incumbent.server.store import Loaded
from incumbent.server.traffic import Traffic
from incumbent.server.tree import EndSession, Transaction, Tree
from incumbent.testing.cables import Cable, Kind, Log, Note, first_of
from incumbent.wire import ConnectRequest, ConnectResponse, Op

if TYPE_CHECKING:
    from incumbent.testing.ensemble import Ensemble
    from incumbent.testing.hosts import Host

__all__ = [
    "Answer",
    "CLIENT_PORT",
    "Caller",
    "END",
    "Following",
    "LocalService",
    "MEMBER_PORT",
    "Over",
    "Replica",
    "Role",
    "SECRET",
    "TOUCH",
]

CLIENT_PORT, MEMBER_PORT = 2181, 2888
SECRET = b"known to every server of an ensemble"

TOUCH = struct.Struct(">qi")
END = struct.Struct(">qq")
_LOCAL = frozenset(
    {
        Op.EXISTS,
        Op.GET_DATA,
        Op.GET_ACL,
        Op.GET_CHILDREN,
        Op.GET_CHILDREN2,
        Op.PING,
        Op.SET_WATCHES,
        Op.SET_WATCHES2,
        Op.ADD_WATCH,
        Op.CHECK_WATCHES,
        Op.REMOVE_WATCHES,
        Op.MULTI_READ,
        Op.GET_EPHEMERALS,
        Op.GET_ALL_CHILDREN_NUMBER,
        Op.WHO_AM_I,
        Op.AUTH,
    }
)


class Over(Exception):
    """Its time as a leader or follower is over: it looks for a leader again."""


class Role(Protocol):
    """Who answers for the leader: the leader here, or the cable to it."""

    epoch: int

    def ask(self, number: int, body: bytes) -> None: ...

    def authenticate(self, number: int, body: bytes) -> None: ...

    def heard(self, session_id: int, timeout_ms: int) -> None: ...

    def gone(self, number: int) -> None: ...

    def on_member(self, cable: Cable, note: Note) -> None:
        """A note from a server that takes us for the leader."""

    def on_member_lost(self, cable: Cable) -> None: ...


class Caller(Connection):
    """A client's connection. `number` names it to the leader, which owes it `awaited` answers."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.number = 0
        self.awaited = 0
        self.timeout_ms = 0


class Answer(NamedTuple):
    gate: int
    number: int
    is_last: bool
    data: bytes


class LocalService(Service):
    """The server's service, whose transactions come from elsewhere."""

    def learn(self, transaction: Transaction) -> None:
        """It is committed: carry it out, and tell who watches."""
        for event in self.tree.apply(transaction):
            watchers = self.watches.fire(event)
            if watchers:
                self._tell(watchers, event)
        for change in transaction.changes:
            if isinstance(change, EndSession):
                owner = self.sessions.end(change.session_id)
                # One that waits for an answer is closed by that.
                if isinstance(owner, Caller) and not owner.awaited:
                    self.leave(owner)


class Replica:
    """One life of one server's process; `log` outlives it.

    state  "looking", "leading" or "following"
    lag    seconds by which it applies late what is committed
    """

    def __init__(self, ensemble: Ensemble, host: Host, log: Log) -> None:
        self.ensemble = ensemble
        self.host = host
        self.log = log
        self.state = "looking"
        self.lag = 0.0
        self.role: Role | None = None
        self.traffic = Traffic()
        self.policy = Policy(connections_per_address=0)
        self.local = LocalService(
            Loaded(tree=Tree(), secret=SECRET),
            clock=host.clock,
            tick=ensemble.tick,
            rng=host.rng,
            log=self.say,
        )
        self._callers: dict[int, Caller] = {}
        self._numbers = 0
        self._committed = 0
        self._answers: deque[Answer] = deque()

    def say(self, line: str) -> None:
        self.ensemble.world.record("says", line=line)

    @property
    def is_serving(self) -> bool:
        return self.role is not None and self.local.tree.zxid >= first_of(self.role.epoch)

    @property
    def sessions(self) -> list[int]:
        """Whose clients are connected here."""
        return [c.session_id for c in self._callers.values() if c.session_id]

    async def run(self) -> None:
        """Serve, with this leader or that, until killed. Raises `DiskFailed`."""
        from incumbent.testing.leading import Leading

        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Caller(self), "0.0.0.0", CLIENT_PORT)
        await loop.create_server(self._member, "0.0.0.0", MEMBER_PORT)
        while True:
            epoch, leader = await self.ensemble.ballot.place(self)
            is_leader = leader == self.host.name
            self.state = "leading" if is_leader else "following"
            self.say(f"{self.state} {leader} in epoch {epoch}")
            term = Leading(self, epoch) if is_leader else Following(self, epoch, leader)
            self.role = term
            try:
                await term.run()
            except* Over as why:
                self.say(f"no longer {self.state}: {why.exceptions[0]}")
            finally:
                self._adjourn()

    def _adjourn(self) -> None:
        """No leader: clients have to go."""
        self.state, self.role = "looking", None
        self._answers.clear()
        for caller in list(self._callers.values()):
            caller.abort()

    def _member(self) -> Cable:
        def heard(cable: Cable, note: Note) -> None:
            if self.role is None:
                cable.close()
            else:
                self.role.on_member(cable, note)

        def lost(cable: Cable) -> None:
            if self.role is not None:
                self.role.on_member_lost(cable)

        return Cable(heard, lost)

    # -- what connections report

    def opened(self, connection: Connection) -> None:
        assert isinstance(connection, Caller)
        if not self.is_serving:
            connection.abort()
            return
        self._numbers += 1
        connection.number = self._numbers
        self._callers[connection.number] = connection

    def ready(self, connection: Connection, frames: int) -> None:
        assert isinstance(connection, Caller)
        if self.role is not None and frames and connection.session_id:
            self.role.heard(connection.session_id, connection.timeout_ms)
        self._serve(connection)
        self._flush()

    def asked(self, connection: Connection, word: bytes) -> None:
        connection.abort()

    def unread(self, connection: Connection, size: int) -> None: ...

    def lost(self, connection: Connection) -> None:
        assert isinstance(connection, Caller)
        if self._callers.pop(connection.number, None) is not None:
            self.local.forget(connection)
            if self.role is not None:
                self.role.gone(connection.number)

    def _serve(self, caller: Caller) -> None:
        """Its requests in their order: a read waits for the answers to the writes before it."""
        while caller.is_servable and not caller.is_leaving and self.role is not None:
            body = caller.queue[0]
            op = int.from_bytes((body or b"")[4:8], "big", signed=True)
            is_local = body is None or not caller.is_connected or op in _LOCAL
            if is_local and caller.awaited:
                return
            caller.take()
            if body is None:
                self.local.leave(caller)
            elif not caller.is_connected:
                self._connect(caller, body)
            elif is_local:
                if op == Op.AUTH:
                    self.role.authenticate(caller.number, body)
                self.local.handle(caller, body)
            else:
                caller.awaited += 1
                self.role.ask(caller.number, body)

    def _connect(self, caller: Caller, body: bytes) -> None:
        assert self.role is not None
        try:
            is_ahead = ConnectRequest.decode(body).last_zxid > self.local.tree.zxid
        except RemoteWireError:
            is_ahead = True
        if is_ahead:  # a lagging server turns away who has seen more
            self.local.leave(caller)
        else:
            caller.awaited += 1
            self.role.ask(caller.number, body)

    def _flush(self) -> None:
        for peer in self.local.released():
            assert isinstance(peer, Caller)
            peer.flush()

    # -- what the leader tells

    def answered(self, answer: Answer) -> None:
        """Give it to its client, once the tree has what it tells of."""
        if answer.gate:
            self._answers.append(answer)
            self._give()
        else:
            self._give_one(answer)
        self._flush()

    def _give(self) -> None:
        while self._answers and self._answers[0].gate <= self.local.tree.zxid:
            self._give_one(self._answers.popleft())

    def _give_one(self, answer: Answer) -> None:
        caller = self._callers.get(answer.number)
        if caller is None or caller.is_leaving:
            return
        caller.awaited -= 1
        if not caller.is_connected and answer.data:
            granted = ConnectResponse.decode(answer.data[4:])
            if granted.timeout_ms > 0:
                caller.timeout_ms = granted.timeout_ms
                sessions = self.local.sessions
                before = sessions.attach(caller, granted.session_id, granted.timeout_ms)
                if before is not None and before is not caller:
                    self.local.leave(before)
        elif answer.data:
            self.ensemble.replied(self, caller.address)
        caller.out.append(answer.data)
        caller.flush()
        if answer.is_last:
            self.local.leave(caller)
        self._serve(caller)

    def commit(self, zxid: int) -> None:
        """A quorum has all up to this."""
        if self.lag > 0:
            asyncio.get_running_loop().call_later(self.lag, self._apply, zxid)
        else:
            self._apply(zxid)

    def catch_up(self) -> None:
        """More of the log is there."""
        self._apply(0)

    def _apply(self, zxid: int) -> None:
        self._committed = max(self._committed, zxid)
        for transaction in self.log.after(self.local.tree.zxid):
            if transaction.zxid > self._committed:
                break
            self.local.learn(transaction)
            self.ensemble.committed(transaction)
            self._give()
        self._flush()


class Following:
    """One time as a follower of one leader."""

    def __init__(self, replica: Replica, epoch: int, leader: str) -> None:
        self.replica = replica
        self.epoch = epoch
        self.leader = leader
        self.patience = replica.ensemble.patience
        self._cable = Cable(self._on_note, self._on_lost)
        self._touched: dict[int, int] = {}
        self._unwritten: list[tuple[int | None, list[Transaction]]] = []
        self._written = asyncio.Event()
        self._is_synced = False
        self._committed = 0
        self._heard_at = 0.0
        self._is_lost = False

    async def run(self) -> None:
        """Raises an ExceptionGroup of `Over`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                group.create_task(self._write())
        finally:
            self._cable.close()

    async def _watch(self) -> None:
        clock = self.replica.host.clock
        try:
            async with asyncio.timeout(self.patience):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self._cable, self.leader, MEMBER_PORT)
        except (OSError, TimeoutError):
            raise Over(f"{self.leader} does not answer") from None
        ends = self.replica.log.ends()
        self._cable.send(Kind.FOLLOW, self.epoch, 0, b"".join(END.pack(*x) for x in ends.items()))
        self._heard_at = clock.boottime()
        while not self._is_lost:
            await asyncio.sleep(self.replica.ensemble.tick / 4)
            if clock.boottime() - self._heard_at > self.patience:
                raise Over(f"{self.leader} is silent")
        raise Over(f"{self.leader} is gone")

    async def _write(self) -> None:
        """What the leader proposed, to disk, and then it is acknowledged."""
        log = self.replica.log
        while True:
            await self._written.wait()
            self._written.clear()
            while self._unwritten:
                await self.replica.host.disk.write()
                keep, batch = self._unwritten.pop(0)
                if keep is not None:
                    assert keep >= self.replica.local.tree.zxid, "what is committed stays"
                    log.cut(keep)
                    self._is_synced = True
                log.append(batch)
                self._cable.send(Kind.ACK, log.last)
                self.replica.commit(self._committed)

    def _on_lost(self, cable: Cable) -> None:
        self._is_lost = True

    def _on_note(self, cable: Cable, note: Note) -> None:
        self._heard_at = self.replica.host.clock.boottime()
        match note.kind:
            case Kind.SYNC:
                self._unwritten.append((note.a, unpack_transactions(note.data)))
                self._written.set()
            case Kind.PROPOSE:
                self._unwritten.append((None, unpack_transactions(note.data)))
                self._written.set()
            case Kind.COMMIT:
                self._committed = note.a
                if self._is_synced:
                    self.replica.commit(note.a)
            case Kind.PING:
                touched = b"".join(TOUCH.pack(*touch) for touch in self._touched.items())
                self._touched.clear()
                cable.send(Kind.PONG, 0, 0, touched)
            case Kind.ANSWER:
                self.replica.answered(Answer(note.a, note.b, note.data[:1] == b"\1", note.data[1:]))

    # -- as a Role

    def ask(self, number: int, body: bytes) -> None:
        self._cable.send(Kind.ASK, number, 0, body)

    def authenticate(self, number: int, body: bytes) -> None:
        self._cable.send(Kind.AUTH, number, 0, body)

    def heard(self, session_id: int, timeout_ms: int) -> None:
        self._touched[session_id] = timeout_ms

    def gone(self, number: int) -> None:
        self._cable.send(Kind.GONE, number)

    def on_member(self, cable: Cable, note: Note) -> None:
        cable.close()

    def on_member_lost(self, cable: Cable) -> None: ...
