"""What an agent has to do for the programs that its guardian owns.

It tells the guardian of the session and of each lease, that it is alive, and holds pidfds of the
guardian and of every tree's first process: to kill what is deaf to a deadline, and to prove
everything dead when the guardian itself has died.

Rule of this file: an instance is dead by the guardian's word (EMPTY, or REFUSED: it was never
executed), or, once the guardian is dead, by the pidfd of a sealed tree's init or by a sweep that
found nobody. By nothing else.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from incumbent.agent.bell import Bell
from incumbent.agent.instance import Instance
from incumbent.agent.link import GuardianLink
from incumbent.agent.proc import end_seat
from incumbent.client import Client
from incumbent.clock import Clock
from incumbent.guardian import messages as m
from incumbent.lease import Numbers

__all__ = ["Custody", "Pidfds", "Processes"]

_TICKS = os.sysconf("SC_CLK_TCK")
_STARTS = 20
"""Of a seat, whose times are remembered."""


class Processes(Protocol):
    """What is asked of the machine: this one, or a simulated one."""

    def death_of(self, pid: int) -> asyncio.Future[None]:
        """Done when the process is dead; opened while it certainly is ours."""

    def kill(self, pid: int) -> None:
        """SIGKILL to a process of which `death_of` was asked and is not done."""

    async def sweep(self, seat: str, epoch: int) -> None:
        """Kill what carries our mark, this seat and epoch until none is found twice."""

    def tell_deadline(self, at: float) -> None:
        """Until when programs may live if no beat is acknowledged any more. It only informs."""


class Pidfds:
    """The processes of this machine, each by a pidfd that we hold."""

    def __init__(self, owner: str) -> None:
        """`owner` is in the environment of all that is started for us (`proc.OWNER`)."""
        self.owner = owner
        self._open: dict[int, int] = {}

    def death_of(self, pid: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        dead: asyncio.Future[None] = loop.create_future()
        try:
            pidfd = self._open[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            dead.set_result(None)
            return dead

        def readable() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            del self._open[pid]
            if not dead.done():
                dead.set_result(None)

        loop.add_reader(pidfd, readable)
        return dead

    def kill(self, pid: int) -> None:
        try:
            signal.pidfd_send_signal(self._open[pid], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            return

    async def sweep(self, seat: str, epoch: int) -> None:
        while not end_seat(self.owner, seat, epoch, 1.0):  # noqa: ASYNC110  (it looks at /proc: nothing to wait for)
            await asyncio.sleep(0.05)

    def tell_deadline(self, at: float) -> None:
        """Where there is only one command, whoever runs it tells it."""


class Custody:
    """A context manager, from WELCOME to the end of the agent.

    instances   the newest of each seat
    newest      seat → the newest epoch that this guardian certainly knows: it starts no older one
    is_paused   the guardian was told that the cluster is paused, and may keep no deadline
    is_heard    it has acknowledged what it was told of that last
    bell        rings whenever anything here may have changed; where `ring_seat` is set, that is
                called instead for what concerns one seat
    draining    done when the guardian says SHUTDOWN; its result says why
    """

    def __init__(
        self,
        link: GuardianLink,
        processes: Processes,
        *,
        clock: Clock,
        say: Callable[[str], None],
        remember: Callable[[Mapping[str, Instance]], None] | None = None,
    ) -> None:
        """`link` has been welcomed. `remember` is told of every change of the instances."""
        welcome = link.welcome.result()
        self.generation = welcome.generation
        self.guardian_pid = welcome.guardian_pid
        self.instances: dict[str, Instance] = {}
        self.newest: dict[str, int] = {}
        self.bell = Bell(clock)
        self.draining: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.link = link
        self._processes = processes
        self._clock = clock
        self._say = say
        self._remember = remember
        self._welcome = welcome
        self._alive_every = welcome.alive_every
        self._deaths: dict[int, asyncio.Future[None]] = {}
        self._begun: dict[str, deque[tuple[int, float]]] = {}
        self._client: Client | None = None
        self._told = -math.inf  # the newest lease that the guardian was told of
        self._acked = -math.inf  # the newest lease that the guardian certainly goes by
        self._is_new_session = True
        self.ring_seat: Callable[[str], None] | None = None
        self.awaits_lease = True
        """Whether somebody waits for a lease, so that the next one rings the bell."""
        self._is_to_remember = False
        self.is_paused = welcome.paused
        self.is_heard = True
        self._pauses = 0
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Custody:
        self._watch(self.guardian_pid)
        for report in self._welcome.seats:  # what an earlier agent of this guardian has left
            instance = self.instances[report.seat] = Instance.of(report)
            self.newest[report.seat] = report.epoch
            since = report.start_time / _TICKS if report.start_time else self._clock.boottime()
            self._note_start(instance, self._clock.wall() - self._clock.boottime() + since)
            self._see(instance)
        self.link.listen(self._hear)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._say_alive()), loop.create_task(self._enforce())]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()

    # ── what the guardian is told

    def session(self, client: Client, hosts: str) -> None:
        """A session has begun; from now on each acknowledged beat is passed on."""
        passport = client.passport.to_json()
        self.link.send(m.Session(generation=self.generation, passport=passport, hosts=hosts))
        if self._client is not client:
            self._client = client
            client.watch_beats(lambda _sent_at: self.tell_lease())
        self._is_new_session = True
        self.tell_lease()

    def tell_lease(self) -> None:
        """Pass on the lease as it is now."""
        client = self._client
        if client is None or not math.isfinite(client.lease.valid_until):
            return
        valid_until = client.lease.valid_until
        if self._is_new_session:  # the old lease says nothing of it; as long as this one lasts,
            self._is_new_session = False  # the guardian may take to acknowledge anything
            self._acked = valid_until
        self._told = valid_until
        self.link.send(
            m.Lease(
                generation=self.generation,
                valid_until=valid_until,
                last_zxid=client.last_zxid,
            )
        )
        self._processes.tell_deadline(valid_until - Numbers.of(client.timeout).hard)
        if self.awaits_lease:
            self.bell.ring()
            self.awaits_lease = self.ring_seat is None

    def pause(self, paused: bool) -> None:
        """Deadlines are no longer kept; or they are again, by the next lease."""
        self.is_paused, self.is_heard = paused, False
        self._pauses += 1
        self.link.send(m.Paused(paused=paused, number=self._pauses))

    def order_start(self, instance: Instance, start: m.Start) -> None:
        """Its seat must be empty. The guardian's answer arrives in `instance`.

        It goes by the lease as it is now: any acknowledged write may have extended that.
        """
        if self._client is not None and self._client.lease.valid_until != self._told:
            self.tell_lease()
        before = self.instances.get(instance.seat)
        assert before is None or before.is_empty, f"{instance.seat} is not proven empty"
        self.instances[instance.seat] = instance
        self.newest[instance.seat] = instance.epoch
        self._note_start(instance, self._clock.wall())
        self.link.send(start)

    def begun(self, seat: str, epoch: int) -> float:
        """When this epoch of a seat was started here, or the first known one after it; wall time,
        0 if there is none. For reading logs from there on."""
        return next((at for number, at in self._begun.get(seat, ()) if number >= epoch), 0.0)

    def _note_start(self, instance: Instance, at: float) -> None:
        if instance.beside is None:
            starts = self._begun.setdefault(instance.seat, deque(maxlen=_STARTS))
            starts.append((instance.epoch, at))

    def order_stop(self, instance: Instance, grace: float) -> None:
        """Seconds from the stop signal to SIGKILL; 0 kills at once. Again: only ever shorter."""
        instance.stop_ordered = True
        self.link.send(m.Stop(seat=instance.seat, epoch=instance.epoch, grace=grace))

    def signal(self, instance: Instance, signo: int) -> None:
        """To its main process; nothing tells whether it arrived."""
        self.link.send(m.Signal(seat=instance.seat, epoch=instance.epoch, signo=signo))

    # ── deaths

    async def prove_empty(self, why: str) -> None:
        """Order every instance killed and wait for the proofs, however long they take."""
        self.ring_seat = None
        while alive := [each for each in self.instances.values() if not each.is_empty]:
            for instance in alive:
                self.order_stop(instance, 0.0)
            await self.bell.heard(self._clock.boottime() + 1.0)
            if left := [each.seat for each in alive if not each.is_empty]:
                self._say(f"{why}: waiting for the end of {', '.join(left)}")

    async def outlive_guardian(self) -> None:
        """The link is closed: end the guardian, and prove dead whatever it owned."""
        self._kill(self.guardian_pid)
        await self._watch(self.guardian_pid)
        for instance in self.instances.values():
            if instance.is_empty:
                continue
            if instance.pid:
                self._kill(instance.pid)
                await self._watch(instance.pid)
            if instance.containment != "sealed" or not instance.pid:
                for name in dict.fromkeys([(instance.seat, instance.epoch), instance.mark]):
                    await self._processes.sweep(*name)
            instance.state = "empty"

    def _watch(self, pid: int) -> asyncio.Future[None]:
        if pid not in self._deaths:
            self._deaths[pid] = self._processes.death_of(pid)
        return self._deaths[pid]

    def _kill(self, pid: int) -> None:
        if pid in self._deaths and not self._deaths[pid].done():
            self._processes.kill(pid)

    # ── in the background

    async def _say_alive(self) -> None:
        while True:
            self.link.send(m.Alive(generation=self.generation))
            await asyncio.sleep(self._alive_every)

    async def _enforce(self) -> None:
        """The third enforcer: at the hard deadline, kill what guardian and init have not."""
        while True:
            client = self._client
            session = client.timeout if client is not None else 10 * self._alive_every
            numbers = Numbers.of(session)
            await asyncio.sleep(numbers.beat / 2)
            alive = [each for each in self.instances.values() if not each.is_empty]
            if client is None or not alive or self.is_paused:
                continue
            now, valid_until = self._clock.boottime(), client.lease.valid_until
            if self._acked < valid_until and now >= self._acked - numbers.hard:
                self._say("the guardian does not hear of the lease: killing it")
                self._kill(self.guardian_pid)
            if now >= max(valid_until, self._acked) - numbers.hard:
                for instance in alive:
                    self._kill(instance.pid)

    # ── what the guardian says

    def _hear(self, message: m.Message) -> None:
        match message:
            case m.LeaseAck(valid_until=valid_until, number=number):
                self._acked = max(self._acked, valid_until)
                if self.is_heard or number != self._pauses:
                    return
                self.is_heard = True
            case m.Shutdown(why=why):
                if not self.draining.done():
                    self.draining.set_result(why)
            case m.Told():
                instance = self.instances.get(message.seat)
                if instance is not None and instance.epoch == message.epoch:
                    instance.hear(message)
            case m.Started() | m.Refused() | m.Stopping() | m.Exited() | m.Empty() | m.Stuck():
                instance = self.instances.get(message.seat)
                if instance is not None and instance.epoch == message.epoch:
                    instance.hear(message)
                    self._see(instance)
                    self.awaits_lease = self.awaits_lease or bool(instance.cut_short)
                if isinstance(message, m.Stuck):
                    self._say(f"{message.seat}: alive after SIGKILL; waiting for its end")
        seat = getattr(message, "seat", "")
        if seat and self.ring_seat is not None:
            self.ring_seat(seat.partition("!")[0])
        else:
            self.bell.ring()

    def _write_down(self) -> None:
        self._is_to_remember = False
        if self._remember is not None:
            self._remember(self.instances)

    def _see(self, instance: Instance) -> None:
        """Hold the pidfd of its first process, then let the guardian reap it."""
        if self._remember is not None and not self._is_to_remember:
            self._is_to_remember = True  # one record for all that is heard in one go
            asyncio.get_running_loop().call_soon(self._write_down)
        if instance.pid and instance.pid not in self._deaths:
            self._watch(instance.pid)
            self.link.send(m.Seen(seat=instance.seat, epoch=instance.epoch, pid=instance.pid))
