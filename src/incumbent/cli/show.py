"""Rows as people and programs read them: aligned text, and JSON.

Rule of this file: pure; where it is printed, and in which colours, is the business of `screen`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from incumbent.cli.explain import NodeRow, Row

__all__ = ["NODE_HEADS", "SEAT_HEADS", "age", "node_cells", "plain", "seat_cells", "to_json"]

SEAT_HEADS = (
    "component",
    "state",
    "node",
    "pid",
    "epoch",
    "containment",
    "since",
    "fence in",
    "why",
)
NODE_HEADS = ("node", "state", "runs", "containment", "labels", "since", "why")
_NONE = "–"


def seat_cells(row: Row, now: float) -> tuple[str, ...]:
    """`now`: wall time."""
    return (
        row.name,
        row.state,
        row.node or _NONE,
        str(row.pid) if row.pid else _NONE,
        str(row.epoch) if row.epoch else _NONE,
        row.containment or _NONE,
        age(now - row.since) if row.since else _NONE,
        f"{row.fence:.1f} s" if row.fence is not None else _NONE,
        row.why or _NONE,
    )


def node_cells(row: NodeRow, now: float) -> tuple[str, ...]:
    return (
        row.node,
        row.state,
        ", ".join(row.seats) or _NONE,
        ", ".join(row.containments) or _NONE,
        ", ".join(f"{key}={value}" for key, value in sorted(row.labels.items())) or _NONE,
        age(now - row.since) if row.since else _NONE,
        row.why or _NONE,
    )


def age(seconds: float) -> str:
    """Two figures of it: 7 s, 3 min 05 s, 2 h 10 min, 4 d 3 h."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60:02d} min"
    if minutes:
        return f"{minutes} min {whole % 60:02d} s"
    return f"{whole} s"


def plain(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, one line a row, the last column as long as it is."""
    table = [[head.upper() for head in heads], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join(lines)


def to_json(rows: Sequence[Row | NodeRow]) -> str:
    """A list of objects. Unknown is null; times are ISO 8601 in UTC, durations in seconds."""
    return json.dumps(
        [_seat_object(row) if isinstance(row, Row) else _node_object(row) for row in rows],
        indent=2,
        ensure_ascii=False,
    )


def _seat_object(row: Row) -> dict[str, Any]:
    return {
        "component": row.component,
        "seat": row.seat,
        "state": row.state,
        "node": row.node or None,
        "pid": row.pid or None,
        "epoch": row.epoch or None,
        "containment": row.containment or None,
        "since": _iso(row.since),
        "time_to_fence": None if row.fence is None else round(row.fence, 3),
        "why": row.why or None,
    }


def _node_object(row: NodeRow) -> dict[str, Any]:
    return {
        "node": row.node,
        "state": row.state,
        "runs": list(row.seats),
        "containment": list(row.containments),
        "labels": dict(row.labels),
        "since": _iso(row.since),
        "session": row.session,
        "why": row.why or None,
    }


def _iso(at: float) -> str | None:
    if not at:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
