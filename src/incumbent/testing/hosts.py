"""Hosts and processes of the simulated world, and the clocks they read.

Rule of this file: what a process does after its death has no effect. It gets no last words: its
`finally` blocks do not run before the world is over, and then they reach nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from incumbent.testing.disks import SimDisk
from incumbent.testing.kernel import Stack
from incumbent.testing.loop import Domain, SimTask, Timebase
from incumbent.testing.sockets import WorldLoop

if TYPE_CHECKING:
    from incumbent.testing.world import World

__all__ = ["Host", "HostClock", "Process", "ProcessKilled"]

T = TypeVar("T")

_EPOCH = 1_700_000_000.0  # the world's wall time at its beginning


class ProcessKilled(Exception):
    """The process awaited was killed, or its host crashed."""


class HostClock:
    """A host's `Clock`. `rate` is its seconds per world second; `wall_step` may be changed."""

    def __init__(self, loop: WorldLoop, *, rate: float, offset: float) -> None:
        self._loop = loop
        self.rate = rate
        self.offset = offset
        self.wall_step = 0.0

    def boottime(self) -> float:
        return self._loop.now * self.rate + self.offset

    def wall(self) -> float:
        return _EPOCH + self._loop.now + self.wall_step

    def jump(self, seconds: float) -> None:
        """Boottime is so much further on; it never goes back."""
        assert seconds >= 0
        self.offset += seconds

    def slew(self, rate: float) -> None:
        """Boottime goes at another rate from now on, without a step."""
        self.offset += self._loop.now * (self.rate - rate)
        self.rate = rate

    def world_time(self, boottime: float) -> float:
        """When, in world time, this clock shows `boottime` at its present rate."""
        return (boottime - self.offset) / self.rate


