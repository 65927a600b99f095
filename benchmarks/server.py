"""How soon does a server answer, and how much memory does it take while idle?

From the start of its process, on an empty data directory, to a session granted over TCP; then
its resident memory. Ours and Apache ZooKeeper 3.8, in turns.
"""

from __future__ import annotations

import selectors
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks.contenders import settle
from benchmarks.reports import now
from benchmarks.results import Figure, Outcome
from tests.apache import ApacheServer, apache_missing, free_port
from tests.e2e.terminals import Terminals

from incumbent.wire import ConnectRequest, frame

__all__ = ["SAMPLES", "run"]

SAMPLES = 10
_SERVER = (sys.executable, "-P", "-m", "incumbent.server")
_IDLE = 1.0  # seconds before memory is looked at


def run(folder: Path, samples: int) -> Outcome:
    """The whole question."""
    outcome = Outcome(title="Server: start to first session, and resident memory while idle")
    why = apache_missing()
    if why:
        outcome.remarks.append(f"Apache ZooKeeper is left out: {why}")
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for number in range(samples):
        ours.append(_ours(folder / f"ours-{number}"))
        if not why:
            theirs.append(_apache(folder / f"apache-{number}"))
    outcome.figures = [
        Figure(who="ours: start", samples=[each[0] for each in ours], goal=150.0),
        Figure(who="ours: memory", samples=[each[1] for each in ours], goal=40.0, unit="MiB"),
    ]
    if theirs:
        outcome.figures.insert(
            1, Figure(who="Apache 3.8: start", samples=[each[0] for each in theirs], peer=True)
        )
        outcome.figures.append(
            Figure(who="Apache 3.8: memory", samples=[each[1] for each in theirs], unit="MiB")
        )
        outcome.remarks.append(
            "Apache runs with -Xms32m -Xmx256m, the serial collector, one compiler tier, no admin server, and without fsync"
        )
    return outcome


def _ours(folder: Path) -> tuple[float, float]:
    folder.mkdir()
    port = free_port()
    with Terminals(folder) as terminals:
        at = now()
        server = terminals.start(
            "server",
            [*_SERVER, "--data", folder / "data", "--listen", f"127.0.0.1:{port}"],
        )
        took = _until_session(port, at)
        settle(_IDLE)
        return took, _resident(server.pid)


def _apache(folder: Path) -> tuple[float, float]:
    server = ApacheServer(folder)
    folder.mkdir()
    try:
        at = now()
        server.start(wait=False)
        took = _until_session(server.port, at)
        settle(_IDLE)
        return took, _resident(server.pid)
    finally:
        server.stop()


def _until_session(port: int, since: float) -> float:
    """Milliseconds until a session is granted. Asks anew every other millisecond, and goes on
    listening on the older connections: what accepts before it serves may never answer those.
    """
    asking = frame(ConnectRequest(0, 10_000, 0, bytes(16)).encode())
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        while now() < since + 60.0:
            with suppress(OSError):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 1.0))
                sock.sendall(asking)
                selector.register(sock, selectors.EVENT_READ)
            for key, _events in selector.select(0.002):
                with suppress(OSError):
                    if len(key.fileobj.recv(64)) > 20:  # type: ignore[union-attr]
                        return (now() - since) * 1000
                selector.unregister(key.fileobj)
            settle(0.001)
    raise TimeoutError(f"no session at port {port} within 60 s")


def _resident(pid: int) -> float:
    """MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
