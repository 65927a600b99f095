"""One session of an agent: its znodes, its view, its seats.

Rule of this file: everything here lives and ends with the session. What outlives it (the
instances and their proofs of death) belongs to the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from incumbent.agent.admission import Admission, shown_ids
from incumbent.agent.instance import Instance
from incumbent.agent.pausing import Pausing
from incumbent.agent.planner import Planner
from incumbent.agent.seat import Seat
from incumbent.agent.sentences import REMOVED
from incumbent.agent.steadiness import aside_until, staged
from incumbent.agent.tree import (
    Breadcrumb,
    NodeFacts,
    Tree,
    UnreadableZnode,
    altered,
    read,
    seat_name,
    session_key,
    split_seat,
    write,
)
from incumbent.agent.view import CLOSED_RETRY, Change, ComponentView, View, patient, take_outcome
from incumbent.client import Client, State
from incumbent.errors import (
    FateUnknown,
    IncumbentError,
    NoAuth,
    NodeExists,
    NoNode,
    NotSent,
    Refused,
    SessionExpired,
)
from incumbent.guardian import messages as m
from incumbent.lease import Numbers
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.queue import Queue
from incumbent.spec import Spec, program
from incumbent.spec.limits import LIMITS
from incumbent.wire import Create, CreateFlag, SetData

if TYPE_CHECKING:
    from incumbent.agent.agent import Agent

__all__ = ["NodeNameTaken", "Term"]

STARTS_AT_ONCE = 8
"""Starts that a guardian has been told of and not answered yet."""
PLAN_WAIT = 0.5
"""Seconds that a new seat waits for the planner's word; then anybody may take it."""


