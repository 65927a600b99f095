"""A simulated ZooKeeper ensemble: what bites in a real one, on hosts of a `World`.

    ensemble = Ensemble(world, tick=2.0)
    ensemble.start()
    ... aio.connect(ensemble.hosts, ...)

It has a leader and followers that report their clients late, followers that lag, sessions that
move, timeouts that change at an attach and fall back with the next leader, a former leader that
still answers pings and reads, and no quorum at times. It is a test double: transactions are
decided and carried out by the server's own code, between servers it speaks a protocol of its own.

Not modelled: the vote. The world counts it, which sees who could reach whom (`Ballot`).
Observers, read-only mode, reconfiguration and four-letter words are missing.

Rule of this file: the vote picks, of a quorum that looks for a leader, one with the newest log,
and all of them promise at that moment to follow nobody of an older epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from incumbent.server.tree import EndSession, Transaction
from incumbent.testing.cables import Log
from incumbent.testing.faults import Fault, Inflict, Undo
from incumbent.testing.hosts import Process
from incumbent.testing.leading import Leading
from incumbent.testing.replica import CLIENT_PORT, Replica
from incumbent.testing.world import World

__all__ = ["Ballot", "Ensemble"]

_Strike = Callable[[Process, str], None]
"""What befalls a server's process when it has answered a client on the host of this name."""

_RESTART_AFTER = 0.5
_LOOK_EVERY = 0.05


class Ensemble:
    """Servers on hosts of these names, each started again half a second after its end.

    tick      seconds; sessions are granted 2 to 20 ticks
    patience  ticks of silence after which a leader or follower is given up (syncLimit)

    `on_session_end(session_id)` is called when the end of a session is committed, and
    `on_commit(transaction)` for every transaction, in their order.
    """

    def __init__(
        self,
        world: World,
        names: Sequence[str] = ("zk1", "zk2", "zk3"),
        *,
        tick: float = 0.5,
        patience: float = 2.0,
    ) -> None:
        self.world = world
        self.names = tuple(names)
        self.tick = tick
        self.patience = patience * tick
        self.quorum = len(names) // 2 + 1
        self.on_session_end: Callable[[int], None] | None = None
        self.on_commit: Callable[[Transaction], None] | None = None
        self.replicas: dict[str, Replica] = {}
        self.ballot = Ballot(self)
        self._processes: dict[str, Process] = {}
        self._logs = {name: Log() for name in names}
        self._newest = 0  # zxid whose consequences were told
        self._strikes: dict[str, tuple[int, _Strike]] = {}  # after so many answers
        for name in names:
            world.host(name)

    @property
    def hosts(self) -> str:
        """What a client takes as its hosts."""
        return ",".join(f"{name}:{CLIENT_PORT}" for name in self.names)

    def start(self) -> None:
        for name in self.names:
            self.boot(name)

    def boot(self, name: str) -> None:
        """Start this server, unless it runs or its host is down; for `inflict`'s `on_up`, too."""
        host, process = self.world.host(name), self._processes.get(name)
        if not host.up or (process is not None and process.alive):
            return
        replica = self.replicas[name] = Replica(self, host, self._logs[name])
        process = self._processes[name] = host.run(replica.run(), "server")
        process.looked_at = True
        network = self.world.network
        process.at_end.append(
            lambda: network.at(self.world.now + _RESTART_AFTER, lambda: self.boot(name))
        )

    def process(self, name: str) -> Process:
        return self._processes[name]

    @property
    def leader(self) -> str | None:
        """Who leads, as far as a quorum is concerned."""
        term = self.ballot.leading()
        return term.replica.host.name if term is not None and term.is_established else None

    def server_of(self, session_id: int) -> str | None:
        """Where the session's client is connected."""
        for name in self.names:
            replica = self.replicas.get(name)
            if replica is not None and session_id in replica.sessions:
                return name
        return None

    # -- faults that only an ensemble has, for `inflict(more=…)`

    @property
    def kinds(self) -> Mapping[str, Inflict]:
        return {
            "lag": self._lag,
            "kill server": self._kill,
            "kill after reply": self._kill_after_reply,
            "freeze after reply": self._freeze_after_reply,
            "lose after reply": self._lose_after_reply,
            "lose after pause": self._lose_after_pause,
            "isolate server": self._isolate,
        }

    def _lag(self, world: World, fault: Fault) -> Undo:
        replica = self.replicas[fault.a]
        replica.lag = 0.1 + fault.lasts / 3

        def undo() -> None:
            replica.lag = 0.0

        return undo

    def _kill(self, world: World, fault: Fault) -> None:
        self._processes[fault.a].kill()

    def _kill_after_reply(self, world: World, fault: Fault) -> None:
        """Within 5 ms of one of its next answers from the leader to a client."""
        self._strike(fault, lambda process, client: process.kill())

    def _freeze_after_reply(self, world: World, fault: Fault) -> Undo:
        frozen: list[Process] = []

        def strike(process: Process, client: str) -> None:
            process.freeze()
            frozen.append(process)

        def undo() -> None:
            self._strikes.pop(fault.a, None)
            for process in frozen:
                process.thaw()

        self._strike(fault, strike)
        return undo

    def _lose_after_reply(self, world: World, fault: Fault) -> Undo:
        """The server is killed, and the client that it answered reaches no other."""
        lost: list[str] = []
        self._strike(fault, lambda process, client: self._lose(process, client, lost))
        return lambda: self._find(fault, lost)

    def _lose_after_pause(self, world: World, fault: Fault) -> Undo:
        """A client stands still for a second or two; two answers later it is lost like that."""
        lost: list[str] = []
        is_over = False

        def strike(process: Process, client: str) -> None:
            host = world.host(client)
            host.freeze()

            def go_on() -> None:
                host.thaw()
                if not is_over:
                    self._strikes[fault.a] = 2, lambda p, c: self._lose(p, c, lost)

            world.network.at(world.now + min(max(fault.lasts, 1.0), 2.5), go_on)

        def undo() -> None:
            nonlocal is_over
            is_over = True
            self._find(fault, lost)

        self._strike(fault, strike)
        return undo

    def _find(self, fault: Fault, lost: list[str]) -> None:
        self._strikes.pop(fault.a, None)
        for client in lost:
            for name in self.names:
                self.world.heal(client, name)

    def _lose(self, process: Process, client: str, lost: list[str]) -> None:
        process.kill()
        lost.append(client)
        for name in self.names:
            self.world.cut(client, name)

    def _strike(self, fault: Fault, strike: _Strike) -> None:
        self._strikes[fault.a] = 1 + int(fault.at * 1000) % 3, strike

    def _isolate(self, world: World, fault: Fault) -> Undo:
        """Cut off from the other servers; clients reach it."""
        others = [name for name in self.names if name != fault.a]
        for other in others:
            world.cut(fault.a, other)

        def undo() -> None:
            for other in others:
                world.heal(fault.a, other)

        return undo

    # -- what replicas report

    def replied(self, replica: Replica, address: str) -> None:
        """A client there is given an answer from the leader now."""
        name = replica.host.name
        left, strike = self._strikes.pop(name, (0, None))
        if strike is not None and left > 1:
            self._strikes[name] = left - 1, strike
        elif strike is not None:
            process, network = self._processes[name], self.world.network
            client = network.stacks[address].name
            network.at(
                self.world.now + network.rng.uniform(0.001, 0.005), lambda: strike(process, client)
            )

    def committed(self, transaction: Transaction) -> None:
        if transaction.zxid <= self._newest:
            return
        self._newest = transaction.zxid
        if self.on_commit is not None:
            self.on_commit(transaction)
        for change in transaction.changes:
            if isinstance(change, EndSession):
                self.world.record("session over", session=f"{change.session_id:#x}")
                if self.on_session_end is not None:
                    self.on_session_end(change.session_id)


