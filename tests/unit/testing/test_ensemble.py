"""The simulated ensemble has what bites in a real one, with the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from incumbent.client import Client, Passport, State
from incumbent.errors import ConnectTimeout, IncumbentError
from incumbent.testing import Ensemble, World
from incumbent.testing.faults import Fault

S, TICK = 4.0, 1.0


def play(seed: int, story: Callable[[World, Ensemble], Awaitable[None]]) -> World:
    """The story runs in a process on the host n1, beside an ensemble that has a leader."""
    with World(seed) as world:
        ensemble = Ensemble(world, tick=TICK)

        async def whole() -> None:
            ensemble.start()
            while ensemble.leader is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await asyncio.sleep(2 * TICK)
            await world.host("n1").call(_main(story, world, ensemble))

        world.run(whole())
    return world


async def _main(
    story: Callable[[World, Ensemble], Awaitable[None]], world: World, ensemble: Ensemble
) -> None:
    await story(world, ensemble)


@asynccontextmanager
async def client_on(
    world: World, hosts: str, *, timeout: float = S, resume: Passport | None = None
) -> AsyncIterator[Client]:
    host = world.host("n1")
    client = Client(
        hosts,
        session_timeout=timeout,
        tick=TICK,
        clock=host.clock,
        rng=host.rng,
        resume=resume,
        log=lambda line: world.record("log", line=line),
    )
    await client.connect(timeout=5.0)
    yield client


def at(name: str) -> str:
    return f"{name}:2181"


def follower(ensemble: Ensemble) -> str:
    return next(name for name in ensemble.names if name != ensemble.leader)


def ends(world: World, ensemble: Ensemble) -> dict[int, float]:
    """When each session ended, from now on."""
    over: dict[int, float] = {}
    ensemble.on_session_end = lambda session_id: over.setdefault(session_id, world.now) and None
    return over


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_session_can_end_sooner_than_its_timeout_after_an_acknowledged_beat() -> None:
    early = []

    async def story(world: World, ensemble: Ensemble) -> None:
        over, victim = ends(world, ensemble), follower(ensemble)
        async with client_on(world, at(victim)) as client:
            await client.create("/mine", ephemeral=True)
            await asyncio.sleep(1.0)
            sent_at = world.now
            await client.set("/mine", b"x")
            valid_until = client.clock.world_time(client.lease.valid_until)
            world.isolate("n1")
            ensemble.process(victim).kill()
            await until(lambda: over)
            (ended,) = over.values()
            assert ended >= valid_until
            early.append(ended < sent_at + S)

    for seed in range(20):
        play(seed, story)

    assert any(early)


def test_a_follower_that_lags_turns_away_who_has_seen_more() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        slow = follower(ensemble)
        ensemble.replicas[slow].lag = 3.0
        async with client_on(world, at(str(ensemble.leader))) as client:
            await client.create("/seen")
            passport = client.detach()
        with pytest.raises(ConnectTimeout):
            host = world.host("n1")
            hasty = Client(at(slow), clock=host.clock, rng=host.rng, resume=passport)
            await hasty.connect(timeout=1.0)
        async with client_on(world, at(slow), resume=passport) as patient:
            assert await patient.exists("/seen")

    play(1, story)


def test_a_session_that_moved_closes_its_former_connection_at_the_next_write() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        first, second = ensemble.names[:2]
        async with client_on(world, at(first)) as before:
            await before.create("/node")
            states: list[State] = []
            before.watch_state(states.append)
            async with client_on(world, at(second), resume=before.passport) as after:
                await after.set("/node", b"by the new one")
                assert await before.exists("/node"), "reads go on"
                assert not states
                with pytest.raises(IncumbentError):
                    await before.set("/node", b"by the old one")
                assert State.SUSPENDED in states

    play(2, story)


@pytest.mark.parametrize("is_leader_killed", [False, True])
def test_a_longer_timeout_granted_at_an_attach_is_forgotten_by_the_next_leader(
    is_leader_killed: bool,
) -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        over, name = ends(world, ensemble), follower(ensemble)
        async with client_on(world, at(name), timeout=2.0) as maker:
            passport = maker.detach()
        longer = Passport(
            session_id=passport.session_id,
            password=passport.password,
            timeout_ms=12_000,
            s_min_ms=passport.s_min_ms,
            last_zxid=passport.last_zxid,
        )
        async with client_on(world, at(name), resume=longer) as client:
            assert client.timeout == 2.0
            await client.exists("/")
            world.isolate("n1")
            gone_at = world.now
            if is_leader_killed:
                ensemble.process(str(ensemble.leader)).kill()
            await until(lambda: over)
            lived = over[passport.session_id] - gone_at
            assert (lived < 8) if is_leader_killed else (11 < lived < 14)

    play(3, story)


def test_a_leader_that_is_cut_off_answers_reads_for_a_while_and_writes_never() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        former = str(ensemble.leader)
        async with (
            client_on(world, at(former)) as writer,
            client_on(world, at(former)) as reader,
        ):
            ensemble.kinds["isolate server"](world, Fault(at=0.0, kind="", a=former))
            writing = asyncio.ensure_future(writer.create("/never"))
            await asyncio.sleep(TICK)
            assert await reader.exists("/never") is None
            assert ensemble.leader == former
            with pytest.raises(IncumbentError):
                await writing
            await until(lambda: ensemble.leader not in (former, None))
        others = ",".join(at(name) for name in ensemble.names if name != former)
        async with client_on(world, others) as client:
            assert await client.exists("/never") is None

    play(4, story)


def test_a_new_leader_starts_the_clocks_of_all_sessions_anew() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        over = ends(world, ensemble)
        async with client_on(world, ensemble.hosts) as client:
            await client.exists("/")
            gone_at = world.now
            world.isolate("n1")
            await asyncio.sleep(S - 1.0)
            ensemble.process(str(ensemble.leader)).kill()
            await until(lambda: over)
            assert world.now - gone_at > 2 * S - 1.0

    play(5, story)


def test_without_a_quorum_nobody_serves_and_what_was_written_comes_back() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        async with client_on(world, ensemble.hosts) as client:
            await client.create("/kept")
        for name in ensemble.names[:2]:
            world.host(name).crash()
        await asyncio.sleep(4 * TICK)
        assert ensemble.leader is None
        host = world.host("n1")
        with pytest.raises(ConnectTimeout):
            await Client(ensemble.hosts, clock=host.clock, rng=host.rng).connect(timeout=3.0)
        for name in ensemble.names[:2]:
            world.host(name).restart()
            ensemble.boot(name)
        async with client_on(world, ensemble.hosts) as client:
            assert await client.exists("/kept")

    play(6, story)


def test_a_server_whose_disk_is_full_ends_and_comes_back_with_what_all_have() -> None:
    async def story(world: World, ensemble: Ensemble) -> None:
        name = follower(ensemble)
        world.host(name).disk.is_full = True
        async with client_on(world, ensemble.hosts) as client:
            await client.create("/written")
            world.host(name).disk.heal()
            await asyncio.sleep(5.0)
            await client.set("/written", b"x")
            await asyncio.sleep(1.0)
        logs = [ensemble.replicas[each].log.transactions for each in ensemble.names]
        assert logs[0] == logs[1] == logs[2]
        trees = [ensemble.replicas[each].local.tree for each in ensemble.names]
        assert len({(tree.zxid, tuple(sorted(tree.nodes))) for tree in trees}) == 1

    play(7, story)
