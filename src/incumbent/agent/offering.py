"""What a seat's candidate offers to start with, and the look whether that start was granted.

Rule of this file: a start counts as granted only if the seat bears the nonce of the offer that
stands in our candidate now, and we would still start with just that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from incumbent.agent.reasons import why_not_run
from incumbent.agent.start import Ground, read_ground
from incumbent.agent.tree import Candidate, Offer, write
from incumbent.agent.view import ComponentView, take_outcome
from incumbent.errors import NumbersDontFit
from incumbent.recipes.place import Place
from incumbent.wire import SetData

if TYPE_CHECKING:
    from incumbent.agent.edition import Edition
    from incumbent.agent.term import Term

__all__ = ["Offering"]


class Offering:
    """Of one seat, within one session.

    declined         the plan version under which we let others pass; stands in our candidate too
    may_be_granted   whoever leads before us may write our start; until we have looked
    """

    def __init__(
        self,
        term: Term,
        name: str,
        view: ComponentView,
        edition: Callable[[], Edition | None],
    ) -> None:
        """`edition`: what would be started now."""
        self.declined = -1
        self.may_be_granted = False
        self._term = term
        self._name = name
        self._view = view
        self._edition = edition
        self._offer: Offer | None = None
        self._ground: asyncio.Future[Ground] | None = None

    def candidate(self) -> bytes:
        """What to stand with, from now on."""
        self._offer = self._new_offer()
        self.may_be_granted = True
        return self._record()

    def renew(self, place: Place) -> None:
        """While waiting: our candidate says what we would start with now."""
        if self.nonce() or (offer := self._new_offer()) is None:
            return
        self._offer = offer
        place.data = self._record()
        written = self._term.client.submit(SetData(place.path, place.data))
        written.add_done_callback(take_outcome)

    def nonce(self) -> str:
        """Of our offer; "" if we would start with something else by now."""
        if self._offer is None:
            return ""
        nonce = self._offer.breadcrumb.nonce
        return nonce if self._new_offer(nonce) == self._offer else ""

    def look(self) -> None:
        """Begin to read what a start stands on, if that is not under way. As a start is written
        over the version that was read, it does not matter how long ago that was."""
        if self._ground is None:
            self._ground = self._look()

    def _look(self) -> asyncio.Future[Ground]:
        nonce = self._offer.breadcrumb.nonce if self._offer and self.may_be_granted else ""
        reading = read_ground(self._term.client, self._term.tree, self._name, nonce)
        looking = asyncio.ensure_future(reading)
        looking.add_done_callback(take_outcome)
        return looking

    async def ground(self) -> Ground:
        """As looked at before, or now. Once only."""
        self.look()
        reading, self._ground = self._ground, None
        assert reading is not None
        ground = await reading
        self.may_be_granted = False
        return ground

    def forget_ground(self) -> None:
        if self._ground is not None:
            self._ground.cancel()
            self._ground = None

    def _record(self) -> bytes:
        return write(Candidate(node=self._term.node, declined=self.declined, offer=self._offer))

    def _new_offer(self, nonce: str = "") -> Offer | None:
        """What we would start with as things are; None where nothing may start."""
        edition, term = self._edition(), self._term
        if edition is None or why_not_run(term, self._view, self._name) or term.why_paused():
            return None
        try:
            crumb = term.launcher.breadcrumb_of(edition, 0, nonce or term.nonce())
        except NumbersDontFit:
            return None
        control, desired = term.view.control_version, self._view.desired_version
        return Offer(breadcrumb=crumb, control=control, desired=desired)
