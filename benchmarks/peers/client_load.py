"""One client under load: ours (asyncio, blocking), kazoo, aiozk, or a bare socket.

usage: client_load.py WHO HOST:PORT WHAT NUMBER

single    one get after the other: prints the median, milliseconds
get, set  pipelined, at most 256 outstanding: prints how many a second
watch     as many watches on as many znodes: prints the milliseconds it took and the bytes it cost
          for each; then, for each line on stdin, cuts its own connection

Rule of this file: nobody is asked for more than its users are: what it prints was awaited, and
the answers were decoded by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

PATH, DATA = "/load", b"x" * 100
WINDOW = 256
WARM_UP = 1000
Verb = Callable[[], Awaitable[object]]


def say(*words: object) -> None:
    print(*words, flush=True)


def rate(number: int, began: float) -> float:
    return number / (time.perf_counter() - began)


def cut(port: int) -> None:
    """End this process's own connections to the server, as a network would."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as sock:
            if sock.family == socket.AF_INET and sock.getpeername()[1] == port:
                sock.shutdown(socket.SHUT_RDWR)


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def watched(set_all: Callable[[], None], number: int) -> None:
    before, began = resident(), time.perf_counter()
    set_all()
    took = (time.perf_counter() - began) * 1000
    say(took, (resident() - before) / number)


# -- asyncio: ours and aiozk ---------------------------------------------------------------------


async def single(get: Verb, number: int) -> None:
    took = []
    for _ in range(WARM_UP + number):
        began = time.perf_counter()
        await get()
        took.append(time.perf_counter() - began)
    say(statistics.median(took[WARM_UP:]) * 1000)


async def pipelined(verb: Verb, number: int) -> None:
    async def work() -> None:
        for _ in left:
            await verb()

    for count in (WARM_UP, number):
        began = time.perf_counter()
        left = iter(range(count))
        await asyncio.gather(*(work() for _ in range(WINDOW)))
    say(rate(number, began))


async def answer_cuts(port: int) -> None:
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        cut(port)


async def ours(hosts: str, what: str, number: int) -> None:
    from incumbent import aio

    async with aio.connect(hosts, session_timeout=20, timeout=30, tick=0) as zk:
        await zk.ensure(PATH)
        await zk.set(PATH, DATA)
        if what == "single":
            await single(lambda: zk.get(PATH), number)
        elif what == "watch":
            before, began = resident(), time.perf_counter()
            paths = (f"{PATH}/{i}" for i in range(number))

            async def work() -> None:
                for path in paths:
                    await zk.exists(path, watcher=use)

            await asyncio.gather(*(work() for _ in range(WINDOW)))
            took = (time.perf_counter() - began) * 1000
            say(took, (resident() - before) / number)
            await answer_cuts(int(hosts.split(":")[1]))
        else:
            verbs = {"get": lambda: zk.get(PATH), "set": lambda: zk.set(PATH, DATA)}
            await pipelined(verbs[what], number)


async def aiozk(hosts: str, what: str, number: int) -> None:
    import aiozk

    zk = aiozk.ZKClient(hosts, session_timeout=20)
    await zk.start()
    await zk.ensure_path(PATH)
    await zk.set_data(PATH, DATA, force=True)
    if what == "single":
        await single(lambda: zk.get(PATH), number)
    else:
        verbs = {"get": lambda: zk.get(PATH), "set": lambda: zk.set_data(PATH, DATA, force=True)}
        await pipelined(verbs[what], number)
    await zk.close()


# -- blocking: ours and kazoo --------------------------------------------------------------------


def one_by_one(get: Callable[[], object], number: int) -> None:
    took = []
    for _ in range(WARM_UP + number):
        began = time.perf_counter()
        get()
        took.append(time.perf_counter() - began)
    say(statistics.median(took[WARM_UP:]) * 1000)


def blocking(hosts: str, what: str, number: int) -> None:
    import incumbent

    assert what == "single", "a blocking call is awaited where it is made"
    with incumbent.connect(hosts, session_timeout=20, timeout=30, tick=0) as zk:
        zk.ensure(PATH)
        zk.set(PATH, DATA)
        one_by_one(lambda: zk.get(PATH), number)


def kazoo(hosts: str, what: str, number: int) -> None:
    from kazoo.client import KazooClient

    zk = KazooClient(hosts, timeout=20)
    zk.start(30)
    zk.ensure_path(PATH)
    zk.set(PATH, DATA)
    if what == "single":
        one_by_one(lambda: zk.get(PATH), number)
    elif what == "watch":
        paths = [f"{PATH}/{i}" for i in range(number)]
        # What lasts through a reconnect there is a DataWatch; `exists(watch=…)` does not.
        watched(lambda: kept.extend(zk.DataWatch(path, use) for path in paths), number)
        while sys.stdin.readline():
            cut(int(hosts.split(":")[1]))
    else:
        verbs = {"get": lambda: zk.get_async(PATH), "set": lambda: zk.set_async(PATH, DATA)}
        for count in (WARM_UP, number):
            began = time.perf_counter()
            room = threading.Semaphore(WINDOW)
            answers = []
            for _ in range(count):
                room.acquire()
                answers.append(verbs[what]())
                answers[-1].rawlink(lambda _, room=room: room.release())
            for answer in answers:
                answer.get()
        say(rate(number, began))
    os._exit(0)  # a thread of it may wait for ever


def use(*things: object) -> None:
    """Nothing."""


kept: list[object] = []


# -- what the server can do ----------------------------------------------------------------------


def bare(hosts: str, what: str, number: int) -> None:
    """The same bytes, sent and cut into frames, and nothing made of them."""
    host, port = hosts.split(":")
    path = PATH.encode()
    where = struct.pack(">i", len(path)) + path
    body = {
        "get": struct.pack(">ii", 1, 4) + where + b"\0",
        "single": struct.pack(">ii", 1, 4) + where + b"\0",
        "set": struct.pack(">ii", 1, 5) + where + struct.pack(">i", len(DATA)) + DATA + b"\xff" * 4,
    }[what]
    frame = struct.pack(">i", len(body)) + body
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = struct.pack(">iqiqi", 0, 0, 20_000, 0, 16) + bytes(16) + b"\0"
        sock.sendall(struct.pack(">i", len(hello)) + hello)
        sock.recv(4096)
        if what == "single":
            one_by_one(lambda: (sock.sendall(frame), sock.recv(4096)), number)
            return
        for count in (WARM_UP, number):
            began = time.perf_counter()
            sent = done = 0
            rest = b""
            while done < count:
                more = min(WINDOW - (sent - done), count - sent)
                sock.sendall(frame * more)
                sent += more
                rest += sock.recv(1 << 18)
                at = 0
                while len(rest) - at >= 4:
                    (length,) = struct.unpack_from(">i", rest, at)
                    if len(rest) - at < 4 + length:
                        break
                    at += 4 + length
                    done += 1
                rest = rest[at:]
        say(rate(number, began))


def main(who: str, hosts: str, what: str, number: str) -> None:
    if who in ("ours", "aiozk"):
        asyncio.run({"ours": ours, "aiozk": aiozk}[who](hosts, what, int(number)))
    else:
        {"blocking": blocking, "kazoo": kazoo, "bare": bare}[who](hosts, what, int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
