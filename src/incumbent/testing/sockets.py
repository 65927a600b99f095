"""The simulated loop's networking: connections, servers, names, each asked for on some host.

Rule of this file: the calls take and raise what asyncio's own do. Options that tune a socket
have no effect; TLS is refused.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from incumbent.testing.kernel import Listener, Socket, Stack
from incumbent.testing.loop import Domain, SimLoop
from incumbent.testing.network import Network
from incumbent.testing.transports import SimTransport

__all__ = ["Factory", "SimServer", "SimSocket", "WorldLoop"]

Factory = Callable[[], asyncio.BaseProtocol]


class SimSocket:
    """A socket that is not yet a transport: what `create_connection(sock=…)` takes, and what a
    server shows as its `sockets`.
    """

    def __init__(self, inner: Socket | Listener) -> None:
        self.inner = inner

    def getsockname(self) -> tuple[str, int]:
        if isinstance(self.inner, Socket):
            return self.inner.local
        return self.inner.address, self.inner.port

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *args: Any) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.inner.close()


class SimServer(asyncio.AbstractServer):
    """What `create_server` returns. `wait_closed` waits for connections too, as 3.12 does."""

    def __init__(self, loop: WorldLoop, listeners: list[Listener], factory: Factory) -> None:
        self._loop = loop
        self._listeners = listeners
        self._factory = factory
        self._waiters: list[asyncio.Future[None]] = []
        self._context = copy_context()
        self._serving = False
        self._closed = False
        self.active = 0

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return () if self._closed else tuple(SimSocket(x) for x in self._listeners)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving and not self._closed

    async def start_serving(self) -> None:
        self._serving = True
        for listener in self._listeners:
            listener.knock = self._knock

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def _knock(self, sock: Socket) -> None:
        self._loop.call_soon(self._accept, sock, context=self._context.copy())

    def _accept(self, sock: Socket) -> None:
        if self._closed:
            sock.close(rst=True)
            return
        self.active += 1
        SimTransport(self._loop, self._loop.network, sock, self._factory(), on_end=self._detach)

    def _detach(self) -> None:
        self.active -= 1
        self._wake()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for listener in self._listeners:
                listener.close()
            self._wake()

    def _wake(self) -> None:
        if self._closed and not self.active:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def wait_closed(self) -> None:
        if not (self._closed and not self.active):
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter


class WorldLoop(SimLoop):
    """The simulated loop with its network: every call asks which host it is made on."""

    network: Network

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.names: dict[str, tuple[str, ...]] = {}  # host name -> addresses

    def _here(self) -> tuple[Domain, Stack]:
        domain = Domain.current()
        if domain is None or not isinstance(domain.home, Stack):
            raise RuntimeError("this code runs on no host: start it with host.run(…)")
        return domain, domain.home

    def socketpair(self) -> tuple[SimSocket, SimSocket]:
        """Two joined sockets on the caller's host, for `create_connection(sock=…)`."""
        near, far = self._here()[1].pair()
        return SimSocket(near), SimSocket(far)

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: str | bytes | None,
        port: int | str | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        name = host.decode() if isinstance(host, bytes) else host
        await asyncio.sleep(self.network.delay)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))
            for address in self._resolve(name, passive=bool(flags & socket.AI_PASSIVE))
        ]

    def _resolve(self, name: str | None, *, passive: bool = False) -> tuple[str, ...]:
        if not name:
            return ("0.0.0.0",) if passive else ("127.0.0.1",)
        if name == "localhost":
            return ("127.0.0.1",)
        if name.replace(".", "").isdigit():
            return (name,)
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, f"{name}: name or service not known")
        return self.names[name]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Factory,
        host: str | None = None,
        port: int | None = None,
        *,
        sock: SimSocket | None = None,
        ssl: None = None,
        **_: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """As asyncio's. TLS and the options that pick a local address are not simulated."""
        assert ssl is None, "TLS is not simulated"
        domain, stack = self._here()
        if sock is not None:
            assert isinstance(sock.inner, Socket)
            sock.inner.owner = domain
            return await self._attach(sock.inner, protocol_factory)
        errors: list[OSError] = []
        for *_family, address in await self.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                inner = await self._connect(domain, stack, address)
            except OSError as error:
                errors.append(error)
            else:
                return await self._attach(inner, protocol_factory)
        if len(errors) == 1:
            raise errors[0]
        raise OSError(f"multiple exceptions: {', '.join(str(e) for e in errors)}")

    async def _connect(self, domain: Domain, stack: Stack, address: tuple[str, int]) -> Socket:
        connected = self.create_future()

        def done(error: OSError | None) -> None:
            if not connected.done():
                if error is None:
                    connected.set_result(None)
                else:
                    connected.set_exception(error)

        inner = stack.connect(domain, address, done)
        try:
            await connected
        except BaseException:
            inner.close()
            raise
        return inner

    async def _attach(
        self, inner: Socket, factory: Factory
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        waiter = self.create_future()
        protocol = factory()
        transport = SimTransport(self, self.network, inner, protocol, waiter=waiter)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Factory,
        host: str | Iterable[str] | None = None,
        port: int | None = None,
        *,
        ssl: None = None,
        start_serving: bool = True,
        **_: Any,
    ) -> SimServer:
        assert ssl is None, "TLS is not simulated"
        domain, stack = self._here()
        names = [host] if host is None or isinstance(host, str) else list(host)
        listeners: list[Listener] = []
        try:
            for name in names:
                for address in self._resolve(name, passive=True):
                    listeners.append(stack.listen(domain, address, port or 0))
        except OSError:
            for listener in listeners:
                listener.close()
            raise
        server = SimServer(self, listeners, protocol_factory)
        if start_serving:
            await server.start_serving()
            await asyncio.sleep(0)
        return server
