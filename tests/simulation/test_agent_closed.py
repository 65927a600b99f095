"""A closed tree, and a stranger who tries all the time: the same promise, and he gets nothing.

Agents and operators show what they are by SASL; every znode that anybody of ours makes, at any
moment and through any fault, has its ACL from the first moment on.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.simulation.cluster import SESSION, Cluster

from incumbent.agent.tree import Access
from incumbent.cli import orders
from incumbent.cli.closing import close_tree
from incumbent.client import Client
from incumbent.credentials import Credentials
from incumbent.errors import IncumbentError, NoAuth, NoNode
from incumbent.server import Policy
from incumbent.server.sasl import secret_of
from incumbent.spec import Spec, encode
from incumbent.testing.world import Host
from incumbent.wire import Acl

FIRST = int(os.environ.get("FIRST", "1"))
SEEDS = int(os.environ.get("SEEDS", "200"))
USERS = {name: secret_of(name, "secret") for name in ("operators", "agents")}
ACCESS = Access(operators=["sasl:operators"], agents=["sasl:agents"])


class Closed(Cluster):
    """`tried`: what the stranger did, by the kind; `done`: what he was not refused; `changed`: how
    many ACLs were not as they should be in the end."""

    policy = Policy(sasl=USERS, schemes=("sasl",))
    credentials = Credentials(auth=(("sasl", b"agents:secret"),))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.tried: dict[str, int] = {}
        self.done: list[str] = []
        self.changed = -1
        self.is_closed = False

    async def operator(self) -> Client:
        ops = self.world.host("ops")
        auth = (("sasl", b"operators:secret"),)
        while True:
            client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say, auth=auth)
            await client.connect(timeout=30.0)
            try:
                await close_tree(client, self.tree, ACCESS)
                self.is_closed = True
                return client
            except IncumbentError as error:
                self.say(f"not closed yet: {error}")
                await client.close()

    async def story(self) -> None:
        stranger = self.world.host("stranger")
        stranger.run(self.attack(stranger), "stranger")
        await super().story()
        await self.world.host("ops").call(self.look(), "look")

    async def look(self) -> None:
        """At every ACL there is: all are as they should be."""
        ops = self.world.host("ops")
        auth = (("sasl", b"operators:secret"),)
        client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say, auth=auth)
        await client.connect(timeout=30.0)
        self.changed = (await close_tree(client, self.tree, ACCESS))[1]
        await client.close()

    async def attack(self, host: Host) -> None:
        while True:
            client = Client(self.hosts, clock=host.clock, rng=host.rng, log=self.say)
            try:
                await client.connect(timeout=5.0)
                while True:
                    await self.strike(client, host)
                    await asyncio.sleep(host.rng.uniform(0.01, SESSION / 10))
            except IncumbentError:
                await client.close()

    async def strike(self, client: Client, host: Host) -> None:
        seat, tree = "c0/0", self.tree
        what, work = host.rng.choice(
            [
                ("spec", lambda: client.set(tree.component("c0"), b"")),
                ("desired", lambda: client.set(tree.desired("c0"), b'{"v":1,"run":false}')),
                ("order", lambda: client.create(f"{tree.commands('c0')}/x", b"restart")),
                ("breadcrumb", lambda: client.delete(tree.breadcrumb(seat, 1))),
                ("epoch", lambda: client.set(tree.seat(seat), b"{}")),
                ("candidates", lambda: client.children(tree.election(seat))),
                ("node", lambda: client.set(tree.node("n1"), b"{}")),
                ("control", lambda: client.set(tree.control, b'{"v":1,"paused":true}')),
            ]
        )
        was_closed = self.is_closed  # what an agent made just before was open, like all there was
        try:
            await work()
            if was_closed:
                self.done.append(what)
        except NoAuth:
            self.tried[what] = self.tried.get(what, 0) + 1
        except NoNode:
            return  # that one is not there at this moment


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, SEEDS // 8)))
def test_a_closed_tree_keeps_the_promise_and_strangers_out(seed: int) -> None:
    cluster = Closed(seed)

    cluster.run()

    assert cluster.done == []
    assert cluster.changed == 0
    assert cluster.tried, "the stranger never got as far as being refused"


class Opened(Closed):
    """A tree that is closed only later, of which somebody opens a component again; agents that
    take no orders from what anybody may write."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = 1

    async def story(self) -> None:
        for name in ("zk", *self.nodes):
            self.boot(name)
        await self.world.host("ops").call(self.operate(), "operator")

    async def operate(self) -> None:
        ops = self.world.host("ops")
        client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say)
        await client.connect(timeout=30.0)
        await orders.apply(client, self.tree, [self.spec("c0")])
        await asyncio.sleep(10.0)
        assert await client.children(self.tree.nodes) == [], "an agent took part in an open tree"
        assert self.started() == 0, "it was started from an open tree"
        await client.close()
        client = await self.operator()  # it closes the tree
        await asyncio.sleep(10.0)
        assert self.started() == 1, "closed, and not started"
        path = self.tree.component("c0")
        acl, _stat = await client.get_acl(path)
        await client.set_acl(path, [Acl(31, "world", "anyone")])
        other = Spec(name="c0", command=("/bin/other",))
        await client.set(path, encode(other))
        await asyncio.sleep(10.0)
        assert self.started() == 1, "who may write it was believed"
        await client.set_acl(path, acl)
        await asyncio.sleep(10.0)
        assert self.started() == 2, "closed again, and not obeyed"
        await client.close()

    def started(self) -> int:
        return sum('"event": "start"' in line for line in self.journal.lines)


def test_nothing_is_taken_from_an_open_tree_nor_from_a_component_that_is_open() -> None:
    Opened(1).run()
