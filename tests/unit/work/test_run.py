"""The loop of a worker: each item once, failures counted, poison parked, a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections import Counter as Tally
from collections.abc import AsyncIterator

import pytest
from tests.unit.recipes.servers import connected, embedded
from tests.waiting import eventually

from incumbent.errors import ClaimLost
from incumbent.work import Claim, Counters, Work
from incumbent.work.progress import Line
from incumbent.work.run import retry_in


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[Work]:
    async with embedded() as server, connected(server) as zk, zk.work("/w", lag=0.02) as work:
        yield work


class Orders:
    """A database that always lists everything: marks must keep each from being done again."""

    def __init__(self, *items: str) -> None:
        self.items = list(items)
        self.done: Tally[str] = Tally()

    def list(self) -> list[str]:
        return self.items

    async def handle(self, claim: Claim) -> None:
        await asyncio.sleep(0)
        self.done[claim.item] += 1


async def test_everything_that_is_listed_is_done_once() -> None:
    orders = Orders(*(f"o{number}" for number in range(120)))
    async with (
        embedded() as server,
        connected(server) as one,
        connected(server) as two,
        one.work("/w", lag=0.02) as first,
        two.work("/w", lag=0.02) as second,
    ):
        runs = [
            work.run(orders.list, orders.handle, until_empty=True, idle=0.05)
            for work in (first, second)
        ]
        counted = await asyncio.gather(*runs)

    assert set(orders.done.values()) == {1}
    assert len(orders.done) == 120
    assert sum(counters.done for counters in counted) == 120
    assert all(counters.running == 0 for counters in counted)


async def test_a_poisoned_item_is_parked_and_the_others_go_on() -> None:
    orders = Orders("good", "bad", "better")

    async def handle(claim: Claim) -> None:
        if claim.item == "bad":
            raise KeyError("poison")
        await orders.handle(claim)

    async with worker() as work:
        counters = await work.run(orders.list, handle, tries=1, until_empty=True, idle=0.05)
        (parked,) = await work.parked()

        later = await work.run(orders.list, handle, tries=1, until_empty=True, idle=0.05)

    assert (counters.done, counters.parked, counters.failed) == (2, 1, 0)
    assert (parked.item, parked.why) == ("bad", "KeyError: 'poison'")
    assert later.parked_now == 1, "who comes later is told as well"
    assert str(later).endswith("1 parked in all")


async def test_what_fails_is_tried_again_until_it_works() -> None:
    orders = Orders("x")

    async def handle(claim: Claim) -> None:
        if claim.record.failures == 0:
            raise OSError("not yet")
        await orders.handle(claim)

    async with worker() as work:
        counters = await work.run(orders.list, handle, until_empty=True, idle=0.05)

    assert (counters.done, counters.failed) == (1, 1)


async def test_an_item_whose_workers_die_is_begun_alone_and_then_parked() -> None:
    """A worker that dies gives nothing back: here it is a session that ends without a word."""
    orders = Orders(*(f"o{number}" for number in range(6)), "deadly")
    seen: list[tuple[str, ...]] = []
    async with embedded() as server:

        async def live_and_die(*, deadly: str) -> bool:
            dead = asyncio.Event()
            busy: set[str] = set()
            zk = await connected(server, session_timeout=1.0)
            work = await zk.work("/w", lag=0.02).__aenter__()

            async def handle(claim: Claim) -> None:
                busy.add(claim.item)
                await asyncio.sleep(0.01)
                if claim.item == deadly:
                    seen.append(tuple(busy))
                    zk.detach()  # the session lives until it expires, as after a SIGKILL
                    dead.set()
                    await asyncio.Event().wait()
                await orders.handle(claim)
                busy.discard(claim.item)

            run = asyncio.create_task(
                work.run(orders.list, handle, tries=3, until_empty=True, idle=0.05)
            )
            died = asyncio.create_task(dead.wait())
            await asyncio.wait({run, died}, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                run.cancel()
                await asyncio.wait({run})
                return True
            died.cancel()
            await work.leave()
            await zk.close()
            return False

        lives = 0
        while await live_and_die(deadly="deadly"):
            lives += 1
            assert lives < 10
        async with connected(server) as zk:
            (parked,) = await zk.work("/w").parked()

    assert parked.item == "deadly"
    assert "died" in parked.why
    assert lives == 3
    assert seen[2] == ("deadly",)
    assert all(orders.done[item] >= 1 for item in orders.items[:-1])


async def test_an_outage_of_what_all_handlers_call_parks_nothing() -> None:
    orders = Orders(*(f"o{number}" for number in range(100)))
    is_up = asyncio.Event()
    in_vain: list[str] = []

    async def handle(claim: Claim) -> None:
        if not is_up.is_set():
            in_vain.append(claim.item)
            raise OSError("the gateway does not answer")
        await orders.handle(claim)

    async with worker() as work:
        run = asyncio.create_task(
            work.run(orders.list, handle, workers=4, tries=2, until_empty=True, idle=0.05)
        )
        await asyncio.sleep(1.0)
        assert 5 <= len(in_vain) <= 5 + 3 + 4  # then three that had begun, and one per pause
        is_up.set()
        counters = await asyncio.wait_for(run, 30)

    assert (counters.done, counters.parked) == (100, 0)
    assert set(orders.done.values()) == {1}


async def test_a_moment_in_which_all_fails_is_one_doubt(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers that had begun before it, and fail when it is known already, make it no longer."""
    orders = Orders(*(f"o{number}" for number in range(60)))
    is_up = asyncio.Event()

    async def handle(claim: Claim) -> None:
        await asyncio.sleep(0.02 + int(claim.item[1:]) % 16 / 400)
        if not is_up.is_set():
            raise OSError("the gateway does not answer")
        await orders.handle(claim)

    async with worker() as work:
        asyncio.get_running_loop().call_later(0.15, is_up.set)
        counters = await asyncio.wait_for(
            work.run(orders.list, handle, workers=16, until_empty=True, idle=0.05), 30
        )

    assert counters.parked == 0 and len(orders.done) == 60
    doubts = sum("one at a time now" in record.message for record in caplog.records)
    assert 1 <= doubts <= 4, "not one for each of the sixteen that had begun"


