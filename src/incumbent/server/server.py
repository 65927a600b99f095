"""The server: connections in front, the service in the middle, the store behind.

Rule of this file, the release gate: no byte that reveals zxid N leaves before N is durable.
It holds by construction. Requests are served one turn at a time: all that came in is decided
and carried out in memory, its transactions are committed as one batch, and only then is what
was said from the first of them on sent. While a commit is under way nothing is served, or, once
it takes long, only what reveals nothing of it (see `beside` and `glance`).

When a commit fails, the turn never happened: connections drop, the service is made anew from
the store, and writes are refused until a commit works again. Reads and pings go on.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from incumbent.clock import SYSTEM, Clock
from incumbent.server import words
from incumbent.server.beside import Beside
from incumbent.server.company import Company
from incumbent.server.connection import Connection
from incumbent.server.glance import may_wait
from incumbent.server.limits import Limits
from incumbent.server.policy import Policy
from incumbent.server.questions import Questions
from incumbent.server.service import Service
from incumbent.server.shortcuts import is_ping
from incumbent.server.store import Store, StoreFailed
from incumbent.server.traffic import Traffic
from incumbent.wire import Request

if TYPE_CHECKING:
    from incumbent.server.report import About, Report

__all__ = ["Server"]

_TURN = 2000
"""Most requests served in one turn; each `_HEAVY` bytes of one count as one more."""

_HEAVY = 2048

_BACKLOG = 1024
"""Connections that may wait to be accepted: all clients come back at once after a restart."""

_PROBE, _PROBE_MOST = 0.01, 1.0
"""Seconds between two attempts to write while the store fails: at first, and at most."""

_RELAPSE = 60.0
"""Failing again within so many seconds, the attempts go on where they were: ever rarer."""

_IDLE = 10.0
"""Seconds within which a connection must ask for a session, and take what it was last sent."""


class Server:
    """A ZooKeeper server for one machine.

    store       where transactions become durable
    clock       boottime for sessions, wall time for Stats
    tick        seconds; sessions are granted 2 to 20 ticks
    rng         gives session ids
    log         takes lines for the operator
    reap_every  seconds between two looks for containers to delete
    policy      what clients may do, and how much of it

    `on_request(session_id, request)` is called for each request, if set. `words` are the
    four-letter words that are answered; `about()` is what reports say of it beside that. After
    `start`, `host` and `port` are where it listens.

    For tests that disturb it, before `start`: `line(connection)` gives what stands between a
    transport and its connection; `spares_ephemerals(session_id)` says whether a session that
    ends leaves its ephemerals behind, until `Service.end` is called for it again.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = SYSTEM,
        tick: float = 2.0,
        rng: random.Random | None = None,
        log: Callable[[str], None] | None = None,
        reap_every: float = 60.0,
        policy: Policy | None = None,
    ) -> None:
        self.host = ""
        self.port = 0
        self.tick = tick
        self._on_request: Callable[[int, Request], None] | None = None
        self.line: Callable[[asyncio.Protocol], asyncio.Protocol] | None = None
        self.spares_ephemerals: Callable[[int], bool] | None = None
        self.words: Container[str] = words.DEFAULT_WORDS
        self.about: Callable[[], About] | None = None
        self.traffic = Traffic()
        self._store = store
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._log: Callable[[str], None] = log or (lambda line: None)
        self._reap_every = reap_every
        self.policy = policy or Policy()
        self._service: Service | None = None
        self._connections: dict[Connection, None] = {}
        self._ready: dict[Connection, None] = {}  # those with something in their queue
        self._chores: list[Callable[[Service], None]] = []
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._beside = Beside(self._ready, self.traffic, clock)
        self._limits: Limits[Connection] = Limits(self.policy, self._log)
        self._overdue: list[int] = []  # sessions, as of the last look
        self._is_probe_due = False
        self._probe_delay = _PROBE
        self._healed_at = -_RELAPSE
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._listeners: list[asyncio.Server] = []
        self._pipeline: asyncio.Task[None] | None = None
        self._served: list[tuple[Connection, int]] = []  # in this turn, and how many of theirs
        self._writers: list[Connection] = []  # in this turn
        self._company = Company(clock)
        self._questions = Questions()

    @property
    def on_request(self) -> Callable[[int, Request], None] | None:
        """See the class; without it most requests need not become objects."""
        return self._on_request

    @on_request.setter
    def on_request(self, observer: Callable[[int, Request], None] | None) -> None:
        self._on_request = observer
        if self._service is not None:
            self._service.on_request = observer

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        """Load the store, then listen. Raises `StoreFailed` or `OSError`."""
        self._service = self._load()
        self.host, self.port = await self.listen(host, port, tls=tls, sock=sock)
        loop = asyncio.get_running_loop()
        self._pipeline = loop.create_task(self._run())
        self._look_later()
        self._reap_later()

    async def stop(self) -> None:
        """Finish the turn that is under way and close. Sessions stay: they are in the store."""
        self._is_stopping = True
        self._wake.set()
        for listener in self._listeners:
            listener.close()
        for timer in self._timers.values():
            timer.cancel()
        if self._pipeline is not None:
            await self._pipeline
        self._questions.refuse("the server is stopping")
        for connection in list(self._connections):
            connection.abort()
        self._store.close()

    async def wait(self) -> None:
        """Return once stopped; raises what a bug raised, and then the server serves no more."""
        assert self._pipeline is not None, "the server was not started"
        await asyncio.shield(self._pipeline)

    async def listen(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        sock: socket.socket | None = None,
    ) -> tuple[str, int]:
        """Listen there as well, or on `sock`; where that is. Raises `OSError`."""
        where: dict[str, Any] = {"host": host, "port": port} if sock is None else {"sock": sock}
        listener = await asyncio.get_running_loop().create_server(
            self._connection,
            **where,
            backlog=_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else _IDLE,
        )
        self._listeners.append(listener)
        name = listener.sockets[0].getsockname()
        return name[0], name[1]

    def ask(self, question: Callable[[Report], str]) -> asyncio.Future[str]:
        """What the function makes of a report, once it may be seen.

        The future raises `ConnectionError` while the store cannot be read, and at the end.
        """
        answer = self._questions.ask(question)
        if self._is_stopping:
            self._questions.refuse("the server is stopping")
        self._wake.set()
        return answer

    # -- what connections report

    def opened(self, connection: Connection) -> None:
        connection.account.since_ms = int(self._clock.wall() * 1000)
        if not self._limits.admits(connection.address):
            self.traffic.rejected += 1
            connection.abort()
            return
        self._connections[connection] = None
        if self._service is None or self._is_stopping:
            connection.abort()

    def ready(self, connection: Connection, frames: int) -> None:
        service = self._service
        if service is None:
            return
        if frames:
            service.sessions.heard(connection)
            self.traffic.received += frames
            if self._answer_ping(service, connection):
                return
        self._ready[connection] = None
        self._wake.set()
        self._beside.arrived(connection)

    def asked(self, connection: Connection, word: bytes) -> None:
        def chore(service: Service) -> None:
            connection.out.append(words.answer(word, self._report(service), self.words))
            service.leave(connection)

        self.traffic.received += 1
        self.do(chore)

    def unread(self, connection: Connection, size: int) -> None:
        for other in self._limits.unread(connection, size):
            other.abort()

    def lost(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._limits.left(connection.address)
        self._limits.unread(connection, 0)
        self._ready.pop(connection, None)
        if self._service is not None:
            self._service.forget(connection)

    def do(self, chore: Callable[[Service], None]) -> None:
        """Have the service do it at the beginning of the next turn."""
        self._chores.append(chore)
        self._wake.set()

    # -- the pipeline

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._wake.wait()
            self._wake.clear()
            service = self._service
            if service is None:
                self._chores.clear()
                self._questions.refuse("the server cannot read its data")
                continue
            if self._is_probe_due:
                await self._probe(service)
            if self._overdue:
                await self._expire(service)
            elif not (
                self._ready and all(map(may_wait, self._ready))
            ):  # who reads needs no company
                await self._company.gather(self._ready)
            begun = self._clock.boottime()
            served = self._turn(service)
            batch = service.take()
            if batch:
                try:
                    with self._beside.committing(service, batch):
                        await self._store.commit(batch)
                except StoreFailed as failure:
                    self._start_over(failure)
                    continue
                lasted = self._beside.lasted
                self.traffic.committed(lasted, len(batch))
                self._company.committed(self._writers, lasted)
                self._writers.clear()
            self._release(service)
            if served:
                self._account(service, self._clock.boottime() - begun, served, len(batch))
            if self._chores or any(connection.is_servable for connection in self._ready):
                self._wake.set()
                await asyncio.sleep(0)

    def _turn(self, service: Service) -> int:
        """Decide and carry out what has come in, in order for each connection; how many."""
        chores = self._chores[:]
        self._chores.clear()
        for chore in chores:
            chore(service)
        self._questions.answer(lambda: self._report(service))
        served = weight = 0
        for connection in list(self._ready):
            if service.transactions and may_wait(connection):
                continue  # it need not be held up by what others write in this turn
            before, had_session = served, connection.is_connected
            written = len(service.transactions)
            last = b""
            while connection.is_servable and weight < _TURN:
                body = connection.take()
                if body is None:
                    service.leave(connection)
                    continue
                service.handle(connection, body)
                served += 1
                weight += 1 + len(body) // _HEAVY
                last = body
            if served > before:
                is_first = served == before + 1 and not had_session
                connection.account.last = b"" if is_first else last[:8]
                self.traffic.connects += connection.is_connected and not had_session
                self._served.append((connection, served - before))
                if len(service.transactions) > written:
                    self._writers.append(connection)
                elif not service.transactions:  # it was shown nothing that is not durable
                    self._send(connection)
            if not connection.queue:
                del self._ready[connection]
        return served

    def _answer_ping(self, service: Service, connection: Connection) -> bool:
        """At once, if that is all that it asks and all that is known is durable: most sessions
        do nothing else, and shall cost next to nothing."""
        queue = connection.queue
        body = queue[0] if len(queue) == 1 else None
        if body is None or not is_ping(body) or not connection.is_connected:
            return False
        if service.transactions or self._beside.is_committing or not connection.is_servable:
            return False
        connection.take()
        service.handle(connection, body)
        self._release(service)
        connection.account.last = body
        self._served.append((connection, 1))
        self._account(service, 0.0, 1, 0)
        return True

    def _send(self, connection: Connection) -> None:
        self.traffic.sent += len(connection.out)
        connection.flush()

    def _release(self, service: Service) -> None:
        """Everything decided is durable: let it be seen."""
        for peer in service.released():
            assert isinstance(peer, Connection)
            if peer.out or peer.is_leaving:  # else it was sent before the commit
                self._send(peer)
        self._questions.tell()

    def _account(self, service: Service, seconds: float, served: int, writes: int) -> None:
        """A turn took so long, released."""
        self.traffic.took(seconds, served, writes)
        now_ms = round(self._clock.boottime() * 1000)
        for connection, requests in self._served:
            connection.account.took(seconds * 1000, requests, service.tree.zxid, now_ms)
        self._served.clear()

    def _report(self, service: Service) -> Report:
        from incumbent.server.report import About, Report  # not before somebody asks

        return Report(
            about=About() if self.about is None else self.about(),
            service=service,
            traffic=self.traffic,
            callers=list(self._connections),
            now=self._clock.boottime(),
            wall=self._clock.wall(),
        )

    # -- when the store fails

    def _start_over(self, failure: StoreFailed) -> None:
        """Forget the turn: nobody has seen anything of it, and nobody will."""
        now = self._clock.boottime()
        recently = now - self._healed_at < _RELAPSE
        self._probe_delay = min(self._probe_delay * 2, _PROBE_MOST) if recently else _PROBE
        self._log(
            f"ALARM: cannot write, {failure}; writes are refused until this works again, "
            "reads go on: free some space or mend the disk"
        )
        self._service = None
        self._ready.clear()
        self._chores.clear()
        self._served.clear()
        self._writers.clear()
        self._overdue.clear()
        self._questions.put_back()
        for connection in list(self._connections):
            connection.abort()
        self._reload()

    def _reload(self, *, is_known: bool = False) -> None:
        try:
            self._service = self._load()
        except StoreFailed as failure:
            if not is_known:
                self._log(f"ALARM: cannot read either, {failure}; connections are turned away")
            self._probe_delay = min(self._probe_delay * 2, _PROBE_MOST)
            self._set_timer("probe", self._probe_delay, lambda: self._reload(is_known=True))
            return
        self._service.is_writable = False
        self._probe_later()

    async def _probe(self, service: Service) -> None:
        """Try to write. Nothing shows that it was tried, unless it worked."""
        self._is_probe_due = False
        transaction = service.probe()
        try:
            with self._beside.committing(service, (transaction,)):
                await self._store.commit((transaction,))
        except StoreFailed:
            self._probe_delay = min(self._probe_delay * 2, _PROBE_MOST)
            self._probe_later()
        else:
            service.tree.apply(transaction)
            service.is_writable = True
            self._healed_at = self._clock.boottime()
            self._log("writing works again; writes are accepted")

    def _probe_later(self) -> None:
        def due() -> None:
            self._is_probe_due = True
            self._wake.set()

        self._set_timer("probe", self._probe_delay, due)

    # -- timers: hints to look at the clock

    def _look_later(self) -> None:
        delay = self.tick / 2
        if self._service is not None:
            delay = self._service.sessions.expiry.delay(self._clock.boottime())
        self._set_timer("look", delay, self._look)

    def _look(self) -> None:
        """End sessions that fell silent, and connections that have none."""
        now = self._clock.boottime()
        if self._service is not None and self._beside.is_stalled:
            self._service.sessions.expiry.stand_still(now)
        elif self._service is not None:
            overdue = self._service.sessions.expiry.look(now)
            if overdue:
                self._overdue = overdue
                self._wake.set()
        for connection in list(self._connections):
            if connection.is_connected and not connection.is_leaving:
                connection.idle_since = None
            elif connection.idle_since is None:
                connection.idle_since = now
            elif now - connection.idle_since > _IDLE:
                self.traffic.stale += 1
                connection.abort()
        self._look_later()

    async def _expire(self, service: Service) -> None:
        """End those who are overdue, with room for others in between: not all of it need wait."""
        overdue, self._overdue = self._overdue, []
        before = len(service.tree.sessions)
        for transaction in service.expire(overdue):
            with self._beside.deciding(service, (*service.transactions, transaction)):
                await asyncio.sleep(0)
        self.traffic.expired += before - len(service.tree.sessions)

    def _reap_later(self) -> None:
        self._set_timer("reap", self._reap_every, self._reap)

    def _reap(self) -> None:
        self.do(Service.reap)
        self._reap_later()

    def _set_timer(self, name: str, delay: float, callback: Callable[[], None]) -> None:
        if not self._is_stopping:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(delay, callback)

    # -- small things

    def _connection(self) -> asyncio.Protocol:
        connection = Connection(self)
        return connection if self.line is None else self.line(connection)

    def _load(self) -> Service:
        service = Service(
            self._store.load(),
            clock=self._clock,
            tick=self.tick,
            rng=self._rng,
            log=self._log,
            on_request=self._on_request,
            policy=self.policy,
        )
        service.spares_ephemerals = self.spares_ephemerals
        return service
