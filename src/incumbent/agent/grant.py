"""The handover in one transaction: whoever gives a seat up writes the next one's start.

    next in line:  its candidate carries an offer: the breadcrumb that it would write, and the
                   operators' word as it knows it
    leaving:       one multi: all that the next one's start would write and check (start.py),
                   the offer at the version that was read, and the end of what is ours
    next in line:  our candidate is deleted; the seat bears the nonce of its offer: it may start

A handover by two transactions, one after the other, takes twice as long. If anything has changed
since it was read, the multi is refused, and the seat is given up without a grant.

Rule of this file: a grant is a whole start or nothing, of an offer that stands at that moment.
It is made only by the leader, after the proof of death, and recognized by its nonce alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from incumbent.agent.start import start_ops, together
from incumbent.agent.tree import Candidate, Offer, SeatRecord, Tree, UnreadableZnode, read
from incumbent.agent.view import patient
from incumbent.client import Client
from incumbent.errors import NoNode
from incumbent.recipes.dialects import OURS
from incumbent.recipes.place import Place, join
from incumbent.wire import Check, MultiOp

__all__ = ["Grant", "read_offer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """To whom a seat could go, as read while its leader still has it.

    path, version   the next one's candidate
    seat_version    the seat's, after our own start
    """

    candidate: Candidate
    offer: Offer
    path: str
    version: int
    epoch: int
    seat_version: int

    def ops(self, tree: Tree, seat: str) -> list[MultiOp]:
        """What starts the next one, to go into one multi with the end of what is ours."""
        component = seat.rpartition("/")[0]
        crumb = msgspec.structs.replace(self.offer.breadcrumb, epoch=self.epoch)
        return [
            Check(self.path, self.version),
            Check(tree.control, self.offer.control),
            Check(tree.desired(component), self.offer.desired),
            *start_ops(tree, seat, crumb, self.seat_version),
        ]


async def read_offer(
    client: Client, tree: Tree, place: Place, seat: str, epoch: int, listing: Sequence[str]
) -> Grant | None:
    """The offer of whoever stands next after `place`, whose instance is `epoch`.

    None: nobody does, or without an offer, or the seat is not as our start has left it.
    """
    after = [c.name for c in OURS.rank(place.directory, listing)]
    after = after[after.index(place.name) + 1 :] if place.name in after else []
    if not after:
        return None
    path = join(place.directory, after[0])
    try:
        (theirs, stat), (ours, seat_stat) = await together(
            patient(lambda: client.get(path)), patient(lambda: client.get(tree.seat(seat)))
        )
        candidate = read(Candidate, theirs, path)
        record = read(SeatRecord, ours, tree.seat(seat))
    except (NoNode, UnreadableZnode):
        return None
    if candidate.offer is None or record.epoch != epoch:
        return None
    return Grant(
        candidate=candidate,
        offer=candidate.offer,
        path=path,
        version=stat.version,
        epoch=epoch + 1,
        seat_version=seat_stat.version,
    )
