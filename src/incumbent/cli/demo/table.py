"""The demo's table: a column for each node, a row for each thing that runs there.

               n1          n2          n3          epoch  work
    guardian   17701       17702       17703
    agent      17710       17711       17712
    redis      17720       next                        1  counts 153

Rule of this file: pure; what is known goes in, cells come out, each a text and a style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from incumbent.cli.explain import Row

__all__ = ["Cell", "NodeNow", "Now", "SeatNow", "plain_table", "table"]

Cell = tuple[str, str]

_NOTHING: Cell = ("·", "dim")
_KILLED: Cell = ("killed", "red")
_GONE: Cell = ("gone", "dim")
_NAME, _NODE, _EPOCH = 9, 11, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """A node's two processes: their pids, 0 for one that does not live."""

    name: str
    guardian: int = 0
    agent: int = 0
    killed: Sequence[str] = ()
    """Which of them the demo has killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatNow:
    """A seat: its row of `status`, the nodes in line for it, and whether its process lives."""

    row: Row
    line: Sequence[str] = ()
    is_alive: bool = True
    work: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """All that is known at one moment."""

    nodes: Sequence[NodeNow] = ()
    seats: Mapping[str, SeatNow]

    def row(self, name: str) -> Row:
        return self.seats[name].row

    def runs(self, name: str, node: str | None = None) -> bool:
        """Whether it runs, and on this node."""
        row = self.seats[name].row
        is_running = row.state == "running" and self.seats[name].is_alive
        return is_running and node in (None, row.node)

    def on(self, node: str) -> list[str]:
        """The components that run on a node."""
        return [name for name in self.seats if self.runs(name, node)]


def table(now: Now) -> list[list[Cell]]:
    """Lines of cells, each padded to its column."""
    heads = ["", *(node.name for node in now.nodes), "epoch", "work"]
    lines = [[(head, "bold") for head in heads]]
    for what in ("guardian", "agent"):
        cells = [_process(what, getattr(node, what), node) for node in now.nodes]
        lines.append([(what, ""), *cells, ("", ""), ("", "")])
    lines += [_seat_line(name, seat, now.nodes) for name, seat in now.seats.items()]
    return [[_padded(cell, i, len(heads)) for i, cell in enumerate(line)] for line in lines]


def plain_table(now: Now) -> list[str]:
    """The same as text."""
    return ["".join(text for text, _ in line).rstrip() for line in table(now)]


def _process(what: str, pid: int, node: NodeNow) -> Cell:
    if pid:
        return (str(pid), "")
    return _KILLED if what in node.killed else _GONE


def _seat_line(name: str, seat: SeatNow, nodes: Sequence[NodeNow]) -> list[Cell]:
    row = seat.row
    waiting = [node for node in seat.line if node != row.node]
    cells = []
    for node in nodes:
        if node.name == row.node and row.pid:
            cells.append(_program(seat))
        elif waiting[:1] == [node.name]:
            cells.append(("next", "cyan"))
        else:
            cells.append(_NOTHING)
    epoch = str(row.epoch) if row.epoch else "–"
    return [(name, "bold"), *cells, (epoch, ""), (seat.work or "does not answer", _tone(seat))]


def _program(seat: SeatNow) -> Cell:
    if not seat.is_alive:
        return _KILLED
    if seat.row.state == "running":
        return (str(seat.row.pid), "green")
    return (seat.row.state, "yellow")


def _tone(seat: SeatNow) -> str:
    return "" if seat.work else "yellow"


def _padded(cell: Cell, column: int, columns: int) -> Cell:
    text, style = cell
    if column == columns - 1:
        return cell
    if column == columns - 2:
        return (text.rjust(_EPOCH) + "  ", style)
    return (text.ljust(_NODE if column else _NAME), style)
