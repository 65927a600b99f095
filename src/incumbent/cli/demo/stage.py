"""Where the demo plays: a server and three nodes on this machine, in a temporary folder.

Rule of this file: every process is known by its pid and, once it is dead, ended for good; when
`close` returns, nothing that was started here is left, whatever happened in between.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import select
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from incumbent.agent.home import Home
from incumbent.agent.tree import NodeFacts, Observed, Tree
from incumbent.cli import local, orders
from incumbent.cli.closing import close_tree
from incumbent.cli.cluster import Cluster, SeatState, read_cluster
from incumbent.cli.demo.loads import Load
from incumbent.cli.demo.table import NodeNow, Now, SeatNow
from incumbent.cli.exits import No, TimedOut
from incumbent.cli.explain import Row, seat_rows
from incumbent.cli.files import Files
from incumbent.cli.process import Child, module
from incumbent.client import Client
from incumbent.credentials import read_auth
from incumbent.errors import SessionExpired
from incumbent.runtime_file import start_time
from incumbent.unix_socket import socket_name

__all__ = ["Node", "Stage"]

_SET_UP_TIME = 30.0
_OWN_SESSION = 40.0
_LOOK_EVERY = 0.05
_STOP_TIME = 8.0
_TREE = Tree()


class Node:
    """One node: `incumbent agent` as anybody starts it, with a data directory of its own."""

    def __init__(
        self, name: str, folder: Path, hosts: str, session: float, life_fd: int, auth: Path
    ) -> None:
        """`life_fd` is for it and its agents to have: while they do, the server stays."""
        self.name = name
        self.data = folder / name
        self.killed: tuple[str, ...] = ()
        self.ended_at = 0.0
        """When its guardian was first seen dead (monotonic), 0 while it lives."""
        self._log = folder / f"{name}.log"
        self._life_fd = life_fd
        self._argv = module("incumbent.cli", "agent", "--zookeeper", hosts, "--node", name)
        self._argv += ["--data", str(self.data), "--root", _TREE.root]
        self._argv += ["--parent-death", str(os.getpid())]
        self._argv += ["--session-timeout", f"{session:g}", "--tick", "0", "--auth", str(auth)]
        self._agents: dict[int, int] = {}  # pid → pidfd of every agent seen
        self.start()

    def start(self) -> None:
        """Begin a life, the first or another on the same data."""
        self.child = Child(self._argv, self._log, pass_fds=(self._life_fd,))
        self._pidfd = os.pidfd_open(self.child.pid)
        self.killed, self.ended_at = (), 0.0

    @property
    def guardian(self) -> int:
        """Its pid, 0 if it is dead."""
        if self.ended_at == 0.0 and _is_dead(self._pidfd):
            self.ended_at = time.monotonic()
            os.close(self._pidfd)
            self.child.reap()
        return 0 if self.ended_at else self.child.pid

    @property
    def agent(self) -> int:
        """The pid of the agent that answers on its control socket, 0 if none does."""
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                with socket_name(Home(self.data).socket) as name:
                    asking.connect(name)
            except OSError:
                return 0
            peer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid: int = struct.unpack("3i", peer)[0]
        if pid not in self._agents:
            with suppress(ProcessLookupError):
                self._agents[pid] = os.pidfd_open(pid)
        return pid

    @property
    def last_words(self) -> str:
        return self.child.last_words()

    def kill_agent(self) -> int:
        return self._kill("agent")

    def kill_guardian(self) -> int:
        return self._kill("guardian")

    def kill(self) -> tuple[int, int]:
        """Guardian and agent as one: neither sees the other die. Their pids."""
        pids = self._living("guardian"), self._living("agent")
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        self.killed = ("guardian", "agent")
        return pids

    def _kill(self, what: str) -> int:
        pid = self._living(what)
        os.kill(pid, signal.SIGKILL)
        self.killed = (what,)
        return pid

    def _living(self, what: str) -> int:
        pid: int = getattr(self, what)
        if not pid:
            raise No(f"the {what} of {self.name} is gone: {self.last_words}")
        return pid

    def order_stop(self) -> None:
        """SIGTERM, as an operator stops a node."""
        if self.guardian:
            self.child.signal(signal.SIGTERM)

    def end(self) -> None:
        """SIGKILL to whatever of it still lives."""
        if self.guardian:
            self.child.signal(signal.SIGKILL)
            self.child.reap()
        for pidfd in self._agents.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    @property
    def is_over(self) -> bool:
        """Whether guardian and agents are dead."""
        return not self.guardian and all(_is_dead(pidfd) for pidfd in self._agents.values())


class Stage:
    """`open` it, look at `now` (kept fresh), `close` it. `session`: S of the nodes, in seconds."""

    def __init__(
        self, folder: Path, names: Sequence[str], loads: Sequence[Load], session: float
    ) -> None:
        self.folder = folder
        self.loads = loads
        self.session = session
        self.hosts = ""
        self.nodes: dict[str, Node] = {}
        self.now = Now(seats={})
        self.facts: dict[str, NodeFacts] = {}
        self.observed: dict[str, Observed] = {}
        self.plan: dict[str, str] = {}
        """Component → the node where the planner wants it."""
        self._names = names
        self._work: dict[str, str] = {}
        self._server: Child | None = None
        self._life = os.pipe()
        """Its writing end we have, and the nodes: the server stops when all of us have ended."""
        self._client: Client | None = None
        self._fresh = asyncio.Event()

    # ── set-up

    async def open(self) -> None:
        """Everything started, each program once. Raises `No`, `TimedOut` with what is wrong."""
        await self._start_server()
        files = Files(self.folder)
        files.make()
        for name in self._names:
            self.nodes[name] = Node(
                name, self.folder, self.hosts, self.session, self._life[1], files.agents
            )
        self._client = client = Client(
            self.hosts,
            session_timeout=_OWN_SESSION,
            request_timeout=_SET_UP_TIME,
            tick=0.0,
            auth=read_auth(files.operators),
            rng=random.SystemRandom(),
            log=lambda _line: None,
        )
        await client.connect(_SET_UP_TIME)
        await close_tree(client, _TREE, files.access())
        async with _bounded("the nodes to be there", _SET_UP_TIME):
            while set(await client.children(_TREE.nodes)) != set(self._names):
                self._complain()
                await asyncio.sleep(_LOOK_EVERY)
        await orders.apply(client, _TREE, [load.spec for load in self.loads])

    async def _start_server(self) -> None:
        ready_fd, told_fd = os.pipe()
        argv = module("incumbent.server", "--data", f"{self.folder}/server")
        argv += ["--listen", "127.0.0.1:0", "--ready-fd", str(told_fd)]
        argv += ["--until-fd", str(self._life[0])]
        self._server = Child(argv, self.folder / "server.log", pass_fds=(told_fd, self._life[0]))
        os.close(told_fd)
        try:
            async with _bounded("the server to listen", _SET_UP_TIME):
                said = await _read_to_end(ready_fd)
        finally:
            os.close(ready_fd)
        if not said:
            raise No(f"the server did not start: {self._server.last_words()}")
        self.hosts = said.removeprefix("listening on ").strip()

    def _complain(self) -> None:
        for node in self.nodes.values():
            if not node.guardian:
                raise No(f"{node.name} did not start: {node.last_words}")

    # ── what is so now

    async def watch(self, changed: Callable[[Now], None]) -> None:
        """Keep `now` fresh, for ever."""
        assert self._client is not None
        while True:
            try:
                self._see(await read_cluster(self._client, _TREE))
            except SessionExpired:  # nothing here beats for it, and nothing hangs on it
                await asyncio.sleep(_LOOK_EVERY)
                continue
            self._fresh.set()
            self._fresh = asyncio.Event()
            changed(self.now)
            await asyncio.sleep(_LOOK_EVERY)

    async def watch_work(self, load: Load) -> None:
        """Ask a program again and again what it does."""
        while True:
            self._work[load.name] = await load.works()
            await asyncio.sleep(4 * _LOOK_EVERY)

    async def until(self, what: str, is_so: Callable[[], bool], timeout: float) -> None:
        """Wait for something to be seen. Raises `TimedOut`."""
        async with _bounded(what, timeout):
            while not is_so():
                await self._fresh.wait()

    def _see(self, cluster: Cluster) -> None:
        rows = {row.component: row for row in seat_rows(cluster, now=time.time())}
        seats = {component.name: component.seats[0] for component in cluster.components}
        self.facts = dict(cluster.nodes)
        self.observed = {n: s.observed for n, s in seats.items() if s.observed is not None}
        self.plan = {seat.partition("/")[0]: each.node for seat, each in cluster.plan.seats.items()}
        names = [load.name for load in self.loads if load.name in rows]
        self.now = Now(
            nodes=[
                NodeNow(
                    name=node.name, guardian=node.guardian, agent=node.agent, killed=node.killed
                )
                for node in self.nodes.values()
            ],
            seats={name: self._seat(rows[name], seats[name], cluster) for name in names},
        )

    def _seat(self, row: Row, seat: SeatState, cluster: Cluster) -> SeatNow:
        keys = [name.partition("-")[0] for name in seat.contenders]
        line = [cluster.session_nodes[key] for key in keys if key in cluster.session_nodes]
        is_alive = row.pid == 0 or start_time(row.pid) is not None
        work = self._work.get(row.component, "")
        return SeatNow(row=row, line=line, is_alive=is_alive, work=work)

    async def settle(self, timeout: float) -> None:
        """Wait until all works, where the planner wants it. Raises `TimedOut` with the reasons."""
        try:
            await self.until("every program to work", self._is_settled, timeout)
        except TimedOut as error:
            whys = [
                f"{name}: {seat.row.why}" for name, seat in self.now.seats.items() if not seat.work
            ]
            raise TimedOut("\n  ".join([str(error), *whys])) from None

    def _is_settled(self) -> bool:
        """And each node has its share."""
        names = [load.name for load in self.loads]
        wanted = {self.plan.get(name) for name in names}
        is_fair = len(wanted) == min(len(names), len(self.facts))
        return is_fair and all(
            name in self.now.seats
            and self.now.runs(name, self.plan.get(name, ""))
            and self.now.seats[name].work
            for name in names
        )

    def session_of(self, node: Node) -> str:
        """Its session, as the agent itself says; "" if there is none now."""
        said = local.ask(node.data, timeout=0.2) or {}
        return str(said.get("session", "")) if said.get("connection") == "CONNECTED" else ""

    # ── the end

    async def close(self, hurry: asyncio.Event) -> None:
        """Stop the nodes in order, then the server; set `hurry` and it is done at once."""
        for node in self.nodes.values():
            node.order_stop()
        until = time.monotonic() + _STOP_TIME
        while not all(node.is_over for node in self.nodes.values()):
            if hurry.is_set() or time.monotonic() > until:
                break
            await asyncio.sleep(0.01)
        for node in self.nodes.values():
            node.end()
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            self._server.signal(signal.SIGTERM)
            self._server.reap()
        _end_holders(self.folder)


@asynccontextmanager
async def _bounded(what: str, timeout: float) -> AsyncIterator[None]:
    """`asyncio.timeout` that says what was waited for."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise TimedOut(f"waited {timeout:g} s for {what}") from None


async def _read_to_end(fd: int) -> str:
    """What is written to a pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    said = bytearray()

    def readable() -> None:
        part = os.read(fd, 4096)
        said.extend(part)
        if not part and not ended.done():
            ended.set_result(None)

    loop.add_reader(fd, readable)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
    return said.decode()


def _is_dead(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def _end_holders(folder: Path) -> None:
    """SIGKILL to whoever still holds a seat's lock: nobody, if all went as it should."""
    held = {str(path) for path in folder.glob("*.lock") if not _is_free(path)}
    for entry in Path("/proc").iterdir() if held else ():
        with suppress(OSError):
            if any(str(fd.readlink()) in held for fd in (entry / "fd").iterdir()):
                os.kill(int(entry.name), signal.SIGKILL)


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
