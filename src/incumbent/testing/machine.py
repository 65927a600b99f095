"""The agent's machine in the simulated world: launches, pidfds and memory over process tables.

Rule of this file: it answers as the real rim does (agent/host.py), and touches nothing real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from incumbent.agent.instance import Instance
from incumbent.agent.steadiness import Loss
from incumbent.launch import Launch
from incumbent.spec import Spec
from incumbent.testing.processes import Processes

__all__ = ["SimMachine"]


class SimMachine:
    """What `agent.Agent` takes as its host. `remembered` outlives the agent, as a file does."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._host = processes.host
        self.lost: list[Loss] = []
        self.written: dict[tuple[str, str], str] = {}
        self.remembered: dict[str, tuple[int, str]] = {}  # seat -> epoch, state

    def launch(self, spec: Spec, seat: str, node: str, epoch: int) -> Launch:
        env = {
            "INCUMBENT_COMPONENT": spec.name,
            "INCUMBENT_SEAT": seat,
            "INCUMBENT_NODE": node,
            "INCUMBENT_EPOCH": str(epoch),
        }
        return Launch(argv=spec.command, env=env, cwd="/", executable=spec.command[0])

    def cgroup_of(self, seat: str, epoch: int) -> str | None:
        return None

    def unfit(self, spec: Spec) -> str:
        return ""

    def log_path(self, seat: str) -> str | None:
        return None

    async def last_line(self, seat: str, within: float) -> str:
        return ""

    def death_of(self, pid: int) -> asyncio.Future[None]:
        """Done when the process is dead: a guardian, or the first process of a tree."""
        dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(_: object = None) -> None:
            if not dead.done():
                dead.set_result(None)

        process = next((p for p in self._host.processes if p.pid == pid), None)
        tree = self._processes.find_pid(pid)
        if process is not None:
            process.at_end.append(tell)
        elif tree is not None:
            if tree.dead.done():
                tell()
            else:
                tree.dead.add_done_callback(tell)
        else:
            tell()
        return dead

    def kill(self, pid: int) -> None:
        process = next((p for p in self._host.processes if p.pid == pid), None)
        tree = self._processes.find_pid(pid)
        if process is not None:
            process.kill()
        elif tree is not None:
            self._processes.kill(tree)

    async def sweep(self, seat: str, epoch: int) -> None:
        tree = self._processes.find(seat, epoch)
        while tree is not None and not tree.is_empty:
            self._processes.kill(tree)
            await asyncio.sleep(0.05)

    def losses(self) -> list[Loss]:
        return list(self.lost)

    def remember_losses(self, losses: Sequence[Loss]) -> None:
        self.lost = list(losses)

    def write_config(self, spec: Spec, seat: str, name: str, value: str) -> str:
        self.written[seat, name] = value
        return f"/config/{seat}.{name}"

    def forget_config(self, seat: str) -> None:
        """It is there for who wants to look at it."""

    def rendered(self, spec: Spec, name: str, path: str, variables: Mapping[str, str]) -> str:
        return f"{path} with {variables.get('LEVEL', '')}"

    def tell_deadline(self, at: float) -> None:
        """Nobody reads it here."""

    def remember(self, instances: Mapping[str, Instance]) -> None:
        self.remembered = {seat: (i.epoch, i.state) for seat, i in instances.items()}
