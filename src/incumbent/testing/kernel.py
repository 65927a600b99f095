"""What a host's kernel does for TCP: sockets, listening ports, connections.

A connection is two `Socket`s joined by two pipes. A host that crashed says nothing; when it is
up again it answers whatever belongs to its old life with RST.

Rule of this file: all of this goes on while a process is frozen, and no code of a process ever
runs from here: a process is only woken.

Not modelled: acknowledgements of their own (a sender behind a one-way block is told of the
receiver's progress), the give-up of an established connection after many minutes, IPv6.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from incumbent.testing.loop import Domain
from incumbent.testing.network import Link, Network, Pipe

__all__ = ["CONNECT_TIMEOUT", "WINDOW", "Awakened", "Listener", "Socket", "Stack"]

WINDOW = 256 * 1024
"""Bytes that one direction of a connection holds between two programs (both kernels' buffers)."""

CONNECT_TIMEOUT = 127.0
"""Seconds after which Linux gives up a connect that nobody answers."""


class Awakened(Protocol):
    """What a socket wakes when something happened to it: the process's end of it."""

    def readable(self) -> None: ...
    def writable(self) -> None: ...


class Socket:
    """A kernel's end of a connection. `owner` is the process that holds it."""

    __slots__ = (
        "awakes",
        "boot",
        "closed",
        "connecting",
        "eof",
        "established",
        "finished",
        "incoming",
        "listener",
        "local",
        "name",
        "out",
        "owner",
        "peer",
        "received",
        "remote",
        "reset",
        "size",
        "stack",
    )

    def __init__(self, stack: Stack, owner: Domain | None, name: str) -> None:
        self.stack = stack
        self.owner = owner
        self.name = name
        self.boot = stack.boot
        self.out: Pipe
        self.incoming: Pipe
        self.peer: Socket
        self.local: tuple[str, int] = (stack.address, 0)
        self.remote: tuple[str, int] = ("", 0)
        self.received: deque[bytes] = deque()
        self.size = 0
        self.established = False
        self.eof = False  # the peer's FIN has come
        self.reset = False  # the peer's RST has come
        self.finished = False  # our FIN or RST is sent
        self.closed = False
        self.listener: Listener | None = None
        self.awakes: Awakened | None = None
        self.connecting: Callable[[OSError | None], None] | None = None
        if owner is not None:
            stack.sockets[self] = None

    @property
    def gone(self) -> bool:
        """The kernel that knew this socket crashed."""
        return self.boot != self.stack.boot or not self.stack.up

    @property
    def room(self) -> int:
        return max(0, WINDOW - self.out.inflight)

    def arrive(self, kind: str, data: bytes) -> None:
        if kind == "SYN":
            self._knock()
        elif kind == "RST":
            self._on_reset()
        elif self.gone or self.closed:
            if not self.finished or kind in ("DATA", "ACCEPT"):
                self.finished = True
                self.out.send("RST")
        elif kind == "ACCEPT":
            self.established = True
            self._connected(None)
        else:
            if kind == "DATA":
                self.received.append(data)
                self.size += len(data)
            else:
                self.eof = True
            if self.awakes is not None:
                self.awakes.readable()

    def _knock(self) -> None:
        listener = self.stack.listener(self.local)
        if listener is None:
            self.out.send("RST")
            return
        self.boot = self.stack.boot
        self.owner, self.listener, self.established = listener.owner, listener, True
        self.stack.sockets[self] = None
        self.out.send("ACCEPT")
        listener.knock(self)

    def _on_reset(self) -> None:
        if self.gone or self.closed:
            return
        self.reset = self.finished = True
        if not self.established:
            self._connected(ConnectionRefusedError(errno.ECONNREFUSED, f"refused by {self.remote}"))
        elif self.awakes is not None:
            self.awakes.readable()

    def _connected(self, error: OSError | None) -> None:
        if self.connecting is not None:
            self.connecting(error)
            self.connecting = None

    def send(self, data: bytes) -> None:
        if not (self.closed or self.finished or self.gone):
            self.out.send("DATA", data)

    def take(self, limit: int) -> bytes:
        """Up to `limit` received bytes; the sender gets that much room again."""
        data = b"".join(self.received) if len(self.received) > 1 else self.received[0]
        data, rest = data[:limit], data[limit:]
        self.received.clear()
        if rest:
            self.received.append(rest)
        self.size = len(rest)
        self.incoming.inflight -= len(data)
        if self.peer.awakes is not None:
            self.peer.awakes.writable()
        return data

    def shutdown(self) -> None:
        """Send FIN; what comes in is still read."""
        if not (self.finished or self.closed or self.gone):
            self.finished = True
            self.out.send("FIN")

    def close(self, *, rst: bool = False) -> None:
        """The process closes it or dies. Unread bytes turn the FIN into RST, as on Linux."""
        if self.closed or self.gone:
            return
        self.closed = True
        self.stack.sockets.pop(self, None)
        if self.connecting is not None:  # never answered: no SYN is sent any more
            self.connecting = None
            self.finished = True
            self.out.queue.clear()
        elif (rst or self.size) and not self.reset:
            self.finished = True
            self.out.send("RST")
        elif not self.finished:
            self.finished = True
            self.out.send("FIN")


class Listener:
    """A listening port of one process. `knock` is called for each new connection."""

    def __init__(self, stack: Stack, owner: Domain, address: str, port: int) -> None:
        self.stack = stack
        self.owner = owner
        self.address = address
        self.port = port
        self.knock: Callable[[Socket], None] = lambda socket: None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.stack.listeners.get((self.address, self.port)) is self:
            del self.stack.listeners[(self.address, self.port)]


class Stack:
    """A host's kernel, as far as its network goes."""

    def __init__(self, network: Network, name: str, address: str) -> None:
        self.network = network
        self.name = name
        self.address = address
        self.boot = 1
        self.up = True
        self.asleep = False
        self.sockets: dict[Socket, None] = {}
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.next_port = 40_000

    @property
    def answers(self) -> bool:
        return self.up and not self.asleep

    def listener(self, local: tuple[str, int]) -> Listener | None:
        found = self.listeners.get(local) or self.listeners.get(("0.0.0.0", local[1]))
        return found if found is not None and not found.owner.dead else None

    def listen(self, owner: Domain, address: str, port: int) -> Listener:
        if address not in ("0.0.0.0", "127.0.0.1", self.address):
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is no address of {self.name}")
        port = port or self._port()
        if any(
            (p == port and "0.0.0.0" in (a, address)) or (a, p) == (address, port)
            for a, p in self.listeners
        ):
            raise OSError(errno.EADDRINUSE, f"{address}:{port} is taken on {self.name}")
        listener = Listener(self, owner, address, port)
        self.listeners[(address, port)] = listener
        return listener

    def _port(self) -> int:
        self.next_port += 1
        return self.next_port

    def connect(
        self, owner: Domain, remote: tuple[str, int], done: Callable[[OSError | None], None]
    ) -> Socket:
        """Begin a connection; `done` is called once, unless the socket is closed before."""
        network = self.network
        target = self if remote[0] == "127.0.0.1" else network.stacks.get(remote[0])
        near, far = self.couple(target or self, owner)
        near.local = (remote[0] if target is self else self.address, self._port())
        near.remote, far.local, far.remote = remote, remote, near.local
        near.connecting = done

        def give_up(code: int) -> None:
            if not near.closed:
                near._connected(OSError(code, f"{remote[0]}:{remote[1]} does not answer"))

        if target is None:
            network.at(network.loop.now + 3.0, lambda: give_up(errno.EHOSTUNREACH))
        else:
            near.out.send("SYN")
            network.at(network.loop.now + CONNECT_TIMEOUT, lambda: give_up(errno.ETIMEDOUT))
        return near

    def end_process(self, owner: Domain) -> None:
        """The kernel closes what a dead process held."""
        for listener in [x for x in self.listeners.values() if x.owner is owner]:
            listener.close()
        for socket in [s for s in self.sockets if s.owner is owner]:
            # Accepted by the kernel, never by the program: reset.
            socket.close(rst=socket.awakes is None)

    def crash(self, *, rst: bool = False) -> None:
        """Down, without a word; with `rst`, as a machine that comes up at once answers."""
        sockets = list(self.sockets)
        if rst:
            for socket in sockets:
                socket.close(rst=True)
        self.up = False
        for socket in sockets:
            if not rst and socket.out.since < math.inf:
                socket.out.stall()
        self.sockets.clear()
        self.listeners.clear()

    def restart(self) -> None:
        self.boot += 1
        self.up = True
        self.asleep = False
        self.network.wake()

    def couple(
        self, other: Stack, owner: Domain | None, *, local: bool = False
    ) -> tuple[Socket, Socket]:
        """Two joined sockets."""
        network = self.network
        network.connections += 1
        near = Socket(self, owner, f"{self.name}#{network.connections}")
        far = Socket(other, None, f"{other.name}#{network.connections}")
        if local:
            there = back = Link(self.name, other.name, delay=1e-5, jitter=0.0)
        else:
            there, back = network.link(self, other), network.link(other, self)
        near.peer, far.peer = far, near
        near.out = far.incoming = Pipe(network, there, near, far)
        far.out = near.incoming = Pipe(network, back, far, near)
        near.established = far.established = local
        return near, far

    def pair(self) -> tuple[Socket, Socket]:
        """A socketpair, which no fault of the network touches."""
        near, far = self.couple(self, None, local=True)
        self.sockets[near] = self.sockets[far] = None
        return near, far

    def reset(self, other: Stack) -> None:
        """Both ends of every connection with `other` get RST."""
        for stack, peer in ((self, other), (other, self)):
            for socket in [s for s in stack.sockets if s.established and s.peer.stack is peer]:
                socket.arrive("RST", b"")
