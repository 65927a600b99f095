"""What the demo runs: Redis (or another worker), a web page, a worker; each beside a witness.

The witness is the auditor's own test program (`incumbent/testing/witness.py`). It takes the
seat's lock, writes its first line, leaves a child that ticks, and becomes the program, which
holds the lock as long as it lives.

Rule of this file: real programs with their real command lines; nothing of ours is in them.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import incumbent
from incumbent.spec import Spec

__all__ = ["Load", "loads"]

_PATIENCE = 0.3
"""Seconds that a program has to answer us."""

_WORKER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
who = os.environ["INCUMBENT_NODE"] + " epoch " + os.environ["INCUMBENT_EPOCH"]
while True:
    os.write(file, (time.strftime("%H:%M:%S ") + who + "\\n").encode())
    time.sleep(0.1)
"""
_PAGE = """<!doctype html><title>Incumbent</title>
<h1>Incumbent</h1><p>This page is served by exactly one of three nodes. Kill that node.</p>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One program. `works()` is what it does now, in a few words; "" if it does not answer."""

    spec: Spec
    where: str
    works: Callable[[], Awaitable[str]]

    @property
    def name(self) -> str:
        return self.spec.name


def loads(folder: Path, *, isolation: str | None = None) -> list[Load]:
    """The programs of a demo in `folder`; each has a folder of its own there, its cwd."""
    server = shutil.which("redis-server")
    first = _redis(folder, server) if server is not None else _worker(folder, "counter")
    made = [first, _web(folder), _worker(folder, "worker")]
    return [_witnessed(load, folder, isolation) for load in made]


def _witnessed(load: Load, folder: Path, isolation: str | None) -> Load:
    witness = Path(incumbent.__file__).with_name("testing") / "witness.py"
    beside = (sys.executable, "-S", "-E", str(witness), f"{folder}/{load.name}.jsonl", str(folder))
    cwd = folder / load.name
    cwd.mkdir()
    spec = Spec(
        name=load.name,
        command=(*beside, "--", *load.spec.command),
        cwd=str(cwd),
        isolation="swept" if isolation == "swept" else None,
    )
    return Load(spec=spec, where=load.where, works=load.works)


def _redis(folder: Path, server: str) -> Load:
    port = _free_port()
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--daemonize", "no"]
    command += ["--dir", f"{folder}/redis", "--save", "", "--appendonly", "yes"]

    async def works() -> str:
        said = await _ask(port, b"INCR demo\r\n")
        return f"counts {said[1:].strip().decode()}" if said.startswith(b":") else ""

    spec = Spec(name="redis", command=tuple(command))
    return Load(spec=spec, where=f"127.0.0.1:{port}", works=works)


def _web(folder: Path) -> Load:
    port = _free_port()
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_text(_PAGE)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]

    async def works() -> str:
        said = await _ask(port, b"GET / HTTP/1.0\r\n\r\n")
        return f"answers {said.split()[1].decode()}" if said.startswith(b"HTTP/") else ""

    spec = Spec(name="web", command=(*command, "--directory", str(site)))
    return Load(spec=spec, where=f"http://127.0.0.1:{port}/", works=works)


def _worker(folder: Path, name: str) -> Load:
    file = folder / name / "journal.txt"
    seen = [0]

    async def works() -> str:
        before = seen[0]
        seen[0] = file.read_bytes().count(b"\n") if file.exists() else 0
        return f"wrote {seen[0]} lines" if seen[0] > before else ""

    spec = Spec(name=name, command=(sys.executable, "-c", _WORKER, str(file)))
    return Load(spec=spec, where=str(file), works=works)


async def _ask(port: int, question: bytes) -> bytes:
    """The first line of an answer on this machine; b"" if there is none in time."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(question)
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


def _free_port() -> int:
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])
