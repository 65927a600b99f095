"""A script for raw clients, played on one server and written down line by line.

Rule of this file: what must be equal on two servers is written; what may differ (session ids,
times, the absolute zxids) is written as a name that is equal if and only if its role is:
session ids as s1, s2, … in order of appearance, zxids as their rank among all that were shown.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from tests.conformance.raw import Closed, RawClient, Reply

from incumbent.wire import (
    Acl,
    AclAndStat,
    ChildrenAndStat,
    CloseSession,
    Created,
    DataAndStat,
    Delete,
    GetChildren,
    Id,
    OpError,
    Request,
    Stat,
    WatchEvent,
)
from incumbent.wire.protocol import CONTAINER_OWNER

__all__ = ["Actor", "Stage"]


class Stage:
    """One play on one server. `root` is a znode path for the script alone, not made yet."""

    def __init__(self, host: str, port: int, root: str) -> None:
        self.host = host
        self.port = port
        self.root = root
        self._lines: list[str] = []
        self._sessions: dict[int, str] = {}
        self._clients: list[RawClient] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._sweep()
        finally:
            self.leave()

    def leave(self) -> None:
        """Close every connection; sessions and znodes stay."""
        for client in self._clients:
            client.close()

    def actor(self, name: str, *, timeout_ms: int = 10_000) -> Actor:
        """A client with a session of its own."""
        client = self.client()
        client.connect(timeout_ms=timeout_ms)
        return Actor(self, name, client)

    def client(self) -> RawClient:
        """A connection without a session; closed at the end."""
        client = RawClient(self.host, self.port)
        self._clients.append(client)
        return client

    def write(self, line: str) -> None:
        self._lines.append(line)

    def script(self) -> list[str]:
        """Everything that was written, zxids ranked."""
        text = "\n".join(self._lines)
        seen = sorted({int(z) for z in re.findall(r"⟨(-?\d+)⟩", text)})
        rank = {zxid: f"z{i}" for i, zxid in enumerate(seen)}
        return re.sub(r"⟨(-?\d+)⟩", lambda m: rank[int(m[1])], text).split("\n")

    def show(self, value: Any) -> str:
        match value:
            case Stat():
                return self._show_stat(value)
            case DataAndStat(data, stat):
                return f"{data!r} {self.show(stat)}"
            case Created(path, stat):
                return f"{self.show(path)} {self.show(stat)}"
            case ChildrenAndStat(children, stat):
                return f"{sorted(children)} {self.show(stat)}"
            case WatchEvent(kind, state, path):
                return f"{kind.name}/{state.name} {self.show(path)}"
            case AclAndStat(acl, stat):
                return f"{self.show(sorted(acl))} {self.show(stat)}"
            case Acl(perms, scheme, name):
                return f"{scheme}:{name}:{perms}"
            case Id(scheme, name):
                return f"{scheme}:{name}"
            case OpError(code):
                return f"error {code}"
            case list():
                shown = [self.show(item) for item in value]
                is_names = all(isinstance(item, str | Id) for item in value)
                return f"[{', '.join(sorted(shown) if is_names else shown)}]"
            case str():
                return "'" + value.replace(self.root, "~") + "'"
        return repr(value)

    def _show_stat(self, stat: Stat) -> str:
        owner = "container" if stat.ephemeralOwner == CONTAINER_OWNER else str(stat.ephemeralOwner)
        if stat.ephemeralOwner > 0:
            owner = self._sessions.setdefault(stat.ephemeralOwner, f"s{len(self._sessions) + 1}")
        has_time = "t" if stat.ctime and stat.mtime >= stat.ctime else "0"
        return (
            f"(c⟨{stat.czxid}⟩ m⟨{stat.mzxid}⟩ p⟨{stat.pzxid}⟩ {has_time} v{stat.version} "
            f"cv{stat.cversion} av{stat.aversion} {owner} len{stat.dataLength} n{stat.numChildren})"
        )

    def _sweep(self) -> None:
        """Delete what the script left, for the next test's sake."""
        with RawClient.connected(self.host, self.port) as client:

            def sweep(path: str) -> None:
                for name in client.call(GetChildren(path)).value or ():
                    sweep(f"{path}/{name}")
                client.call(Delete(path))

            sweep(self.root)


class Actor:
    """A client on stage: what it does and gets is written down under its name."""

    def __init__(self, stage: Stage, name: str, client: RawClient) -> None:
        self.stage = stage
        self.name = name
        self.client = client
        self._last_zxid = 0

    def do(self, request: Request, xid: int | None = None) -> Reply:
        """One request and its reply; events that came before the reply are written first."""
        what = type(request).__name__
        if request.where:
            what += " " + request.where.replace(self.stage.root, "~")
        reply = self.client.call(request, xid)
        # the znodes of a session go in no certain order
        self._write_events(in_order=not isinstance(request, CloseSession))
        shown = f"error {reply.err}" if reply.err else self.stage.show(reply.value)
        if reply.err and reply.body:
            shown += f" and {len(reply.body)} bytes"
        self.stage.write(f"{self.name}: {what} → {shown}")
        if reply.zxid > 0:
            assert reply.zxid >= self._last_zxid, "the zxid of replies went back"
            self._last_zxid = reply.zxid
        return reply

    def event(self) -> WatchEvent:
        """Wait for one event."""
        event = self.client.event()
        self.stage.write(f"{self.name}: ! {self.stage.show(event)}")
        return event

    def reconnect(self) -> None:
        """The same session on another connection."""
        before = self.client.session
        assert before is not None
        self.client.close()
        self.client = self.stage.client()
        answer = self.client.connect(session_id=before.session_id, password=before.password)
        assert answer.session_id == before.session_id, "the session was lost"
        self.stage.write(f"{self.name}: connected again")

    def raw(self, body: bytes) -> None:
        """Any frame, and what comes of it."""
        self.client.send(body)
        self.outcome()

    def outcome(self) -> None:
        """A reply to nothing known, or the end of the connection."""
        try:
            reply = self.client.reply()
        except (Closed, OSError) as end:
            self._write_events()
            self.stage.write(f"{self.name}: {'closed' if isinstance(end, Closed) else end}")
        else:
            self._write_events()
            is_known = "zxid" if reply.zxid > 0 else str(reply.zxid)
            self.stage.write(
                f"{self.name}: xid {reply.xid} {is_known} err {reply.err} {reply.body.hex()}"
            )

    def _write_events(self, *, in_order: bool = True) -> None:
        lines = [self.stage.show(event) for event in self.client.events]
        self.client.events.clear()
        for line in lines if in_order else sorted(lines):
            self.stage.write(f"{self.name}: ! {line}")
