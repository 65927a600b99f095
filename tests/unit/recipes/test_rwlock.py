"""Read-write locks on the embedded server: who shares, who waits for whom, at what price."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.unit.recipes.servers import Asked, connected, embedded
from tests.waiting import eventually

from incumbent import aio
from incumbent.errors import LockLost, LockTimeout, MixedDialects

PATH = "/rw"


class Users:
    """Who is inside, in which order they came, and when each may leave."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.came: list[str] = []
        self.may_leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def stands(self, zk: aio.Zk, name: str, *, dialect: str = "ours") -> None:
        """Start one (`r…` reads, `w…` writes) and return when its znode is there."""
        before = await number(zk)
        self.may_leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._use(zk, name, dialect))
        await eventually(lambda: _more(zk, before))

    async def leaves(self, name: str) -> None:
        self.may_leave[name].set()
        await asyncio.wait_for(self.tasks[name], 5)

    async def _use(self, zk: aio.Zk, name: str, dialect: str) -> None:
        lock = zk.rwlock(PATH, dialect=dialect)
        async with lock.read(name) if name[0] == "r" else lock.write(name):
            self.inside.append(name)
            self.came.append(name)
            await self.may_leave[name].wait()
            self.inside.remove(name)


async def number(zk: aio.Zk) -> int:
    return len(await zk.children(PATH))


async def _more(zk: aio.Zk, than: int) -> bool:
    return await number(zk) > than


@contextlib.asynccontextmanager
async def three() -> Any:
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        connected(server) as three,
    ):
        await one.create(PATH, container=True)
        yield server, (one, two, three)


@pytest.mark.parametrize("dialect", ["ours", "curator-rw"])
async def test_a_writer_then_a_reader_then_a_writer_get_in_in_this_order(dialect: str) -> None:
    async with three() as (_, zks):
        users = Users()
        for zk, name in zip(zks, ("w1", "r", "w2"), strict=True):
            await users.stands(zk, name, dialect=dialect)
        assert users.inside == ["w1"]

        await users.leaves("w1")
        await eventually(lambda: users.inside == ["r"])
        await users.leaves("r")
        await eventually(lambda: users.inside == ["w2"])
        await users.leaves("w2")


@pytest.mark.parametrize("dialect", ["ours", "curator-rw"])
async def test_readers_share_and_a_waiting_writer_is_not_overtaken(dialect: str) -> None:
    async with three() as (_, (one, two, three_)):
        users = Users()
        await users.stands(one, "r1", dialect=dialect)
        await users.stands(two, "r2", dialect=dialect)
        await eventually(lambda: users.inside == ["r1", "r2"])
        await users.stands(three_, "w", dialect=dialect)
        await users.stands(one, "r3", dialect=dialect)

        await users.leaves("r2")
        assert users.inside == ["r1"]
        await users.leaves("r1")
        await eventually(lambda: users.inside == ["w"])
        await users.leaves("w")
        await eventually(lambda: users.inside == ["r3"])
        await users.leaves("r3")


async def test_an_uncontended_read_lock_costs_one_flight_beside_other_readers_too() -> None:
    async with three() as (server, (one, two, _)):
        asked = Asked(server)
        async with one.rwlock(PATH).read(), two.rwlock(PATH).read() as hold:
            assert asked.names(two.session_id, without=("Ping", "Multi", "GetData")) == [
                "Create2",
                "GetChildren",
            ]
            hold.ensure()


async def test_all_readers_behind_a_writer_get_in_by_its_deletion_alone() -> None:
    async with three() as (server, (one, two, three_)):
        asked = Asked(server)
        users = Users()
        await users.stands(one, "w")
        await eventually(lambda: users.inside == ["w"])
        await users.stands(two, "r1")
        await users.stands(three_, "r2")
        for zk in (two, three_):  # it has beaten, and watches: its predecessor and itself
            await eventually(lambda zk=zk: "Multi" in asked.names(zk.session_id))  # type: ignore[misc]
            await eventually(lambda zk=zk: asked.names(zk.session_id).count("GetData") == 2)  # type: ignore[misc]
        asked.requests.clear()

        await users.leaves("w")
        await eventually(lambda: sorted(users.inside) == ["r1", "r2"])

        for zk in (two, three_):
            assert asked.names(zk.session_id, without=("Ping", "Multi")) == []
        await users.leaves("r1")
        await users.leaves("r2")


