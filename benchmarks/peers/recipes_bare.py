"""The least that a lock on ZooKeeper can cost a program in Python: bytes over a blocking socket.

usage: recipes_bare.py HOSTS lock|holds PATH SECONDS
Says `ready`, waits for a line, and then says `result VALUE`.

Only the requests that a lock cannot do without: a create and a listing in one write, a watch on
whoever is before us, a deletion in one write with the next create. No session is kept alive, no
answer is checked, nothing is undone: it is no lock to be used, but what every lock is below.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator

from incumbent import wire

SESSION = 30.0
DELETE, CREATE, LIST, WATCH, EVENT = 1, 2, 3, 4, -1  # as numbers of requests
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">iqi")


class Talk:
    """Frames over a socket."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = self._frames()
        hello = wire.ConnectRequest(0, int(SESSION * 1000), 0, bytes(16))
        self.socket.sendall(wire.frame(hello.encode()))
        next(self.frames)

    def _frames(self) -> Iterator[bytes]:
        data = b""
        while True:
            at = 0
            while len(data) >= at + 4:
                end = at + 4 + _LENGTH.unpack_from(data, at)[0]
                if len(data) < end:
                    break
                yield data[at + 4 : end]
                at = end
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("the server closed the connection")
            data = data[at:] + more

    def until(self, number: int) -> tuple[int, bytes]:
        """The error and the body of the next answer with this number."""
        while True:
            found = next(self.frames)
            xid, _, error = _HEADER.unpack_from(found)
            if xid == number:
                return error, found[_HEADER.size :]


class Lock:
    def __init__(self, talk: Talk, path: str) -> None:
        self.talk = talk
        self.path = path.encode()
        create = wire.Create2(f"{path}/n-", b"", flags=wire.CreateFlag.EPHEMERAL_SEQUENTIAL)
        self.list = wire.frame(wire.GetChildren(path).encode(LIST))
        self.enter = wire.frame(create.encode(CREATE)) + self.list
        self.leave = b""  # the deletion, which waits for the next create

    def cycle(self) -> None:
        """Have it once."""
        talk = self.talk
        talk.socket.sendall(self.leave + self.enter)
        _, made = talk.until(CREATE)
        ours = made[4 : 4 + _LENGTH.unpack_from(made)[0]]
        while True:
            _, children = talk.until(LIST)
            ahead = [name for name in _names(children) if name < ours[-12:]]
            if not ahead:
                break
            self.wait_for_the_end_of(max(ahead))
            if len(ahead) == 1:
                break
            talk.socket.sendall(self.list)
        self.leave = _request(DELETE, wire.Op.DELETE, ours, b"\xff\xff\xff\xff")

    def wait_for_the_end_of(self, name: bytes) -> None:
        watch = _request(WATCH, wire.Op.GET_DATA, self.path + b"/" + name, b"\x01")
        self.talk.socket.sendall(watch)
        error, _ = self.talk.until(WATCH)
        if not error:
            self.talk.until(EVENT)


def _names(children: bytes) -> list[bytes]:
    (count,) = _LENGTH.unpack_from(children)
    return [children[8 + 16 * n : 20 + 16 * n] for n in range(count)]  # n- and ten digits


def _request(number: int, op: int, path: bytes, rest: bytes) -> bytes:
    body = struct.pack(">iii", number, op, len(path)) + path + rest
    return _LENGTH.pack(len(body)) + body


def main(hosts: str, task: str, path: str, seconds: float) -> None:
    talk = Talk(hosts)
    talk.socket.sendall(wire.frame(wire.Create(path, b"").encode(DELETE)))
    lock = Lock(talk, path)
    lock.cycle()
    talk.socket.sendall(lock.leave)
    lock.leave = b""
    print("ready", flush=True)
    sys.stdin.readline()
    count, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        lock.cycle()
        count += 1
    talk.socket.sendall(lock.leave)
    talk.until(DELETE)
    print(f"result {count / took}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
