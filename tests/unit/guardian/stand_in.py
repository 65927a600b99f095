"""A process table of dictionaries, for the guardian's `Table` without any process.

It keeps the driver's contract (incumbent.guardian.actions) and counts what lives. Its
programs can be told to ignore signals, or to survive even SIGKILL until released.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field

from incumbent.guardian import actions as a
from incumbent.guardian import messages as m
from incumbent.guardian.table import Table


@dataclass
class Tree:
    start: m.Start
    pid: int
    is_alive: bool = True
    is_executed: bool = False
    is_unkillable: bool = False
    ignores_stop: bool = False
    whose_deadline: tuple[int, float] = (0, 0.0)
    hard_at: float = 0.0
    is_reaped: bool = False
    signals: list[int] = field(default_factory=list)


class StandIn:
    """Runs a table: `tell` an event, read `sent`, `done`, `trees`."""

    def __init__(self, table: Table, now: float = 1000.0) -> None:
        self.table = table
        self.now = now
        self.pids = 100
        self.trees: dict[tuple[str, int], Tree] = {}
        self.sent: list[m.FromGuardian] = []
        self.done: list[a.Action] = []
        self.pending: deque[a.Event] = deque()
        self.agent = 0  # generation of the agent alive, 0: none
        self.exited: int | None = None
        self.closer_runs = 0
        self.wake = float("inf")
        self.next_tree_ignores_stop = False
        self.next_tree_is_unkillable = False
        self._carry_out(table.begin(now))

    # driving

    def tell(self, event: a.Event) -> None:
        self.pending.append(event)
        while self.pending:
            self._carry_out(self.table.handle(self.pending.popleft(), self.now))

    def say(self, *messages: m.FromAgent) -> None:
        for message in messages:
            self.tell(a.Received(self.agent, message))

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the table whenever it asked to be."""
        until = self.now + seconds
        while self.wake <= until and self.exited is None:
            self.now = max(self.now, self.wake)
            self.wake = float("inf")
            before = self.now
            self.tell(a.Tick())
            assert self.wake > before, "the table asks to be woken without end"
        self.now = until
        self.tell(a.Tick())

    def kill_agent_from_outside(self) -> None:
        generation, self.agent = self.agent, 0
        self.tell(a.LinkClosed(generation))
        if generation:
            self.tell(a.AgentDied(generation, -9))

    def executed(self, seat: str, epoch: int) -> None:
        tree = self.trees[seat, epoch]
        assert tree.is_alive
        tree.is_executed = True
        self.tell(a.SeatStarted(seat, epoch, tree.pid, 7))

    def main_exits(self, seat: str, epoch: int, code: int = 0, left: int = 0) -> None:
        self.tell(a.MainExited(seat, epoch, code, None, left))

    def release(self, seat: str, epoch: int) -> None:
        """An unkillable tree can be killed from now on."""
        self.trees[seat, epoch].is_unkillable = False

    def live(self, seat: str) -> list[int]:
        return [e for (s, e), tree in self.trees.items() if s == seat and tree.is_alive]

    def take(self) -> list[m.FromGuardian]:
        sent, self.sent = self.sent, []
        return sent

    def take_done(self) -> list[a.Action]:
        done, self.done = self.done, []
        return done

    # a.ProcessTable

    def spawn_agent(self, action: a.SpawnAgent) -> None:
        assert self.agent == 0, "two agents at once"
        self.agent = action.generation

    def kill_agent(self, action: a.KillAgent) -> None:
        generation, self.agent = self.agent, 0
        if generation:
            self.pending.append(a.LinkClosed(generation))
            self.pending.append(a.AgentDied(generation, -9))

    def send(self, action: a.Send) -> None:
        assert self.agent, "sent to nobody"
        self.sent.append(action.message)

    def spawn_seat(self, action: a.SpawnSeat) -> None:
        start = action.start
        assert not self.live(start.seat), f"two live trees of {start.seat}"
        assert self.now < action.soft_at, "started after its soft deadline"
        earlier = [epoch for seat, epoch in self.trees if seat == start.seat]
        assert start.epoch > max(earlier, default=0), "an epoch that is not newer"
        owner, _, hook = start.seat.partition("!")
        beside = [
            t.start.beside
            for (seat, _), t in self.trees.items()
            if t.is_alive and seat.startswith(f"{owner}!")
        ]
        if hook:
            newest = max((e for seat, e in self.trees if seat == owner), default=0)
            assert (start.beside or 0) >= newest, "a hook of an instance that is over"
        else:
            assert all(each == start.epoch for each in beside), "beside a hook of an older one"
        self.pids += 1
        self.trees[start.seat, start.epoch] = Tree(
            start,
            self.pids,
            whose_deadline=action.whose_deadline,
            hard_at=action.hard_at,
            ignores_stop=self.next_tree_ignores_stop,
            is_unkillable=self.next_tree_is_unkillable,
        )

    def signal(self, action: a.Signal) -> None:
        tree = self.trees[action.seat, action.epoch]
        tree.signals.append(action.signo)
        stops = action.signo == tree.start.stop_signal and not tree.ignores_stop
        if stops and tree.is_alive and not tree.is_unkillable:
            self.pending.append(
                a.MainExited(action.seat, action.epoch, None, action.signo, 0),
            )

    def kill_tree(self, action: a.KillTree) -> None:
        tree = self.trees[action.seat, action.epoch]
        tree.signals.append(signal.SIGKILL)
        if tree.is_alive and not tree.is_unkillable:
            tree.is_alive = False
            self.pending.append(a.TreeEmpty(action.seat, action.epoch))

    def write_deadline(self, action: a.WriteDeadline) -> None:
        for tree in self.trees.values():
            if tree.whose_deadline == action.whose:
                tree.hard_at = action.hard_at

    def reap(self, action: a.Reap) -> None:
        tree = self.trees[action.seat, action.epoch]
        assert not tree.is_alive, "reaped alive"
        tree.is_reaped = True

    def run_closer(self, action: a.RunCloser) -> None:
        assert not any(tree.is_alive for tree in self.trees.values()), "closed before proof"
        assert self.agent == 0, "closed beside an agent"
        self.closer_runs += 1
        self.pending.append(a.CloserFinished(True))

    def exit(self, action: a.Exit) -> None:
        assert not any(tree.is_alive for tree in self.trees.values()), "left programs behind"
        assert self.agent == 0, "left an agent behind"
        self.exited = action.code

    def wake_at(self, action: a.WakeAt) -> None:
        self.wake = action.when

    def _carry_out(self, actions: list[a.Action]) -> None:
        for action in actions:
            assert self.exited is None, f"{action} after Exit"
            self.done.append(action)
            a.carry_out(action, self)


def passport(session_id: int = 0x1234, s_min_ms: int = 10_000) -> dict[str, object]:
    return {
        "session_id": session_id,
        "password": "00" * 16,
        "timeout_ms": s_min_ms,
        "s_min_ms": s_min_ms,
        "last_zxid": 5,
        "auth": [],
        "generation": 1,
    }


def start(epoch: int = 1, seat: str = "web/0", generation: int = 1, **changes: object) -> m.Start:
    values: dict[str, object] = {
        "generation": generation,
        "seat": seat,
        "epoch": epoch,
        "soft": 4.0,
        "hard": 0.5,
        "argv": ("/bin/true",),
        "env": {},
        "cwd": "/",
        "breadcrumb": f"/incumbent/components/web/seats/0/running/{epoch}",
        **changes,
    }
    return m.Start(**values)  # type: ignore[arg-type]
