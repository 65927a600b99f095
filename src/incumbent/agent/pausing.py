"""A pause, on this node: the guardian is told, and what runs outlives its lease until the pause is over.

    control says paused, read by us ──► the session is held on to ──► PAUSED ──► LEASE_ACK says so
    control says otherwise ──► a lease, nothing here of a session that is over ──► PAUSED no more
                           ──► LEASE_ACK says so ──► our breadcrumbs bear the zxid of control

A breadcrumb bears the zxid of `control`'s last change as its node knew it when its guardian certainly
kept the deadlines. Where `control` has been changed since, nobody concludes anything from the end of
its session: its node may have heard of a pause. So a node that is cut off while the others resume, or
that is still to hear of it, is honoured until it answers, or is confirmed dead.

Rule of this file: the guardian is told of a pause only on an operator's word that was read, and a
breadcrumb bears a zxid only after the guardian has acknowledged that it goes by the lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from incumbent.agent.instance import Instance
from incumbent.agent.tree import Breadcrumb, UnreadableZnode, altered, read, write
from incumbent.agent.view import patient
from incumbent.errors import BadVersion, FateUnknown, NotSent, Refused
from incumbent.wire import SetData

if TYPE_CHECKING:
    from incumbent.agent.term import Term

__all__ = ["Known", "Pausing", "order_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the decision rests on.

    is_read     an operator's word was read in this session
    is_paused   and what it was
    is_leased   the guardian would start something under this lease
    is_carried  something runs here from a session that is over
    """

    is_read: bool
    is_paused: bool
    is_leased: bool
    is_carried: bool


def order_of(known: Known, *, told: bool) -> bool | None:
    """What the guardian is to be told: that it is paused, that it no longer is, or nothing (None).

    `told`: what it was told before.
    """
    if not known.is_read or known.is_paused == told:
        return None
    if known.is_paused:
        return True
    return False if known.is_leased and not known.is_carried else None


class Pausing:
    """Within one session."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._unreadable: set[str] = set()
        """Breadcrumbs that somebody has written over: looked at each beat until they are put right."""

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            self._tell()
            await self._affirm()
            self._tell_operators()
            again_at = self._term.clock.boottime() + self._term.numbers.beat
            await self._term.bell.heard(again_at if self._is_pending() else None)

    def _is_pending(self) -> bool:
        """Something here is not yet as control says."""
        custody, view = self._term.custody, self._term.view
        is_told = custody.is_heard and custody.is_paused == view.control.paused
        if not is_told or custody.is_paused:
            return not is_told
        return any(self._is_due(each, view.control_zxid) for each in self._alive())

    def _is_due(self, instance: Instance, zxid: int) -> bool:
        return instance.control != zxid or instance.breadcrumb in self._unreadable

    def _tell(self) -> None:
        term, view, custody = self._term, self._term.view, self._term.custody
        known = Known(
            is_read=view.control_version >= 0 and not view.control_problem,
            is_paused=view.control.paused,
            is_leased=term.is_leased(),
            is_carried=any(term.is_carried(each) for each in self._alive()),
        )
        order = order_of(known, told=custody.is_paused)
        if order is None:
            return
        if order:
            term.client.hold_on(True)
        custody.pause(order)
        custody.tell_lease()  # its acknowledgement says what the guardian goes by
        term.say(
            f"the cluster is paused{_by(view.control.by)}: what runs here goes on, whatever happens to "
            "ZooKeeper"
            if order
            else "the pause is over: what runs here is bound by its lease again"
        )

    async def _affirm(self) -> None:
        """What runs here is bound by its lease again: others may rely on that from now on."""
        term, custody = self._term, self._term.custody
        if custody.is_paused or not custody.is_heard:
            return
        term.client.hold_on(False)
        zxid = term.view.control_zxid
        for instance in self._alive():
            if term.view.control.paused or custody.is_paused or zxid != term.view.control_zxid:
                return  # another word has come meanwhile
            if self._is_due(instance, zxid) and not term.is_carried(instance):
                await self._write(instance, zxid)

    async def _write(self, instance: Instance, zxid: int) -> None:
        client, path = self._term.client, instance.breadcrumb
        try:
            data, stat = await patient(lambda: client.get(path))
            crumb = read(Breadcrumb, data, path)
            if crumb.session == self._term.session_key:
                affirmed = write(altered(crumb, control=zxid))
                await client.submit(SetData(path, affirmed, stat.version))
            self._unreadable.discard(path)
        except (NotSent, FateUnknown, BadVersion):
            return  # with the next beat
        except UnreadableZnode as error:  # nobody will conclude anything from it
            if path not in self._unreadable:
                self._unreadable.add(path)
                self._term.say(f"{path} is left as it is: {error}")
        except Refused as error:
            self._unreadable.discard(path)
            self._term.say(f"{path} is left as it is: {error}")
        instance.control = zxid

    def _tell_operators(self) -> None:
        """Which pause this node's guardian goes by; none, once all here is bound by the lease."""
        term, custody, view = self._term, self._term.custody, self._term.view
        if not custody.is_heard or custody.is_paused != view.control.paused:
            return
        if custody.is_paused:
            term.presence.state_pause(view.control_zxid)
        elif all(each.control == view.control_zxid for each in self._alive()):
            term.presence.state_pause(0)

    def _alive(self) -> list[Instance]:
        """Hooks and checks live as long as their instance at most, and have no breadcrumb."""
        every = self._term.instances.values()
        return [each for each in every if not each.is_empty and each.beside is None]


def _by(who: str) -> str:
    return f" by {who}" if who else ""
