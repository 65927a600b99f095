"""Stop, start and restart: obeyed by whoever leads, and no seat changes hands for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from tests.simulation.cluster import Cluster
from tests.simulation.configured import record

from incumbent.agent.commands import KEPT
from incumbent.agent.tree import Command, Taken, read, write
from incumbent.cli import lifecycle, orders, wishes
from incumbent.cli.exits import No
from incumbent.cli.selection import Choice
from incumbent.client import Client
from incumbent.guardian.messages import Start
from incumbent.server import Server
from incumbent.spec import Hook, Spec, health, program
from incumbent.spec.config import Use
from incumbent.testing.guardian import SimGuardian
from incumbent.testing.processes import Program
from incumbent.testing.world import Host
from incumbent.wire import Acl, Check, Create, Delete, Multi, Request


class Ordered(Cluster):
    """One seat on three nodes, and an operator."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seats = 1
        self.programs = self.programs[:1]
        self.in_order: list[tuple[int, str]] = []
        """The starts of this story; afterwards a node fails for good."""

    async def story(self) -> None:
        for name in ("zk", "n1", "n2", "n3"):
            self.boot(name)
        self.world.host("ops")
        await self.world.host("ops").call(self.apply(), "apply")
        await asyncio.sleep(10.0)
        await self.world.host("ops").call(self.operate(), "operate")
        self.in_order = self.starts()

    async def operate(self) -> None:
        ops = self.world.host("ops")
        self.client = Client(self.hosts, clock=ops.clock, rng=ops.rng, log=self.say)
        await self.client.connect(timeout=30.0)
        await self.orders()
        await self.client.close()

    async def orders(self) -> None:
        raise NotImplementedError

    async def order(self, name: str, do: str = "restart", signal: str = "") -> str:
        command = Command(do=do, signal=signal, by="ops")
        choice = Choice(component="c0", spec=None)
        return await lifecycle.order(self.client, self.tree, choice, command, order_id=name)

    async def restart(self, name: str) -> dict[str, str]:
        path = await self.order(name)
        return await lifecycle.until_outcome(self.client, self.tree, "c0", path)

    async def candidates(self) -> list[str]:
        return sorted(await self.client.children(self.tree.election("c0/0")))

    def starts(self) -> list[tuple[int, str]]:
        """(epoch, node), first to last."""
        events = [json.loads(line) for line in self.journal.lines]
        return [(e["epoch"], e["node"]) for e in events if e["event"] == "start"]

    def guardian(self, node: str) -> SimGuardian:
        guardian = self.nodes[node].guardian
        assert guardian is not None
        return guardian


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_restart_is_a_new_epoch_under_the_same_leadership(seed: int) -> None:
    class Restarted(Ordered):
        async def orders(self) -> None:
            self.before = await self.candidates()
            self.outcomes = [await self.restart(f"r{k}") for k in range(3)]
            self.after = await self.candidates()

    cluster = Restarted(seed)

    cluster.run()

    assert cluster.outcomes == [{"c0/0": f"done: epoch {n}"} for n in (2, 3, 4)]
    assert cluster.before == cluster.after, "an election was held"
    assert len({node for _, node in cluster.in_order}) == 1


def test_the_request_log_of_restarts_has_no_election() -> None:
    class Logged(Ordered):
        is_logging = False

        async def serve(self, host: Host) -> None:
            self.log: list[Request] = []
            server = Server(self.store, clock=host.clock, tick=0.5, rng=host.rng)
            server.on_request = self.heard
            await server.start("0.0.0.0", 2181)
            await server.wait()

        def heard(self, session: int, request: Request) -> None:
            if self.is_logging:
                self.log.append(request)

        async def orders(self) -> None:
            self.is_logging = True
            for k in range(5):
                await self.restart(f"r{k}")
            self.is_logging = False

    cluster = Logged(1)

    cluster.run()

    multis = [request.ops for request in cluster.log if isinstance(request, Multi)]
    single = [[request] for request in cluster.log if isinstance(request, Create | Delete)]
    written = [op.path for ops in (*multis, *single) for op in ops if not isinstance(op, Check)]
    assert sum("/running/" in path for path in written) >= 2 * 5, "each makes one and deletes one"
    assert not [path for path in written if "/election" in path]


