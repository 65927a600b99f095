"""The way into a running server for who owns its data: a socket in the data directory.

Rule of this file: only its owner can open it, and a slow reader slows nobody else down.

A client sends a line and is sent the answer: `backup` gives a copy as bytes (see `copying`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import cast

from incumbent.server.copying import pack_piece
from incumbent.server.sqlite import SqliteStore
from incumbent.unix_socket import socket_name

__all__ = ["CONTROL", "Control"]

CONTROL = "control"


class Control:
    """Listens in `directory`, for who wants a copy of the store."""

    def __init__(self, directory: Path, store: SqliteStore) -> None:
        self._directory = directory
        self._store = store
        self._listener: asyncio.Server | None = None
        self._clients: dict[_Client, None] = {}

    async def start(self) -> None:
        """Raises `OSError`."""
        with suppress(FileNotFoundError):
            (self._directory / CONTROL).unlink()  # of a server that was killed
        listening = socket.socket(socket.AF_UNIX)
        listening.setblocking(False)
        umask = os.umask(0o177)
        try:
            with socket_name(self._directory / CONTROL) as name:
                listening.bind(name)
        finally:
            os.umask(umask)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(
            lambda: _Client(self._store, self._clients), sock=listening
        )

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            with suppress(FileNotFoundError):
                (self._directory / CONTROL).unlink()
        for client in list(self._clients):
            client.abort()


class _Client(asyncio.Protocol):
    """One who asks; a copy goes out as fast as it is read."""

    def __init__(self, store: SqliteStore, clients: dict[_Client, None]) -> None:
        self._store = store
        self._clients = clients
        self._asked = b""
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._clients[self] = None

    def connection_lost(self, _exc: Exception | None) -> None:
        self._clients.pop(self, None)
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._asked == b"backup\n" and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_copy())
        elif not b"backup\n".startswith(self._asked):
            self.abort()

    async def _send_copy(self) -> None:
        try:
            with self._store.copying() as copy:
                await self._store.settled()
                for piece in copy:
                    await self._may_write.wait()
                    assert self._transport is not None, "cancelled when the connection is lost"
                    self._transport.write(pack_piece(piece))
                    await asyncio.sleep(0)
        except Exception:  # a store that fails or is closed: the copy has no end, and shows it
            self.abort()
            return
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