class Ballot:
    """Finds a leader for whoever looks for one."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._looking: dict[str, tuple[Replica, asyncio.Future[tuple[int, str]], float]] = {}
        self._is_due = False

    async def place(self, replica: Replica) -> tuple[int, str]:
        """The epoch and the leader that this server belongs to now."""
        world = self._ensemble.world
        found: asyncio.Future[tuple[int, str]] = world.loop.create_future()
        ready_at = world.now + replica.host.rng.uniform(0.05, 0.5)
        self._looking[replica.host.name] = replica, found, ready_at
        self._look_later()
        return await found

    def leading(self) -> Leading | None:
        """The newest leader whose process lives."""
        terms = [
            replica.role
            for name, replica in self._ensemble.replicas.items()
            if isinstance(replica.role, Leading) and self._ensemble.process(name).alive
        ]
        return max(terms, key=lambda term: term.epoch, default=None)

    def _look_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            network = self._ensemble.world.network
            network.at(self._ensemble.world.now + _LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._is_due = False
        for name, (_, found, _) in list(self._looking.items()):
            if found.done() or not self._ensemble.process(name).alive:
                del self._looking[name]
        self._join()
        self._vote()
        if self._looking:
            self._look_later()

    def _join(self) -> None:
        """Who can reach the present leader follows it."""
        term = self.leading()
        for name in list(self._looking):
            replica = self._looking[name][0]
            if term is None or term.replica is replica or term.epoch < replica.log.epoch:
                continue
            leader = term.replica.host.name
            if self._is_ready(name) and self._reach(name, leader):
                self._appoint(name, term.epoch, leader)

    def _vote(self) -> None:
        """A new leader, if a quorum looks for one and these reach each other."""
        ready = [name for name in self._ensemble.names if self._is_ready(name)]
        for size in range(len(ready), self._ensemble.quorum - 1, -1):
            for group in combinations(ready, size):
                if all(self._reach(a, b) for a, b in combinations(group, 2)):
                    logs = {name: self._looking[name][0].log for name in group}
                    best = max(group, key=lambda name: (logs[name].last, name))
                    epoch = max(log.epoch for log in logs.values()) + 1
                    for name in group:
                        self._appoint(name, epoch, best)
                    return

    def _appoint(self, name: str, epoch: int, leader: str) -> None:
        replica, found, _ = self._looking.pop(name)
        replica.log.epoch = epoch
        found.set_result((epoch, leader))

    def _is_ready(self, name: str) -> bool:
        return name in self._looking and self._looking[name][2] <= self._ensemble.world.now

    def _reach(self, a: str, b: str) -> bool:
        world = self._ensemble.world
        ends = [world.host(a), world.host(b)]
        processes = [self._ensemble.process(a), self._ensemble.process(b)]
        return (
            all(host.stack.answers for host in ends)
            and all(process.alive and not process.frozen for process in processes)
            and not world.link(a, b).blocked
            and not world.link(b, a).blocked
        )
