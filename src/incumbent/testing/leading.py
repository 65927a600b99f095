"""A server's time as the leader of a simulated ensemble: it decides, proposes, counts, expires.

It decides with the server's own service, on a tree that already has what is proposed; an answer
names the zxid before which it must not be given. Sessions' clocks begin anew with each leader,
with the timeouts that the sessions were made with.

Rule of this file: committed is what a quorum has on disk, from the epoch's first transaction on.
A leader that is cut off notices only after a while; until then its reads and pings go on, and
time that it spent frozen counts against sessions, as at Apache's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from incumbent.server.journal import pack_transactions
from incumbent.server.service import Service
from incumbent.server.sessions import Peer
from incumbent.server.store import Loaded
from incumbent.server.tree import Transaction, Tree
from incumbent.testing.cables import Cable, Kind, Note, first_of
from incumbent.testing.replica import END, SECRET, TOUCH, Answer, Over, Replica
from incumbent.wire import Op

__all__ = ["Leading"]

_REAP_EVERY = 60.0


class _Follower:
    """What the leader knows of one that follows."""

    def __init__(self, now: float) -> None:
        self.acked = 0
        self.heard_at = now
        self.proxies: dict[int, Peer] = {}  # its clients' connections


class Leading:
    """One time as the leader."""

    def __init__(self, replica: Replica, epoch: int) -> None:
        self.replica = replica
        self.epoch = epoch
        self.ensemble = replica.ensemble
        self._clock = replica.host.clock
        tree = Tree()
        for transaction in replica.log.transactions:
            tree.apply(transaction)
        self._mind = Service(
            Loaded(tree=tree, secret=SECRET),
            clock=self._clock,
            tick=self.ensemble.tick,
            rng=replica.host.rng,
            log=replica.say,
        )
        self._expiry = self._mind.sessions.expiry
        self._looked_at = self._began_at = self._clock.boottime()
        self._followers: dict[Cable, _Follower] = {}
        self._own = _Follower(self._began_at)
        self._unwritten: list[Transaction] = []
        self._written = asyncio.Event()
        self._committed = 0
        self._propose_nothing(first_of(epoch))

    @property
    def is_established(self) -> bool:
        """A quorum follows, or did."""
        return self._committed >= first_of(self.epoch)

    async def run(self) -> None:
        """Raises an ExceptionGroup of `Over`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                group.create_task(self._ping())
                group.create_task(self._expire())
        finally:
            for cable in list(self._followers):
                cable.close()

    # -- proposing and counting

    def _propose_nothing(self, zxid: int) -> None:
        nothing = Transaction(zxid, int(self._clock.wall() * 1000), ())
        self._mind.tree.apply(nothing)
        self._mind.transactions.append(nothing)
        self._propose()

    def _propose(self) -> None:
        batch = self._mind.take()
        self._mind.released()
        if batch:
            self._unwritten += batch
            self._written.set()
            for cable in self._followers:
                cable.send(Kind.PROPOSE, 0, 0, pack_transactions(batch))

    async def _write(self) -> None:
        while True:
            await self._written.wait()
            self._written.clear()
            batch = self._unwritten[:]
            await self.replica.host.disk.write()
            self.replica.log.append(batch)
            del self._unwritten[: len(batch)]
            self._own.acked = self.replica.log.last
            self._count()
            self.replica.catch_up()

    def _count(self) -> None:
        acked = [self._own.acked, *(f.acked for f in self._followers.values())]
        acked.sort(reverse=True)
        quorum = self.ensemble.quorum
        zxid = acked[quorum - 1] if len(acked) >= quorum else 0
        if zxid >= first_of(self.epoch) and zxid > self._committed:
            self._committed = zxid
            for cable in self._followers:
                cable.send(Kind.COMMIT, zxid)
            self.replica.commit(zxid)

    # -- time

    async def _ping(self) -> None:
        """Every tick/2, at any phase of the sessions' ticks: who follows, and who was heard of."""
        tick = self.ensemble.tick
        await asyncio.sleep(self.replica.host.rng.uniform(0.0, tick / 2))
        while True:
            now = self._clock.boottime()
            patience = self.ensemble.patience
            near = [f for f in self._followers.values() if now - f.heard_at <= patience]
            if len(near) + 1 < self.ensemble.quorum and now - self._began_at > patience:
                raise Over("no quorum follows")
            if not self.is_established and now - self._began_at > 4 * patience:
                raise Over("no quorum acknowledged the epoch")
            for cable in self._followers:
                cable.send(Kind.PING)
            await asyncio.sleep(tick / 2)

    async def _expire(self) -> None:
        reap_at = self._looked_at + _REAP_EVERY
        while True:
            now = self._clock.boottime()
            overdue = self._count_time(now)
            if self.is_established:
                for _ in self._mind.expire(overdue):
                    pass
                if now >= reap_at:
                    reap_at = now + _REAP_EVERY
                    self._mind.reap()
                self._propose()
            await asyncio.sleep(self._expiry.delay(now))

    def _count_time(self, now: float) -> list[int]:
        """All of it: no look is late. Who is overdue now."""
        overdue: list[int] = []
        while self._looked_at < now:
            self._looked_at = min(self._looked_at + self._expiry.delay(self._looked_at), now)
            overdue = self._expiry.look(self._looked_at)
        return overdue

    def _touch(self, session_id: int, timeout_ms: int) -> None:
        if session_id in self._expiry.timeouts:
            now = self._clock.boottime()
            self._count_time(now)
            self._expiry.track(session_id, timeout_ms / 1000, now)

    # -- followers

    def on_member(self, cable: Cable, note: Note) -> None:
        follower = self._followers.get(cable)
        if follower is None:
            if note.kind is Kind.FOLLOW and note.a == self.epoch:
                self._admit(cable, dict(END.iter_unpack(note.data)))
            else:
                cable.close()
            return
        follower.heard_at = self._clock.boottime()
        match note.kind:
            case Kind.ACK:
                follower.acked = note.a
                self._count()
            case Kind.PONG:
                for session_id, timeout_ms in TOUCH.iter_unpack(note.data):
                    self._touch(session_id, timeout_ms)
            case Kind.ASK:

                def reply(answer: Answer) -> None:
                    flag = b"\1" if answer.is_last else b"\0"
                    cable.send(Kind.ANSWER, answer.gate, answer.number, flag + answer.data)

                self._decide(follower, note.a, note.data, reply)
            case Kind.AUTH:
                self._know(follower, note.a, note.data)
            case Kind.GONE:
                follower.proxies.pop(note.a, None)

    def on_member_lost(self, cable: Cable) -> None:
        self._followers.pop(cable, None)

    def _admit(self, cable: Cable, ends: dict[int, int]) -> None:
        log = self.replica.log
        common = log.common(ends)
        missing = [*log.after(common), *self._unwritten]
        cable.send(Kind.SYNC, common, 0, pack_transactions(missing))
        self._followers[cable] = _Follower(self._clock.boottime())
        if self.is_established:
            cable.send(Kind.COMMIT, self._committed)

    # -- requests

    def _decide(
        self, source: _Follower, number: int, body: bytes, reply: Callable[[Answer], None]
    ) -> None:
        """Whatever it answers shows nothing that is not proposed, and is given after that."""
        proxy = source.proxies.setdefault(number, Peer())
        if proxy.is_leaving:  # its session has moved, or is over
            reply(Answer(0, number, True, b""))
            return
        mind = self._mind
        is_first, before = not proxy.is_connected, mind.tree.zxid
        mind.handle(proxy, body)
        gate = mind.tree.zxid
        if is_first and proxy.is_connected and gate == before:
            gate = 0  # an attach waits for no quorum
        elif gate == before and not is_first and body[4:8] != _SYNC:
            gate += 1  # nothing changed or it was refused: a quorum agrees to that too
            self._propose_nothing(gate)
        data = b"".join(proxy.out)
        proxy.out.clear()
        self._propose()
        reply(Answer(gate, number, proxy.is_leaving, data))

    def _know(self, source: _Follower, number: int, body: bytes) -> None:
        proxy = source.proxies.setdefault(number, Peer())
        self._mind.handle(proxy, body)
        proxy.out.clear()

    # -- as the Role of this server's own clients

    def ask(self, number: int, body: bytes) -> None:
        loop = asyncio.get_running_loop()

        def reply(answer: Answer) -> None:
            loop.call_soon(self._answered, answer)

        self._decide(self._own, number, body, reply)

    def _answered(self, answer: Answer) -> None:
        if self.replica.role is self:
            self.replica.answered(answer)

    def authenticate(self, number: int, body: bytes) -> None:
        self._know(self._own, number, body)

    def heard(self, session_id: int, timeout_ms: int) -> None:
        self._touch(session_id, timeout_ms)

    def gone(self, number: int) -> None:
        self._own.proxies.pop(number, None)


_SYNC = int(Op.SYNC).to_bytes(4, "big")
