"""Where servers are, which is tried next and for how long."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.scripted import reached

from incumbent.client import Client, State
from incumbent.client.dialer import Dialer, backoff, patience
from incumbent.client.hosts import Host, parse_hosts
from incumbent.clock import SYSTEM
from incumbent.errors import ConnectTimeout, SpecError
from incumbent.server import MemoryStore, Server
from incumbent.testing.world import Host as Machine
from incumbent.testing.world import World


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [("a", 2181)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , a:1,b ", [("a", 1), ("b", 2181)]),
        ("[::1]:2182", [("::1", 2182)]),
        ("[fe80::1%eth0]", [("fe80::1%eth0", 2181)]),
        ("::1", [("::1", 2181)]),
    ],
)
def test_hosts_are_read(text: str, hosts: list[tuple[str, int]]) -> None:
    assert parse_hosts(text) == [Host(*host) for host in hosts]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a host has no name"),
        ("a,,b", "a host has no name"),
        (":2181", "a host has no name"),
        ("a:", "no port after its colon"),
        ("a:http", "'http' is no port"),
        ("a:0", "'0' is no port"),
        ("a:65536", "'65536' is no port"),
        ("a:٣", "is no port"),
        ("[::1", "is no [address]:port"),
        ("zk\udcff:1", "cannot be a host's name"),
        ("[::1]x", "is no [address]:port"),
        ("a:2181/chroot", "a chroot (/…) is not supported"),
    ],
)
def test_a_wrong_list_of_hosts_says_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=r"^hosts: ") as caught:
        parse_hosts(text)

    assert says in str(caught.value)


@given(st.text())
def test_any_text_is_hosts_or_a_spec_error(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except SpecError:
        return
    assert parse_hosts(",".join(map(str, hosts))) == hosts


@given(st.integers(0, 10**6), st.floats(0.01, 5.0), st.floats(0, 1, exclude_max=True))
def test_back_off_is_never_longer_than_its_cap_nor_zero(
    rounds: int, cap: float, draw: float
) -> None:
    assert 0 < backoff(rounds, cap, draw) <= cap


def test_each_client_goes_through_the_hosts_in_an_order_of_its_own() -> None:
    orders = {
        tuple(
            host.name
            for host in Dialer(
                parse_hosts("a:1,b:1,c:1"), SYSTEM, random.Random(seed), print
            )._hosts
        )
        for seed in range(50)
    }

    assert len(orders) == 6


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 9])
def test_a_first_round_through_all_hosts_takes_no_longer_than_silence(hosts: int) -> None:
    assert patience(hosts, 0, silence=2.0, session=10.0) * hosts == pytest.approx(2.0)
    assert patience(hosts, 50, silence=2.0, session=10.0) == pytest.approx(10.0 / 3)


def in_world(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    with World(7, limit=300) as world:
        world.run(story(world))


async def serve(machine: Machine) -> None:
    server = Server(MemoryStore(), clock=machine.clock, tick=0.5, rng=machine.rng)
    await server.start("0.0.0.0", 2181)
    await server.wait()


def client_on(machine: Machine, hosts: str, **settings: Any) -> Client:
    quiet = {"log": lambda line: machine.world.record("log", line=line)}
    return Client(hosts, clock=machine.clock, rng=machine.rng, **(quiet | settings))


def test_with_two_of_three_servers_black_holed_the_third_is_reached_within_the_session() -> None:
    async def story(world: World) -> None:
        states: list[State] = []
        one = world.host("one")
        servers = [world.host(name) for name in ("a", "b", "c")]
        servers[0].run(serve(servers[0]))
        took: list[float] = []

        async def live() -> None:
            # three names of which one answers: a re-attach must find it
            client = client_on(one, "b:2181,c:2181,a:2181", session_timeout=6.0, tick=0.0)
            client.watch_state(states.append)
            began = world.now
            await client.connect(10)
            took.append(world.now - began)
            await client.create("/me", ephemeral=True)
            with client.beat("/me"):
                for _ in range(20):
                    began = world.now
                    world.reset("one", "a")
                    await reached(client, State.SUSPENDED)
                    await reached(client, State.CONNECTED)
                    took.append(world.now - began)
                    await asyncio.sleep(one.rng.uniform(0, 2))
            await client.close()

        world.cut("one", "b")
        world.cut("one", "c")
        await one.call(live())
        assert State.LOST not in states
        assert max(took) < 6.0 * 0.4

    in_world(story)


def test_a_silent_loss_is_repaired_within_the_sum_of_the_numbers() -> None:
    async def story(world: World) -> None:
        one = world.host("one")
        hosts = [world.host(name) for name in ("a", "b")]
        store = MemoryStore()  # two doors to one house: b is reached through the same store

        async def door(machine: Machine) -> None:
            server = Server(store, clock=machine.clock, tick=0.5, rng=machine.rng)
            await server.start("0.0.0.0", 2181)
            await server.wait()

        first = hosts[0].run(door(hosts[0]))

        async def live() -> None:
            client = client_on(one, "a:2181,b:2181", session_timeout=10.0, tick=0.0)
            await client.connect(10)
            await client.create("/me", ephemeral=True)
            with client.beat("/me"):
                await asyncio.sleep(5)
                world.cut("one", "a")
                cut_at = world.now
                first.kill()
                hosts[1].run(door(hosts[1]))
                await reached(client, State.SUSPENDED)
                await reached(client, State.CONNECTED)
                numbers = client.numbers
                assert world.now - cut_at <= numbers.beat + numbers.silence + numbers.reconnect
                assert client.generation == 1
            await client.close()

        await one.call(live())

    in_world(story)


async def test_names_are_looked_up_at_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(MemoryStore(), tick=0.2)
    await server.start()
    loop = asyncio.get_running_loop()
    asked = 0

    async def stale_at_first(host: str, port: int, **_: Any) -> list[Any]:
        nonlocal asked
        asked += 1
        address = "127.0.0.2" if asked == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(loop, "getaddrinfo", stale_at_first)
    client = Client(f"zookeeper.example:{server.port}", session_timeout=2, rng=random.Random(3))
    server_elsewhere = f"127.0.0.2:{server.port}"
    await client.connect(3)

    assert asked == 2
    await client.close()
    await server.stop()

    client = Client(f"zookeeper.example:{server.port}", session_timeout=2)
    asked = 0
    with pytest.raises(ConnectTimeout) as caught:
        await client.connect(0.3)
    assert dict(caught.value.report)[server_elsewhere] == "connection refused"


async def test_a_name_that_does_not_resolve_is_in_the_report() -> None:
    client = Client("no-such-host.invalid:2181", session_timeout=1)

    with pytest.raises(ConnectTimeout) as caught:
        await client.connect(1.5)

    ((address, answer),) = caught.value.report
    assert address == "no-such-host.invalid:2181"
    assert answer.startswith("its name was not resolved")
