"""A report for Prometheus, in its text format.

Rule of this file: a metric that Apache ZooKeeper's exporter has under a name is here under the
same name only if it means the same; ours alone begin with `incumbent_`.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incumbent.server.report import Report

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS = frozenset(
    {
        "connection_rejected",
        "sessionless_connections_expired",
        "bytes_received_count",
        "connection_request_count",
        "response_bytes",
        "stale_sessions_expired",
    }
)
_TEXTS = ("version", "server_state")
_SPREADS = ("avg_", "min_", "max_", "cnt_", "sum_")


def exposition(report: Report) -> str:
    """All metrics of one moment."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    shown = report.monitor()
    spreads = [name.removeprefix("cnt_") for name in shown if name.startswith("cnt_")]
    parts = {prefix + name for name in spreads for prefix in _SPREADS}
    for name, value in shown.items():
        if name not in parts and name not in _TEXTS:
            yield from _metric(name, "counter" if name in _COUNTERS else "gauge", value)
    for name in spreads:
        yield f"# TYPE {name} summary"
        yield f"{name}_count {shown[f'cnt_{name}']}"
        yield f"{name}_sum {shown[f'sum_{name}']}"
    yield from _metric("incumbent_writable", "gauge", int(report.service.is_writable))
    yield from _metric("incumbent_last_zxid", "gauge", report.service.tree.zxid)
    yield from _process(report)


def _metric(name: str, kind: str, value: Any) -> tuple[str, str]:
    return f"# TYPE {name} {kind}", f"{name} {value}"


def _process(report: Report) -> Iterator[str]:
    yield from _metric("process_cpu_seconds_total", "counter", round(time.process_time(), 3))
    started = report.wall - report.uptime_ms / 1000
    yield from _metric("process_start_time_seconds", "gauge", round(started, 3))
    shown = report.monitor()
    yield from _metric("process_open_fds", "gauge", shown["open_file_descriptor_count"])
    yield from _metric("process_max_fds", "gauge", shown["max_file_descriptor_count"])
    try:
        with open("/proc/self/statm") as statm:
            pages = [int(number) for number in statm.read().split()[:2]]
    except OSError:  # not Linux: there is only the largest size so far, in KB
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield from _metric("process_resident_memory_bytes", "gauge", resident)
        return
    page = os.sysconf("SC_PAGE_SIZE")
    yield from _metric("process_virtual_memory_bytes", "gauge", pages[0] * page)
    yield from _metric("process_resident_memory_bytes", "gauge", pages[1] * page)
