"""The server's process: what it serves with, its signals, its lines, the collector.

Rule of this file: whatever is wrong before it listens is one sentence that names the next step,
and exit code 2. Imports are few: it has to be there within a tenth of a second.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from incumbent.clock import SYSTEM
from incumbent.parent import end_with
from incumbent.server.config import Address, BadSettings, Settings, read_settings
from incumbent.server.control import Control
from incumbent.server.directory import CannotStart, Directory
from incumbent.server.policy import Policy
from incumbent.server.server import Server
from incumbent.server.sqlite import SqliteStore
from incumbent.server.store import StoreFailed

if TYPE_CHECKING:
    import ssl

    from incumbent.server.admin import Admin
    from incumbent.server.report import About

__all__ = ["main"]

_USAGE = 2


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT, or carry out `backup` or `restore`; returns the exit code."""
    log = _log_text
    try:
        if argv[:1] and argv[0] in ("backup", "restore"):
            from incumbent.server.backup import run_command

            print(run_command(argv), flush=True)
            return 0
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it listens, Ctrl-C simply ends it
        settings = read_settings(argv, os.environ)
        log = _log_json if settings.log_format == "json" else _log_text
        for warning in settings.warnings:
            log(f"warning: {warning}")
        if settings.parent_death is not None:
            end_with(settings.parent_death)
        with Directory(settings.data, log=settings.data_log) as directory:
            directory.make_database()
            store = SqliteStore(directory.database)
            _run(_serve(store, directory, settings, log))
    except StoreFailed as error:
        log(f"{error}; put a copy of it back, or name another directory with --data")
        return _USAGE
    except (BadSettings, CannotStart) as error:
        log(str(error))
        return _USAGE
    return 0


async def _serve(
    store: SqliteStore, directory: Directory, settings: Settings, log: Callable[[str], None]
) -> None:
    tls = _tls(settings)
    policy = _policy(settings)
    server = Server(store, tick=settings.tick, log=log, policy=policy)
    server.words = settings.words
    gc.disable()  # loading makes no garbage: a million znodes are there in half the time
    first = settings.listen or settings.tls_listen
    assert first is not None, "settings name an address"
    flag = "--listen"
    try:
        sock = None if settings.listen_fd is None else socket.socket(fileno=settings.listen_fd)
        await server.start(*first, tls=None if settings.listen else tls, sock=sock)
        secure_port = server.port if settings.listen is None else -1
        if settings.listen and settings.tls_listen:
            first, flag = settings.tls_listen, "--tls-listen"
            host, secure_port = await server.listen(*first, tls=tls)
            log(f"listening with TLS on {Address(host, secure_port)}")
        admin = None
        if settings.admin is not None:
            first, flag = settings.admin, "--admin"
            admin = await _start_admin(server, first)
            log(f"admin endpoint at http://{Address(first.host, admin.port)}/commands and /metrics")
    except OSError as error:
        raise CannotStart(_why_not_listening(first, flag, error)) from None
    ports = (server.port if settings.listen else -1, secure_port)
    started_at = SYSTEM.boottime()
    server.about = lambda: _about(server, directory, ports, started_at)
    control = await _start_control(directory, store, log)
    _tune_collector()
    stop = asyncio.get_running_loop().create_future()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(
            signum, lambda: None if stop.done() else stop.set_result(None)
        )
    if settings.until_fd is not None:
        asyncio.get_running_loop().add_reader(
            settings.until_fd, lambda: None if stop.done() else stop.set_result(None)
        )
    _announce(f"listening on {server.host}:{server.port}\n", settings.ready_fd)
    ended = asyncio.ensure_future(server.wait())
    ended.add_done_callback(lambda _: None if stop.done() else stop.set_result(None))
    await stop
    for other in (admin, control):
        if other is not None:
            other.stop()
    await server.stop()
    await ended


