"""`once` claims and writes down through lost requests and answers, and never twice."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.recipes_relay import relay_to
from tests.unit.recipes.servers import connected, embedded

from incumbent import aio
from incumbent.agent.ending import Ended, Ending
from incumbent.agent.exit_codes import INTERRUPTED
from incumbent.agent.once import ClockWrong, MixedKey, Once
from incumbent.agent.runs import Runs, read_runs
from incumbent.agent.wrapped_settings import OnceSettings, WrappedSettings
from incumbent.clock import SYSTEM, Clock
from incumbent.errors import LockLost, NoNode
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger
from incumbent.wire import Multi, Request, SetData

RECORD = "/incumbent/once/job"
OWN = Ending(Ended.OWN, 7)


class Machine:
    """One that runs `once job`: `code` is its exit code, `ran` how often COMMAND was started."""

    def __init__(self, zk: aio.Zk, name: str, clock: Clock = SYSTEM, **once: Any) -> None:
        self.zk, self.ran, self.said = zk, 0, list[str]()
        self.settings = WrappedSettings(
            errand="once",
            path=f"{RECORD}/line",
            hosts="",
            name=name,
            session_timeout=2.0,
            once=OnceSettings(key="job", record=RECORD, **once),
        )
        rng = random.Random(name)
        self.errand = Once(self.settings, say=self.said.append, pid=1, rng=rng, clock=clock)
        self.ledger = Ledger(zk.client)

    async def once(self, ending: Ending | None = OWN) -> int | None:
        """As the wrapper does it; `ending` None: it dies while COMMAND runs."""
        client, errand = self.zk.client, self.errand
        if (code := await errand.before(client)) is not None:
            return code
        place = await errand.enter(client, self.ledger)
        await place.first(errand.waits)
        hold = Hold(place, grace=0.2, error=LockLost)
        await hold.begin()
        try:
            if (code := await errand.claim(client, place)) is not None:
                return code
            self.ran += ending is None or ending.how is not Ended.NOT_STARTED
            if ending is None:
                await self.zk.close()
                return None
            await errand.ended(client, ending, 5.0)
            return errand.code(ending)
        finally:
            if ending is not None:
                hold.end()
                await place.leave()

    async def record(self) -> Runs:
        return read_runs((await self.zk.get(RECORD))[0], RECORD)


def nth(kinds: tuple[type[Request], ...], number: int) -> Callable[[Request], bool]:
    """True for one request of these kinds, the `number`th."""
    counted = itertools.count()
    return lambda request: isinstance(request, kinds) and next(counted) == number


@pytest.mark.parametrize("what", ["answer", "request"])
@pytest.mark.parametrize("number", range(4))
async def test_any_write_may_be_lost_and_it_runs_once_and_is_written_down(
    what: str, number: int
) -> None:
    async with (
        embedded() as server,
        relay_to(server.host, server.port) as relay,
        connected(relay) as one,
        connected(server) as two,
    ):
        setattr(relay, f"lose_{what}", nth((Multi, SetData), number))
        first, second = Machine(one, "n1"), Machine(two, "n2")

        codes = [await first.once(), await second.once()]

        assert codes == [7, 7]
        assert (first.ran, second.ran) == (1, 0)
        (run,) = (await second.record()).runs
        assert (run.state, run.node, run.code) == ("done", "n1", 7)


async def test_of_many_at_the_same_time_one_runs_and_all_have_its_exit_code() -> None:
    async with embedded() as server, asyncio.TaskGroup() as group:
        sessions = [connected(server) for _ in range(6)]
        machines = [Machine(await each, f"n{i}") for i, each in enumerate(sessions)]
        tasks = [group.create_task(machine.once()) for machine in machines]
        codes = await asyncio.gather(*tasks)

        assert codes == [7] * 6
        assert sum(machine.ran for machine in machines) == 1
        for machine in machines:
            await machine.zk.close()


@pytest.mark.parametrize("retry", [False, True])
async def test_what_nobody_saw_the_end_of_is_interrupted(retry: bool) -> None:
    async with embedded() as server, connected(server) as two:
        first, second = Machine(await connected(server), "n1"), Machine(two, "n2", retry=retry)
        await first.once(None)

        code = await second.once()

        (run,) = (await second.record()).runs
        if retry:
            assert (code, second.ran, run.state, run.attempt) == (7, 1, "done", 2)
        else:
            assert (code, second.ran, run.state) == (INTERRUPTED, 0, "interrupted")
            assert (run.node, run.why) == ("n1", "its end was never written down")
            assert "--if-interrupted retry runs it again" in second.said[-1]


async def test_a_claim_after_which_nothing_was_started_is_withdrawn() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        first, second = Machine(one, "n1"), Machine(two, "n2")

        await first.once(Ending(Ended.NOT_STARTED))

        assert await second.record() == Runs()
        assert await second.once() == 7


async def test_a_claim_of_a_session_that_ended_before_the_start_is_withdrawn_by_itself() -> None:
    async with embedded() as server, connected(server) as one:
        machine = Machine(one, "n1")
        client, errand = one.client, machine.errand
        place = await errand.enter(client, machine.ledger)
        assert await errand.claim(client, place) is None
        await place.leave()  # as if that session were over: nothing was started

        assert await machine.once() == 7

        assert [run.state for run in (await machine.record()).runs] == ["done"]


async def test_stopped_from_outside_it_is_interrupted_with_the_reason() -> None:
    async with embedded() as server, connected(server) as one:
        machine = Machine(one, "n1")

        await machine.once(Ending(Ended.STOPPED, 143))

        (run,) = (await machine.record()).runs
        assert (run.state, run.why) == ("interrupted", "it was stopped there, exit code 143")


async def test_a_claim_needs_our_own_place_in_the_line() -> None:
    async with embedded() as server, connected(server) as one, connected(server) as two:
        machine = Machine(one, "n1")
        place = await machine.errand.enter(one.client, machine.ledger)
        await two.delete(place.path)

        with pytest.raises(NoNode):
            await machine.errand.claim(one.client, place)

        assert (await two.get(RECORD))[0] == b""


@pytest.mark.parametrize("seconds", [-1900.0, 1900.0])
async def test_a_clock_that_is_off_by_more_than_half_a_period_runs_nothing(seconds: float) -> None:
    class Off:
        boottime = staticmethod(SYSTEM.boottime)

        def wall(self) -> float:
            return SYSTEM.wall() + seconds

    async with embedded() as server, connected(server) as one:
        for period, refused in ((3600.0, True), (86400.0, False)):
            machine = Machine(one, "n1", Off(), period=f"{period:05}", length=period)
            if refused:
                with pytest.raises(ClockWrong, match="1900 s"):
                    await machine.once()
            else:
                assert await machine.once() == 7


async def test_a_key_with_periods_is_not_taken_for_one_without() -> None:
    async with embedded() as server, connected(server) as one:
        await Machine(one, "n1", period="2026-11-27T23:00:00Z").once()

        with pytest.raises(MixedKey, match="incumbent once job --forget"):
            await Machine(one, "n2").once()