def test_an_order_by_hand_is_one_word() -> None:
    class ByHand(Ordered):
        async def orders(self) -> None:
            path = f"{self.tree.commands('c0')}/now"
            await self.client.create(path, b"restart\n")
            self.outcome = await lifecycle.until_outcome(self.client, self.tree, "c0", path)

    cluster = ByHand(1)

    cluster.run()

    assert cluster.outcome == {"c0/0": "done: epoch 2"}


@pytest.mark.parametrize("data", [b"explode", b'{"v": 1, "do": "explode"}'])
def test_what_is_not_known_is_refused_with_what_is(data: bytes) -> None:
    class Unknown(Ordered):
        async def orders(self) -> None:
            path = f"{self.tree.commands('c0')}/now"
            await self.client.create(path, data)
            self.outcome = await lifecycle.until_outcome(self.client, self.tree, "c0", path)

    cluster = Unknown(1)

    cluster.run()

    assert cluster.outcome == {
        "c0/0": "refused: 'explode' is not known here; known: restart, signal NAME"
    }
    assert [epoch for epoch, _ in cluster.in_order] == [1]


def test_a_signal_reaches_what_runs_and_no_other() -> None:
    class Signalled(Ordered):
        async def orders(self) -> None:
            self.outcomes = []
            for k, name in enumerate(("HUP", "SIGUSR1", "NONSENSE")):
                path = await self.order(f"s{k}", "signal", name)
                outcome = await lifecycle.until_outcome(self.client, self.tree, "c0", path)
                self.outcomes.append(outcome["c0/0"])

    cluster = Signalled(1)

    cluster.run()

    assert cluster.outcomes == [
        "done: epoch 1",
        "done: epoch 1",
        "refused: there is no signal 'NONSENSE'",
    ]


def test_what_is_stopped_is_not_restarted() -> None:
    class Stopped(Ordered):
        async def orders(self) -> None:
            await wishes.want(self.client, self.tree, "c0", run=False)
            await asyncio.sleep(3.0)
            self.outcome = await self.restart("r")
            self.asleep = self.starts()
            await wishes.want(self.client, self.tree, "c0", run=True)
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Stopped(1)

    cluster.run()

    assert cluster.outcome == {"c0/0": "refused: an operator stopped it"}
    assert len(cluster.asleep) == 1
    assert [epoch for epoch, _ in cluster.in_order] == [1, 2]
    assert len({node for _, node in cluster.in_order}) == 1, "a stop gives no seat up"


def test_an_order_that_a_gone_leader_took_is_not_repeated() -> None:
    class Taken_(Ordered):
        async def orders(self) -> None:
            path = f"{self.tree.commands('c0')}/old"
            taken = Command(do="restart", seats={"0": Taken(epoch=0, session="of another")})
            await self.client.create(path, write(taken))
            self.outcome = await lifecycle.until_outcome(self.client, self.tree, "c0", path)

    cluster = Taken_(1)

    cluster.run()

    assert cluster.outcome["c0/0"].startswith("unknown: ")
    assert [epoch for epoch, _ in cluster.in_order] == [1]


def test_an_order_is_carried_out_though_the_agent_is_killed_meanwhile() -> None:
    class Killed(Ordered):
        async def orders(self) -> None:
            owner = self.starts()[-1][1]
            path = await self.order("r")
            while not read(Command, (await self.client.get(path))[0], path).seats:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            agent = self.guardian(owner).agent
            assert agent is not None
            agent.kill()
            self.outcome = await lifecycle.until_outcome(self.client, self.tree, "c0", path)

    cluster = Killed(1)

    cluster.run()

    epochs = [epoch for epoch, _ in cluster.in_order]
    assert epochs == [1, 2]
    assert cluster.outcome["c0/0"] in ("done: epoch 2",) or cluster.outcome["c0/0"].startswith(
        "unknown"
    )


def test_only_the_newest_orders_are_kept() -> None:
    class Many(Ordered):
        async def orders(self) -> None:
            for k in range(KEPT + 5):
                await self.restart(f"r{100 - k:03}")  # the newest has the smallest name
            await asyncio.sleep(1.0)
            self.kept = sorted(await self.client.children(self.tree.commands("c0")))

    cluster = Many(1)

    cluster.run()

    assert cluster.kept == sorted(f"r{100 - k:03}" for k in range(5, KEPT + 5))


NOBODYS = Acl(31, "digest", "somebody:else")


