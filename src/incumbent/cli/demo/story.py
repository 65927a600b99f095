"""The demo's four acts: kill an agent, a guardian, a node; hand over. Each ends with receipts.

Rule of this file: an act says what it does, does it, waits for what must follow, and tells it
in measured times: from the kill (by our clock, before the signal) or the last sign of life to
the first line of the successor's witness. Nothing is told that was not seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from incumbent.cli.demo.journals import Journals
from incumbent.cli.demo.stage import Node, Stage
from incumbent.cli.demo.voice import Voice

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Story"]

_READING = 2.5
"""Seconds in which one can read what will happen, and see what did."""
_SOON = 15.0
"""Seconds in which what needs no timeout must have happened."""


class Story:
    """`play` it once everything runs."""

    def __init__(self, stage: Stage, journals: Journals, voice: Voice) -> None:
        self._stage = stage
        self._journals = journals
        self._voice = voice
        self._first = stage.loads[0].name
        self._acts = 4

    @property
    def can_lose_a_node(self) -> bool:
        """Whether every program is sealed: else nothing proves it dead when its node is gone."""
        return all(row.row.containment == "sealed" for row in self._stage.now.seats.values())

    async def play(self) -> None:
        """Raises `TimedOut` where something did not follow in time."""
        await self._kill_agent()
        lost = await self._kill_guardian()
        if self.can_lose_a_node:
            await self._kill_node()
        else:
            self._skip_node()
        await self._hand_over(lost)

    # ── the acts

    async def _kill_agent(self) -> None:
        stage, name = self._stage, self._first
        node = self._node_of(name)
        before, session = stage.now.row(name), stage.session_of(node)
        epochs = set(self._journals.lives(name))
        self._voice.act(
            1,
            self._acts,
            "Kill an agent. It decides; its guardian owns the programs.",
            f"kill -9 {node.agent}, the agent of {node.name}. Nothing should happen, on purpose:",
            f"the guardian keeps {self._all(stage.now.on(node.name))} running and starts a new agent.",
        )
        await self._read()

        killed_ns = self._fault()
        old = node.kill_agent()
        back_ns = 0

        def is_back() -> bool:
            nonlocal back_ns
            if node.agent in (0, old) or not stage.session_of(node):
                return False
            back_ns = back_ns or time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            return stage.now.runs(name, node.name)

        with self._counting("the kill"):
            await stage.until(f"the new agent of {node.name}", is_back, _SOON)
        node.killed = ()
        await self._read()  # anything that should not have happened shows by now
        after = stage.now.row(name)
        kept = after.pid == before.pid and set(self._journals.lives(name)) == epochs
        same = "the same" if stage.session_of(node) == session else "a new"
        self._voice.receipt(
            "agent killed",
            node.name,
            0.0 if kept else (back_ns - killed_ns) / 1e9,
            f"{name} still pid {after.pid}" if kept else f"{name} was restarted",
            f"new agent {node.agent} after {(back_ns - killed_ns) / 1e6:.0f} ms, in {same} session",
        )

    async def _kill_guardian(self) -> Node:
        node = self._node_of(self._first)
        names = self._stage.now.on(node.name)
        self._voice.act(
            2,
            self._acts,
            "Kill a guardian. Its programs die with it.",
            f"kill -9 {node.guardian}, the guardian of {node.name}. Its agent proves that "
            f"{self._all(names)}",
            f"{_is(names)} dead and says so; the next in line starts at once.",
        )
        await self._read()

        killed_ns = self._fault()
        node.kill_guardian()

        await self._moved("guardian killed", node, names, killed_ns, _SOON)
        return node

    async def _kill_node(self) -> None:
        stage = self._stage
        node = self._node_of(self._first)
        names = stage.now.on(node.name)
        self._voice.act(
            3,
            self._acts,
            "Kill a whole node: guardian and agent at once, as if its plug was pulled.",
            f"kill -9 {node.guardian} {node.agent}, all of {node.name}. Its programs die with it, "
            "but nobody",
            f"is left to say so. The next in line waits for its session to end: S = {stage.session:g} s,",
            "and at most one more tick of the server, 2 s.",
        )
        await self._read()

        killed_ns = self._fault()
        node.kill()

        await self._moved("node killed", node, names, killed_ns, stage.session + _SOON)

    def _skip_node(self) -> None:
        self._voice.act(
            3,
            self._acts,
            "Kill a whole node: skipped.",
            "Programs cannot be sealed here (that needs root, or user namespaces), they are",
            "only swept. Nothing would prove them dead, so no other node would start them:",
            "it would wait for `incumbent node confirm-dead`.",
        )

    async def _hand_over(self, node: Node) -> None:
        """The node that lost its guardian comes back; the planner gives it a share."""
        stage = self._stage
        self._voice.act(
            4,
            self._acts,
            "Hand over. Nothing is killed.",
            f"{node.name} comes back, and the planner gives it its share. That program is stopped",
            f"where it is, proven dead, and only then started on {node.name}.",
        )
        before = {name: stage.now.row(name) for name in stage.now.seats}
        await self._read()

        node.start()
        with self._counting(f"{node.name} was started"):
            await stage.until(
                f"{node.name} to get a seat", lambda: bool(stage.now.on(node.name)), _SOON
            )
        (name,) = stage.now.on(node.name)[:1]
        self._journals.note("moved", f"{name}/0", **{"from": before[name].node, "to": node.name})
        await self._started(name, before[name].epoch, _SOON)
        lives = self._journals.lives(name)
        old, new = lives[before[name].epoch], lives[stage.now.row(name).epoch]
        self._tell("handed over", name, before[name].node, (new.began_ns - old.seen_ns) / 1e9)
        await self._read()

    # ── what they share

    def _node_of(self, name: str) -> Node:
        return self._stage.nodes[self._stage.now.row(name).node]

    def _fault(self) -> int:
        """From now on the auditor waits for a sign of life of every seat; the time in ns."""
        self._journals.note("fault")
        return self._journals.note("healed")

    async def _read(self) -> None:
        await asyncio.sleep(_READING)

    @contextmanager
    def _counting(self, since: str) -> Iterator[None]:
        """Show how long we have been waiting."""
        began_at = time.monotonic()
        self._voice.caption = lambda: f"{time.monotonic() - began_at:.1f} s since {since}"
        try:
            yield
        finally:
            self._voice.caption = str

    async def _moved(
        self, what: str, node: Node, names: Iterable[str], killed_ns: int, within: float
    ) -> None:
        """Wait until all of these run on other nodes; a receipt for each."""
        rows = {name: self._stage.now.row(name) for name in names}
        with self._counting("the kill"):
            for name, row in rows.items():
                await self._started(name, row.epoch, within)
        for name, row in rows.items():
            lives = self._journals.lives(name)
            first = lives[min(epoch for epoch in lives if epoch > row.epoch)]
            self._tell(what, name, node.name, (first.began_ns - killed_ns) / 1e9)
        await self._read()

    async def _started(self, name: str, after: int, within: float) -> None:
        """Wait until a newer epoch runs, its witness has spoken, and its receipt is written."""
        stage = self._stage

        def is_so() -> bool:
            row, observed = stage.now.row(name), stage.observed.get(name)
            return (
                stage.now.runs(name)
                and row.epoch > after
                and row.epoch in self._journals.lives(name)
                and observed is not None
                and observed.epoch == row.epoch
            )

        await stage.until(f"{name} to run again", is_so, within)

    def _tell(self, what: str, name: str, origin: str, down: float) -> None:
        row, observed = self._stage.now.row(name), self._stage.observed[name]
        detail = observed.receipt.partition(": ")[2]
        self._voice.receipt(
            what,
            f"{origin} → {row.node}",
            down,
            f"{name}, epoch {row.epoch}",
            detail,
        )

    def _all(self, names: list[str]) -> str:
        return " and ".join(names)


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
