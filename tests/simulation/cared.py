"""The cluster again, with everything that is run beside programs, and programs that hang.

While faults last, hooks and checks fail, hang and linger, and programs say too little; then all
are well, and every seat must be ready.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.cluster import FAULTS_FOR, Cluster

from incumbent.guardian.messages import Start
from incumbent.spec import Check, Hook, Spec
from incumbent.testing.processes import Program
from incumbent.testing.world import World

__all__ = ["CaredFor"]

_READY = Check(way="notify", interval=1.0, timeout=1.0, within=4.0)
_ASKED = Check(way="command", command=("/bin/ready",), interval=0.5, timeout=0.5, within=6.0)
_WATCHDOG = Check(way="notify", interval=1.0, timeout=1.0)
_LIVE = Check(way="command", command=("/bin/live",), interval=1.0, timeout=1.0, failures=2)


class CaredFor(Cluster):
    """One seed."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        rng = self.world.rng
        self.checks = [
            (rng.choice([_READY, _ASKED, None]), rng.choice([_WATCHDOG, _LIVE])) for _ in range(3)
        ]
        self.hooked = [[rng.random() < 0.6 for _ in range(5)] for _ in range(3)]
        self.is_bad = rng.choice([0.0, 0.2, 0.5])
        self.refused: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self.within += 10

    def spec(self, name: str) -> Spec:
        number = int(name[1:]) % 3
        ready, live = self.checks[number]
        turns = ("before_start", "after_start", "before_stop", "after_stop", "on_fail")
        hooks = {
            turn: Hook(command=(f"/bin/{turn}",), limit=3.0)
            for turn, is_there in zip(turns, self.hooked[number], strict=True)
            if is_there
        }
        return Spec(
            name=name, command=(f"/bin/{name}",), ready=ready, live=live, backoff_most=4.0, **hooks
        )  # type: ignore[arg-type]

    def behaves(self, start: Start) -> Program:
        rng = self.world.rng
        if (start.seat, start.epoch) in self.refused:
            self.wrong.append(f"{start.seat} epoch {start.epoch} started against its before_start")
        is_bad = self.world.now < FAULTS_FOR and rng.random() < self.is_bad
        if start.beside is not None:
            if not is_bad:
                return Program(lives=rng.uniform(0.0, 0.3))
            lives, code = rng.choice([(0.1, 1), (100.0, 0), (2.0, 0)])
            owner, _, what = start.seat.partition("!")
            if what == "before_start" and (code or lives > 3.0):
                self.refused.add((owner, start.beside))
            return Program(lives=lives, code=code, stop_takes=None, children=rng.choice([0, 2]))
        if not is_bad:
            return Program(
                ready_after=rng.uniform(0.0, 1.0),
                alive_every=0.4,
                stop_takes=rng.choice([0.01, None]),
            )
        return rng.choice(
            [
                Program(ready_after=0.5, alive_every=0.4, hangs_after=rng.uniform(0.0, 8.0)),
                Program(ready_after=10.0, alive_every=0.4, stop_takes=None),
                Program(lives=rng.uniform(0.0, 5.0), code=1, ready_after=0.1, alive_every=0.4),
            ]
        )

    def is_well(self) -> bool:
        return False  # whether all are ready is seen when the time is over

    def run(self) -> World:
        world = super().run()
        assert not self.wrong, self.wrong
        for name, agent in sorted(self.agents.items()):
            if agent.term is None or not self.nodes[name].host.up:
                continue
            for seat in agent.term.seats.values():
                ready, _ = self.checks[int(seat.component[1:]) % 3]
                if seat.is_leading:
                    wanted = "ready" if ready is not None else "running"
                    assert seat.word.state == wanted, (
                        f"{seat.name}: {seat.word.state} {seat.word.reason}"
                    )
        return world