@pytest.mark.parametrize("acl", [[NOBODYS], [Acl(1, "world", "anyone"), NOBODYS]])
def test_an_order_that_may_not_be_read_or_answered_keeps_the_seat_from_nothing(
    acl: list[Acl],
) -> None:
    class Closed(Ordered):
        async def orders(self) -> None:
            path = f"{self.tree.commands('c0')}/closed"
            await self.client.create(path, b"restart", acl=acl)
            await asyncio.sleep(2.0)
            self.outcome = await self.restart("r")

    cluster = Closed(1)

    cluster.run()

    assert cluster.outcome == {"c0/0": "done: epoch 2"}
    assert [epoch for epoch, _ in cluster.in_order] == [1, 2], "nothing was done for the other"


def test_an_order_that_is_deleted_before_its_answer_is_not_called_done() -> None:
    class Deleted(Ordered):
        async def orders(self) -> None:
            with pytest.raises(No, match="what came of it is not known"):
                await lifecycle.until_outcome(self.client, self.tree, "c0", "/nowhere")

    Deleted(1).run()


CHANGED: dict[str, Any] = {
    "command": ("/bin/c0", "-v"),
    "env": {"LEVEL": "1"},
    "env_file": "/etc/c0.env",
    "cwd": "/srv",
    "stop_signal": 2,
    "stop_grace": 0.5,
    "requires": ("/etc/c0",),
    "nodes": ("n1", "n2"),
    "isolation": "sealed",
    "on_unclean": "go",
    "labels": {"tier": "web"},
    "user": "www-data",
    "umask": 0o27,
    "limits": {"nofile": 1000},
    "stop_http": "http://127.0.0.1:1/quit",
    "on_failure": "move",
    "max_failures": 3,
    "window": 60.0,
    "backoff": 2.0,
    "backoff_most": 30.0,
    "success_exit_codes": (3,),
    "ready": health.Check(way="notify", interval=1.0, timeout=1.0, within=4.0),
    "live": health.Check(way="notify", interval=2.0, timeout=1.0),
    "before_start": Hook(command=("/bin/before",)),
    "after_start": Hook(command=("/bin/after",)),
    "before_stop": Hook(command=("/bin/before",)),
    "after_stop": Hook(command=("/bin/after",)),
    "on_fail": Hook(command=("/bin/fail",)),
    "config": {"LEVEL": Use(key="level")},
    "on_config": "SIGHUP",
    "debounce": 1.0,
    "debounce_max": 2.0,
    "max_parallel": 2,
    "auto_revert": True,
    "copies": 2,
}
"""Every key of a spec but its name, with another value than it has by default."""


def test_whatever_key_is_changed_the_old_program_is_gone_before_the_new_one_starts() -> None:
    """The auditor looks for two at once; here it is whether there is a new one where it must be."""

    class Rewritten(Ordered):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.containment = "sealed"

        def behaves(self, start: Start) -> Program:
            if start.beside is not None:
                return Program(lives=0.1)
            return Program(ready_after=0.1, alive_every=0.4, children=1)

        async def orders(self) -> None:
            self.restarted: dict[str, int] = {}
            self.alive: set[int] = set()
            await self.client.create(self.tree.config_key("level"), record("1"))
            spec = self.spec("c0")
            for key, value in CHANGED.items():
                before = self.of_first_copy()
                spec = msgspec.structs.replace(spec, **{key: value})
                await orders.apply(self.client, self.tree, [spec])
                await asyncio.sleep(15.0)
                self.restarted[key] = self.of_first_copy() - before
                self.alive.add(len(self.instances()))

        def of_first_copy(self) -> int:
            events = [json.loads(line) for line in self.journal.lines]
            return sum(e["event"] == "start" and e["seat"] == "c0/0" for e in events)

        def instances(self) -> list[object]:
            trees = [tree for node in self.nodes.values() for tree in node.processes.trees.values()]
            return [each for each in trees if each.seat == "c0/0" and not each.is_empty]

    cluster = Rewritten(1)

    cluster.run()

    assert set(CHANGED) == set(Spec.__struct_fields__) - {"name"}
    plain = Spec(name="c0", command=("/bin/c0",))
    for key, value in CHANGED.items():
        if key != "nodes":  # it may stand on an allowed one
            other = msgspec.structs.replace(plain, **{key: value})
            assert cluster.restarted[key] == (program(other) != program(plain)), key
    assert cluster.alive == {1}
