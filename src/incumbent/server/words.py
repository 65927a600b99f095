"""Four-letter words: a report as text, on the client port.

Rule of this file: the answers are Apache ZooKeeper's, line by line, since tools read them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from incumbent.server.report import Caller, Report

__all__ = ["DEFAULT_WORDS", "WORDS", "answer", "reset_connections"]

WORDS = frozenset(
    b"ruok srvr stat mntr cons conf envi isro dump wchs wchc wchp crst srst dirs hash".split()
)
"""As a frame's length they would be over a gigabyte."""

DEFAULT_WORDS = frozenset({"srvr", "ruok"})
"""Answered unless told otherwise. Apache's default is srvr alone; ruok shows nothing either."""


def answer(word: bytes, report: Report, allowed: Container[str]) -> bytes:
    """What is sent for a word before the connection is closed."""
    name = word.decode()
    if name not in allowed:
        return f"{name} is not executed because it is not in the whitelist.\n".encode()
    return _ANSWERS[name](report).encode()


def _srvr(report: Report) -> str:
    stats = report.server_stats()
    return f"Zookeeper version: {stats['version']}\n" + _counts(report)


def _stat(report: Report) -> str:
    version = report.server_stats()["version"]
    clients = "".join(f"{_client(caller)})\n" for caller in report.callers)
    return f"Zookeeper version: {version}\nClients:\n{clients}\n" + _counts(report)


def _counts(report: Report) -> str:
    all_stats = report.server_stats()
    stats = all_stats["server_stats"]
    latencies = (stats[f"{which}_latency"] for which in ("min", "avg", "max"))
    return (
        f"Latency min/avg/max: {'/'.join(map(str, latencies))}\n"
        f"Received: {stats['packets_received']}\n"
        f"Sent: {stats['packets_sent']}\n"
        f"Connections: {stats['num_alive_client_connections']}\n"
        f"Outstanding: {stats['outstanding_requests']}\n"
        f"Zxid: {stats['last_processed_zxid']:#x}\n"
        f"Mode: {stats['server_state']}\n"
        f"Node count: {all_stats['node_count']}\n"
    )


def _mntr(report: Report) -> str:
    return "".join(f"zk_{name}\t{value}\n" for name, value in report.monitor().items())


def _client(caller: Caller) -> str:
    """A connection, up to what only `cons` shows."""
    interest = 0 if caller.is_leaving or not caller.session_id else 1
    account = caller.account
    return (
        f" /{caller.address}:{caller.port}[{interest}](queued={caller.waiting},"
        f"recved={account.received},sent={account.sent}"
    )


def _cons(report: Report) -> str:
    lines = []
    for caller in report.callers:
        full = report.connection(caller)
        line = _client(caller)
        if caller.session_id:
            line += (
                f",sid={caller.session_id:#x},lop={full['last_operation']}"
                f",est={full['established']},to={full['session_timeout']}"
            )
            if full["last_cxid"] >= 0:
                line += f",lcxid={full['last_cxid']:#x}"
            line += (
                f",lzxid={full['last_zxid'] & 0xFFFF_FFFF_FFFF_FFFF:#x}"
                f",lresp={full['last_response_time']},llat={full['last_latency']}"
                f",minlat={full['min_latency']},avglat={full['avg_latency']}"
                f",maxlat={full['max_latency']}"
            )
        lines.append(f"{line})\n")
    return "".join(lines) + "\n"


def _conf(report: Report) -> str:
    shown, sizes = report.configuration(), report.dirs()
    return (
        f"clientPort={shown['client_port']}\n"
        f"secureClientPort={shown['secure_client_port']}\n"
        f"dataDir={shown['data_dir']}\n"
        f"dataDirSize={sizes['datadir_size']}\n"
        f"dataLogDir={shown['data_log_dir']}\n"
        f"dataLogSize={sizes['logdir_size']}\n"
        f"tickTime={shown['tick_time']}\n"
        f"maxClientCnxns={shown['max_client_cnxns']}\n"
        f"minSessionTimeout={shown['min_session_timeout']}\n"
        f"maxSessionTimeout={shown['max_session_timeout']}\n"
        f"clientPortListenBacklog={shown['client_port_listen_backlog']}\n"
        f"serverId={shown['server_id']}\n"
    )


def _envi(report: Report) -> str:
    lines = (f"{name}={value}\n" for name, value in report.environment().items())
    return "Environment:\n" + "".join(lines)


def _isro(report: Report) -> str:
    return "ro" if report.is_read_only()["read_only"] else "rw"


def _dump(report: Report) -> str:
    due = report.service.sessions.expiry.due(report.now)
    lines = ["SessionTracker dump:", f"Session Sets ({len(due)})/({sum(len(i) for _, i in due)}):"]
    for left, ids in due:
        lines += [f"{len(ids)} expire at {_date(report.wall + left)}:"]
        lines += [f"\t{session_id:#x}" for session_id in ids]
    ephemerals = report.service.tree.ephemerals
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(ephemerals)}):"]
    for session_id, paths in ephemerals.items():
        lines += [f"{session_id:#x}:", *(f"\t{path}" for path in paths)]
    sets: dict[float, list[Caller]] = {}
    ends = {session_id: left for left, ids in due for session_id in ids}
    for caller in report.callers:
        sets.setdefault(ends.get(caller.session_id, 0.0), []).append(caller)
    lines += ["Connections dump:", f"Connections Sets ({len(sets)})/({len(report.callers)}):"]
    for left, callers in sorted(sets.items()):
        lines += [f"{len(callers)} expire at {_date(report.wall + left)}:"]
        lines += [f"\tip: /{c.address}:{c.port} sessionId: {c.session_id:#x}" for c in callers]
    return "".join(f"{line}\n" for line in lines)


def _date(wall: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(wall))


def _wchs(report: Report) -> str:
    shown = report.watch_summary()
    return (
        f"{shown['num_connections']} connections watching {shown['num_paths']} paths\n"
        f"Total watches:{shown['num_total_watches']}\n"
    )


def _wchc(report: Report) -> str:
    lines = []
    for session_id, paths in report.watches()["session_id_to_watched_paths"].items():
        lines += [f"{int(session_id):#x}", *(f"\t{path}" for path in paths)]
    return "".join(f"{line}\n" for line in lines) + "\n"


def _wchp(report: Report) -> str:
    lines = []
    for path, ids in report.watches_by_path()["path_to_session_ids"].items():
        lines += [path, *(f"\t{session_id:#x}" for session_id in ids)]
    return "".join(f"{line}\n" for line in lines) + "\n"


def reset_connections(report: Report) -> str:
    for caller in report.callers:
        caller.account.reset()
    return "Connection stats reset.\n"


def _srst(report: Report) -> str:
    report.traffic.reset()
    return "Server stats reset.\n"


def _dirs(report: Report) -> str:
    return "".join(f"{name}: {value}\n" for name, value in report.dirs().items())


_ANSWERS: dict[str, Callable[[Report], str]] = {
    "ruok": lambda report: "imok",
    "srvr": _srvr,
    "stat": _stat,
    "mntr": _mntr,
    "cons": _cons,
    "conf": _conf,
    "envi": _envi,
    "isro": _isro,
    "dump": _dump,
    "wchs": _wchs,
    "wchc": _wchc,
    "wchp": _wchp,
    "crst": reset_connections,
    "srst": _srst,
    "dirs": _dirs,
    "hash": lambda report: "",  # digests of the tree, which Apache keeps none of by default
}
