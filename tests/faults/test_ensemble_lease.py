"""The lease on a real ensemble: whatever happens to servers, an ephemeral outlives `valid_until`.

A follower tells the leader of our session up to tick/2 late: one that stops just
after an answer takes that to its grave. Sessions, and with them beats, are of many lengths here;
writes of other kinds come between the beats; the follower is killed or stopped.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.apache import ApacheEnsemble
from tests.relay import Relay, relay_to
from tests.unit.client.scripted import client_of
from tests.waiting import eventually

from incumbent.client import Client, Passport, State
from incumbent.errors import IncumbentError
from incumbent.wire import EventType, WatchEvent

TICK = 0.5  # the ensembles', in seconds
SETTINGS = {"tick_time": 500, "settings": {"maxSessionTimeout": 40000}}
STRIKE_WITHIN = 0.005  # seconds from the answer to the signal


@pytest.fixture(scope="module")
def rng() -> random.Random:
    return random.Random(4)


@asynccontextmanager
async def watched(observer: Client, path: str) -> AsyncIterator[asyncio.Future[float]]:
    """The boottime at which the observer learns that the znode is gone.

    A server may apply what a quorum has committed later than the one that answered: a write of the
    observer's own, which comes behind it, shows that its server has come so far.
    """
    await observer.create("/come-so-far-", ephemeral=True, sequential=True)
    gone_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def gone(event: WatchEvent) -> None:
        if event.type is EventType.DELETED and not gone_at.done():
            gone_at.set_result(observer.clock.boottime())

    if not await observer.exists(path, watcher=gone):
        gone_at.set_result(observer.clock.boottime())
    yield gone_at


async def write_now_and_then(holder: Client, path: str, rng: random.Random) -> None:
    """Acknowledged requests at other times than the beats'; the connection's end ends it."""
    try:
        while True:
            await asyncio.sleep(rng.uniform(0.02, 0.5))
            await holder.set(path, b"x")
    except IncumbentError:
        return


async def one_round(
    ensemble: ApacheEnsemble, rng: random.Random, number: int, *, tick: float = TICK
) -> float:
    """Seconds by which the ephemeral outlived `valid_until`, when its follower was struck just
    after a beat's answer. Negative: it was believed in when it was gone. Where the machine was so
    busy that the signal came late, or not at all, and the ephemeral outlived it, it is done again.
    """
    for attempt in range(5):
        late, spare = await _struck(ensemble, rng, f"/lease-{number}-{attempt}", tick)
        if late < STRIKE_WITHIN or spare < 0:
            return spare
        ensemble.heal()
    raise AssertionError(f"the machine is too busy: the signal came {late:.3f} s late")


async def _struck(
    ensemble: ApacheEnsemble, rng: random.Random, path: str, tick: float
) -> tuple[float, float]:
    """One round: seconds from the answer to the signal, and those that `one_round` returns."""
    session = rng.uniform(1.5, 3.0)
    signum = rng.choice([signal.SIGKILL, signal.SIGSTOP])
    victim = ensemble.servers[rng.choice(ensemble.followers())]
    leader = ensemble.servers[ensemble.leader()]
    struck: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    async with client_of(leader.hosts, session_timeout=8.0, tick=TICK) as observer:
        if not await observer.exists("/written"):
            await observer.create("/written")
        clock = observer.clock
        holder = Client(victim.hosts, session_timeout=session, tick=tick, rng=random.Random(1))
        await holder.connect(10)
        await holder.create(path, ephemeral=True)
        not_before = clock.boottime() + 3 * session / 10 + rng.uniform(0, TICK)

        def beaten(sent_at: float) -> None:
            answered_at = clock.boottime()
            if answered_at >= not_before and not struck.done():
                os.kill(victim.pid, signum)
                victim._is_frozen = signum == signal.SIGSTOP
                struck.set_result(clock.boottime() - answered_at)

        async with watched(observer, path) as gone_at:
            holder.watch_beats(beaten)
            writer = asyncio.create_task(write_now_and_then(holder, "/written", rng))
            late, spare, lease = math.inf, 0.0, holder.lease
            with holder.beat(path):
                if not gone_at.done():
                    with suppress(TimeoutError):  # if its session ended before
                        late = await asyncio.wait_for(struck, 10)
                if late < math.inf or gone_at.done():
                    # what was answered before the signal may be read after it
                    spare = await asyncio.wait_for(gone_at, 30) - lease.valid_until
            writer.cancel()
        closing = asyncio.create_task(holder.close())
        if signum == signal.SIGSTOP:
            victim.thaw()
        await closing
    return late, spare


@pytest.mark.parametrize("number", range(10))
async def test_an_ephemeral_outlives_the_lease_when_its_follower_stops_just_after_an_answer(
    apache_ensemble: ApacheEnsemble, rng: random.Random, number: int
) -> None:
    assert await one_round(apache_ensemble, rng, number) >= 0


@pytest.mark.soak
async def test_it_does_so_a_hundred_times(
    apache_ensemble: ApacheEnsemble, rng: random.Random
) -> None:
    for number in range(100):
        assert await one_round(apache_ensemble, rng, 1000 + number) >= 0
        apache_ensemble.heal()


@pytest.mark.soak
async def test_a_lease_that_counts_from_the_newest_acknowledged_beat_is_caught(
    apache_ensemble: ApacheEnsemble, rng: random.Random
) -> None:
    """The control: what the tests above look for does happen. tick=0 takes a beat for a renewal."""
    spares: list[float] = []
    while len(spares) < 100 and min(spares, default=0) >= 0:
        spares.append(await one_round(apache_ensemble, rng, 2000 + len(spares), tick=0.0))
        apache_ensemble.heal()

    assert min(spares) < 0, f"never caught: {spares}"


async def test_after_a_leader_dies_the_first_timeout_counts_whatever_a_later_attach_was_granted(
    apache_ensemble: ApacheEnsemble,
) -> None:
    """Made with 2 s, attached again by a process that asks for 12 s, then the leader is killed."""
    first_s, later_s = 2.0, 12.0
    follower = apache_ensemble.servers[apache_ensemble.followers()[0]]
    other = apache_ensemble.servers[apache_ensemble.followers()[1]]
    async with relay_to(follower.hosts) as relay:
        maker = Client(relay.hosts, session_timeout=first_s, tick=TICK, rng=random.Random(2))
        await maker.connect(10)
        await maker.create("/made-short", ephemeral=True)
        passport = maker.detach()
        longer = Passport(
            session_id=passport.session_id,
            password=passport.password,
            timeout_ms=round(later_s * 1000),
            s_min_ms=passport.s_min_ms,
            last_zxid=passport.last_zxid,
        )
        holder = Client(relay.hosts, tick=TICK, rng=random.Random(3), resume=longer)
        await holder.connect(10)
        assert holder.timeout == pytest.approx(first_s), "the smallest ever granted counts"
        with holder.beat("/made-short"):
            for _ in range(6):
                await asyncio.sleep(first_s / 10)
                await holder.set("/made-short", b"x")
            base = holder.lease.valid_until - first_s
            valid_until = holder.lease.valid_until
            relay.refuse()
            relay.black_hole()
            await asyncio.to_thread(apache_ensemble.kill, apache_ensemble.leader())

            async with client_of(other.hosts, session_timeout=8.0, tick=TICK) as observer:
                if await observer.exists("/made-short"):
                    async with watched(observer, "/made-short") as gone_at:
                        spare = await asyncio.wait_for(gone_at, 30) - valid_until
                    assert spare >= 0
                    assert spare + valid_until < base + later_s, "it fell back to the first timeout"
                else:
                    assert observer.clock.boottime() >= valid_until
            assert holder.state is not State.CONNECTED
        await holder.close()


@pytest.fixture
def beginning(tmp_path: Path) -> Iterator[ApacheEnsemble]:
    """Three servers, not started yet."""
    ensemble = ApacheEnsemble(tmp_path, **SETTINGS)  # type: ignore[arg-type]
    try:
        yield ensemble
    finally:
        ensemble.stop()


@asynccontextmanager
async def third_behind_relays(ensemble: ApacheEnsemble) -> AsyncIterator[list[Relay]]:
    """The ensemble runs, and its third server, a follower, reaches the others through relays.

    It has the highest number, so that it is the one that connects, also for votes.
    """
    third = ensemble.servers[2]
    relays: list[Relay] = []
    for number in (1, 2):
        _, *ports = str(third._settings[f"server.{number}"]).split(":")
        pair = [Relay("127.0.0.1", int(port)) for port in ports]
        for relay in pair:
            await relay.start()
        relays += pair
        ends = ":".join(relay.hosts.rpartition(":")[2] for relay in pair)
        third._settings[f"server.{number}"] = f"127.0.0.1:{ends}"
    try:
        for server in ensemble.servers[:2]:
            server.start(wait=False)
        await asyncio.to_thread(ensemble.wait_until_serving)
        third.start(wait=False)  # by this thread: the kernel ends it when the thread ends
        await asyncio.to_thread(third.wait_until_serving)
        yield relays
    finally:
        for relay in relays:
            relay.stop()


@pytest.mark.apache
async def test_a_follower_that_is_cut_off_answers_reads_and_proves_nothing(
    beginning: ApacheEnsemble,
) -> None:
    session = 3.0
    async with third_behind_relays(beginning) as relays:
        third, leader = beginning.servers[2], beginning.servers[beginning.leader()]
        assert third.mode() == "follower"
        async with (
            client_of(leader.hosts, session_timeout=8.0, tick=TICK) as observer,
            client_of(third.hosts, session_timeout=8.0, tick=TICK) as reader,
        ):
            holder = Client(third.hosts, session_timeout=session, tick=TICK, rng=random.Random(5))
            await holder.connect(10)
            await holder.create("/cut-off", ephemeral=True)
            beats: list[float] = []
            holder.watch_beats(beats.append)
            async with watched(observer, "/cut-off") as gone_at:
                with holder.beat("/cut-off"):
                    await eventually(lambda: len(beats) >= 6, 10, "six beats")
                    for relay in relays:
                        relay.refuse()
                        relay.black_hole()
                    cut_at = observer.clock.boottime()
                    read = 0
                    while observer.clock.boottime() < cut_at + TICK:
                        await reader.exists("/cut-off")
                        read += 1
                        await asyncio.sleep(0.02)
                    valid_until = holder.lease.valid_until
                    lost_at = await lost(holder)
                    gone = await asyncio.wait_for(gone_at, 30)

            assert read >= 5, "a follower that is cut off still answers reads"
            assert valid_until - session <= cut_at, "nothing it said afterwards renewed the lease"
            assert lost_at <= gone, "LOST comes before the session's end"
            assert gone >= valid_until
            for relay in relays:
                relay.heal()
                await relay.start()
            await holder.close()


async def lost(client: Client) -> float:
    await eventually(lambda: client.state is State.LOST, 20, "LOST")
    return client.clock.boottime()


async def test_a_rolling_restart_ends_no_session_and_no_lease(
    apache_ensemble: ApacheEnsemble,
) -> None:
    async with client_of(apache_ensemble.hosts, session_timeout=10.0, tick=TICK) as client:
        states: list[State] = []
        client.watch_state(states.append)
        await client.create("/rolled", ephemeral=True)
        with client.beat("/rolled"):
            for i in range(3):
                apache_ensemble.restart(i, wait=False)
                await asyncio.to_thread(apache_ensemble.wait_until_serving)
                await client.set("/rolled", str(i).encode())

        assert State.LOST not in states
        assert client.generation == 1
        assert client.clock.boottime() < client.lease.valid_until