async def test_many_bad_items_are_parked_as_soon_as_one_would_be() -> None:
    """What has failed before says nothing of what the others call."""
    orders = Orders(*(f"{'bad' if n % 3 == 0 else 'good'}{n}" for n in range(60)))

    async def handle(claim: Claim) -> None:
        if claim.item.startswith("bad"):
            raise ValueError(claim.item)
        await orders.handle(claim)

    async with worker() as work:
        counters = await asyncio.wait_for(
            work.run(orders.list, handle, tries=2, until_empty=True, idle=0.05), 25
        )

    assert (counters.done, counters.parked) == (40, 20)


async def test_the_re_read_under_the_claim_decides() -> None:
    pending = {"a": 1, "b": 2}
    found: list[tuple[str, int]] = []

    async def read(item: str) -> int | None:
        return pending.pop(item, None)

    def handle(claim: Claim, order: int) -> None:
        found.append((claim.item, order))

    async with worker() as work:
        counters = await work.run(
            lambda: ["a", "b", "closed"], handle, read=read, until_empty=True, idle=0.05
        )

    assert sorted(found) == [("a", 1), ("b", 2)]
    assert (counters.done, counters.unneeded) == (3, 1)


async def test_stopped_it_finishes_what_it_has_begun() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def handle(claim: Claim) -> None:
        begun.set()
        await go.wait()

    async with worker() as work:
        run = asyncio.create_task(work.run(lambda: ["a", "b"], handle, workers=1))
        await begun.wait()
        work.stop()
        go.set()
        counters = await run

        assert (counters.done, counters.claimed) == (1, 1)


async def test_cancelled_it_gives_its_items_back() -> None:
    begun = asyncio.Event()

    async def handle(claim: Claim) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with worker() as work:
        run = asyncio.create_task(work.run(lambda: ["a"], handle))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await eventually(lambda: _nothing(work, "a"))

        assert work.counters.given_back == 1


async def _nothing(work: Work, item: str) -> bool:
    return await work.look(item) is None