@pytest.mark.parametrize("held", ["read", "write"])
async def test_trying_takes_no_turn_of_others_and_leaves_nothing(held: str) -> None:
    async with three() as (server, (one, two, _)):
        async with getattr(one.rwlock(PATH), held)():
            asked = Asked(server)
            async with two.rwlock(PATH).try_write() as hold:
                assert hold is None
            assert asked.names(two.session_id) == ["GetChildren"]
            async with two.rwlock(PATH).try_read() as hold:
                assert (hold is None) == (held == "write")
            with pytest.raises(LockTimeout) as caught:
                async with two.rwlock(PATH).write(timeout=0.5):
                    pass
            assert len(caught.value.ahead) == 1
        await eventually(lambda: _empty(one))


async def _empty(zk: aio.Zk) -> bool:
    return await number(zk) == 0


async def test_trying_to_read_fails_while_a_writer_waits() -> None:
    async with three() as (_, (one, two, three_)):
        users = Users()
        await users.stands(one, "r")
        await users.stands(two, "w")
        async with three_.rwlock(PATH).try_read() as hold:
            assert hold is None
        await users.leaves("r")
        await users.leaves("w")


async def test_a_lock_of_the_same_path_is_a_writer() -> None:
    async with three() as (_, (one, two, _)), one.rwlock(PATH).read():
        with pytest.raises(LockTimeout):
            async with two.lock(PATH, timeout=0.05):
                pass


@pytest.mark.parametrize("outer", ["read", "write"])
@pytest.mark.parametrize("inner", ["read", "write"])
async def test_taken_inside_its_own_block_it_raises_at_once(outer: str, inner: str) -> None:
    async with three() as (_, (one, *_)), getattr(one.rwlock(PATH), outer)():
        with pytest.raises(RuntimeError, match="wait for itself"):
            async with getattr(one.rwlock(PATH), inner)():
                pass
        with pytest.raises(RuntimeError, match="wait for itself"):
            async with one.lock(PATH, reentrant=outer == "read"):
                pass


async def test_a_writer_has_a_token_and_a_reader_has_none() -> None:
    async with three() as (_, (one, *_)):
        async with one.rwlock(PATH).write() as hold:
            stat = await one.exists(f"{PATH}/{hold.name}")
            assert stat is not None
            assert hold.fencing_token == stat.czxid
        async with one.rwlock(PATH).read() as hold:
            assert not hasattr(hold, "fencing_token")
            with pytest.raises(AttributeError, match="shared"):
                _ = hold.fencing_token


async def test_a_readers_znode_deleted_by_hand_ends_its_block_alone() -> None:
    async with three() as (_, (one, two, three_)), one.rwlock(PATH).read() as other:
        with pytest.raises(LockLost, match="deleted by somebody"):
            async with two.rwlock(PATH).read() as hold:
                await three_.delete(f"{PATH}/{hold.name}")
                await asyncio.sleep(5)
        other.ensure()


async def test_cancelled_after_any_number_of_loop_turns_nothing_is_left() -> None:
    async with three() as (_, (one, two, _)):
        for mode in ("read", "write"):
            for turns in range(40):
                async with one.rwlock(PATH).write():
                    task = asyncio.create_task(_takes(two, mode))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
        await eventually(lambda: _empty(one))
        await eventually(lambda: len(two.client._watches) == 0)


async def _takes(zk: aio.Zk, mode: str) -> None:
    async with getattr(zk.rwlock(PATH), mode)():
        await asyncio.sleep(5)


@pytest.mark.parametrize("dialect", ["curator-lock", "curator-latch", "plain:n_"])
async def test_a_dialect_without_readers_is_refused(dialect: str) -> None:
    async with three() as (_, (one, *_)):
        with pytest.raises(ValueError, match="curator-rw"):
            one.rwlock(PATH, dialect=dialect)


async def test_detected_it_is_that_of_those_who_stand_there() -> None:
    async with three() as (_, (one, two, three_)):
        async with (
            one.rwlock(PATH, dialect="curator-rw").read(),
            two.rwlock(PATH, dialect=None).read() as hold,
        ):
            assert "__READ__" in hold.name
            with pytest.raises(MixedDialects):
                async with three_.rwlock(PATH).write():
                    pass
        await eventually(lambda: _empty(one))
        async with one.lock(PATH, dialect="curator-lock"):
            with pytest.raises(ValueError, match="no readers"):
                async with two.rwlock(PATH, dialect=None).read():
                    pass
