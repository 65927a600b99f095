"""A server and several nodes on this machine, each a real guardian with its agent and its data.

    with Nodes(tmp_path) as nodes:                    # a server; tick 0.1 s, sessions of 1 s
        n1, n2 = nodes.start("n1"), nodes.start("n2")
        nodes.apply('[component.web]\\ncommand = "sleep 1000"\\n')
        row = nodes.wait("web", "running")            # a row of `status --output json`
        nodes.named(row["node"]).kill_guardian()
        nodes.wait("web", "running", node="n2")
        nodes.cli("node", "list")                     # any command: its exit code and output

Rule of this file: every process is found and ended by its pid; what a node started dies with
it, whatever the test did.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.terminals import Terminal, Terminals
from tests.waiting import wait_until

from incumbent.agent.tree import Tree
from incumbent.cli import local
from incumbent.cli.cluster import Cluster, connected, read_cluster
from incumbent.cli.explain import seat_rows
from incumbent.cli.show import to_json
from incumbent.client import Client
from incumbent.settings import resolve

__all__ = ["Node", "Nodes", "is_alive", "run_cli"]

T = TypeVar("T")

INCUMBENT = (sys.executable, "-P", "-m", "incumbent.cli")


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b") ")[2][:1] not in (b"Z", b"X")


def run_cli(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """One `incumbent` command, to its end. Its environment has no settings but those of `env`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("INCUMBENT_")}
    return subprocess.run(
        [*INCUMBENT, *map(str, arguments)],
        cwd=cwd,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        input=stdin,
        check=False,
    )


class Node:
    """One node. `guardian` is the newest `incumbent agent`; it can be started again."""

    def __init__(self, nodes: Nodes, name: str, options: Sequence[str]) -> None:
        self.name = name
        self.data = nodes.folder / name
        self._nodes = nodes
        self._options = options
        self._lives = 0
        self.guardian = self._start()

    def _start(self) -> Terminal:
        self._lives += 1
        nodes = self._nodes
        command = [*INCUMBENT, "agent", "--zookeeper", nodes.hosts, "--node", self.name]
        command += ["--data", self.data, "--tick", "0", "--session-timeout", f"{nodes.session:g}"]
        command += [] if "--auth" in self._options else ["--insecure"]  # its tree is open
        return nodes.terminals.start(f"{self.name}-{self._lives}", [*command, *self._options])

    @property
    def agent_pid(self) -> int:
        """The agent that answers now. Raises OSError while none does."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self.data / "agent.sock"))
            got = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid: int = struct.unpack("3i", got)[0]
        return pid

    def status(self) -> dict[str, Any]:
        """What its agent says on its control socket; {} if none answers."""
        return local.ask(self.data) or {}

    def connected(self, timeout: float = 15.0) -> Node:
        """Wait until its agent has a session and its znode."""
        wait_until(
            lambda: self.name in self._nodes.cluster().nodes,
            timeout,
            f"{self.name} to be live; it said {self.guardian.complaints()[-5:]}",
        )
        return self

    def kill_agent(self) -> int:
        """SIGKILL the agent only; its pid."""
        pid = self.agent_pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_guardian(self) -> int:
        """SIGKILL the guardian only; its pid."""
        self.guardian.send(signal.SIGKILL)
        return self.guardian.pid

    def kill(self) -> None:
        """Both at the same moment: neither can do anything about the other."""
        agent = self.agent_pid
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (self.guardian.pid, agent):
                os.kill(pid, number)

    def stop(self, timeout: float = 20.0) -> int:
        """SIGTERM, as an operator does; the exit code."""
        return self.guardian.end(signal.SIGTERM, timeout)

    def start_again(self) -> Node:
        """A new life on the same data."""
        self.guardian = self._start()
        return self


class Nodes:
    """The server, with more `options`, and the nodes. `session`: of the agents, in seconds."""

    def __init__(
        self, folder: Path, *, tick: float = 0.1, session: float = 1.0, options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.session = session
        self.terminals = Terminals(folder)
        self.hosts = "127.0.0.1:0"
        self.nodes: list[Node] = []
        self._tick = tick
        self._options = options
        self._servers = 0
        self.server: Terminal

    def __enter__(self) -> Nodes:
        try:
            self.start_server()
        except BaseException:
            self.terminals.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:  # in order, so that nothing is left to end by hand
            if node.guardian.code is None:
                with suppress(ProcessLookupError):
                    os.kill(node.guardian.pid, signal.SIGCONT)
                node.guardian.send(signal.SIGTERM)
        for node in self.nodes:
            with suppress(subprocess.TimeoutExpired):
                node.guardian.ends(5.0)
        self.terminals.__exit__()

    # ── processes

    def start_server(self) -> Terminal:
        """The first, or after its death the next, on the same port and data."""
        self._servers += 1
        self.server = self.terminals.server(
            f"server-{self._servers}",
            *("--data", self.folder / "server", "--listen", self.hosts),
            *("--tick", str(self._tick), *self._options),
        )
        self.hosts = self.server.lines()[0].removeprefix("listening on ")
        return self.server

    def start(self, name: str, *options: str) -> Node:
        """A node, live when this returns. `options` go to `incumbent agent`."""
        return self.begin(name, *options).connected()

    def begin(self, name: str, *options: str) -> Node:
        """The same without waiting."""
        node = Node(self, name, options)
        self.nodes.append(node)
        return node

    def named(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    # ── commands and what they show

    def cli(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """An `incumbent` command that finds this server by its environment."""
        data = self.nodes[0].data if self.nodes else self.folder
        env = {"INCUMBENT_ZOOKEEPER": self.hosts, "INCUMBENT_DATA": str(data)}
        return run_cli(*arguments, env={**env, **options.pop("env", {})}, **options)

    def apply(self, text: str) -> str:
        """`incumbent apply` of a file with this text; what it printed."""
        file = self.folder / "components.toml"
        file.write_text(text)
        done = self.cli("apply", file)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> list[dict[str, Any]]:
        """The rows of `status --output json`, read without starting a process for it."""
        answers = local.ask_all([node.data for node in self.nodes])
        rows: list[dict[str, Any]] = json.loads(
            to_json(seat_rows(self.cluster(), answers, now=time.time()))
        )
        return rows

    def row(self, component: str, seat: int = 0) -> dict[str, Any]:
        """One of them; {} if there is none."""
        rows = [r for r in self.status() if (r["component"], r["seat"]) == (component, seat)]
        return rows[0] if rows else {}

    def wait(
        self, component: str, state: str, *, seat: int = 0, timeout: float = 20.0, **more: Any
    ) -> dict[str, Any]:
        """Wait until a seat has this state, and what else is asked for; its row."""

        def look() -> dict[str, Any] | None:
            row = self.row(component, seat)
            is_so = row.get("state") == state and all(row[key] == more[key] for key in more)
            return row if is_so else None

        found = wait_until(look, timeout, f"{component}/{seat} to be {state} {more or ''}")
        assert found is not None
        return found

    # ── the tree itself

    def cluster(self) -> Cluster:
        """All that is in the tree now."""
        return self.ask(lambda client: read_cluster(client, Tree()))

    def ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """Run `question(client)` in a session of its own; its result."""

        async def asking() -> T:
            settings = resolve({"zookeeper": self.hosts, "tick": 0.0}, environ={})
            async with connected(settings, timeout=10.0) as client:
                return await question(client)

        return asyncio.run(asking())
