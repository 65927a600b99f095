"""What stands in the tree of an instance that runs, made again where somebody deletes it by hand.

A breadcrumb that is missing while its instance lives would let others start as soon as our session
is over, also where that proves nothing. To stop the instance would leave it missing for as long as
the stop takes, and so longer; it is made again at once. That is safe as long as our candidate
stands: until it is gone nobody else can have started.

Rule of this file: a breadcrumb is made again only in one transaction with the check of our
candidate, and only while its instance is not proven dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from incumbent.agent.instance import Instance
from incumbent.agent.tree import Breadcrumb, altered, write
from incumbent.agent.view import follow_children
from incumbent.errors import FateUnknown, NodeExists, NotSent, Refused
from incumbent.recipes.ledger import Pause
from incumbent.recipes.place import Place
from incumbent.wire import Create

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["keep_breadcrumb", "keep_word"]


async def keep_breadcrumb(
    term: Term,
    seat: str,
    place: Place,
    current: Callable[[], tuple[Instance | None, Breadcrumb | None]],
    lost: Callable[[str], None],
) -> None:
    """While `place` is first in line. `current`: what runs, and its breadcrumb. `lost` is told why
    it cannot be made again: then nothing may go on running."""

    async def see(names: list[str]) -> None:
        instance, crumb = current()
        if instance is None or crumb is None or crumb.epoch != instance.epoch:
            return
        pause = Pause()
        path = term.tree.breadcrumb(seat, crumb.epoch)
        crumb = altered(crumb, control=instance.control)
        while str(crumb.epoch) not in names and not instance.is_empty:
            try:
                await term.client.multi([place.check_own(), Create(path, write(crumb))])
            except NodeExists:
                return
            except (NotSent, FateUnknown):
                await pause.take()
                continue
            except Refused as error:
                lost(f"its breadcrumb was deleted by hand and cannot be made again: {error}")
                return
            term.say(f"{seat}: its breadcrumb was deleted by hand: made again")
            return

    await follow_children(term.client, term.tree.running(seat), see)


async def keep_word(term: Term, seat: str, again: Callable[[], None]) -> None:
    """Call `again` whenever the seat's last word to operators is missing."""
    name = term.tree.observed(seat).rpartition("/")[2]

    async def see(names: list[str]) -> None:
        if names and name not in names:
            again()

    await follow_children(term.client, term.tree.seat(seat), see)
