"""A control for our faults: an election as many write it with kazoo, and ours, in the same plays.

Two candidates, one fault, and what must hold of any election: never two who believe that they lead,
and soon one again. The home-made one fails each play, else the play would show nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol, TypeAlias

import pytest
from kazoo.client import KazooClient, KazooState
from tests.faults.recipes_relay import relay_to as losing_relay_to
from tests.relay import relay_to
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import IncumbentError
from incumbent.recipes.hold import Hold
from incumbent.testing import EmbeddedServer
from incumbent.wire import Create2, Request

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"  # kazoo's threads, as it is stopped
)

SESSION = 2.0  # seconds
PATH = "/election"


class Candidate(Protocol):
    def believes(self) -> bool:
        """Would it act as the leader now?"""


Stand: TypeAlias = Callable[[str], AbstractAsyncContextManager[Candidate]]


class HomeMade:
    """The first of the ephemeral sequential znodes leads; LOST ends it, and one stands anew."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.own = ""
        self.first = ""
        client.add_listener(self._listen)
        client.ensure_path(PATH)
        self._stand()
        client.ChildrenWatch(PATH, self._look)

    def believes(self) -> bool:
        return self.own != "" and self.first == self.own

    def _stand(self) -> None:
        own = self.client.retry(self.client.create, f"{PATH}/n_", ephemeral=True, sequence=True)
        self.own = own.rpartition("/")[2]

    def _look(self, names: list[str]) -> None:
        self.first = min(names, default="")

    def _listen(self, state: str) -> None:
        if state == KazooState.LOST:
            self.own = ""
            self.client.handler.spawn(self._stand)


@asynccontextmanager
async def home_made(hosts: str) -> AsyncIterator[Candidate]:
    client = KazooClient(hosts, timeout=SESSION)
    await asyncio.to_thread(client.start, 10)
    try:
        one = await asyncio.to_thread(HomeMade, client)
        yield one
        client.remove_listener(one._listen)
    finally:
        await asyncio.to_thread(client.stop)
        client.close()


class Ours:
    """A block that leads, entered again and again."""

    def __init__(self) -> None:
        self.hold: Hold | None = None

    def believes(self) -> bool:
        return self.hold is not None and self.hold.remaining() > 0

    async def stand(self, zk: aio.Zk) -> None:
        while True:
            with suppress(IncumbentError):
                async with zk.lead(PATH) as self.hold:
                    await asyncio.Event().wait()
            self.hold = None


@asynccontextmanager
async def ours(hosts: str) -> AsyncIterator[Candidate]:
    async with aio.connect(hosts, tick=0.0, session_timeout=SESSION) as zk:
        one = Ours()
        standing = asyncio.create_task(one.stand(zk))
        try:
            yield one
        finally:
            standing.cancel()
            await asyncio.wait([standing])


@asynccontextmanager
async def two(stand: Stand, hosts: list[str]) -> AsyncIterator[list[Candidate]]:
    """The second stands when the first believes that it leads."""
    async with stand(hosts[0]) as first:
        await eventually(first.believes)
        async with stand(hosts[1]) as second:
            yield [first, second]


async def wrongs(candidates: list[Candidate]) -> set[str]:
    """What is wrong with them within three sessions: `overlap`; `nobody`, at their end."""
    wrong: set[str] = set()
    loop = asyncio.get_running_loop()
    begun = led_at = loop.time()
    while loop.time() < begun + 3 * SESSION:
        leading = sum(one.believes() for one in candidates)
        if leading:
            led_at = loop.time()
        if leading > 1:
            wrong.add("overlap")
        await asyncio.sleep(0.005)
    return wrong | ({"nobody"} if loop.time() - led_at > SESSION else set())


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tick=SESSION / 2) as server:
        yield server


BOTH = pytest.mark.parametrize(("stand", "is_safe"), [(home_made, False), (ours, True)])


