"""A queue under random lives, against a dumb model: a list.

Whoever stands lowest is first, and nobody else, whatever became of those before; nobody who
left, was cancelled, deleted by hand or cut off stands in the way.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.recipes_relay import Relay, relay_to
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import NoNode
from incumbent.recipes.place import Place

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["enter", "leave", "cancel", "delete", "cut", "lose create", "lose delete"]
        ),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=14,
)


@dataclass
class Contender:
    """One who stands, and the task in which it waits to be first."""

    place: Place
    waiting: asyncio.Task[None]


class Life:
    def __init__(self, zks: list[aio.Zk], relays: list[Relay], dialect: str) -> None:
        self.zks, self.relays = zks, relays
        self.dialect = dialect
        self.model: list[Contender] = []  # in the order in which they entered

    async def step(self, what: str, which: int) -> None:
        contender = self.model[which % len(self.model)] if self.model else None
        client = which % len(self.zks)
        match what:
            case "enter" | "lose create":
                if what == "lose create":
                    self.lose(client, "Create2")
                place = await self.zks[client].contenders("/q", dialect=self.dialect).enter(b"x")
                task = asyncio.create_task(place.first())
                self.model.append(Contender(place, task))
            case "cut":
                self.relays[client].cut()
            case _ if contender is None:
                pass
            case "delete":
                await self.zks[client].delete(contender.place.path)
                await self.out(contender)
            case "leave" | "lose delete":
                if what == "lose delete":
                    self.lose(self.zks.index(self.owner(contender)), "Delete")
                await contender.place.leave()
                await self.out(contender)
            case "cancel":
                contender.waiting.cancel()
                contender.place.release()
                await self.out(contender)

    def owner(self, contender: Contender) -> aio.Zk:
        return next(z for z in self.zks if z.client is contender.place.ledger.client)

    async def out(self, contender: Contender) -> None:
        self.model.remove(contender)
        contender.waiting.cancel()
        await asyncio.gather(contender.waiting, return_exceptions=True)

    def lose(self, client: int, kind: str) -> None:
        relay = self.relays[client]

        def once(request: object) -> bool:
            if type(request).__name__ != kind:
                return False
            relay.lose_answer = lambda request: False
            return True

        relay.lose_answer = once

    async def check(self) -> None:
        names = [contender.place.name for contender in self.model]
        await eventually(lambda: self.standing(names), 5, f"{names} to stand")
        if self.model:
            first = self.model[0]
            await eventually(first.waiting.done, 5, f"{names[0]} to be first")
            error = first.waiting.exception()
            assert error is None, f"{names[0]}: {error!r}"
        for contender in self.model[1:]:
            assert not contender.waiting.done(), f"{contender.place.name} among {names}"

    async def standing(self, names: list[str]) -> bool:
        try:
            children = await self.zks[0].children("/q")
        except NoNode:
            children = []
        return sorted(children, key=lambda name: name[-10:]) == names


async def live(steps: list[tuple[str, int]], dialect: str) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as left,
        relay_to(server.host, server.port) as right,
        connected(left, rng=random.Random(1)) as one,
        connected(right, rng=random.Random(2)) as two,
    ):
        life = Life([one, two], [left, right], dialect)
        for what, which in steps:
            await life.step(what, which)
            await life.check()
        for contender in list(life.model):
            await life.out(contender)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from(["ours", "plain:n_"]))
def test_the_lowest_is_first_and_nobody_else(steps: list[tuple[str, int]], dialect: str) -> None:
    asyncio.run(live(steps, dialect))
