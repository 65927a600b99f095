"""The server's process: arguments, the data directory's lock, signals, the collector.

Rule of this file: whatever is wrong before it listens is one sentence that names the next step,
and exit code 2. Imports are few: it has to be there within a tenth of a second.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from incumbent.server.server import Server
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import StoreFailed

__all__ = ["main"]

_USAGE = 2


class _CannotStart(Exception):
    """A sentence for the operator."""


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    options = _options(argv)
    if options.parent_death:
        _die_with_parent()
    try:
        with _Directory(options.data) as directory:
            store = SqliteStore(directory / "zookeeper.db")
            _run(_serve(store, options))
    except StoreFailed as error:
        _log(f"{error}; put a copy of it back, or name another directory with --data")
        return _USAGE
    except _CannotStart as error:
        _log(str(error))
        return _USAGE
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="incumbent server", description="A ZooKeeper server for one machine."
    )
    parser.add_argument(
        "--data", metavar="DIR", type=Path, required=True, help="where it keeps its data"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        default=("127.0.0.1", 2181),
        help="where clients reach it (default 127.0.0.1:2181; port 0 takes a free one)",
    )
    parser.add_argument(
        "--tick",
        metavar="SECONDS",
        type=_seconds,
        default=2.0,
        help="sessions last 2 to 20 ticks (default 2)",
    )
    parser.add_argument(
        "--ready-fd",
        metavar="N",
        type=int,
        help="write the line about listening to this file descriptor as well, and close it",
    )
    parser.add_argument(
        "--parent-death", action="store_true", help="stop when the starting process ends"
    )
    parser.add_argument(
        "--until-fd",
        metavar="N",
        type=int,
        help="stop when every process that has this pipe's other end has ended",
    )
    return parser.parse_args(argv)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:2181")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.01 to 60")
    return value


class _Directory:
    """The data directory, made if missing, and ours alone while the context lasts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> Path:
        path = self._path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _CannotStart(
                f"cannot write to the data directory {path}: {error.strerror}; "
                "name another with --data, or give this user the right to write there"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise _CannotStart(
                f"the data directory {path} is in use by the server with pid {pid}; "
                "stop that one, or name another directory with --data"
            ) from None
        with suppress(OSError):  # a full disk: the lock holds without the pid
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        return path

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


async def _serve(store: SqliteStore, options: argparse.Namespace) -> None:
    server = Server(store, tick=options.tick, log=_log)
    host, port = options.listen
    try:
        await server.start(host, port)
    except OSError as error:
        raise _CannotStart(_why_not_listening(host, port, error)) from None
    _tune_collector()
    stop = asyncio.get_running_loop().create_future()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(
            signum, lambda: None if stop.done() else stop.set_result(None)
        )
    if options.until_fd is not None:
        asyncio.get_running_loop().add_reader(
            options.until_fd, lambda: None if stop.done() else stop.set_result(None)
        )
    _announce(f"listening on {server.host}:{server.port}\n", options.ready_fd)
    ended = asyncio.ensure_future(server.wait())
    ended.add_done_callback(lambda _: None if stop.done() else stop.set_result(None))
    await stop
    await server.stop()
    await ended


def _why_not_listening(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; stop what listens there, "
            "or name another with --listen HOST:PORT"
        )
    return f"cannot listen on {host}:{port}: {error.strerror or error}; see --listen HOST:PORT"


def _announce(line: str, ready_fd: int | None) -> None:
    with suppress(OSError):  # nobody reads: that stops no server
        os.write(1, line.encode())
    if ready_fd is not None:
        with suppress(OSError):
            os.write(ready_fd, line.encode())
        with suppress(OSError):
            os.close(ready_fd)


def _log(line: str) -> None:
    with suppress(OSError, ValueError):
        print(f"incumbent server: {line}", file=sys.stderr, flush=True)


def _tune_collector() -> None:
    """What was loaded stays: leave it out of collections, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _run(serving: object) -> None:
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run  # type: ignore[assignment]
    run(serving)  # type: ignore[arg-type]


def _die_with_parent() -> None:
    """SIGTERM when the thread that started this process ends."""
    import ctypes

    pr_set_pdeathsig = 1
    parent = os.getppid()
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
