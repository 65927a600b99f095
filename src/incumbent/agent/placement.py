"""Which node should have which seat: fair share by count.

Rule of this file: the plan is a function of its arguments alone, and of no order among them.
At rest it moves nothing; a node that joins draws at most ⌈seats/nodes⌉ seats; a seat moves only
where that evens two nodes out by at least two, so that no move is ever worth undoing. What an
operator moved stays, as long as its node lives and may have it, and no other seat moves for it: it
counts where it was taken from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from incumbent.agent.tree import SeatPlan

__all__ = ["SeatNeeds", "best_other", "place", "standbys"]

STANDBYS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatNeeds:
    """A seat, and what binds it. `owner`: the node that has it now, or would take it next.

    A seat for which nobody stands (no node has what it requires) is no load: `is_load` False.
    One that is in no plan yet has hardly begun: where either may move, it does (`is_new`).
    `taken_from`: an operator moved it to its owner, from there. `stays`: it is frozen.
    """

    seat: str
    nodes: Sequence[str] = ()
    owner: str | None = None
    is_load: bool = True
    is_new: bool = False
    taken_from: str = ""
    stays: bool = False

    def allows(self, node: str) -> bool:
        return not self.nodes or node in self.nodes


def place(seats: Sequence[SeatNeeds], nodes: Sequence[str]) -> dict[str, SeatPlan]:
    """Seat → node and standbys. A seat that no live node may have is left out."""
    wanted = sorted(seats, key=lambda needs: needs.seat)
    live = sorted(nodes)
    allowed = {s.seat: [n for n in live if s.allows(n)] for s in wanted}
    target = {s.seat: s.owner for s in wanted if s.owner in allowed[s.seat]}
    taken_from = {s.seat: s.taken_from for s in wanted if s.taken_from and s.seat in target}
    counted = {s.seat for s in wanted if s.is_load}
    counts_at = {s: taken_from[s] if taken_from.get(s) in live else n for s, n in target.items()}
    load = {n: sum(counts_at[s] == n for s in sorted(counted & target.keys())) for n in live}

    for needs in wanted:
        if needs.seat not in target and allowed[needs.seat]:
            node = min(allowed[needs.seat], key=lambda n: (load[n], n))
            target[needs.seat] = node
            load[node] += needs.is_load

    held = {s.seat for s in wanted if s.stays} | taken_from.keys()
    movable = {seat: node for seat, node in target.items() if seat in counted - held}
    new = {s.seat for s in wanted if s.is_new}
    while (move := _best_move(movable, allowed, load, new)) is not None:
        seat, node = move
        load[movable[seat] or ""] -= 1
        load[node] += 1
        target[seat] = movable[seat] = node

    return {
        seat: SeatPlan(
            node=node,
            standbys=standbys(seat, node, allowed[seat]),
            taken_from=taken_from.get(seat, ""),
        )
        for seat, node in sorted(target.items())
        if node is not None
    }


def best_other(
    seat: str, here: str, plan: Mapping[str, SeatPlan], may: Sequence[str]
) -> str | None:
    """Of the nodes that `may` have a seat, the one with least to do that is not `here`."""
    load = {n: sum(each.node == n for s, each in plan.items() if s != seat) for n in may}
    return min((n for n in sorted(may) if n != here), key=lambda n: load[n], default=None)


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


def standbys(seat: str, node: str, allowed: Sequence[str]) -> list[str]:
    """Rendezvous hashing: spread over the nodes, and stable when others come and go."""
    others = [n for n in allowed if n != node]
    others.sort(key=lambda n: (hashlib.blake2b(f"{seat}\0{n}".encode()).digest(), n))
    return others[:STANDBYS]
