"""The admin endpoint: reports over HTTP, as JSON under /commands/… and for Prometheus at /metrics.

Rule of this file: only what HTTP/1.1 needs for a GET with a short answer. One request for each
connection, a limit for its size and its time, and nothing in it is believed but its path.

The commands are those of Apache ZooKeeper's admin server, with their short names, and answer as
there: 200 with an `error` in the JSON also for a command that does not exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from incumbent.server import metrics, words

if TYPE_CHECKING:
    from incumbent.server.report import Report

__all__ = ["Admin", "Ask"]

Ask: TypeAlias = Callable[[Callable[["Report"], str]], Awaitable[str]]
"""Have the server make a report, and be told what the function makes of it."""

_HEAD_BYTES = 8 * 1024
_SECONDS = 10.0
_CONNECTIONS = 64


class Admin:
    """Listens for HTTP. `ask` raises `ConnectionError` when the server cannot answer."""

    def __init__(self, ask: Ask) -> None:
        self.port = 0
        self._ask = ask
        self._listener: asyncio.Server | None = None
        self._visitors: dict[_Visitor, None] = {}

    async def start(self, host: str, port: int) -> None:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Visitor(self._ask, self._visitors), host, port
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for visitor in list(self._visitors):
            visitor.abort()


class _Visitor(asyncio.Protocol):
    """One connection, one request."""

    def __init__(self, ask: Ask, visitors: dict[_Visitor, None]) -> None:
        self._ask = ask
        self._visitors = visitors
        self._head = b""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._visitors[self] = None
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, self.abort)
        if len(self._visitors) > _CONNECTIONS:
            self.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._visitors.pop(self, None)
        self._transport = None
        for pending in (self._timer, self._task):
            if pending is not None:
                pending.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= _HEAD_BYTES:
            return
        if end < 0 or end > _HEAD_BYTES:
            self._send("431 Request Header Fields Too Large", _TEXT, "the request is too long\n")
            return
        method, _, rest = self._head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            self._send("400 Bad Request", _TEXT, "this is an HTTP/1.1 server\n")
        elif method not in ("GET", "HEAD"):
            self._send(
                "405 Method Not Allowed", _TEXT, "only GET is allowed\n", "Allow: GET, HEAD\r\n"
            )
        else:
            answering = self._answer(target.partition("?")[0], has_body=method == "GET")
            self._task = asyncio.get_running_loop().create_task(answering)

    async def _answer(self, path: str, *, has_body: bool) -> None:
        status, kind = "200 OK", _TEXT
        try:
            if path == "/metrics":
                kind, body = metrics.CONTENT_TYPE, await self._ask(metrics.exposition)
            elif path.startswith("/commands/") and path != "/commands/":
                name = path.removeprefix("/commands/")
                kind, body = "application/json", await self._command(name)
            elif path.rstrip("/") in ("", "/commands"):
                kind, body = "text/html; charset=utf-8", _index()
            else:
                status, body = "404 Not Found", "see /commands and /metrics\n"
        except ConnectionError as error:
            status, body = "503 Service Unavailable", f"{error}\n"
        self._send(status, kind, body, has_body=has_body)

    async def _command(self, name: str) -> str:
        name = _SHORT.get(name, name)
        make = _COMMANDS.get(name)
        if make is None:
            return _json({"command": name, "error": f"Unknown command: {name}"})
        return await self._ask(
            lambda report: _json({**make(report), "command": name, "error": None})
        )

    def _send(
        self, status: str, kind: str, text: str, more: str = "", *, has_body: bool = True
    ) -> None:
        if self._transport is None:
            return
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{more}"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (body if has_body else b""))
        self._transport.close()


_TEXT = "text/plain; charset=utf-8"


def _json(shown: dict[str, Any]) -> str:
    return json.dumps(shown, indent=2, separators=(",", " : ")) + "\n"


def _index() -> str:
    return "".join(
        f'<a href="/commands/{escape(name)}">{escape(name)}</a>\n<br/>\n' for name in _COMMANDS
    )


def _reset_connections(report: Report) -> dict[str, Any]:
    words.reset_connections(report)
    return {}


def _reset(report: Report) -> dict[str, Any]:
    report.traffic.reset()
    return {}


_COMMANDS: dict[str, Callable[[Report], dict[str, Any]]] = {
    "configuration": lambda report: report.configuration(),
    "connection_stat_reset": _reset_connections,
    "connections": lambda report: report.connections(),
    "dirs": lambda report: report.dirs(),
    "dump": lambda report: report.dump(),
    "environment": lambda report: report.environment(),
    "hash": lambda report: {"digests": []},
    "is_read_only": lambda report: report.is_read_only(),
    "monitor": lambda report: report.monitor(),
    "ruok": lambda report: {},
    "server_stats": lambda report: report.server_stats(),
    "stat_reset": _reset,
    "stats": lambda report: report.stats(),
    "watch_summary": lambda report: report.watch_summary(),
    "watches": lambda report: report.watches(),
    "watches_by_path": lambda report: report.watches_by_path(),
}
_SHORT = {
    "conf": "configuration",
    "config": "configuration",
    "crst": "connection_stat_reset",
    "cons": "connections",
    "envi": "environment",
    "isro": "is_read_only",
    "mntr": "monitor",
    "srvr": "server_stats",
    "srst": "stat_reset",
    "stat": "stats",
    "wchs": "watch_summary",
    "wchc": "watches",
    "wchp": "watches_by_path",
}
