"""Which node should have which seat: fair share by count.

Rule of this file: the plan is a function of its arguments alone, and of no order among them.
At rest it moves nothing; a node that joins draws at most ⌈seats/nodes⌉ seats; a seat moves only
where that evens two nodes out by at least two, so that no move is ever worth undoing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from incumbent.agent.tree import SeatPlan

__all__ = ["SeatNeeds", "place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatNeeds:
    """A seat, and what binds it. `owner`: the node that has it now, or would take it next.

    A seat for which nobody stands (no node has what it requires) is no load: `is_load` False.
    One that is in no plan yet has hardly begun: where either may move, it does (`is_new`).
    """

    seat: str
    nodes: Sequence[str] = ()
    owner: str | None = None
    is_load: bool = True
    is_new: bool = False

    def allows(self, node: str) -> bool:
        return not self.nodes or node in self.nodes


def place(
    seats: Sequence[SeatNeeds], nodes: Sequence[str], *, standbys: int = 2
) -> dict[str, SeatPlan]:
    """Seat → node and standbys. A seat that no live node may have is left out."""
    wanted = sorted(seats, key=lambda needs: needs.seat)
    live = sorted(nodes)
    allowed = {s.seat: [n for n in live if s.allows(n)] for s in wanted}
    target = {s.seat: s.owner for s in wanted if s.owner in allowed[s.seat]}
    counted = {s.seat for s in wanted if s.is_load}
    load = {n: sum(target[s] == n for s in sorted(counted & target.keys())) for n in live}

    for needs in wanted:
        if needs.seat not in target and allowed[needs.seat]:
            node = min(allowed[needs.seat], key=lambda n: (load[n], n))
            target[needs.seat] = node
            load[node] += needs.is_load

    movable = {seat: node for seat, node in target.items() if seat in counted}
    new = {s.seat for s in wanted if s.is_new}
    while (move := _best_move(movable, allowed, load, new)) is not None:
        seat, node = move
        load[movable[seat] or ""] -= 1
        load[node] += 1
        target[seat] = movable[seat] = node

    return {
        seat: SeatPlan(node=node, standbys=_standbys(seat, node, allowed[seat], standbys))
        for seat, node in sorted(target.items())
        if node is not None
    }


def _best_move(
    target: Mapping[str, str | None],
    allowed: Mapping[str, Sequence[str]],
    load: Mapping[str, int],
    new: Container[str],
) -> tuple[str, str] | None:
    """The move that evens out most; among equals of a new seat, then the first by name. None
    where none does.
    """
    best: tuple[int, bool, str, str] | None = None
    for seat in sorted(target):
        here = target[seat] or ""
        for node in allowed[seat]:
            gain = load[here] - load[node]
            move = (-gain, seat not in new, seat, node)
            if gain >= 2 and (best is None or move < best):
                best = move
    return None if best is None else (best[2], best[3])


def _standbys(seat: str, node: str, allowed: Sequence[str], count: int) -> list[str]:
    """Rendezvous hashing: spread over the nodes, and stable when others come and go."""
    others = [n for n in allowed if n != node]
    others.sort(key=lambda n: (hashlib.blake2b(f"{seat}\0{n}".encode()).digest(), n))
    return others[:count]
