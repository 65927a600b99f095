"""A seat that is handed over in order: the next one's start is written by whoever leaves."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.simulation.cluster import Cluster

from incumbent.agent import lifecycle
from incumbent.agent.offering import Offering
from incumbent.agent.tenure import Tenure


class Stopping(Cluster):
    """One seat on three nodes; whoever has it is stopped, again and again, and comes back."""

    times = 4

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = 1
        self.programs = self.programs[:1]
        self.in_order: list[tuple[int, str]] = []
        """The starts of this story; afterwards a node fails for good."""

    async def story(self) -> None:
        for name in ("zk", "n1", "n2", "n3"):
            self.boot(name)
        self.world.host("ops")
        await self.world.host("ops").call(self.apply(), "apply")
        for _ in range(self.times):
            await asyncio.sleep(10.0)
            guardian = self.nodes[self.owner()].guardian
            assert guardian is not None
            guardian.shutdown()
        await asyncio.sleep(10.0)
        self.in_order = self.starts()

    def starts(self) -> list[tuple[int, str]]:
        """(epoch, node), first to last."""
        events = [json.loads(line) for line in self.journal.lines]
        return [(e["epoch"], e["node"]) for e in events if e["event"] == "start"]

    def owner(self) -> str:
        return self.starts()[-1][1]


def granted(monkeypatch: pytest.MonkeyPatch) -> list[bool | None]:
    """Fills with what became of each grant; None as long as that is not known."""
    outcomes: list[bool | None] = []
    original = Tenure._granted

    async def counted(tenure: Tenure, ops: list[object]) -> bool:
        outcomes.append(None)
        outcomes[-1] = outcome = await original(tenure, ops)  # type: ignore[arg-type]
        return outcome

    monkeypatch.setattr(Tenure, "_granted", counted)
    return outcomes


@pytest.mark.parametrize("seed", range(1, 6))
def test_whoever_is_next_in_line_is_granted_its_start(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = granted(monkeypatch)
    cluster = Stopping(seed)

    cluster.run()

    assert outcomes == [True] * cluster.times
    epochs = [epoch for epoch, _ in cluster.in_order]
    assert epochs == [1, 2, 3, 4, 5], "one epoch for each start, none for a grant besides"


def test_a_granted_start_that_is_not_carried_out_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = granted(monkeypatch)
    declines: list[str] = []
    accepts = lifecycle.accepts

    def unwilling(me: str, *rest: object) -> lifecycle.Accept | lifecycle.Decline:
        """The first that was granted a start will not have it."""
        if outcomes and not declines:
            declines.append(me)
            return lifecycle.Decline("of its own will")
        return accepts(me, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(lifecycle, "accepts", unwilling)
    cluster = Stopping(1)
    cluster.times = 1

    cluster.run()

    assert declines, "nobody was granted a start"
    assert len(cluster.in_order) > 1, "the seat waits for a breadcrumb without an instance"
    assert cluster.in_order[1] == (3, ({"n2", "n3"} - {*declines}).pop())


def test_an_offer_that_has_grown_old_is_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the grant and its reading, operators have changed their mind: a start of its own."""
    outcomes = granted(monkeypatch)
    monkeypatch.setattr(Offering, "nonce", lambda offering: "" if outcomes else "never asked")
    monkeypatch.setattr(Offering, "renew", lambda offering, place: None)
    cluster = Stopping(1)
    cluster.times = 1

    cluster.run()

    assert outcomes == [True]
    epochs = [epoch for epoch, _ in cluster.in_order]
    assert epochs == [1, 3], "epoch 2 was granted, and another start was written in its place"
