"""What a server says of itself, as data: behind the four-letter words, JSON and metrics alike.

Rule of this file: names, and which things are counted, are Apache ZooKeeper 3.8's. A report is
made at the beginning of a turn and leaves with it, so that it passes the release gate.
"""

from __future__ import annotations

import os
import pwd
import resource
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from incumbent.server.service import Service
from incumbent.server.traffic import Account, Traffic

__all__ = ["VERSION", "About", "Caller", "Report"]

VERSION = "3.8.0-incumbent-0.1.0, built on -"
"""The version of Apache ZooKeeper that this server does as, and its own."""

_HEADER = struct.Struct(">ii")

_OPERATIONS = {
    -11: "CLOS",
    1: "CREA",
    2: "DELE",
    3: "EXIS",
    4: "GETD",
    5: "SETD",
    6: "GETA",
    7: "SETA",
    8: "GETC",
    9: "SYNC",
    11: "PING",
    12: "GETC",
    13: "CHEC",
    14: "MULT",
    15: "CREA",
    16: "RECO",
    17: "CHKW",
    18: "REMW",
    19: "CREA",
    21: "CREA",
    22: "MLTR",
    101: "SETW",
    103: "GETE",
    104: "GETACN",
    105: "STW2",
    106: "ADDW",
    107: "HOMI",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What stays the same while a server runs.

    sizes  bytes in the data directory and in the log's
    """

    data: str = ""
    data_log: str = ""
    port: int = -1
    tls_port: int = -1
    tick: float = 2.0
    min_timeout: float = 4.0
    max_timeout: float = 40.0
    connections_per_address: int = 0
    started_at: float = 0.0
    sizes: Callable[[], tuple[int, int]] = lambda: (0, 0)


class Caller(Protocol):
    """A connection, as reports see it."""

    session_id: int
    address: str
    port: int
    is_secure: bool
    is_leaving: bool
    account: Account

    @property
    def waiting(self) -> int:
        """Requests that are not yet served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A server at one moment; `now` is boottime, `wall` wall time, in seconds.

    Each method is a command of Apache's admin server and returns what that shows.
    """

    about: About
    service: Service
    traffic: Traffic
    callers: Sequence[Caller]
    now: float
    wall: float

    @property
    def outstanding(self) -> int:
        return sum(caller.waiting for caller in self.callers)

    def server_stats(self) -> dict[str, Any]:
        traffic, sizes = self.traffic, self.about.sizes()
        return {
            "version": VERSION,
            "read_only": not self.service.is_writable,
            "server_stats": {
                "packets_sent": traffic.sent,
                "packets_received": traffic.received,
                "data_dir_size": sizes[0],
                "log_dir_size": sizes[1],
                "server_state": "standalone",
                "last_processed_zxid": self.service.tree.zxid,
                "outstanding_requests": self.outstanding,
                "avg_latency": round(traffic.latency.mean, 4),
                "max_latency": round(traffic.latency.most),
                "min_latency": round(traffic.latency.least),
                "num_alive_client_connections": len(self.callers),
                "uptime": self.uptime_ms,
                "auth_failed_count": self.service.unproven,
            },
            "node_count": len(self.service.tree.nodes),
        }

    def stats(self) -> dict[str, Any]:
        return self.server_stats() | self._callers(_briefly)

    def connections(self) -> dict[str, Any]:
        return self._callers(self.connection)

    def configuration(self) -> dict[str, Any]:
        about = self.about
        return {
            "client_port": about.port,
            "secure_client_port": about.tls_port,
            "data_dir": about.data,
            "data_log_dir": about.data_log,
            "tick_time": round(about.tick * 1000),
            "max_client_cnxns": about.connections_per_address,
            "min_session_timeout": round(about.min_timeout * 1000),
            "max_session_timeout": round(about.max_timeout * 1000),
            "server_id": 0,
            "client_port_listen_backlog": -1,
        }

    def environment(self) -> dict[str, Any]:
        system = os.uname()
        return {
            "zookeeper.version": VERSION,
            "host.name": socket.gethostname(),
            "python.version": sys.version.split()[0],
            "python.implementation": sys.implementation.name,
            "os.name": system.sysname,
            "os.arch": system.machine,
            "os.version": system.release,
            "user.name": _user_name(),
            "user.home": str(Path("~").expanduser()),
            "user.dir": _folder(),
        }

    def is_read_only(self) -> dict[str, Any]:
        return {"read_only": not self.service.is_writable}

    def dump(self) -> dict[str, Any]:
        """Expiry times are milliseconds of boottime."""
        due = self.service.sessions.expiry.due(self.now)
        return {
            "expiry_time_to_session_ids": {
                str(round((self.now + left) * 1000)): ids for left, ids in due
            },
            "session_id_to_ephemeral_paths": {
                str(session_id): list(paths)
                for session_id, paths in self.service.tree.ephemerals.items()
            },
        }

    def watch_summary(self) -> dict[str, Any]:
        by_path = self.service.watches.by_path()
        watchers = [watcher for all_here in by_path.values() for watcher in all_here]
        return {
            "num_connections": len(set(watchers)),
            "num_paths": len(by_path),
            "num_total_watches": len(watchers),
        }

    def watches(self) -> dict[str, Any]:
        """Of znodes' existence and data, which are all that Apache shows."""
        paths: dict[str, list[str]] = {}
        for path, watchers in self.service.watches.by_path().items():
            for watcher in watchers:
                paths.setdefault(str(watcher.session_id), []).append(path)
        return {"session_id_to_watched_paths": paths}

    def watches_by_path(self) -> dict[str, Any]:
        return {
            "path_to_session_ids": {
                path: [watcher.session_id for watcher in watchers]
                for path, watchers in self.service.watches.by_path().items()
            }
        }

    def dirs(self) -> dict[str, Any]:
        data, log = self.about.sizes()
        return {"datadir_size": data, "logdir_size": log}

    def monitor(self) -> dict[str, Any]:
        """The counters of `mntr`, in Apache's order; those that mean nothing here are left out."""
        traffic, tree = self.traffic, self.service.tree
        return {
            "version": VERSION,
            "server_state": "standalone",
            "ephemerals_count": sum(map(len, tree.ephemerals.values())),
            "num_alive_connections": len(self.callers),
            "avg_latency": round(traffic.latency.mean, 4),
            "outstanding_requests": self.outstanding,
            "znode_count": len(tree.nodes),
            "global_sessions": len(tree.sessions),
            "packets_sent": traffic.sent,
            "packets_received": traffic.received,
            "watch_count": len(self.service.watches),
            "auth_failed_count": self.service.unproven,
            "min_latency": round(traffic.latency.least),
            "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "approximate_data_size": tree.size,
            "open_file_descriptor_count": _open_files(),
            "local_sessions": 0,
            "uptime": self.uptime_ms,
            "max_latency": round(traffic.latency.most),
            "connection_rejected": traffic.rejected,
            "sessionless_connections_expired": traffic.stale,
            "bytes_received_count": traffic.bytes_received,
            "connection_request_count": traffic.connects,
            "response_bytes": traffic.bytes_sent,
            "stale_sessions_expired": traffic.expired,
            **_spread("fsynctime", traffic.commits),
            **_spread("sync_processor_batch_size", traffic.batches),
            **_spread("updatelatency", traffic.updates),
            **_spread("readlatency", traffic.reads),
        }

    @property
    def uptime_ms(self) -> int:
        return round((self.now - self.about.started_at) * 1000)

    def _callers(self, show: Callable[[Caller], dict[str, Any]]) -> dict[str, Any]:
        return {
            "connections": [show(caller) for caller in self.callers if not caller.is_secure],
            "secure_connections": [show(caller) for caller in self.callers if caller.is_secure],
        }

    def connection(self, caller: Caller) -> dict[str, Any]:
        account = caller.account
        return _briefly(caller) | {
            "session_id": caller.session_id,
            "last_operation": _operation(account),
            "established": account.since_ms,
            "session_timeout": self.timeout_ms(caller),
            "last_cxid": _HEADER.unpack(account.last)[0] if account.last else -1,
            "last_zxid": account.last_zxid,
            "last_response_time": account.last_ms,
            "last_latency": round(account.last_latency),
            "min_latency": round(account.latency.least),
            "avg_latency": round(account.latency.mean),
            "max_latency": round(account.latency.most),
        }

    def timeout_ms(self, caller: Caller) -> int:
        return round(self.service.sessions.expiry.timeouts.get(caller.session_id, 0) * 1000)


def _operation(account: Account) -> str:
    """The last request's type, as Apache abbreviates it."""
    if not account.last:
        return "SESS" if account.received else "NA"
    return _OPERATIONS.get(_HEADER.unpack(account.last)[1], "NA")


def _place(caller: Caller) -> str:
    """Where it comes from, as HOST:PORT."""
    return f"{caller.address}:{caller.port}"


def _briefly(caller: Caller) -> dict[str, Any]:
    return {
        "remote_socket_address": _place(caller),
        "interest_ops": 0 if caller.is_leaving else 1,
        "outstanding_requests": caller.waiting,
        "packets_received": caller.account.received,
        "packets_sent": caller.account.sent,
    }


def _spread(name: str, spread: Any) -> dict[str, Any]:
    return {
        f"avg_{name}": round(spread.mean, 4),
        f"min_{name}": round(spread.least),
        f"max_{name}": round(spread.most),
        f"cnt_{name}": spread.count,
        f"sum_{name}": round(spread.total),
    }


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it has been deleted meanwhile
        return ""


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.getuid())


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no Path is made for each
    except OSError:
        return -1
