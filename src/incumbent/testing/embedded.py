"""A ZooKeeper server inside a test: there in milliseconds, with faults to order.

    with EmbeddedServer() as server:
        zk = KazooClient(server.hosts)              # or incumbent.connect(server.hosts)
        server.lose_reply(op="create", path="/locks/*")
        server.expire(zk.client_id[0])

Each server has a thread and an event loop of its own. A thread, because a test wants many
servers at once and each within milliseconds, and because faults are then plain method calls; its
own, because a stalled server must stall nobody else, and a test may block as it likes. It costs
four file descriptors, and two for each connection. (A server as a process: `incumbent server`.)

The server is the one of `incumbent server`, with its store in memory. Faults of the network
happen on the line in front of it (see `line`), which is there only in this class.

Every method may be called from any thread, from a coroutine too: none waits for a client, only
`start`, `stop`, `restart` and `stall` take longer than some microseconds. In a coroutine,
`async with EmbeddedServer() as server` starts and stops it without blocking the loop.

Rule of this file: what a method orders is in force when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

from incumbent.server.policy import Policy
from incumbent.server.server import Server
from incumbent.server.service import Service
from incumbent.testing.background import Background
from incumbent.testing.lines import BlackHole, Direction, Lines
from incumbent.testing.memory import RebasedStore
from incumbent.testing.mishaps import Fate, Mishap, Mishaps
from incumbent.wire import Err, Op
from incumbent.wire.protocol import MAX_SEQUENCE

__all__ = ["EmbeddedServer"]

T = TypeVar("T")


class EmbeddedServer:
    """A server on a port of its own; a context manager, plain or async.

    host    where it listens
    port    0 takes a free one; it stays this server's, also while it is stopped
    tick    seconds; sessions are granted 2 to 20 ticks. To see a session expire there is no need
            for a small one: `expire` does it at once
    policy  what clients may do (see `incumbent.server.policy`); by default what a server allows,
            and any number of connections
    log     takes the server's lines for the operator, called in its thread
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tick: float = 2.0,
        policy: Policy | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.host = host
        self.tick = tick
        self._policy = policy or Policy(connections_per_address=0)
        self._log = log
        self._store = RebasedStore()
        self._mishaps = Mishaps()
        self._lines = Lines(self._mishaps)
        self._is_holding = False
        self._held: dict[int, None] = {}  # sessions that ended while their ephemerals were held
        self._server: Server | None = None
        self._background: Background | None = None
        # Never listens: it keeps the port from everybody else while the server is stopped.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._claim = socket.socket(family)
        self._claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._claim.bind((host, port))
        self.port: int = self._claim.getsockname()[1]

    @property
    def hosts(self) -> str:
        """`HOST:PORT`, what a client takes as its hosts."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    # -- its life

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> EmbeddedServer:
        background = self._begin()
        try:
            await asyncio.wrap_future(background.post(self._serve()))
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._background is not None:
            self._background.resume()
            await asyncio.wrap_future(self._background.post(self._cease()))
        self.close()

    @property
    def is_running(self) -> bool:
        return self._background is not None

    def start(self) -> None:
        """Serve; what was there before a `stop` is there again, sessions with a full timeout."""
        assert not self.is_running, "the server is running already"
        background = self._begin()
        try:
            background.run(self._serve())
        except BaseException:
            self._end()
            raise
        if not self._is_holding:
            self._let_go()

    def stop(self) -> None:
        """Close every connection and serve no more; connections are refused from then on."""
        if self._background is not None:
            self._background.resume()
            self._background.run(self._cease())
            self._end()

    def restart(self) -> None:
        """`stop` and `start`: clients lose their connections, nothing else."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop for good, and give the port back."""
        self.stop()
        self._claim.close()

    # -- mishaps of single requests

    def lose_reply(
        self,
        *,
        op: str | Op | None = None,
        path: str | None = None,
        session_id: int | None = None,
        nth: int = 1,
        times: int = 1,
    ) -> Mishap:
        """Carry out the n-th request that matches, then cut the connection instead of replying.

        op          `create` (in all its forms), `delete`, `set_data`, `multi`, … (see
                    `incumbent.wire.Op`); None: any but a ping
        path        a pattern as in a shell, such as `/locks/*`; of a multi, of any of its
                    operations. A client's chroot is part of the path
        session_id  of this session only
        times       how many requests in a row it befalls
        """
        return self._order(Fate.REPLY_LOST, op, path, session_id, nth, times)

    def lose_request(
        self,
        *,
        op: str | Op | None = None,
        path: str | None = None,
        session_id: int | None = None,
        nth: int = 1,
        times: int = 1,
    ) -> Mishap:
        """Cut the connection instead of carrying out the n-th request that matches."""
        return self._order(Fate.REQUEST_LOST, op, path, session_id, nth, times)

    def refuse(
        self,
        code: int | Err,
        *,
        op: str | Op | None = None,
        path: str | None = None,
        session_id: int | None = None,
        nth: int = 1,
        times: int = 1,
    ) -> Mishap:
        """Answer the n-th request that matches with this error code, and don't carry it out."""
        return self._order(Fate.REFUSED, op, path, session_id, nth, times, code=int(code))

    def delay(
        self,
        seconds: float,
        *,
        op: str | Op | None = None,
        path: str | None = None,
        session_id: int | None = None,
        nth: int = 1,
        times: int = 1,
    ) -> Mishap:
        """Keep the n-th request that matches, and all behind it, from the server for a while."""
        return self._order(Fate.LATE, op, path, session_id, nth, times, seconds=seconds)

    # -- of connections

    def drop(self, session_id: int | None = None) -> int:
        """Cut a session's connection, or all; how many. Sessions live, clients may come back."""

        return self._do(lambda: self._lines.cut(session_id))

    def black_hole(
        self, session_id: int | None = None, *, direction: Direction = "both"
    ) -> BlackHole:
        """From now on nothing arrives, not even that a connection is closed, until `heal`.

        For a session's connection, or for all of them and those that are yet to come. As on a
        network that is mended, what was sent meanwhile arrives late.
        """

        def heal(hole: BlackHole) -> None:
            if self.is_running:  # a stop ends all holes
                self._do(lambda: self._lines.remove(hole))

        hole = BlackHole(session_id, direction, heal)
        self._do(lambda: self._lines.add(hole))
        return hole

    # -- of sessions

    @property
    def sessions(self) -> list[int]:
        """The ids of all sessions that are alive, the oldest first."""
        return self._turn(lambda service: list(service.tree.sessions))

    def expire(self, session_id: int) -> None:
        """End a session now, as if its client had fallen silent. Raises `KeyError` for no session."""

        def end(service: Service) -> None:
            if session_id not in service.tree.sessions:
                raise KeyError(session_id)
            service.end(session_id)

        self._turn(end)

    @contextlib.contextmanager
    def hold_ephemerals(self) -> Iterator[None]:
        """In the block, sessions that end leave their ephemerals behind; these go at its end.

        It is what a client sees of an ensemble whose other servers have not heard yet that its
        last session is over.
        """
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
            if self.is_running:  # else when it starts again
                self._let_go()

    # -- of the server

    def preset_counter(self, path: str, value: int) -> None:
        """The next sequential child of `path` gets this number. Raises `KeyError` for no znode.

        From 0 to 2147483647, where the counter sticks.
        """
        assert 0 <= value <= MAX_SEQUENCE, f"{value} is no counter"

        def preset(service: Service) -> None:
            service.tree.nodes[path].creations = value
            self._store.begin_with(service.tree)

        self._turn(preset)

    def stall(self) -> None:
        """The server stands still, as in a pause of its machine, until `resume`.

        Nothing is read, answered, accepted or timed; whatever else is ordered meanwhile, but
        mishaps of requests, has to wait.
        """
        self._behind.stall()

    def resume(self) -> None:
        """Go on after a `stall`."""
        self._behind.resume()

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """`stall`, and `resume` at the end of the block."""
        self.stall()
        try:
            yield
        finally:
            self.resume()

    # -- how it is done

    def _order(
        self,
        fate: Fate,
        op: str | Op | None,
        path: str | None,
        session_id: int | None,
        nth: int,
        times: int,
        **more: float,
    ) -> Mishap:
        return self._mishaps.order(
            fate, op=op, path=path, session_id=session_id, nth=nth, times=times, **more
        )

    def _spares(self, session_id: int) -> bool:
        if self._is_holding:
            self._held[session_id] = None
        return self._is_holding

    def _let_go(self) -> None:
        """End the sessions once more whose ephemerals were held."""
        held = list(self._held)
        self._held.clear()

        def end(service: Service) -> None:
            for session_id in held:
                service.end(session_id)

        if held:
            self._turn(end)

    async def _serve(self) -> None:
        server = Server(self._store, tick=self.tick, log=self._log, policy=self._policy)
        server.line = self._lines.line
        server.spares_ephemerals = self._spares
        await server.start(self.host, self.port)
        self._server = server

    async def _cease(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        await self._lines.end()

    def _begin(self) -> Background:
        self._background = Background(f"zookeeper {self.hosts}")
        return self._background

    def _end(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.end()

    @property
    def _behind(self) -> Background:
        assert self._background is not None, "the server is not running"
        return self._background

    def _do(self, function: Callable[[], T]) -> T:
        """Its result, from the server's thread."""

        async def work() -> T:
            return function()

        return self._behind.run(work())

    def _turn(self, chore: Callable[[Service], T]) -> T:
        """Its result, from a turn of the server's own."""

        async def work() -> T:
            assert self._server is not None
            done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

            def step(service: Service) -> None:
                try:
                    done.set_result(chore(service))
                except Exception as error:
                    done.set_exception(error)

            self._server.do(step)
            return await done

        return self._behind.run(work())