@BOTH
async def test_a_leader_whose_link_goes_silent_leads_no_longer_when_the_next_one_does(
    server: EmbeddedServer, stand: Stand, is_safe: bool
) -> None:
    async with relay_to(server.hosts) as relay, two(stand, [relay.hosts, server.hosts]) as both:
        relay.black_hole()

        wrong = await wrongs(both)

        relay.heal()
    assert is_safe == (not wrong), wrong


@BOTH
async def test_an_operator_who_deletes_all_candidates_leaves_an_election_that_goes_on(
    server: EmbeddedServer, stand: Stand, is_safe: bool
) -> None:
    async with (
        two(stand, [server.hosts, server.hosts]) as both,
        aio.connect(server.hosts, tick=0.0) as operator,
    ):
        for name in await operator.children(PATH):
            await operator.delete(f"{PATH}/{name}")

        wrong = await wrongs(both)

    assert is_safe == (not wrong), wrong


@BOTH
async def test_a_candidate_whose_creation_was_not_answered_is_no_stranger_ahead_of_itself(
    server: EmbeddedServer, stand: Stand, is_safe: bool
) -> None:
    lost = server.lose_reply(op="create", path=f"{PATH}/*")
    async with stand(server.hosts) as one:
        wrong = await wrongs([one])

    assert lost.happened
    assert is_safe == (not wrong), wrong


async def test_a_session_that_ends_and_leaves_its_znode_for_a_while_makes_no_two_leaders(
    server: EmbeddedServer,
) -> None:
    async with two(ours, [server.hosts, server.hosts]) as both:
        with server.hold_ephemerals():
            server.expire(server.sessions[0])
            await eventually(lambda: not both[0].believes())
            wrong = await wrongs(both)
        await eventually(lambda: any(one.believes() for one in both))

    assert "overlap" not in wrong


async def test_a_znode_whose_creation_was_lost_with_its_session_is_not_taken_for_the_next_ones(
    server: EmbeddedServer,
) -> None:
    async with (
        losing_relay_to(server.host, server.port) as relay,
        aio.connect(relay.hosts, tick=0.0, session_timeout=SESSION) as zk,
        aio.connect(server.hosts, tick=0.0) as other,
    ):
        await other.ensure(PATH)

        def lose(request: Request) -> bool:  # and let nobody in until the session is over
            relay.is_closed = relay.is_closed or isinstance(request, Create2)
            return isinstance(request, Create2)

        relay.lose_answer = lose
        one, before = Ours(), zk.session_id
        standing = asyncio.create_task(one.stand(zk))
        await eventually(lambda: relay.is_closed)
        with server.hold_ephemerals():
            server.expire(before)
            relay.lose_answer = lambda request: False
            relay.is_closed = False
            await eventually(lambda: _stand_there(other, 2))
            assert not one.believes()
        await eventually(one.believes)

        (name,) = await other.children(PATH)
        stat = await other.exists(f"{PATH}/{name}")
        assert stat is not None
        assert stat.ephemeralOwner == zk.session_id != before
        standing.cancel()


async def _stand_there(zk: aio.Zk, number: int) -> bool:
    return len(await zk.children(PATH)) == number


async def test_whatever_befalls_a_candidate_twenty_times_it_leads_again_each_time(
    server: EmbeddedServer,
) -> None:
    rng = random.Random(25)
    async with aio.connect(server.hosts, tick=0.0, session_timeout=SESSION) as zk:
        one = Ours()
        standing = asyncio.create_task(one.stand(zk))
        for _time in range(20):
            await eventually(one.believes)
            session_id = zk.session_id
            befall = rng.choice([server.drop, server.expire])
            befall(session_id)
            if befall == server.expire:
                await eventually(lambda before=session_id: zk.session_id != before)

        await eventually(one.believes)

        assert len(await zk.children(PATH)) == 1
        standing.cancel()
        await asyncio.wait([standing])
