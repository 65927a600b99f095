"""The lease on a real ensemble: a follower that dies right after it has answered a beat.

It had told the leader of our session up to tick/2 ago (measured: DESIGN 4.2), so the session
ends earlier than the beat suggests. The ephemeral must not vanish before `valid_until`, which is
the moment from which we no longer believe in it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import pytest
from tests.apache import ApacheEnsemble
from tests.unit.client.scripted import client_of
from tests.waiting import eventually

from incumbent.client import Client
from incumbent.wire import EventType, WatchEvent

TICK = 0.5  # the ensemble's, in seconds
S = 3.0


@pytest.fixture(scope="module")
def phases() -> Iterator[float]:
    """Seconds of rest before the killing beats, so that they fall anywhere between two pings."""
    rng = random.Random(20)
    return iter(lambda: rng.uniform(0, TICK), None)


async def one_round(ensemble: ApacheEnsemble, path: str, rest: float, tick: float | None) -> float:
    """Seconds by which the ephemeral outlived `valid_until`, when its follower was killed at once
    after a beat's answer. Negative: it was believed in when it was gone."""
    follower = ensemble.followers()[0]
    leader = ensemble.servers[ensemble.leader()]
    victim = ensemble.servers[follower]
    async with client_of(leader.hosts, session_timeout=8.0, tick=TICK) as observer:
        holder = Client(victim.hosts, session_timeout=S, tick=tick, rng=random.Random(1))
        await holder.connect(10)
        await holder.create(path, ephemeral=True)
        clock = observer.clock
        gone_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def gone(event: WatchEvent) -> None:
            if event.type is EventType.DELETED and not gone_at.done():
                gone_at.set_result(clock.boottime())

        assert await observer.exists(path, watcher=gone)
        beats: list[float] = []
        valid_until = 0.0
        killed_at = 0.0

        def beaten(sent_at: float) -> None:
            nonlocal valid_until, killed_at
            beats.append(sent_at)
            if len(beats) >= 4 and not killed_at:
                os.kill(victim.pid, signal.SIGKILL)
                killed_at, valid_until = clock.boottime(), holder.lease.valid_until

        await asyncio.sleep(rest)
        holder.watch_beats(beaten)
        with holder.beat(path):
            await eventually(lambda: killed_at, 10, "the follower to be killed")
            spare = await asyncio.wait_for(gone_at, 30) - valid_until
            assert holder.lease.valid_until <= valid_until, "no proof can have come since"
        await holder.close()
        assert killed_at - beats[-1] < 0.1, "the machine was too busy for this to mean anything"
        return spare


@pytest.mark.parametrize("number", range(3))
async def test_an_ephemeral_never_vanishes_before_the_lease_has_ended(
    apache_ensemble: ApacheEnsemble, phases: Iterator[float], number: int
) -> None:
    spare = await one_round(apache_ensemble, f"/lease-{number}", next(phases), TICK)

    assert spare >= 0


@pytest.mark.soak
async def test_an_ephemeral_never_vanishes_before_the_lease_has_ended_in_many_rounds(
    apache_ensemble: ApacheEnsemble, phases: Iterator[float]
) -> None:
    for number in range(40):
        spare = await one_round(apache_ensemble, f"/soak-{number}", next(phases), TICK)
        assert spare >= 0
        apache_ensemble.heal()


@pytest.mark.soak
async def test_without_the_discount_an_ephemeral_does_vanish_too_early(
    apache_ensemble: ApacheEnsemble, phases: Iterator[float]
) -> None:
    """The test above can fail: a lease that takes each beat for a renewal is caught by it."""
    spares = []
    for number in range(40):
        spares.append(await one_round(apache_ensemble, f"/naive-{number}", next(phases), 0.0))
        apache_ensemble.heal()

    assert min(spares) < 0, f"never caught: {spares}"


async def test_a_rolling_restart_of_the_ensemble_ends_no_session(
    apache_ensemble: ApacheEnsemble,
) -> None:
    ensemble = apache_ensemble
    async with client_of(ensemble.hosts, session_timeout=10.0, tick=TICK) as client:
        await client.create("/rolling", ephemeral=True)
        with client.beat("/rolling"):
            for i in range(3):
                await asyncio.to_thread(ensemble.restart, i)
                await client.set("/rolling", str(i).encode())

        stat = await client.exists("/rolling")
        assert stat is not None
        assert stat.ephemeralOwner == client.session_id
        assert client.generation == 1