class NodeNameTaken(IncumbentError):
    """Another machine goes by our node name."""

    def __init__(self, node: str, other: NodeFacts) -> None:
        self.node = node
        self.other = other
        super().__init__(node, other)

    def __str__(self) -> str:
        return (
            f"the node name {self.node} is taken by node id {self.other.node_id} "
            f"(pid {self.other.pid}); start this agent with another --node NAME"
        )


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
        self.facts = NodeFacts(
            node=self.node,
            node_id=agent.settings.node_id,
            boot_id=agent.settings.boot_id,
            session=self.session_key,
            pid=agent.custody.guardian_pid,
            containments=list(agent.settings.containments),
            since=agent.clock.wall(),
            lost=agent.lost_lately,
            aside_until=aside_until(agent.losses),
        )
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
        if not await self.admission.admitted():
            return
        if not self.admission.is_strict:
            await self._make_skeleton()
        credentials = self._agent.settings.credentials
        shows = await shown_ids(self.client, credentials)
        self.facts = msgspec.structs.replace(self.facts, shows=shows)
        beat = self.tree.session(self.client.session_id)
        await self._own_ephemeral(beat, b"")
        with self.client.beat(beat):
            await self._take_node_name()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._keep_beat(beat))
                    group.create_task(self.admission.follow())
                    await self.view.follow(group)
                    group.create_task(self._planner.run())
                    group.create_task(self._spread_rings())
                    group.create_task(self._look_at_files())
                    self.custody.ring_seat = self._ring_seat
                    group.create_task(self._keep_node_name())
                    group.create_task(self._pausing.keep())
                    await self._keep_seats(group)
                    raise _Drained
            except* _Drained:
                self.say("every seat is given up")
            finally:
                self.custody.ring_seat = None

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
        self.custody.tell_lease()  # any acknowledged write extends it, and the guardian must know
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

    async def state_pause(self, zxid: int) -> None:
        """What `pause` and `resume` wait for: our node's znode says which pause we go by."""
        if self.facts.paused == zxid:
            return
        facts = altered(self.facts, paused=zxid)
        with suppress(NotSent, FateUnknown, Refused):
            await self.client.set(self.tree.node(self.node), write(facts))
            self.facts = facts

    def forget(self, instance: Instance) -> None:
        """Its death is proven and dealt with."""
        if instance.why_stopping and not instance.stop_ordered:
            self._agent.cut_short[instance.seat] = instance.why_stopping
        if self.instances.get(instance.seat) is instance:
            del self.instances[instance.seat]

    def inform(self, path: str, data: bytes) -> None:
        """Write without waiting, in order with what follows; for what only informs."""

        def written(future: asyncio.Future[object]) -> None:
            take_outcome(future)
            if not future.cancelled() and isinstance(future.exception(), NoNode):
                self.client.submit(Create(path, data)).add_done_callback(take_outcome)

        self.client.submit(SetData(path, data)).add_done_callback(written)

    def start_of(self, spec: Spec, seat: str) -> m.Start:
        """The order to start this, to be `numbered`. Raises `NumbersDontFit`, `SpecErrors`: this
        node cannot.
        """
        numbers, checks = self._numbers_for(spec), (spec.ready, spec.live)
        launched = self._agent.host.launch(spec, seat, self.node, 0)
        env = {**launched.env, **self._configured(spec, seat)}
        if spec.live is not None and spec.live.way == "notify":
            env["WATCHDOG_USEC"] = str(round(spec.live.interval * 1e6))
        containment, identity = self.containment(spec), launched.identity
        enforced = {f: text for f, text in launched.cgroup_limits.items() if self._enforces(f)}
        has_cgroup = bool(enforced) or containment == "contained"
        return m.Start(
            generation=self.generation,
            seat=seat,
            epoch=0,
            soft=numbers.soft,
            hard=numbers.hard,
            argv=launched.argv,
            env=env,
            cwd=launched.cwd,
            stop_signal=spec.stop_signal,
            stop_grace=numbers.stop_grace,
            containment=containment,
            cgroup=self._agent.host.cgroup_of(seat, 0) if has_cgroup else None,
            cgroup_limits=enforced,
            uid=identity.uid if identity else None,
            gid=identity.gid if identity else None,
            groups=identity.groups if identity else (),
            umask=launched.umask,
            limits=launched.limits,
            log=self._agent.host.log_path(seat),
            notify=any(check is not None and check.way == "notify" for check in checks),
            ready_fd=int(spec.ready.target) if spec.ready and spec.ready.way == "fd" else None,
        )

    def digests(self, spec: Spec) -> dict[str, str]:
        """Of what it uses of the configuration, as it is now: variable → digest of its value."""
        there = self.view.config
        return {
            name: hashlib.blake2b(there[use.key].encode(), digest_size=8).hexdigest()
            for name, use in spec.config.items()
            if use.key in there
        }

    def unset(self, spec: Spec) -> str:
        """A key that it uses and nobody has set; "" if there is none."""
        missing = (u.key for u in spec.config.values() if u.key not in self.view.config)
        return next(missing, "")

    def write_config(self, spec: Spec, seat: str) -> None:
        """Its files of configuration, as it is now. Raises `SpecErrors`."""
        self._configured(spec, seat)

    def _configured(self, spec: Spec, seat: str) -> dict[str, str]:
        """Variables, and the files that some of them name."""
        there, host = self.view.config, self._agent.host
        return {
            name: host.write_config(spec, seat, name, there[use.key])
            if use.file
            else there[use.key]
            for name, use in spec.config.items()
            if use.key in there
        }

    def start_beside(
        self,
        spec: Spec,
        name: str,
        number: int,
        epoch: int,
        command: tuple[str, ...],
        limit: float,
        more: Mapping[str, str],
    ) -> m.Start:
        """The order to start a hook or a check, named SEAT!WHAT, for `epoch` of its seat. Raises as
        `start_of`.
        """
        seat, _, what = name.partition("!")
        alone = msgspec.structs.replace(spec, command=command, ready=None, live=None)
        start = self.start_of(alone, seat)
        env = {**start.env, "INCUMBENT_EPOCH": str(epoch), "INCUMBENT_HOOK": what, **more}
        return replace(
            start,
            seat=name,
            epoch=number,
            env=env,
            cgroup=start.cgroup and self._agent.host.cgroup_of(name, number),
            log=self._agent.host.log_path(name),
            beside=epoch,
            limit=limit,
        )

    def numbered(self, start: m.Start, epoch: int) -> m.Start:
        """The same start as that of `epoch`."""
        return replace(
            start,
            epoch=epoch,
            env={**start.env, "INCUMBENT_EPOCH": str(epoch)},
            breadcrumb=self.tree.breadcrumb(start.seat, epoch),
            cgroup=start.cgroup and self._agent.host.cgroup_of(start.seat, epoch),
        )

    def breadcrumb_of(self, spec: Spec, epoch: int, nonce: str) -> Breadcrumb:
        """What is written before this may run. Raises `NumbersDontFit`."""
        return Breadcrumb(
            epoch=epoch,
            node=self.node,
            node_id=self.facts.node_id,
            boot_id=self.facts.boot_id,
            session=self.session_key,
            s_min=self.client.timeout,
            containment=self.containment(spec),
            stop_budget=self._numbers_for(spec).soft,
            nonce=nonce,
            program=program(spec),
            config=self.digests(spec),
            control=self.view.control_zxid,
        )

    def nonce(self) -> str:
        return self._agent.nonce()

    def unfit(self, spec: Spec) -> str:
        """Why this node cannot run it, "" if it can."""
        if spec.isolation is not None and spec.isolation not in self.facts.containments:
            why = self._agent.settings.unable.get(spec.isolation)
            return f"nothing can be {spec.isolation} on this node{f': {why}' if why else ''}"
        return self._agent.host.unfit(spec)

    async def last_line(self, seat: str, within: float) -> str:
        """What its program said last, in the last `within` seconds; "" if that is not known."""
        return await self._agent.host.last_line(seat, within)

    async def sweep(self, seat: str, crumb: Breadcrumb) -> None:
        """An earlier life of this node may have died before it wrote down what it had started."""
        await self._agent.host.sweep(seat, crumb.epoch)

    def unenforced(self, spec: Spec) -> str:
        """Which of its limits nothing on this node enforces, in a sentence; "" if all are."""
        lacking = [k for k in spec.limits if LIMITS[k].file and not self._enforces(LIMITS[k].file)]
        why = self._agent.settings.no_controllers
        return f"not limited on this node: {', '.join(lacking)} ({why})" if lacking else ""

    def _enforces(self, file: str) -> bool:
        """Whether cgroups have it here; its controller is the first part of its name."""
        return file.partition(".")[0] in self._agent.settings.controllers

    def _numbers_for(self, spec: Spec) -> Numbers:
        numbers = Numbers.of(
            self.client.timeout, tick=self.numbers.tick, stop_grace=spec.stop_grace
        )
        numbers.fit()
        return numbers

    def containment(self, spec: Spec) -> str:
        return spec.isolation or self.facts.containments[0]

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

    # ── the session's own znodes

    async def _make_skeleton(self) -> None:
        flight = [self.client.submit(Create(path, data)) for path, data in self.tree.skeleton()]
        for (path, data), future in zip(self.tree.skeleton(), flight, strict=True):
            try:
                await future
            except (
                NodeExists,
                NoNode,
                NoAuth,
            ):  # its parent is gone again: whoever needs it will see
                continue
            except (NotSent, FateUnknown):
                await self._create(path, data)

    async def _create(self, path: str, data: bytes, flags: int = 0) -> None:
        """An idempotent create: repeated until it is there."""
        told = False
        while True:
            try:
                await self.client.submit(Create(path, data, flags=flags))
                return
            except NodeExists:
                return
            except NoNode:
                await asyncio.sleep(0.05)
                await self._make_skeleton()
            except NoAuth as error:
                shown = self._agent.settings.credentials.shown
                if not told:
                    told = True
                    self.say(f"nothing runs here: {error}, to {shown}; see the setting `auth`")
                await asyncio.sleep(CLOSED_RETRY)
            except (NotSent, FateUnknown):
                await asyncio.sleep(0.05)

    async def _keep_beat(self, path: str) -> None:
        """Our session's znode, if somebody deletes it by hand, is made again: while it is missing
        no beat is acknowledged, and every start would be stopped again for that. Others take it
        for our end only if they lead, and they don't while our candidates stand.
        """
        while True:
            change = Change()
            try:
                await patient(lambda c=change: self.client.get(path, watcher=c))  # type: ignore[misc]
            except NoNode:
                self.say(f"{path} was deleted by hand: made again")
                await self._own_ephemeral(path, b"")
            else:
                await change.seen()

    async def _own_ephemeral(self, path: str, data: bytes) -> None:
        """Make an ephemeral, or find it made by this very session."""
        await self._create(path, data, CreateFlag.EPHEMERAL)

    async def _take_node_name(self) -> None:
        """Our node's znode. Our own old session's is waited for; another's is an error."""
        path = self.tree.node(self.node)
        began_at = self.clock.boottime()
        told = ""
        while True:
            await self._own_ephemeral(path, write(self.facts))
            try:
                data, stat = await patient(lambda: self.client.get(path, watcher=self._ring))
            except NoNode:
                continue
            if stat.ephemeralOwner == self.client.session_id:
                if data != write(self.facts):  # somebody wrote over it
                    with suppress(NoNode):
                        await patient(lambda: self.client.set(path, write(self.facts)))
                return
            try:
                other = read(NodeFacts, data, path)
            except UnreadableZnode as error:
                why = f"waiting for the node's name: {error}"
            else:
                if other.node_id != self.facts.node_id:
                    raise NodeNameTaken(self.node, other)
                is_late = self.clock.boottime() > began_at + 2 * self.client.timeout
                why = _why_wait(other, self.client.timeout, is_late)
            if why != told:
                told = why
                self.say(why)
            await self.bell.heard()

    async def _keep_node_name(self) -> None:
        """Somebody may delete our node's znode by hand: nobody would give us a seat again."""
        told = ""
        while True:
            await self.bell.heard()
            facts = self.view.nodes.get(self.node)
            if facts is not None and facts.session == self.session_key:
                continue
            try:
                await self._take_node_name()
            except NodeNameTaken as error:
                if str(error) != told:
                    told = str(error)
                    self.say(f"this node's znode was deleted, and {error}")

    def _ring(self, _event: object) -> None:
        self.bell.ring()

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

    async def _spread_rings(self) -> None:
        while True:
            await self.bell.heard()
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


def _why_wait(other: NodeFacts, timeout: float, is_late: bool) -> str:
    if is_late:
        return (
            f"this node's other session {other.session} lives on (guardian {other.pid}): an "
            "agent with a copy of this data directory, or an earlier one that still proves its "
            "programs dead"
        )
    return f"waiting for this node's old session {other.session} to end, at most {timeout:g} s"


class _Drained(Exception):
    """Ends the term's group from within."""