class Process:
    """One process on a host: its tasks, its sockets; one event loop, as far as it can tell."""

    def __init__(self, host: Host, name: str, pid: int) -> None:
        self.host = host
        self.name = name
        self.pid = pid
        self.domain = Domain(f"{host.name}/{name}", host.timebase, host.stack)
        self.frozen = False
        self.looked_at = False
        self.failure: BaseException | None = None
        self.at_end: list[Callable[[], None]] = []  # called by the kernel, just after its death
        self.on_child: Callable[[Any], None] | None = None  # what the kernel tells of its children
        self._world = host.world
        self._result: Any = None
        self._ended = host.world.loop.create_future()
        self._graveyard: list[SimTask] = []

    def __repr__(self) -> str:
        return f"<Process {self.domain.name} pid {self.pid} {'alive' if self.alive else 'ended'}>"

    @property
    def exit_code(self) -> int:
        """As a parent would see it: the main coroutine's int, 1 for a failure, -9 when killed."""
        if isinstance(self.failure, ProcessKilled):
            return -9
        return 1 if self.failure else self._result if isinstance(self._result, int) else 0

    @property
    def alive(self) -> bool:
        return not self.domain.dead

    async def wait(self) -> Any:
        """Its main coroutine's result, or its exception; `ProcessKilled` if it was killed."""
        self.looked_at = True
        await asyncio.shield(self._ended)
        if self.failure is not None:
            raise self.failure
        return self._result

    def kill(self) -> None:
        """SIGKILL: no code of it runs again; the kernel closes its sockets, which peers notice."""
        if self.alive:
            self._world.note(f"{self.domain.name} killed")
            self.host.stack.end_process(self.domain)
            self._bury(ProcessKilled(self.domain.name))

    def freeze(self) -> None:
        """SIGSTOP. Its kernel goes on: connections are accepted, bytes arrive, timers come due."""
        if self.alive and not self.frozen:
            self._world.note(f"{self.domain.name} frozen")
            self.frozen = True
            self._world.loop.freeze(self.domain)

    def thaw(self) -> None:
        if self.alive and self.frozen:
            self._world.note(f"{self.domain.name} thawed")
            self.frozen = False
            if not self.host.asleep:
                self._world.loop.thaw(self.domain)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "task") -> asyncio.Task[T]:
        """One more task in this process."""
        context = self._world.loop.enter(self.domain)
        return self._world.loop.create_task(coroutine, name=name, context=context)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.spawn(self._main(coroutine), "main")

    async def _main(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """As `asyncio.run`: the rest is cancelled when the main coroutine has ended."""
        failure: BaseException | None = None
        try:
            self._result = await coroutine
        except asyncio.CancelledError:
            failure = ProcessKilled(f"{self.domain.name} was cancelled")
        except Exception as error:
            failure = error
        me = asyncio.current_task()
        rest = [t for t in self._world.loop.tasks(self.domain) if t is not me]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        self._world.note(f"{self.domain.name} ended{f': {failure!r}' if failure else ''}")
        self.host.stack.end_process(self.domain)
        self._bury(failure)

    def _bury(self, failure: BaseException | None) -> None:
        self._graveyard = self._world.loop.kill(self.domain)
        self.failure = failure
        self.host.forget(self)
        if not self._ended.done():
            self._ended.set_result(None)
        for callback in self.at_end:
            self._world.network.at(self._world.now, callback)

    def close(self) -> None:
        """At the world's end: let the coroutines of the dead go, in order, to no effect."""
        self._world.loop.lay_to_rest(self._graveyard)
        self._graveyard.clear()
        self._coroutine.close()  # if it died before its first step


class Host:
    """A machine: a clock, a network stack, processes, and a random source for what runs on it."""

    def __init__(self, world: World, name: str, address: str, drift: float) -> None:
        self.world = world
        self.name = name
        self.address = address
        self.drift = drift
        self.stack = Stack(world.network, name, address)
        self.rng = random.Random(f"{world.seed}/host/{name}")
        self.disk = SimDisk(random.Random(f"{world.seed}/disk/{name}"))
        self.processes: list[Process] = []
        self.asleep = False
        self._asleep_since = 0.0
        self._parked: list[Any] = []
        self.at_crash: list[Callable[[], None]] = []
        self._pids = 100
        self.boot_id = ""
        self._boot()

    def __repr__(self) -> str:
        return f"<Host {self.name} {'up' if self.up else 'down'}>"

    def _boot(self) -> None:
        rate = 1.0 + self.drift
        up_for = self.rng.uniform(10.0, 1000.0)
        self.boot_id = f"{self.rng.getrandbits(64):016x}"
        now = self.world.loop.now
        self.clock = HostClock(self.world.loop, rate=rate, offset=up_for - now * rate)
        self.timebase = Timebase(rate=rate, offset=up_for / 2 - now * rate)

    @property
    def up(self) -> bool:
        return self.stack.up

    def run(self, coroutine: Coroutine[Any, Any, Any], name: str = "") -> Process:
        """Start a process whose main coroutine this is."""
        assert self.up, f"{self.name} is down"
        pid = self.next_pid()
        process = Process(self, name or f"p{pid}", pid)
        self.processes.append(process)
        self.world.processes.append(process)
        if self.asleep:
            self.world.loop.freeze(process.domain)
        process._start(coroutine)
        return process

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def peek_pid(self) -> int:
        """The pid that the next process will have."""
        return self._pids + 1

    async def call(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> T:
        """Run a process to its end and hand over its result or its exception."""
        result: T = await self.run(coroutine, name).wait()
        return result

    def forget(self, process: Process) -> None:
        if process in self.processes:
            self.processes.remove(process)

    def crash(self, *, rst: bool = False) -> None:
        """The machine is gone, at once and silently. `rst`: peers get RST, as if it were back
        at once; it stays down all the same until `restart`.
        """
        if not self.up:
            return
        self.world.note(f"{self.name} crashes{' with resets' if rst else ''}")
        self.asleep = False
        self._parked.clear()
        self.stack.crash(rst=rst)
        for process in list(self.processes):
            process._bury(ProcessKilled(f"{self.name} crashed"))
        for callback in self.at_crash:
            callback()

    def restart(self) -> None:
        """Up again, with nothing running, another boot id, and boottime counted from new."""
        if self.up:
            self.crash()
        self.world.note(f"{self.name} is up again")
        self._boot()
        self.stack.restart()

    def freeze(self) -> None:
        """SIGSTOP to every process. The kernel and both clocks go on."""
        for process in self.processes:
            process.freeze()

    def thaw(self) -> None:
        for process in list(self.processes):
            process.thaw()

    def suspend(self) -> None:
        """The lid is shut: nothing runs, the network is silent, CLOCK_MONOTONIC (`loop.time()`)
        stands still; CLOCK_BOOTTIME goes on.
        """
        if self.asleep or not self.up:
            return
        self.world.note(f"{self.name} falls asleep")
        self.asleep = self.stack.asleep = True
        self._asleep_since = self.world.loop.now
        for process in self.processes:
            self.world.loop.freeze(process.domain)
        self._parked = self.world.loop.park(self.timebase)

    def resume(self) -> None:
        if not self.asleep:
            return
        self.world.note(f"{self.name} wakes up")
        slept = self.world.loop.now - self._asleep_since
        self.timebase.lost += slept
        self.asleep = self.stack.asleep = False
        self.world.loop.unpark(self._parked, slept)
        self._parked = []
        for process in self.processes:
            if not process.frozen:
                self.world.loop.thaw(process.domain)
        self.world.network.wake()