async def test_a_lost_claim_cancels_its_handler() -> None:
    seen: list[str] = []
    async with embedded() as server, connected(server) as zk, zk.work("/w") as work:

        async def handle(claim: Claim) -> None:
            await server.stop()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                with pytest.raises(ClaimLost):
                    claim.ensure()
                work.stop()
                raise

        counters = await asyncio.wait_for(work.run(lambda: ["a"], handle), 10)

    assert seen == ["cancelled"]
    assert counters.lost == 1


async def test_errors_of_the_source_are_waited_out() -> None:
    answers = iter([OSError("the database is down"), ["a"]])

    def source() -> list[str]:
        answer = next(answers, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with worker() as work:
        counters = await work.run(source, lambda claim: None, until_empty=True, idle=0.05)

    assert (counters.done, counters.errors) == (1, 1)


async def test_an_item_without_a_name_is_passed_over() -> None:
    async with worker() as work:
        counters = await work.run(
            lambda: ["", "a"], lambda claim: None, until_empty=True, idle=0.05
        )

    assert counters.done == 1
    assert counters.errors > 0


async def test_progress_is_told_and_what_it_says_is_readable() -> None:
    told: list[str] = []
    async with worker() as work:
        await work.run(
            lambda: ["a"],
            lambda claim: None,
            until_empty=True,
            idle=0.05,
            progress=lambda counters: told.append(str(counters)),
        )

    assert told[-1].startswith("1 done, ")
    assert str(Counters(done=1200, seconds=2, failed=1)) == (
        "1,200 done, 600/s · 0 running · 1 failed"
    )


async def test_what_is_no_exception_ends_the_run_and_counts_as_a_failure() -> None:
    class End(BaseException):
        pass

    orders = Orders("x", "y")

    async def handle(claim: Claim) -> None:
        if claim.item == "x":
            raise End("so")
        await orders.handle(claim)

    async with worker() as work:
        with pytest.raises(End):
            await asyncio.wait_for(work.run(orders.list, handle, idle=0.05), 10)

        async def is_counted() -> bool:
            record = await work.look("x")
            return record is not None and (record.failures, record.why) == (1, "End: so")

        await eventually(is_counted)
        assert work.counters.running == 0


async def test_what_is_no_text_is_passed_over_in_a_list_and_refused_by_itself() -> None:
    items: list[object] = ["a", "a", 7, None, b"a", "\udc80", "x" * 5000, "b/c", "ü", "..", "%2F"]
    async with worker() as work:
        counters = await work.run(lambda: items, lambda claim: None, until_empty=True, idle=0.05)
        assert counters.done == 5
        with pytest.raises(TypeError, match=r"say str\(7\)"):
            await work.look(7)  # type: ignore[arg-type]


async def test_a_run_draws_one_line_on_a_terminal_and_plain_ones_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        line = Line(stream)
        for done in range(4):
            line(Counters(done=done, left=3 - done, seconds=8.0 * done))
        line.end()

    assert screen.getvalue().count("\n") == 1
    assert screen.getvalue().split("\r")[-1].startswith("[####################] 3 done")
    assert [text.split(",")[0] for text in pipe.getvalue().splitlines()] == ["2 done", "3 done"]


async def test_a_line_whose_terminal_is_gone_stops_no_work() -> None:
    stream = io.StringIO()
    line = Line(stream)
    stream.close()

    line(Counters(seconds=20.0))
    line.end()


async def test_metrics_are_what_prometheus_reads() -> None:
    async with worker() as work:
        await work.run(lambda: ["a", "b"], lambda claim: None, until_empty=True, idle=0.05)
        text = work.metrics()

    assert (
        '# TYPE incumbent_work_done_total counter\nincumbent_work_done_total{path="/w"} 2\n' in text
    )
    assert '# TYPE incumbent_work_left gauge\nincumbent_work_left{path="/w"} 0\n' in text
    assert 'path="/a\\"b"' in Counters().metrics('/a"b')


def test_the_back_off_doubles_up_to_a_minute() -> None:
    rng = random.Random(1)
    for failures, seconds in ((1, 1), (2, 2), (4, 8), (7, 60), (1000, 60)):
        assert 0.8 * seconds <= retry_in(failures, rng) <= 1.2 * seconds


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"tries": 0}, {"idle": 0.0}])
async def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    async with worker() as work:
        with pytest.raises(ValueError, match="at least 1"):
            await work.run(list, lambda claim: None, **wrong)  # type: ignore[arg-type]
