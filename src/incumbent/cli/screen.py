"""The terminal: tables in colour where someone looks, plain text where it is piped.

Rule of this file: the same words either way; only width and colour differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from incumbent.cli.show import plain

__all__ = ["STYLES", "print_table"]

STYLES = {
    "running": "green",
    "ready": "green",
    "live": "green",
    "ok": "green",
    "created": "green",
    "starting": "cyan",
    "changed": "cyan",
    "stopping": "yellow",
    "waiting": "yellow",
    "backoff": "yellow",
    "unproven": "yellow",
    "note": "yellow",
    "stuck": "bold red",
    "gone": "red",
    "unreadable": "bold red",
    "wrong": "bold red",
}


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """On stdout. The last column is wrapped to the terminal's width."""
    if not sys.stdout.isatty():
        print(plain(heads, rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        is_last = head == heads[-1]
        table.add_column(head.upper(), no_wrap=not is_last, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)
