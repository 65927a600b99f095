"""Items that the members of a group share out: each is somebody's, and nobody else's.

A group has no partitioner; whoever needs one takes the n-th member for the n-th item. That can be
right only if, once all is quiet, all members see the same group, whatever befell them.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress

from tests.unit.recipes.servers import connected
from tests.waiting import eventually

from incumbent import aio
from incumbent.testing import EmbeddedServer

ITEMS = range(20)
MEMBERS = ("a", "b", "c", "d")


class Member:
    """One that joins, looks, and takes its share; `items` is what it works on now."""

    def __init__(self, zk: aio.Zk, name: str) -> None:
        self.zk = zk
        self.name = name
        self.items: frozenset[int] = frozenset()
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.end()
        self.task = asyncio.create_task(self._work())

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
            self.items = frozenset()

    async def _work(self) -> None:
        group = self.zk.group("/workers")
        async with group.join(name=self.name), group.observe() as rosters:
            async for roster in rosters:
                names = sorted(roster.members)
                mine = names.index(self.name) if self.name in names else None
                self.items = frozenset(i for i in ITEMS if names and i % len(names) == mine)


def is_shared_out(members: list[Member]) -> bool:
    """Among those that have joined, each item once."""
    taken = [item for member in members for item in member.items]
    return sorted(taken) == list(ITEMS)


async def befall(server: EmbeddedServer, member: Member, rng: random.Random) -> None:
    """It leaves, joins, is cut off, or its session ends."""
    match rng.randrange(4):
        case 0:
            await member.end()
        case 1:
            await member.begin()
        case 2:
            server.drop(member.zk.session_id)
        case 3:
            with suppress(KeyError):  # it has none just now
                server.expire(member.zk.session_id)


async def test_whatever_befell_the_members_in_the_end_each_item_is_one_members_and_only_ones() -> (
    None
):
    rng = random.Random(54)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(tick=0.2))
        members = []
        for name in MEMBERS:
            zk = await stack.enter_async_context(connected(server))
            member = Member(zk, name)
            stack.push_async_callback(member.end)
            await member.begin()
            members.append(member)
        for _round in range(5):
            for _event in range(15):
                await befall(server, rng.choice(members), rng)
                await asyncio.sleep(rng.uniform(0, 0.05))
            if not any(member.task for member in members):
                await members[0].begin()

            await eventually(lambda: is_shared_out(members), 20)
            assert not any(member.task and member.task.done() for member in members)
