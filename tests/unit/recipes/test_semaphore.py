"""Semaphores on the embedded server: how many are inside, who wakes whom, at what price."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import BadContent, LockLost, LockTimeout, NoNode
from incumbent.server import Server

PATH = "/pool"
OWN = ("Ping", "Multi")


class Crowd:
    """Users of one semaphore, each with a session of its own, by number in order of arrival."""

    def __init__(self, server: Server, size: int) -> None:
        self.server = server
        self.size = size
        self.zks: list[aio.Zk] = []
        self.inside: list[int] = []
        self._may_leave: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()

    async def add(self, number: int = 1) -> None:
        """So many more; returns when each has its znode."""
        for _ in range(number):
            zk = await self._stack.enter_async_context(connected(self.server))
            self.zks.append(zk)
            self._may_leave.append(asyncio.Event())
            stand = await standing(zk)
            self._tasks.append(asyncio.create_task(self._use(len(self._tasks))))
            await eventually(lambda stand=stand, zk=zk: _is(zk, stand + 1))  # type: ignore[misc]

    async def leave(self, who: int) -> None:
        self._may_leave[who].set()
        await asyncio.wait_for(self._tasks[who], 5)

    async def are_inside(self, *who: int) -> None:
        await eventually(lambda: sorted(self.inside) == list(who), what=f"{who} to be inside")

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _use(self, who: int) -> None:
        async with self.zks[who].semaphore(PATH, size=self.size).acquire(f"user-{who}"):
            self.inside.append(who)
            try:
                await self._may_leave[who].wait()
            finally:
                self.inside.remove(who)


@contextlib.asynccontextmanager
async def crowd(*, size: int, users: int) -> AsyncIterator[Crowd]:
    async with embedded() as server:
        people = Crowd(server, size)
        try:
            await people.add(users)
            yield people
        finally:
            await people.end()


async def standing(zk: aio.Zk) -> int:
    try:
        return len(await zk.children(f"{PATH}/queue"))
    except NoNode:
        return 0


async def _is(zk: aio.Zk, number: int) -> bool:
    return await standing(zk) == number


async def test_an_uncontended_semaphore_costs_one_flight() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        async with one.semaphore(PATH, size=2).acquire():
            asked = Asked(server)
            async with two.semaphore(PATH, size=2).acquire() as hold:
                hold.ensure()
                sent = asked.names(two.session_id, without=(*OWN,))

        assert sent[:3] == ["Create2", "GetData", "GetChildren"]
        assert set(sent[3:]) <= {"GetData"}  # the hold watches its own znode


async def test_a_new_one_is_made_in_one_flight_more_with_its_size() -> None:
    async with embedded() as server, connected(server) as zk:
        asked = Asked(server)
        async with zk.semaphore("/a/pool", size=3).acquire():
            sent = asked.names(zk.session_id, without=OWN)
        assert sent[:9] == [
            *("Create2", "GetData", "GetChildren"),
            *("Create", "Create", "CreateContainer", "Create2", "GetData", "GetChildren"),
        ]
        assert (await zk.get("/a/pool"))[0] == b"3"
        assert await zk.semaphore("/a/pool").size() == 3


async def test_so_many_are_inside_and_the_next_one_when_one_leaves() -> None:
    async with crowd(size=2, users=5) as people:
        await people.are_inside(0, 1)
        await people.leave(1)
        await people.are_inside(0, 2)
        await people.leave(0)
        await people.are_inside(2, 3)
        await people.leave(2)
        await people.leave(3)
        await people.are_inside(4)


async def test_a_waiter_that_gives_up_holds_up_nobody() -> None:
    async with crowd(size=1, users=4) as people:
        await people.are_inside(0)
        people._tasks[1].cancel()
        people._tasks[2].cancel()
        await eventually(lambda: _is(people.zks[0], 2))
        await people.leave(0)
        await people.are_inside(3)


async def test_a_larger_size_wakes_as_many_as_there_is_room_for() -> None:
    async with crowd(size=1, users=5) as people:
        await people.are_inside(0)
        await people.zks[0].semaphore(PATH).resize(4)
        await people.are_inside(0, 1, 2, 3)
        assert await people.zks[4].semaphore(PATH).size() == 4


async def test_a_smaller_size_takes_nothing_and_lets_nobody_in_until_there_is_room() -> None:
    async with crowd(size=3, users=3) as people:
        await people.are_inside(0, 1, 2)
        await people.zks[0].semaphore(PATH).resize(1)
        await people.add(2)
        await people.leave(0)
        await people.leave(2)
        assert people.inside == [1]
        await people.leave(1)
        await people.are_inside(3)


async def test_who_came_after_a_smaller_size_is_woken_by_any_of_those_inside() -> None:
    """The one just before it is inside unmarked, by the size before: it must not wait for that."""
    async with crowd(size=3, users=3) as people:
        await people.zks[0].semaphore(PATH).resize(1)
        await people.add(1)
        await people.zks[0].semaphore(PATH).resize(2)
        await people.leave(0)
        assert sorted(people.inside) == [1, 2]
        await people.leave(1)
        await people.are_inside(2, 3)


async def test_size_0_lets_nobody_in_until_it_grows() -> None:
    async with crowd(size=0, users=2) as people:
        async with people.zks[0].semaphore(PATH).try_acquire() as hold:
            assert hold is None
        assert people.inside == []
        await people.zks[0].semaphore(PATH).resize(1)
        await people.are_inside(0)


async def test_only_the_first_that_waits_is_woken_and_then_the_one_behind_it() -> None:
    async with crowd(size=2, users=12) as people:
        await people.are_inside(0, 1)
        asked = Asked(people.server)
        last = people.zks[11].session_id
        first = people.zks[2].session_id
        await eventually(lambda: "Multi" in asked.names(first))
        asked.requests.clear()

        await people.leave(0)
        await people.are_inside(1, 2)
        await people.leave(1)
        await people.are_inside(2, 3)

        # Asked: proof of our own znode, size and listing; written: held; and the watch on our own.
        assert asked.names(first, without=("Ping",)).count("GetChildren") == 1
        assert asked.names(first, without=("Ping",)).count("SetData") == 1

        def woken() -> list[int]:
            sessions = [zk.session_id for zk in people.zks]
            return [who for who, s in enumerate(sessions) if "GetChildren" in asked.names(s)]

        await eventually(lambda: woken() == [2, 3, 4])
        assert asked.names(last, without=("Ping",)) == []


async def test_who_waits_asks_nothing_but_the_beats_of_the_first() -> None:
    async with crowd(size=1, users=4) as people:
        await people.are_inside(0)
        asked = Asked(people.server)
        first, second = people.zks[1].session_id, people.zks[2].session_id
        await eventually(lambda: len(asked.names(first)) >= 3)

        assert set(asked.names(first)) == {"Multi"}
        assert asked.names(second) == []


async def test_who_got_in_before_others_came_marks_nothing_and_who_waited_does() -> None:
    async with crowd(size=1, users=3) as people:
        await people.are_inside(0)
        zk = people.zks[0]

        async def data() -> list[bytes]:
            names = sorted(await zk.children(f"{PATH}/queue"), key=lambda name: name[-10:])
            return [(await zk.get(f"{PATH}/queue/{name}"))[0] for name in names]

        assert await data() == [b"user-0", b"user-1", b"user-2"]
        await people.leave(0)
        await people.are_inside(1)
        await eventually(lambda: _marked(data))


async def _marked(data: object) -> bool:
    return await data() == [b"user-1 (held)", b"user-2"]  # type: ignore[operator, no-any-return]


async def test_fifty_that_try_for_one_place_are_never_two_inside() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        inside: list[int] = []
        most: list[int] = []

        async def tries(zk: aio.Zk, who: int) -> None:
            with contextlib.suppress(LockLost):
                await within(zk, who)

        async def within(zk: aio.Zk, who: int) -> None:
            async with zk.semaphore(PATH, size=1).try_acquire() as hold:
                if hold is not None:
                    inside.append(who)
                    most.append(len(inside))
                    await asyncio.sleep(0.001)
                    inside.remove(who)

        for _ in range(4):
            await asyncio.gather(*(tries((one, two)[who % 2], who) for who in range(50)))
        assert set(most) == {1}
        await eventually(lambda: _is(one, 0))


async def test_not_in_within_its_time_it_names_who_is_ahead_and_leaves_nothing() -> None:
    async with crowd(size=1, users=1) as people, connected(people.server) as zk:
        await people.are_inside(0)
        (name,) = await zk.children(f"{PATH}/queue")
        for timeout in (0, 0.5):
            with pytest.raises(LockTimeout) as caught:
                async with zk.semaphore(PATH).acquire(timeout=timeout):
                    pass
            assert caught.value.ahead == (name,)
        await eventually(lambda: _is(zk, 1))


async def test_its_hold_has_no_token_and_ends_with_its_znode() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        with pytest.raises(LockLost, match="deleted by somebody"):
            async with one.semaphore(PATH, size=1).acquire() as hold:
                assert not hasattr(hold, "fencing_token")
                await two.delete(f"{PATH}/queue/{hold.name}")
                await asyncio.sleep(5)


async def test_what_is_no_size_is_named_and_nothing_of_ours_is_left() -> None:
    async with embedded() as server, connected(server) as zk:
        await zk.create(PATH, b"not a number")
        semaphore = zk.semaphore(PATH, size=1)
        for call in (semaphore.size(), semaphore.take(), semaphore.try_take()):
            with pytest.raises(BadContent, match="'not a number' is not the size"):
                await call
        await eventually(lambda: _is(zk, 0))
        await semaphore.resize(1)
        async with semaphore.acquire():
            pass


async def test_without_a_size_it_must_be_there() -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(NoNode):
            async with zk.semaphore(PATH).acquire():
                pass
        await zk.semaphore(PATH).resize(2)
        async with zk.semaphore(PATH).acquire(), zk.semaphore(PATH).acquire():
            pass


@pytest.mark.parametrize("size", [-1, -100])
async def test_a_negative_size_is_refused(size: int) -> None:
    async with embedded() as server, connected(server) as zk:
        with pytest.raises(ValueError, match="0 or more"):
            zk.semaphore(PATH, size=size)
        with pytest.raises(ValueError, match="0 or more"):
            await zk.semaphore(PATH).resize(size)


async def test_another_size_than_the_one_there_is_said_once_and_the_one_there_counts() -> None:
    lines: list[str] = []
    async with embedded() as server, connected(server, log=lines.append) as zk:
        await zk.semaphore(PATH).resize(1)
        semaphore = zk.semaphore(PATH, size=5)
        async with semaphore.acquire(), semaphore.try_acquire() as second:
            assert second is None
        async with semaphore.acquire():
            pass
        assert [line for line in lines if "size" in line] == [
            "/pool: its size is 1, not the 5 asked for; resize() changes it for everybody"
        ]


async def test_the_queue_reaped_between_two_uses_is_made_again_and_the_size_stays() -> None:
    async with embedded() as server, connected(server) as zk:
        async with zk.semaphore(PATH, size=2).acquire():
            pass
        await eventually(lambda: _is(zk, 0))
        await zk.delete(f"{PATH}/queue")
        await zk.semaphore(PATH).resize(7)
        async with zk.semaphore(PATH, size=2).acquire():
            pass
        assert await zk.semaphore(PATH).size() == 7


@pytest.mark.parametrize("ahead", [0, 1, 2])
async def test_cancelled_after_any_number_of_loop_turns_nothing_is_left(ahead: int) -> None:
    async with crowd(size=1, users=ahead) as people, connected(people.server) as zk:
        await zk.ensure(PATH)
        await zk.semaphore(PATH).resize(1)

        async def attempt() -> None:
            async with zk.semaphore(PATH, size=1).acquire():
                await asyncio.sleep(5)

        for turns in range(45):
            task = asyncio.create_task(attempt())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await eventually(lambda: _is(zk, ahead))
        await eventually(lambda: len(zk.client._watches) == 0)