def _about(
    server: Server, directory: Directory, ports: tuple[int, int], started_at: float
) -> About:
    from incumbent.server.report import About

    shortest, longest = server.policy.timeouts(server.tick)
    return About(
        data=str(directory.path.absolute()),
        data_log=str(directory.database.parent.absolute()),
        port=ports[0],
        tls_port=ports[1],
        tick=server.tick,
        min_timeout=shortest,
        max_timeout=longest,
        connections_per_address=server.policy.connections_per_address,
        started_at=started_at,
        sizes=directory.sizes,
    )


def _policy(settings: Settings) -> Policy:
    schemes = []
    if settings.client_auth != "none":
        schemes.append("x509")
    if settings.sasl_users is not None:
        schemes.append("sasl")
    return Policy(
        min_timeout=settings.min_timeout,
        max_timeout=settings.max_timeout,
        connections_per_address=settings.connections_per_address,
        frame_bytes=settings.frame_bytes,
        super_digest=settings.super_digest,
        ttl_znodes=settings.ttl_znodes,
        schemes=tuple(schemes),
        sasl=None if settings.sasl_users is None else _users(settings.sasl_users),
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    from incumbent.certificates import TlsRefused, server_context

    try:
        return server_context(
            settings.tls_cert,
            settings.tls_key,
            ca=settings.tls_ca,
            client_auth=settings.client_auth,
            password=settings.tls_password,
        )
    except TlsRefused as error:
        raise CannotStart(str(error)) from None


def _users(path: Path) -> dict[str, bytes]:
    """Secrets by name, of lines NAME:PASSWORD."""
    from incumbent.server.sasl import secret_of

    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotStart(f"cannot read {path}: {why}; see --sasl-users") from None
    if mode & 0o077:
        raise CannotStart(
            f"{path} has passwords in it and others may open it (mode {mode:04o}); chmod 600 {path}"
        )
    secrets: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise CannotStart(f"{path}: line {number} is not NAME:PASSWORD; see --sasl-users")
        if name in secrets:
            raise CannotStart(f"{path}: line {number} names {name!r} a second time")
        secrets[name] = secret_of(name, password)
    return secrets


async def _start_admin(server: Server, address: Address) -> Admin:
    from incumbent.server.admin import Admin

    admin = Admin(server.ask)
    await admin.start(*address)
    return admin


async def _start_control(
    directory: Directory, store: SqliteStore, log: Callable[[str], None]
) -> Control | None:
    """Without it there is no backup of the running server, which is no reason not to serve."""
    control = Control(directory.path, store)
    try:
        await control.start()
    except OSError as error:
        log(f"warning: no backup while this server runs: {error.strerror or error}")
        return None
    return control


def _why_not_listening(address: Address, flag: str, error: OSError) -> str:
    host, port = address
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; stop what listens there, "
            f"or name another with {flag} HOST:PORT"
        )
    return f"cannot listen on {host}:{port}: {error.strerror or error}; see {flag} HOST:PORT"


def _announce(line: str, ready_fd: int | None) -> None:
    with suppress(OSError):  # nobody reads: that stops no server
        os.write(1, line.encode())
    if ready_fd is not None:
        with suppress(OSError):
            os.write(ready_fd, line.encode())
        with suppress(OSError):
            os.close(ready_fd)


def _log_text(line: str) -> None:
    with suppress(OSError, ValueError):
        print(f"incumbent server: {line}", file=sys.stderr, flush=True)


def _log_json(line: str) -> None:
    """One object for each event: `time` in UTC, `level` alarm, warning or info, `event`."""
    import json

    level = next((one for one in ("alarm", "warning") if line.lower().startswith(f"{one}: ")), "")
    now = time.time()
    shown = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        + f".{int(now % 1 * 1000):03d}Z",
        "level": level or "info",
        "event": line[len(level) + 2 :] if level else line,
        "pid": os.getpid(),
    }
    with suppress(OSError, ValueError):
        print(json.dumps(shown), file=sys.stderr, flush=True)


def _tune_collector() -> None:
    """What was loaded stays: leave it out of collections, and collect rarely."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


def _run(serving: object) -> None:
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run  # type: ignore[assignment]
    run(serving)  # type: ignore[arg-type]
