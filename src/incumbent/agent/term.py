"""One session of an agent: its znodes, its view, its seats.

Rule of this file: everything here lives and ends with the session. What outlives it (the
instances and their proofs of death) belongs to the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from incumbent.agent.admission import Admission, shown_ids
from incumbent.agent.instance import Instance
from incumbent.agent.launcher import Launcher
from incumbent.agent.pausing import Pausing
from incumbent.agent.planner import Planner
from incumbent.agent.presence import Presence
from incumbent.agent.seat import Seat
from incumbent.agent.sentences import REMOVED
from incumbent.agent.steadiness import aside_until, lately, staged
from incumbent.agent.tree import (
    NodeFacts,
    Tree,
    altered,
    seat_name,
    session_key,
    split_seat,
)
from incumbent.agent.view import ComponentView, View, take_outcome
from incumbent.client import Client, State
from incumbent.errors import (
    NoNode,
    SessionExpired,
)
from incumbent.guardian import messages as m
from incumbent.lease import Numbers
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.queue import Queue
from incumbent.wire import Create, SetData

if TYPE_CHECKING:
    from incumbent.agent.agent import Agent

__all__ = ["Term"]

STARTS_AT_ONCE = 8
"""Starts that a guardian has been told of and not answered yet."""
PLAN_WAIT = 0.5
"""Seconds that a new seat waits for the planner's word; then anybody may take it."""


