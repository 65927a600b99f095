"""A host's programs: what a kernel and a seat's init do, over entries in a dict.

Programs are not code here but a few numbers: how long they live, how they take SIGTERM, what
they leave behind. Each testifies in the journal as the real test program does (witness.py), by
the world's true time, so that the same auditor judges it.

Rule of this file: it goes on whatever happens to agent and guardian, as a kernel does. A tree is
empty when its last process is gone, and only then is that told.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGKILL, SIGTERM
from typing import Any

from incumbent.guardian.actions import (
    Event,
    MainExited,
    ProgramTold,
    SeatStarted,
    SpawnFailed,
    SpawnSeat,
    TreeEmpty,
    WriteDeadline,
)
from incumbent.guardian.messages import Start, Told
from incumbent.testing.hosts import Host, Process
from incumbent.testing.world import World

__all__ = ["Journal", "Processes", "Program", "Tree"]

_TICK = 0.5
"""Seconds between two signs of life. A tree's last moment is written exactly, also of a killed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a program behaves. Times in world seconds."""

    start_takes: float = 0.002  # from fork to exec
    cannot_start: str = ""  # why exec fails
    lives: float = math.inf  # until it ends by itself
    code: int = 0
    stop_takes: float | None = 0.01  # from SIGTERM to its end; None: it ignores SIGTERM
    children: int = 0  # descendants that live on until they are killed
    dies_in: float = 0.001  # from SIGKILL to the last process gone; inf: unkillable
    ready_after: float = math.inf  # from exec until it says READY=1
    alive_every: float = math.inf  # between two WATCHDOG=1
    hangs_after: float = math.inf  # from exec; then it says nothing any more


class Journal:
    """What the programs of all hosts testify, as lines for the auditor, and a lock per seat."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[str] = []
        self._holders: dict[str, Tree] = {}

    def write(
        self,
        event: str,
        seat: str = "",
        epoch: int = 0,
        node: str = "",
        pid: int = 0,
        **more: object,
    ) -> None:
        """Also for the harness: `journal.write("healed")`."""
        now = round(self.world.now * 1e9)
        fields = {"boottime_ns": now, "seat": seat, "epoch": epoch, "node": node, "pid": pid}
        self.lines.append(json.dumps({**fields, "event": event, **more}) + "\n")
        if event != "tick":
            self.world.note(f"journal {event} {seat} {epoch} {node} {pid}")

    def take_lock(self, tree: Tree) -> None:
        holder = self._holders.get(tree.seat)
        if holder is not None and not holder.is_empty:
            tree.testify("overlap")
        else:
            self._holders[tree.seat] = tree


class Tree:
    """One instance of a seat with all its processes. `dead` is what a pidfd of `pid` tells.

    A hook or a check (SEAT!NAME) testifies as part of the instance that it works for.
    """

    def __init__(
        self, processes: Processes, action: SpawnSeat, program: Program, owner: Process
    ) -> None:
        start, host = action.start, processes.host
        self.processes = processes
        self.program = program
        self.owner = owner
        self.seat, self.epoch = start.seat, start.epoch
        self.beside = start.beside
        self.started_at = 0.0
        self.stop_signal = start.stop_signal
        self.is_sealed = start.containment == "sealed"
        self.main = host.next_pid()
        self.pid = host.next_pid() if self.is_sealed else self.main
        self.hard_at = action.hard_at
        self.whose_deadline = action.whose_deadline
        self.main_lives = False
        self.children = 0
        self.has_started = False
        self.is_dying = False
        self.is_empty = False
        self.is_reaped = False
        self.dead: asyncio.Future[None] = host.world.loop.create_future()

    def testify(self, event: str) -> None:
        node, seat, epoch = self.processes.host.name, self.seat, self.epoch
        if self.beside is not None:
            event, seat, epoch = "beside", seat.partition("!")[0], self.beside
        self.processes.journal.write(event, seat, epoch, node, self.main)

    @property
    def start_time(self) -> int:
        return self.main * 7


class Processes:
    """The trees on one host. `behaves` says how the program of a START behaves."""

    def __init__(self, host: Host, journal: Journal, behaves: Callable[[Start], Program]) -> None:
        self.host = host
        self.journal = journal
        self.behaves = behaves
        self.trees: dict[tuple[str, int], Tree] = {}
        host.at_crash.append(self._crash)

    def after(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        """By the kernel, in world time. Never called for an infinite delay."""
        if seconds < math.inf:
            self.host.world.network.at(self.host.world.now + seconds, lambda: what(*args))

    def tell(self, tree: Tree, event: Event) -> None:
        """To the guardian that started it, if that lives."""
        guardian = tree.owner
        if guardian.alive and guardian.on_child is not None:
            context = self.host.world.loop.enter(guardian.domain)
            self.host.world.loop.call_soon(guardian.on_child, event, context=context)

    # -- a life --------------------------------------------------------------------------------

    def spawn(self, action: SpawnSeat, owner: Process) -> None:
        start = action.start
        program = self.behaves(start)
        tree = Tree(self, action, program, owner)
        self.trees[(start.seat, start.epoch)] = tree
        owner.at_end.append(lambda: self._orphan(tree))
        self.after(program.start_takes, self._exec, tree, action.soft_at)

    def _exec(self, tree: Tree, soft_at: float) -> None:
        if tree.is_empty or tree.is_dying:
            return
        program, epoch = tree.program, tree.epoch
        late = self.host.clock.boottime() >= soft_at
        if late or program.cannot_start:
            why = "the soft deadline passed before exec" if late else program.cannot_start
            self._vanish(tree)
            self.tell(tree, SpawnFailed(tree.seat, epoch, why, permanent=not late))
            return
        tree.has_started = tree.main_lives = True
        tree.children = program.children
        tree.started_at = self.host.world.now
        tree.testify("start")
        if tree.beside is None:
            self.journal.take_lock(tree)
        self.tell(tree, SeatStarted(tree.seat, epoch, tree.pid, tree.start_time, tree.main))
        self.after(_TICK, self._beat, tree)
        self.after(program.lives, self._main_ends, tree, program.code, None)
        self.after(program.ready_after, self._say, tree, "ready", math.inf)
        self.after(program.alive_every, self._say, tree, "alive", program.alive_every)
        self._watch_deadline(tree)

    def _beat(self, tree: Tree) -> None:
        if not tree.is_empty:
            tree.testify("tick")
            self.after(_TICK, self._beat, tree)

    def _say(self, tree: Tree, word: str, again: float) -> None:
        """Of itself, as long as it lives and does not hang."""
        if tree.main_lives and self.host.world.now - tree.started_at < tree.program.hangs_after:
            told = Told(seat=tree.seat, epoch=tree.epoch, **{word: True})  # type: ignore[arg-type]
            self.tell(tree, ProgramTold(told))
            self.after(again, self._say, tree, word, again)

    def _main_ends(self, tree: Tree, code: int | None, signo: int | None) -> None:
        if tree.is_empty or not tree.main_lives:
            return
        tree.main_lives = False
        if tree.children == 0:
            tree.testify("stop")
        self.tell(tree, MainExited(tree.seat, tree.epoch, code, signo, tree.children))
        if tree.children == 0:
            self._vanish(tree)
        elif not tree.is_sealed:
            self._done(tree)  # main's own pidfd; its descendants live on

    def _vanish(self, tree: Tree) -> None:
        """Its last process is gone."""
        if not tree.is_empty:
            if tree.has_started and (tree.main_lives or tree.children):
                tree.testify("tick")  # killed: alive until this moment
            tree.is_empty, tree.main_lives, tree.children = True, False, 0
            self._done(tree)
            if tree.has_started or tree.is_dying:
                self.tell(tree, TreeEmpty(tree.seat, tree.epoch))

    def _done(self, tree: Tree) -> None:
        if not tree.dead.done():
            tree.dead.set_result(None)

    # -- signals and deadlines -----------------------------------------------------------------

    def find(self, seat: str, epoch: int) -> Tree | None:
        return self.trees.get((seat, epoch))

    def find_pid(self, pid: int) -> Tree | None:
        return next((t for t in self.trees.values() if pid in (t.pid, t.main)), None)

    def signal(self, tree: Tree, signo: int) -> None:
        """To its main process."""
        if signo == SIGKILL:
            self.kill(tree)
        elif signo in (SIGTERM, tree.stop_signal) and tree.main_lives:
            takes = tree.program.stop_takes
            self.after(math.inf if takes is None else takes, self._main_ends, tree, 0, None)

    def kill(self, tree: Tree) -> None:
        """SIGKILL to all of it."""
        if not tree.is_empty and not tree.is_dying:
            tree.is_dying = True
            self.after(tree.program.dies_in, self._vanish, tree)

    def write_deadline(self, action: WriteDeadline, owner: Process) -> None:
        for tree in self.trees.values():
            if tree.whose_deadline == action.whose and tree.owner is owner:
                tree.hard_at = action.hard_at
                self._watch_deadline(tree)

    def _watch_deadline(self, tree: Tree) -> None:
        """A sealed tree's init ends it at its deadline, whatever happened to the guardian."""
        if tree.is_sealed and not tree.is_empty and tree.hard_at < math.inf:
            left = tree.hard_at - self.host.clock.boottime()
            if left <= 1e-6:  # less than rounding could ever let pass
                self.kill(tree)
            else:
                self.after(left / self.host.clock.rate, self._look_at_deadline, tree, tree.hard_at)

    def _look_at_deadline(self, tree: Tree, hard_at: float) -> None:
        if tree.hard_at == hard_at:
            self._watch_deadline(tree)

    def _orphan(self, tree: Tree) -> None:
        """Its guardian is dead: PDEATHSIG ends a sealed tree; a swept one lives on."""
        if tree.is_sealed or not tree.has_started:
            self.kill(tree)

    def _crash(self) -> None:
        """The machine is gone: everything dies in this moment."""
        for tree in self.trees.values():
            self._vanish(tree)
        self.trees.clear()