class Term:
    """The session `client` is in now, until it is over or the agent has drained."""

    def __init__(self, agent: Agent, client: Client) -> None:
        self._agent = agent
        self.client = client
        self.clock = agent.clock
        self.tree = Tree(agent.settings.root)
        self.node = agent.settings.node
        self.generation = agent.custody.generation
        self.session_key = session_key(client.session_id)
        self.custody = agent.custody
        self.instances = agent.custody.instances
        self.numbers = Numbers.of(client.timeout, tick=agent.settings.tick)
        now = agent.clock.wall()
        facts = NodeFacts(
            node=self.node,
            node_id=agent.settings.node_id,
            boot_id=agent.settings.boot_id,
            session=self.session_key,
            pid=agent.custody.guardian_pid,
            containments=list(agent.settings.containments),
            since=now,
            lost=lately(agent.losses),
            aside_until=aside_until(agent.losses, now),
            labels=dict(agent.settings.labels),
            logs=agent.settings.logs,
        )
        self.presence = Presence(self, facts, agent.settings.credentials.shown)
        self.launcher = Launcher(self, agent.settings)
        self.host = agent.host
        self.nonce = agent.nonce
        self._begun_at = agent.clock.boottime()
        self._jitter = agent.rng.random()
        self._is_return = agent.is_back
        self.bell = agent.custody.bell
        self.admission = Admission(
            client, self.tree, agent.settings.credentials, agent.custody.draining, self.say
        )
        self.view = View(client, self.tree, self.bell, self.say, self.admission.distrust)
        self.seats: dict[str, Seat] = {}
        self.turn = asyncio.Semaphore(STARTS_AT_ONCE)
        """To be held while the guardian starts something: it forks one at a time, and hears of no
        lease meanwhile."""
        self._pausing = Pausing(self)
        self._ledger = Ledger(client, log=self.say)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._planner = Planner(self)
        self._first_seen: dict[str, float] = {}

    async def run(self) -> None:
        """Until drained; SessionExpired or SessionClosed end it from within."""
        presence, beat = self.presence, self.tree.session(self.client.session_id)
        if not await self.admission.admitted() or not await self._unless_told(self._open(beat)):
            return
        with self.client.beat(beat):
            if not await self._unless_told(presence.take_node_name()):
                return
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(presence.keep_beat(beat))
                    group.create_task(self.admission.follow())
                    await self.view.follow(group)
                    group.create_task(self._planner.run())
                    group.create_task(self._spread_rings())
                    group.create_task(self._look_at_files())
                    self.custody.ring_seat = self._ring_seat
                    group.create_task(presence.keep_node_name())
                    group.create_task(self._pausing.keep())
                    await self._keep_seats(group)
                    raise _Drained
            except* _Drained:
                self.say("every seat is given up")
            finally:
                self.custody.ring_seat = None

    async def _open(self, beat: str) -> None:
        if not self.admission.is_strict:
            await self.presence.make_skeleton()
        shows = await shown_ids(self.client, self._agent.settings.credentials)
        self.presence.facts = altered(self.presence.facts, shows=shows)
        await self.presence.own_ephemeral(beat, b"")

    async def _unless_told(self, opening: Coroutine[Any, Any, None]) -> bool:
        """To its end. False: we were told to stop first, and have nothing that is to be stopped in
        its order.
        """
        task = asyncio.ensure_future(opening)
        ends: list[asyncio.Future[Any]] = [task, self.custody.draining]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or self.instances:
                await task
                return True
            return False
        finally:
            task.cancel()

    # ── what the seats use

    def say(self, text: str) -> None:
        self._agent.say(text)

    def queue(self, path: str) -> Queue:
        return Queue(self.client, path, rng=self._agent.rng, ledger=self._ledger)

    def ring(self) -> None:
        """Everybody look again."""
        self.bell.ring()

    def order_start(self, instance: Instance, start: m.Start) -> None:
        """Raises `SessionExpired` if the session has ended since the start was written: proof
        of death was asked for then, and nothing may start after it.
        """
        is_ours = session_key(self.client.session_id) == self.session_key
        if not is_ours or self.client.state in (State.LOST, State.CLOSED):
            raise SessionExpired(self.client.session_id, "it ended before the start")
        self.custody.order_start(instance, start)
        self._agent.cut_short.pop(instance.seat, None)

    def is_leased(self) -> bool:
        """Whether the guardian would still start something under this lease; if not, the next
        lease rings the bell.
        """
        is_so = self.clock.boottime() < self.client.lease.valid_until - self.numbers.soft
        self.custody.awaits_lease = self.custody.awaits_lease or not is_so
        return is_so

    def why_paused(self) -> str:
        """Why our guardian would start nothing, though the operators would; "" if it would."""
        is_bound = self.custody.is_heard and not self.custody.is_paused
        return "" if is_bound else "waits until its guardian goes by the lease again, after a pause"

    def is_carried(self, instance: Instance) -> bool:
        """Whether it was started in a session that is over."""
        return instance.session != self.session_key

    def forget(self, instance: Instance) -> None:
        """Its death is proven and dealt with."""
        if instance.cut_short:
            self._agent.cut_short[instance.seat] = instance.cut_short
        if self.instances.get(instance.seat) is instance:
            del self.instances[instance.seat]
            self.host.forget_config(instance.seat)

    def inform(self, path: str, data: bytes) -> None:
        """Write without waiting, in order with what follows; for what only informs."""

        def written(future: asyncio.Future[object]) -> None:
            take_outcome(future)
            if not future.cancelled() and isinstance(future.exception(), NoNode):
                self.client.submit(Create(path, data)).add_done_callback(take_outcome)

        self.client.submit(SetData(path, data)).add_done_callback(written)

    def starts_from(self, seat: str) -> float:
        """On CLOCK_BOOTTIME: when this node, back after a lost session, starts that seat at the
        earliest."""
        if not self._is_return or seat not in self.seats:
            return 0.0
        return self._begun_at + staged(sorted(self.seats).index(seat), self._jitter)

    def plan_is_due(self, seat: str) -> bool:
        """Whether to wait for the planner's word on a seat that is new to us."""
        return seat not in self.view.plan.seats and self.clock.boottime() < self.plan_due_at(seat)

    def plan_due_at(self, seat: str) -> float:
        return self._first_seen.setdefault(seat, self.clock.boottime()) + PLAN_WAIT

    # ── the seats

    def _ring_seat(self, name: str) -> None:
        if name in self.seats:
            self.seats[name].bell.ring()

    async def _look_at_files(self) -> None:
        """What a node has or lacks tells nobody when it changes: seats that require something
        look again each beat."""
        while True:
            await asyncio.sleep(self.numbers.beat)
            for seat in list(self.seats.values()):
                if seat.requires:
                    seat.bell.ring()

    def _count_outage(self) -> None:
        """One that cut programs short, and that the session has outlived, counts as a lost one: they
        would be started here again and again. Once for all of them, those that still end included,
        with the first lease after it."""
        if not self.is_leased():
            return
        for instance in self.instances.values():
            if instance.cut_short:
                self._agent.cut_short[instance.seat], instance.cut_short = instance.cut_short, ""
        if not self._agent.cut_short:
            return
        self._agent.count_loss()
        now = self.clock.wall()
        until = aside_until(self._agent.losses, now)
        facts = altered(self.presence.facts, lost=lately(self._agent.losses))
        self.presence.tell(altered(facts, since=now, aside_until=until) if until else facts)

    async def _spread_rings(self) -> None:
        while True:
            await self.bell.heard()
            self._count_outage()
            self._planner.bell.ring()
            for seat in list(self.seats.values()):
                seat.bell.ring()

    async def _keep_seats(self, group: asyncio.TaskGroup) -> None:
        """One task per seat of the components that there are; returns when drained."""
        while True:
            wanted = self._wanted()
            for name, view in wanted.items():
                if name not in self.seats:
                    self._first_seen.setdefault(name, self.clock.boottime())
                    seat = self.seats[name] = Seat(self, name, view)
                    self._tasks[name] = group.create_task(seat.run())
                    self._tasks[name].add_done_callback(self.bell.ring)
            for name, seat in self.seats.items():
                if name not in wanted and not seat.leaving:
                    seat.leaving = REMOVED
                    seat.bell.ring()
            for name in [n for n, task in self._tasks.items() if task.done()]:
                del self._tasks[name], self.seats[name]
            if self._agent.drain_why:
                await self._drain(self._agent.drain_why)
                return
            if not self.seats and wanted == {} and not self._agent.has_said_idle:
                self._agent.has_said_idle = True
                self.say("there are no components yet; `incumbent apply FILE` declares some")
            await self.bell.heard()

    def _wanted(self) -> dict[str, ComponentView]:
        """The seats that there are. While a spec cannot be read: those that we know of."""
        wanted: dict[str, ComponentView] = {}
        for view in self.view.components.values():
            if view.spec is not None:
                names = [seat_name(view.name, number) for number in range(view.spec.copies)]
            elif not view.is_removed:
                known = dict.fromkeys([*self.seats, *(i.mark[0] for i in self.instances.values())])
                names = [name for name in known if split_seat(name)[0] == view.name]
            else:
                names = []
            wanted |= dict.fromkeys(names, view)
        return wanted

    async def _drain(self, why: str) -> None:
        """Give every seat up: those of `stop_order` last to first, the rest at once."""
        order = self._agent.settings.stop_order
        named = [
            [n for n in self.seats if n.rpartition("/")[0] == component]
            for component in reversed(order)
        ]
        rest = [n for n in self.seats if n.rpartition("/")[0] not in order]
        for names in [rest, *named]:
            for name in names:
                self.seats[name].leaving = why
                self.seats[name].bell.ring()
            for name in names:
                if name in self._tasks:
                    await asyncio.wait([self._tasks[name]])


class _Drained(Exception):
    """Ends the term's group from within."""
